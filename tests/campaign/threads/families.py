"""Which native code there is, and which of it the shared nets run: none may be forgotten.

    python -m campaign.families

Every function that C text of the package exports must be fetched by one of the works of
`sharing.py`, and every kernel that is not the reference must serve in one. The loops of elementwise
operators are taken from the registry there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from opscope import set_threads
from opscope.framework.fusion.compiler import Library
from opscope.framework.ir.kernel_args import KernelArgs
from opscope.framework.ir.registry import (
    REFERENCE,
    Kernel,
    load_operators,
    lookup,
    operator_types,
)
from opscope.operators.backends import amx_gemm, bf16, mkl

from . import sharing

_EXPORTED = re.compile(r"^\s*EXPORT void (\w+)\(", re.MULTILINE)
_TYPES = "float", "double"
_RICH = (
    "convolutions",
    "convolution gradient",
    "TDNN-F gradient",
    "spliced gradient",
    "pictures",
    "pictures, double",
    "one row",
    "one row, double",
    "few products",
    "folded norms",
    "folded norms, double",
    "blended norms",
    "blended norms, double",
    "rows and heads",
    "rows and heads, double",
    "filled",
    "sums of columns",
    "wide lstm",
    "lstm loop",
    "simple loop",
    "optimizers",
    "copies",
    "random integers",
)
"""Works that hold most of it: the first to be looked at; no more are than it takes."""


def exported() -> set[str]:
    """The functions that C texts of the package export; one for each type where that is `_T`."""
    root = Path(sharing.__file__).resolve().parents[3]
    folders = ("framework", "operators", "nnet3", "cntk", "python_api")
    found = set()
    for path in (path for folder in folders for path in (root / folder).rglob("*.py")):
        for name in _EXPORTED.findall(path.read_text(encoding="utf-8")):
            typed = name.endswith("_T")
            found.update([name[:-1] + one for one in _TYPES] if typed else [name])
    return found


class Recorder:
    """Notes which functions are fetched and which kernels serve, from now on.

    Attributes:
        functions: names. kernels: (operator, library); asked: those that there are.
    """

    def __init__(self) -> None:
        self.functions: set[str] = set()
        self.kernels: set[tuple[str, str]] = set()
        self.asked: set[tuple[str, str]] = set()
        load_operators()
        for op_type in operator_types():
            entry = lookup(op_type)
            entry._fitting.clear()
            for number, kernel in enumerate(entry.kernels):
                if kernel.library != REFERENCE and kernel.device != "gpu":
                    noted = self._noting((op_type, kernel.library), kernel.bind)
                    entry.kernels[number] = replace(kernel, bind=noted)
        fetch = Library.function

        def function(library: Library, name: str) -> Any:
            self.functions.add(name)
            return fetch(library, name)

        mock.patch.object(Library, "function", function).start()

    def _noting(self, key: tuple[str, str], bind: Kernel) -> Kernel:
        self.asked.add(key)

        def noted(k: KernelArgs) -> Callable[[], Any] | None:
            call = bind(k)
            if call is not None:
                self.kernels.add(key)
            return call

        return noted


def missing() -> list[str]:
    """The native code that no work runs."""
    set_threads(2)  # some functions are for several: not fewer because the machine is busy
    recorder, functions = Recorder(), exported()
    absent = {"mkl"} if mkl.library() is None else set()
    if bf16.missing():
        absent.add("bf16")
    if bf16.missing() or amx_gemm.library() is not None:
        functions.discard("opscope_bf16")  # these products are by AMX
    if amx_gemm.library() is None:
        functions = {name for name in functions if not name.endswith("_amx")}
    asked = {key for key in recorder.asked if key[1] not in absent}
    assert functions and asked, "there is native code"
    for name in sorted(sharing.WORKS, key=lambda name: name not in _RICH):
        if functions <= recorder.functions and asked <= recorder.kernels:
            break
        work = sharing.WORKS[name]()
        for libraries in sharing.LIBRARIES:
            with mock.patch.dict(os.environ, {"OPSCOPE_LIBRARIES": libraries}):
                work()
    return [
        *sorted(functions - recorder.functions),
        *(f"{op_type} by {library}" for op_type, library in sorted(asked - recorder.kernels)),
    ]


if __name__ == "__main__":
    left = missing()
    print("\n".join(left) or "all native code is shared")
    sys.exit(bool(left))
