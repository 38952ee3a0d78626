"""Which native code there is, and which of it the shared nets run: none may be forgotten.

    python -m campaign.threads.families

Every function that a C file exports must be fetched by one of the works of
`sharing.py`, and every kernel that is not the reference must serve in one. The loops of elementwise
operators are taken from the registry there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from opscope import options, set_threads
from opscope.framework.base.cpu.cores import is_intel
from opscope.framework.fusion.compiled.libraries import Library
from opscope.framework.ir.kernel_args import KernelArgs
from opscope.framework.ir.registry import (
    REFERENCE,
    Kernel,
    load_operators,
    lookup,
    operator_types,
)
from opscope.native import units
from opscope.operators.backends.bfloat16 import bf16, bf16_gemm
from opscope.operators.backends.products import mkl
from opscope.operators.direct import tile_convolutions

from . import sharing

_EXPORTED = re.compile(r"^EXPORT\((\w+)\)\(", re.MULTILINE)
_RICH = (
    "convolutions",
    "convolution gradient",
    "TDNN-F gradient",
    "spliced gradient",
    "pictures",
    "pictures, double",
    "sizes of pictures",
    "one row",
    "one row, double",
    "few products",
    "folded norms",
    "folded norms, double",
    "blended norms",
    "blended norms, double",
    "rows and heads",
    "rows and heads, double",
    "cached",
    "cached, double",
    "filled",
    "sums of columns",
    "groups",
    "groups, double",
    "wide lstm",
    "lstm loop",
    "simple loop",
    "both ways",
    "optimizers",
    "copies",
    "random integers",
    "labels",
    "boxes",
    "integer products",
    "search",
    "ivectors",
    "wide training",
    "wide training, double",
    "convolutions, double",
    "convolution prediction",
    "residual prediction",
    "transducers",
    "CNTK training",
    "CNTK training, double",
)
"""Works that hold all of it: the first to be looked at; no more are than it takes."""
_FROM_C = {"opscope_region", "opscope_blas_threads", "opscope_tiles"}
"""Functions that no operator fetches: compiled code, the count of BLAS's threads and, once in a
process, the choice of a kind of processor call them."""


def exported(*files: str) -> set[str]:
    """The functions that some files of `native/` export, or all; one for each kind of numbers."""
    found = set()
    for file in files or units.KINDS:
        kinds = units.KINDS[file]
        for name in _EXPORTED.findall(units.text(file)):
            found.update(f"{name}_{kind}" if kind else name for kind in kinds)
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
            # Without the processor, which ends the names of native functions.
            self.functions.add(name + library.ending.rpartition("_")[0])
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
    if mkl.library() is None or not is_intel():
        functions -= exported("mkl_rows")
    if bf16.missing() or not bf16_gemm.is_faster():
        absent.add("bf16")
        functions -= exported("bf16_gemm")
    elif bf16_gemm.library() is None:
        # AMX's alone are products of three terms.
        functions -= {name for name in exported("bf16_gemm") if name.endswith("_3")}
    else:
        functions -= {name for name in exported("mkl_rows") if name.endswith("_float")}
    if tile_convolutions.library() is None:
        functions -= exported("tile_convolution")
    functions -= _FROM_C
    asked = {key for key in recorder.asked if key[1] not in absent}
    assert functions and asked, "there is native code"
    for name in sorted(sharing.WORKS, key=lambda name: name not in _RICH):
        if functions <= recorder.functions and asked <= recorder.kernels:
            break
        work = sharing.WORKS[name]()
        for libraries in sharing.LIBRARIES:
            with options(libraries=libraries):
                work()
    return [
        *sorted(functions - recorder.functions),
        *(f"{op_type} by {library}" for op_type, library in sorted(asked - recorder.kernels)),
    ]


if __name__ == "__main__":
    left = missing()
    print("\n".join(left) or "all native code is shared")
    sys.exit(bool(left))
