"""Fills of unrolled loops: only what is read before it is written; the results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import nnet3
from opscope.framework.runtime import binding
from opscope.framework.runtime.plans import narrow_fills

CONFIG = """
input name=input dim=6
fast-lstmp-layer name=lstm1 cell-dim=16 recurrent-projection-dim=4 {rest}
output-layer name=output dim=5
""".format(rest="non-recurrent-projection-dim=4 delay=-3")


def outputs(nnet: Any) -> list[np.ndarray]:
    request = nnet3.simple_request(nnet, 12, 2, left_context=9, derivatives=True)
    computer = nnet3.NnetComputer(nnet3.compile_request(nnet, request), nnet)
    rng = np.random.default_rng(0)
    rows = len(request.inputs[0].indexes)
    given = rng.normal(size=(rows, 6)).astype("f4")
    found = []
    for _ in range(2):  # the second run finds what the first has left
        computer.accept_input("input", given)
        computer.run()
        found.append(np.array(computer.get_output("output")))
        computer.accept_input("output", np.ones_like(found[-1]))
        computer.run()
        found.append(np.array(computer.get_output("input")))
    return found


def test_fewer_rows_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    nnet = nnet3.Nnet.from_config_text(nnet3.xconfig_to_config(CONFIG), 0)
    parts: list[Any] = []

    find = narrow_fills._read_first
    monkeypatch.setattr(narrow_fills, "_read_first", lambda *g: parts.append(find(*g)) or parts[-1])
    narrow = outputs(nnet)
    assert any(one is not None for one in parts)
    monkeypatch.setattr(binding, "narrow_fill", lambda *given: None)
    for one, other in zip(narrow, outputs(nnet), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    monkeypatch.setenv("OPSCOPE_FUSE", "0")
    monkeypatch.setenv("OPSCOPE_AMX", "0")
    for one, other in zip(narrow, outputs(nnet), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
