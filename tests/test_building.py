"""Building the native library: what a compiler does not take is left out, and told at the end."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest

from opscope.native import building


class Picky:
    """A compiler that takes all units but one; what it writes is empty."""

    command = ("cc",)
    machine, version = "x86_64", "1"

    def __init__(self, folder: Path) -> None:
        self.objects = folder / "objects"

    def run(self, *arguments: str) -> str:
        if "-DUNIT=boxes" in arguments:
            raise subprocess.CalledProcessError(1, "cc", stderr="boxes.c:1: error: no such thing")
        Path(arguments[arguments.index("-o") + 1]).write_bytes(b"")
        return ""


def test_a_library_is_there_where_warnings_are_errors(tmp_path: Path) -> None:
    compiler: Any = Picky(tmp_path)
    target = tmp_path / "library.so"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            UserWarning, match=r"lacks what did not compile:\n  unit_boxes.*: no|error"
        ):
            building.build(compiler, target)
    assert target.exists()
