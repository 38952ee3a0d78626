"""Nets in a Python for WebAssembly: their outputs are those of this Python."""

from __future__ import annotations

import pytest

from processors import outputs, wasm
from processors.machine import Lacking


@pytest.mark.slow
def test_nets_compute_the_same_in_webassembly() -> None:
    try:
        machine = wasm.prepared(native=False)
    except Lacking as error:
        pytest.skip(f"there is no Pyodide: it wants {error}")
    assert outputs.expected()
    assert outputs.wrong(machine) == []
