"""Products of cuBLASLt, through ctypes: with a bias in each row, or the sums of a gradient's rows.

CuPy's own products take neither, so that each would be a kernel more, and CuPy refuses to record
them in a CUDA graph. What cuBLASLt has no algorithm for is left to the caller.

A matrix of rows is to cuBLASLt a matrix of columns, transposed: out' = b' a' is what it computes.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import DeviceError
from ...ir.kernel_args import Call

# Numbers of cublasLt.h, library_types.h and cublas_api.h.
_TYPES = {
    "float16": (2, 68, 0, c_float),
    "bfloat16": (14, 68, 0, c_float),
    "float32": (0, 68, 0, c_float),
    "float64": (1, 70, 1, c_double),
}
"""Data type; compute type, without rounding to TF32; and the type of factors, twice. Halves are
summed in float32."""
_TRANSPOSED = {"a": 3, "b": 4}
_EPILOGUE, _VECTOR = 7, 8
_PLAIN, _BIAS, _SUMS = 1, 4, 256
_BATCHES, _APART = 5, 6
_MOST_WORKSPACE = 1
_ALIGNMENT = {"a": 5, "b": 6, "c": 7, "d": 8}
WORKSPACE = 32 << 20
"""Bytes: what NVIDIA advises for Hopper; less than a hundredth of any GPU's memory."""


class _Algorithm(ctypes.Structure):
    _fields_ = (("data", c_uint64 * 8),)


class Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class _Layout(NamedTuple):
    """Matrices in memory: whether columns lie in one piece, elements from line to line, and from
    matrix to matrix."""

    transposed: bool
    line: int
    apart: int


def load(major: int) -> Any:
    """The library for a major version of CUDA; None where there is none."""
    name = f"cublasLt64_{major}.dll" if sys.platform == "win32" else f"libcublasLt.so.{major}"
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


@cache
def _handle(xp: Any, device: int) -> tuple[Any, Any] | None:
    """The library and its handle for a GPU; None where it is not there, or computes wrongly."""
    library, handle = load(xp.cuda.runtime.runtimeGetVersion() // 1000), ctypes.c_void_p()
    if library is None:
        why = "the library is not found"
    elif failed := library.cublasLtCreate(byref(handle)):
        why = f"it begins with the status {failed}"
    elif not _computes(xp, (library, handle)):
        why = "it lacks sums of rows, or its products differ from NumPy's"
    else:
        return library, handle
    warnings.warn(
        f"cuBLASLt is not used on GPU {device}: {why}; CuPy's products are slower, and keep nets"
        " from being CUDA graphs",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _computes(xp: Any, made: tuple[Any, Any]) -> bool:
    """Whether products, a bias and sums have the values of NumPy: nothing here was run on every
    release and GPU, so that each process looks once."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 5, (6, 8)), rng.integers(-4, 5, (8, 4))
    left, right = (xp.asarray(one, np.float32) for one in (a, b))
    out, vector = xp.zeros((6, 4), np.float32), xp.asarray(b[0], np.float32)
    sums = xp.zeros(4, np.float32)
    for given, wanted in (({}, a @ b), ({"bias": vector}, a @ b + b[0]), ({"sums": sums}, a @ b)):
        call = _Product.of(xp, made, left, right, out, **given)
        if call is None:
            return False
        call()
        if not np.array_equal(xp.asnumpy(out), wanted):
            return False
    return np.array_equal(xp.asnumpy(sums), b.sum(0))


_workspaces: dict[tuple[int, int], Any] = {}
"""By GPU and stream: products on one stream follow each other."""
_launched_on: dict[int, int] = {}
"""Streams that record now, each with the one that launches what it records."""


def launched_on(stream: int) -> int:
    """The stream that launches what is given to a stream: itself, unless it records."""
    return _launched_on.get(stream, stream)


@contextmanager
def recorded_for(recording: int, launching: int) -> Iterator[None]:
    """Products on a stream that records work in the memory of the one that launches them later:
    each graph would keep some of its own."""
    _launched_on[recording] = launched_on(launching)
    try:
        yield
    finally:
        del _launched_on[recording]


def product(
    xp: Any,
    a: Any,
    b: Any,
    out: Any,
    *,
    bias: Any = None,
    sums: Any = None,
    alpha: float = 1.0,
    adds: bool = False,
) -> Call | None:
    """A call for out = alpha a b, for matrices or stacks of them; None where cuBLASLt has none.

    Args:
        bias: added in each row. sums: where the sums of the rows of b go.
        adds: to what `out` holds.
    """
    made = _handle(xp, xp.cuda.runtime.getDevice())
    return None if made is None else _Product.of(xp, made, a, b, out, bias, sums, (alpha, adds))


def multiply(xp: Any, a: Any, b: Any, out: Any) -> Call:
    """As `product`, or by CuPy."""
    return product(xp, a, b, out) or partial(xp.matmul, a, b, out=out)


def takes(array: Any, lead: tuple[int, ...]) -> bool:
    """Whether products take matrices as they lie, broadcast along the axes `lead`."""
    return _layout(array, lead) is not None


class _Product:
    """A prepared product."""

    recordable = True

    def __init__(self, xp: Any, made: tuple[Any, Any], held: Sequence[Any], dtype: str) -> None:
        self._xp = xp
        self._library, self._handle = made
        self._held = held  # arrays whose addresses are in use
        self._type, compute, scale, self._factor = _TYPES[dtype]
        self._descriptors: list[tuple[Callable[[Any], Any], Any]] = []
        self._device = xp.cuda.runtime.getDevice()
        self._operation = self._make("MatmulDesc", c_int(compute), c_int(scale))

    @classmethod
    def of(
        cls,
        xp: Any,
        made: tuple[Any, Any],
        a: Any,
        b: Any,
        out: Any,
        bias: Any = None,
        sums: Any = None,
        factors: tuple[float, float] = (1.0, 0.0),
    ) -> Call | None:
        arrays = [one for one in (a, b, out, bias, sums) if one is not None]
        if out.dtype.name not in _TYPES or any(one.dtype != out.dtype for one in arrays):
            return None
        if any(not one.size for one in arrays):
            return None
        if any(one is not None and not one.flags.c_contiguous for one in (bias, sums)):
            return None
        layouts = [_layout(one, out.shape[:-2]) for one in (a, b, out)]
        left, right, result = layouts
        if left is None or right is None or result is None or result.transposed:
            return None
        call = cls(xp, made, arrays, out.dtype.name)
        fits = call._prepared(a, b, out, (left, right, result), bias, sums, factors)
        return call if fits else None

    def _make(self, kind: str, *args: Any) -> Any:
        made = ctypes.c_void_p()
        if getattr(self._library, f"cublasLt{kind}Create")(byref(made), *args):
            raise DeviceError(f"cuBLASLt makes no {kind}")
        self._descriptors.append((getattr(self._library, f"cublasLt{kind}Destroy"), made))
        return made

    def _set(self, kind: str, what: Any, attribute: int, value: Any) -> None:
        change = getattr(self._library, f"cublasLt{kind}SetAttribute")
        if change(what, c_int(attribute), byref(value), c_size_t(ctypes.sizeof(value))):
            raise DeviceError(f"cuBLASLt takes no attribute {attribute} of {kind}")

    def _matrix(self, rows: int, columns: int, layout: _Layout, stack: int) -> Any:
        """The layout of a matrix [rows, columns] of rows."""
        if layout.transposed:
            rows, columns = columns, rows
        sizes = c_uint64(columns), c_uint64(rows), c_int64(layout.line)
        made = self._make("MatrixLayout", c_int(self._type), *sizes)
        if stack > 1:
            self._set("MatrixLayout", made, _BATCHES, c_int32(stack))
            self._set("MatrixLayout", made, _APART, c_int64(layout.apart))
        return made

    def _prepared(
        self,
        a: Any,
        b: Any,
        out: Any,
        layouts: tuple[_Layout, _Layout, _Layout],
        bias: Any,
        sums: Any,
        factors: tuple[float, float],
    ) -> bool:
        stack = int(np.prod(out.shape[:-2]))
        (m, inner), n = a.shape[-2:], b.shape[-1]
        sizes = (inner, n, layouts[1]), (m, inner, layouts[0]), (m, n, layouts[2])
        parts = [self._matrix(*one, stack) for one in sizes]
        # The first factor of cuBLASLt is b.
        for name, layout in (("a", layouts[1]), ("b", layouts[0])):
            self._set("MatmulDesc", self._operation, _TRANSPOSED[name], c_int32(layout.transposed))
        epilogue = _PLAIN if bias is sums is None else _BIAS if sums is None else _SUMS
        self._set("MatmulDesc", self._operation, _EPILOGUE, c_uint32(epilogue))
        vector = sums if bias is None else bias
        if vector is not None:
            self._set("MatmulDesc", self._operation, _VECTOR, c_uint64(vector.data.ptr))
        preference = self._make("MatmulPreference")
        self._set("MatmulPreference", preference, _MOST_WORKSPACE, c_uint64(WORKSPACE))
        for name, one in zip("abcd", (b, a, out, out), strict=True):
            # The largest power of two that divides the address, up to 256.
            aligned = c_uint32(min(one.data.ptr & -one.data.ptr, 256))
            self._set("MatmulPreference", preference, _ALIGNMENT[name], aligned)
        found, count = Found(), c_int()
        layout_args = parts[0], parts[1], parts[2], parts[2]
        failed = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle,
            self._operation,
            *layout_args,
            preference,
            c_int(1),
            byref(found),
            byref(count),
        )
        if failed or not count.value or found.state:
            return False
        self._found = found
        one, other = map(self._factor, factors)
        pointers = [ctypes.c_void_p(array.data.ptr) for array in (b, a, out)]
        self._args = (
            *(self._handle, self._operation, byref(one)),
            *(pointers[0], parts[0], pointers[1], parts[1], byref(other)),
            *(pointers[2], parts[2], pointers[2], parts[2], byref(found.algorithm)),
        )
        return True

    def __call__(self) -> None:
        stream = self._xp.cuda.get_current_stream().ptr
        space, size = self._workspace(stream)
        failed = self._library.cublasLtMatmul(*self._args, space, size, ctypes.c_void_p(stream))
        if failed:
            raise DeviceError(f"cuBLASLt ends a product with the status {failed}")

    def _workspace(self, stream: int) -> tuple[Any, Any]:
        if not self._found.workspace:
            return None, c_size_t(0)
        key = self._device, launched_on(stream)
        space = _workspaces.get(key)
        if space is None:
            space = _workspaces[key] = self._xp.empty(WORKSPACE, np.uint8)
        return ctypes.c_void_p(space.data.ptr), c_size_t(WORKSPACE)

    def __del__(self) -> None:
        for destroy, what in self._descriptors:
            destroy(what)


def _layout(array: Any, lead: tuple[int, ...]) -> _Layout | None:
    """How matrices lie, which are broadcast along the axes `lead`; None: not as lines."""
    item = array.itemsize
    if any(step % item for step in array.strides):
        return None
    steps = [step // item for step in array.strides]
    rows, columns = array.shape[-2:]
    down, across = steps[-2:]
    if columns == 1 or across == 1:
        transposed, line = False, down if rows > 1 else columns
    elif rows == 1 or down == 1:
        transposed, line = True, across
    else:
        return None
    apart = _step(array.shape[:-2], steps[:-2], lead)
    if apart is None or apart < 0 or line < (rows if transposed else columns):
        return None
    return _Layout(transposed, line, apart)


def _step(shape: Sequence[int], steps: Sequence[int], lead: Sequence[int]) -> int | None:
    """The elements from matrix to matrix of a stack as long as `lead`; None: these differ."""
    missing = len(lead) - len(shape)
    whole = [0] * missing + [
        step if size > 1 else 0 for size, step in zip(shape, steps, strict=True)
    ]
    kept = [(size, step) for size, step in zip(lead, whole, strict=True) if size > 1]
    for (_, outer), (size, step) in zip(kept, kept[1:], strict=False):
        if outer != size * step:
            return None
    return kept[-1][1] if kept else 0
