"""cuBLASLt for the stand-in of CuPy: what its functions are given is checked, NumPy computes.

Pointers lead to the memory of NumPy arrays. Numbers stand in NVIDIA's headers.
"""

from __future__ import annotations

import ctypes
from itertools import count
from typing import Any

import numpy as np

from ..framework.base.dtypes import DOUBLE, HALVES, SINGLE
from .device_graphs import launches, recorded

_OK, _NOT_SUPPORTED, _INVALID = 0, 15, 7
_TYPES = {0: SINGLE, 1: DOUBLE, **dict(zip((2, 14), HALVES, strict=False))}
_SIZES = {
    "MatmulDesc": {3: 4, 4: 4, 7: 4, 8: 8},
    "MatrixLayout": {5: 4, 6: 8},
    "MatmulPreference": {1: 8, 5: 4, 6: 4, 7: 4, 8: 4},
}
"""Attributes, and the bytes of each."""
_HANDLE = 1 << (8 * ctypes.sizeof(ctypes.c_void_p) - 24)
"""An address that no library has here, in WebAssembly neither, whose pointers have 32 bits."""
_made: dict[int, dict[Any, Any]] = {}
_numbers = count(1)


def _create(kind: str, target: Any, *values: Any) -> int:
    number = next(_numbers)
    _made[number] = {"kind": kind, "values": [value.value for value in values]}
    target._obj.value = number
    return _OK


def _set(kind: str, what: Any, attribute: Any, value: Any, size: Any) -> int:
    wanted = _SIZES[kind].get(attribute.value)
    if wanted is None or wanted != size.value or ctypes.sizeof(value._obj) != wanted:
        return _INVALID
    _made[what.value][attribute.value] = value._obj.value
    return _OK


def _destroy(what: Any) -> int:
    del _made[what.value]
    return _OK


class Library:
    """The functions that framework/fusion/cuda/cublas.py calls."""

    def __init__(self) -> None:
        for kind in _SIZES:
            for name, function in (("Create", _create), ("SetAttribute", _set)):
                call = self._with(function, kind)
                setattr(self, f"cublasLt{kind}{name}", call)
            setattr(self, f"cublasLt{kind}Destroy", _destroy)

    @staticmethod
    def _with(function: Any, kind: str) -> Any:
        return lambda *args: function(kind, *args)

    def cublasLtCreate(self, handle: Any) -> int:  # noqa: N802
        handle._obj.value = _HANDLE
        return _OK

    def cublasLtMatmulAlgoGetHeuristic(  # noqa: N802
        self, handle: Any, operation: Any, *rest: Any
    ) -> int:
        layouts, (preference, most, found, number) = rest[:4], rest[4:]
        plan = _made[operation.value]
        assert handle.value == _HANDLE and most.value == 1
        assert _made[preference.value][1] >= 0, "the workspace it may take"
        number._obj.value = 0
        double = plan["values"] == [70, 1]
        assert double or plan["values"] == [68, 0], plan
        if double and plan[7] != 1:  # only float32 and halves have epilogues
            return _NOT_SUPPORTED
        _shapes(plan, [_made[layout.value] for layout in layouts])
        number._obj.value, found._obj.state, found._obj.workspace = 1, _OK, 1 << 10
        return _OK

    @recorded
    def cublasLtMatmul(  # noqa: N802
        self,
        handle: Any,
        operation: Any,
        alpha: Any,
        a: Any,
        a_layout: Any,
        b: Any,
        b_layout: Any,
        beta: Any,
        c: Any,
        c_layout: Any,
        d: Any,
        d_layout: Any,
        algorithm: Any,
        workspace: Any,
        size: Any,
        stream: Any,
    ) -> int:
        assert workspace.value and size.value >= 1 << 10, "what the algorithm asks for"
        plan, made = (
            _made[operation.value],
            [_made[one.value] for one in (a_layout, b_layout, c_layout, d_layout)],
        )
        stack = _shapes(plan, made)
        assert c.value == d.value and made[2] is made[3]
        launches.append("cublasLtMatmul")
        left, right, out = (
            _matrices(pointer, layout, stack)
            for pointer, layout in zip((a, b, d), made[:2] + made[3:], strict=True)
        )
        left = left.swapaxes(1, 2) if plan[3] else left
        right = right.swapaxes(1, 2) if plan[4] else right
        if out.dtype in HALVES:
            left, right = left.astype(SINGLE), right.astype(SINGLE)
        found = alpha._obj.value * np.matmul(left, right)
        if beta._obj.value:
            found = found + beta._obj.value * out
        if plan[7] == 4:
            found = found + _vector(plan[8], left.shape[1], out.dtype)[None, :, None]
        if plan[7] == 256:
            _vector(plan[8], left.shape[1], out.dtype)[...] = left[0].sum(1, dtype=found.dtype)
        out[...] = found
        return _OK


def _shapes(plan: dict[Any, Any], layouts: list[dict[Any, Any]]) -> int:
    """Checks that sizes fit each other; how many matrices there are."""
    sizes = []
    for layout in layouts:
        dtype, rows, columns, line = layout["values"]
        assert dtype in _TYPES and rows > 0 and columns > 0 and line >= rows, layout
        sizes.append((rows, columns))
    (m, k), (inner, n) = (
        size[::-1] if plan[attribute] else size
        for size, attribute in zip(sizes[:2], (3, 4), strict=True)
    )
    assert k == inner and sizes[2] == sizes[3] == (m, n), sizes
    stacks = {layout.get(5, 1) for layout in layouts}
    assert len(stacks) == 1, stacks
    assert stacks == {1} or plan[7] == 1, "an epilogue of a stack"
    return stacks.pop()


def _matrices(pointer: Any, layout: dict[Any, Any], stack: int) -> np.ndarray:
    dtype, rows, columns, line = layout["values"]
    item = _TYPES[dtype].itemsize
    apart = layout.get(6, 0)
    length = (stack - 1) * apart + (columns - 1) * line + rows
    flat = _vector(pointer.value, length, _TYPES[dtype])
    strides = apart * item, item, line * item
    return np.lib.stride_tricks.as_strided(flat, (stack, rows, columns), strides)


def _vector(address: int, length: int, dtype: np.dtype) -> np.ndarray:
    memory = (ctypes.c_char * (length * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory), dtype)
