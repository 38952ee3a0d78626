"""A stand-in for CuPy that needs no GPU: it checks discipline, not numbers on a GPU.

`DOUBLE` is a place of kind "gpu" whose arrays wrap NumPy memory and refuse what CuPy's arrays
refuse, so that tests which run there find code that could not run on CuPy:

- functions, methods, ufunc methods and their arguments are those that CuPy has, no others
  (`SIGNATURES`, `METHODS`, `UFUNCS`; test_device_double.py compares them with an installed CuPy);
- an implicit conversion to NumPy raises, as does a NumPy array among the operands; Python and NumPy
  scalars are operands, and 0-d results stay arrays of the device;
- `get`, `item`, `tolist`, `asnumpy`, `int`, `float` and `bool` are the ways back to the host;
  `asarray`, `array` and `set` the ways there. `crossings` records each of them;
- `launches` records the calls that start kernels: CuPy may start several for one, never none;
- memory starts as garbage (NaN, or -1);
- a stream that records a graph computes nothing, and refuses what CUDA refuses (device_graphs.py);
- arrays of a GPU other than the current one are no operands (`DOUBLE` is GPU 1, the default GPU 0);
- memory that overlaps where a CuPy kernel would race, and repeated indices in an assignment, raise.

It is stricter than CuPy in one thing: NumPy arrays as indices, which CuPy copies to the device at
each use, are refused. Kernels in CUDA it compiles as C (device_raw.py). What it cannot show:
numbers and rounding of a GPU, the order of atomic additions, streams, memory, and speed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..framework.base import backend, scope
from ..framework.base.backend import Place
from ..framework.fusion.cuda import cublas
from .device_array import (
    Ufunc,
    crossings,
    current,
    launches,
    like,
    memory_copy,
    memory_of,
    ndarray,
    no_race,
    operand,
    to_device,
    to_numpy,
)
from .device_blas import Library
from .device_graphs import (
    MemoryPool,
    Stream,
    alloc_pinned_memory,
    get_current_stream,
    recorded,
    tape,
    using_allocator,
)
from .device_kernels import make_kernel
from .device_names import METHODS, SIGNATURES, UFUNCS
from .device_raw import RawKernel

__all__ = [
    "DOUBLE",
    "METHODS",
    "SIGNATURES",
    "UFUNCS",
    "UPLOADS",
    "by_default",
    "crossings",
    "instead_of_cupy",
    "launches",
    "ndarray",
    "older",
    "xp",
]


UPLOADS = ("asarray", "set")
"""The crossings that lead to the device: nothing waits for what is there."""


_old: list[bool] = []


@contextlib.contextmanager
def older() -> Iterator[None]:
    """Within it the double is as CuPy 13, which has no bfloat16."""
    _old.append(True)
    backend.require_dtype.cache_clear()
    try:
        yield
    finally:
        _old.pop()
        backend.require_dtype.cache_clear()


def _garbage(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    if np.dtype(dtype).kind == "V" and (_old or np.dtype(dtype).name != "bfloat16"):
        raise TypeError(f"Unsupported dtype {np.dtype(dtype)}")
    array = np.empty(shape, dtype, "F" if order == "F" else "C")
    flat = array.reshape(-1, order="A")
    if array.size and array.dtype.kind != "b":
        flat.view(np.uint8).fill(255)
    return array


def _array(obj: Any, dtype: Any = None, copy: Any = True, order: Any = "K") -> ndarray:
    if type(obj) is ndarray:  # perhaps of another device
        launches.append("array")
        return ndarray(np.array(obj.memory, dtype, copy=copy or None, order=order))
    if isinstance(obj, (list, tuple)) and any(type(item) is ndarray for item in obj):
        launches.append("array")
        return ndarray(np.array([to_numpy(item) for item in obj], dtype))
    crossings.append("asarray")
    return ndarray(np.array(obj, dtype, order=order))


def _asarray(a: Any, dtype: Any = None, order: Any = None) -> ndarray:
    if type(a) is ndarray:
        found = np.asarray(a.memory, dtype, order=order)
        here = a.device == current.gpus[-1]
        if found is not a.memory or not here:
            launches.append("asarray")
        return a if found is a.memory and here else ndarray(found if here else found.copy())
    return _array(a, dtype, order=order or "K")


def _asnumpy(a: Any, stream: Any = None, order: str = "C") -> np.ndarray:
    return a.get() if type(a) is ndarray else np.asarray(a)


def _refuse_to_record() -> None:
    if tape.records:
        message = "calling cuBLAS API during stream capture is currently unsupported"
        raise NotImplementedError(message)


def _matmul(*args: Any, out: Any = None) -> Any:
    a, b = map(to_numpy, args)
    into = None if out is None else memory_of(out)
    if not (type(args[0]) is type(args[1]) is ndarray):
        raise TypeError("matmul: an operand is no array of the device")
    _refuse_to_record()
    launches.append("matmul")
    if into is not None and not into.flags.c_contiguous:
        into[...] = np.matmul(a, b)
        return out
    found = np.matmul(a, b, out=into)
    return out if out is not None else to_device(found)


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    _refuse_to_record()
    launches.append("dot")
    if out is not None:
        if np.result_type(a.dtype, b.dtype) != out.dtype:
            raise ValueError("Not supported dtype combination.")
        if not out.flags.c_contiguous:
            raise ValueError("Output array must be C-contiguous")
        memory_of(out)[...] = np.dot(memory_of(a), memory_of(b))
        return out
    return to_device(np.dot(memory_of(a), memory_of(b)))


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = None) -> None:
    if isinstance(src, np.ndarray) and src.size != 1:
        raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
    if type(dst) is not ndarray:
        raise TypeError(f"copyto: {type(dst)} is no array of the device")
    launches.append("copyto")
    # The one function that takes arrays of different devices.
    given = src.memory if type(src) is ndarray else src
    if where is None:
        memory_copy(dst.memory, given)
    mask = {} if where is None else {"where": operand("copyto", where)}
    with np.errstate(all="ignore"):
        np.copyto(dst.memory, given, casting=casting, **mask)


def _searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    if not type(a) is type(v) is ndarray:
        raise NotImplementedError("searchsorted takes arrays of the device only")
    launches.append("searchsorted")
    return to_device(np.searchsorted(memory_of(a), memory_of(v), side))


def _einsum(*operands: Any, **kwargs: Any) -> Any:
    if kwargs.keys() - {"dtype", "optimize"}:
        raise TypeError(f"einsum: unexpected keyword arguments {sorted(kwargs)}")
    launches.append("einsum")
    return to_device(np.einsum(*map(to_numpy, operands), **kwargs))


def _where(condition: Any, x: Any, y: Any) -> Any:
    launches.append("where")
    return to_device(np.where(memory_of(condition), operand("where", x), operand("where", y)))


class _Philox:
    def __init__(self, seed: Any = None) -> None:
        self.seed = seed


class Generator:
    """CuPy's random generator, as far as it goes."""

    def __init__(self, bit_generator: _Philox) -> None:
        self._own = np.random.default_rng(bit_generator.seed)

    def _fill(self, draw: Any, size: Any, dtype: Any, out: Any) -> ndarray:
        launches.append("random")
        dtype = np.dtype(dtype)
        if dtype.char not in "fd":
            raise TypeError(f"Unsupported dtype {dtype.name}")
        if out is None:
            return ndarray(np.asarray(draw(() if size is None else size, dtype)))
        if out.dtype != dtype:
            raise TypeError(f"Supplied output array has the wrong type {out.dtype}: want {dtype}")
        if not out.memory.flags.forc:
            raise ValueError("Supplied output array is not contiguous, writable or aligned.")
        out.memory[...] = draw(out.shape, dtype)
        return out

    def random(self, size: Any = None, dtype: Any = float, out: Any = None) -> ndarray:
        drawn = self._fill(self._own.random, size, dtype, None if size is None else out)
        if out is not None and size is None:  # CuPy draws one number, and copies it everywhere
            out[...] = drawn
        return drawn if out is None else out

    def standard_normal(self, size: Any = None, dtype: Any = float, out: Any = None) -> ndarray:
        return self._fill(self._own.standard_normal, size, dtype, out)

    def uniform(
        self, low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = float
    ) -> ndarray:
        launches.append("uniform")
        drawn = self._own.uniform(operand("uniform", low), operand("uniform", high), size)
        return ndarray(np.asarray(drawn, dtype))

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> ndarray:
        launches.append("integers")
        return ndarray(np.asarray(self._own.integers(low, high, size, dtype, endpoint)))


class _Device:
    """Makes a GPU current in a `with` block."""

    def __init__(self, index: int = 0) -> None:
        self._index = index

    def __enter__(self) -> None:
        current.gpus.append(self._index)

    def __exit__(self, *error: Any) -> None:
        current.gpus.pop()


_pool = MemoryPool(lambda: current.gpus[-1])


class _Module:
    """What stands for the module `cupy`; whatever is not here raises AttributeError."""

    ndarray = ndarray
    RawKernel = RawKernel
    ElementwiseKernel = staticmethod(
        functools.partial(make_kernel, operand, no_race, launches.append)
    )
    get_default_memory_pool = staticmethod(lambda: _pool)
    inf = np.inf
    nan = np.nan
    pi = np.pi
    e = np.e
    newaxis = None
    array, asarray = staticmethod(_array), staticmethod(_asarray)
    asnumpy, einsum, matmul = staticmethod(_asnumpy), staticmethod(_einsum), staticmethod(_matmul)
    random = SimpleNamespace(Philox4x3210=_Philox, Generator=Generator)
    cuda = SimpleNamespace(
        Device=_Device,
        Stream=Stream,
        MemoryPool=MemoryPool,
        using_allocator=using_allocator,
        alloc_pinned_memory=alloc_pinned_memory,
        get_current_stream=get_current_stream,
        runtime=SimpleNamespace(
            getDeviceCount=lambda: 2,
            getDeviceProperties=lambda index: {"name": b"double", "major": 0, "minor": 0},
            getDevice=lambda: current.gpus[-1],
            runtimeGetVersion=lambda: 12090,
            memGetInfo=lambda: (1 << 30, 1 << 34),
        ),
    )
    __version__ = "0"


xp = ndarray._module = _Module()
for _name in (
    "bool_ dtype float16 float32 float64 int8 int16 int32 int64 intp uint8 uint16 uint32 uint64"
    " generic integer floating iinfo finfo issubdtype result_type promote_types can_cast isscalar"
    " broadcast_shapes"
).split():
    setattr(xp, _name, getattr(np, _name))
_OWN = {
    "empty": _garbage,
    "empty_like": lambda a, dtype=None, order="K": _garbage(a.shape, dtype or a.dtype),
    "argmax": lambda a, dtype=None, **rest: np.argmax(a, **rest),
    "argmin": lambda a, dtype=None, **rest: np.argmin(a, **rest),
    "take": lambda a, indices, axis=None, out=None: np.take(a, indices, axis, out, "wrap"),
}


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if not isinstance(repeats, (int, list, tuple)):
        raise ValueError("`repeats` must be integers of the host")
    launches.append("repeat")
    return to_device(np.repeat(memory_of(a), repeats, axis))


_WHOLE = {
    "repeat": _repeat,
    "copyto": _copyto,
    "dot": _dot,
    "searchsorted": _searchsorted,
    "where": _where,
}
for _name, _text in SIGNATURES.items():
    *_path, _last = _name.split(".")
    _holder = xp
    for _part in _path:
        if not hasattr(_holder, _part):
            setattr(_holder, _part, SimpleNamespace())
        _holder = getattr(_holder, _part)
    _original: Any = _OWN.get(_name) or functools.reduce(getattr, [*_path, _last], np)
    _whole = _WHOLE.get(_name)
    if _whole is not None:
        _whole.__name__, _whole.__module__ = _last, "cupy"
    setattr(_holder, _last, recorded(_whole) if _whole else like(_last, _original, _text))
for _name in UFUNCS:
    setattr(xp, _name, Ufunc(_name))


class DoublePlace(Place):
    """The place whose array module is the double."""

    def __str__(self) -> str:
        return "double"


DOUBLE = DoublePlace("gpu", 1)


@contextlib.contextmanager
def by_default() -> Iterator[Any]:
    """Within it, what would run on the CPU for want of a place runs on the double."""
    saved = scope.default_place
    scope.default_place = lambda: DOUBLE
    try:
        with instead_of_cupy():
            yield xp
    finally:
        scope.default_place = saved


@contextlib.contextmanager
def instead_of_cupy() -> Iterator[Any]:
    """Within it the package finds the double where it would import CuPy."""
    saved = backend._cupy, cublas.load
    backend._cupy, cublas.load = lambda: xp, lambda major: Library()
    try:
        yield xp
    finally:
        backend._cupy, cublas.load = saved
