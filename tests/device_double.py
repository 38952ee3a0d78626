"""A stand-in for CuPy that needs no GPU: it checks discipline, not numbers on a GPU.

`DOUBLE` is a place of kind "gpu" whose arrays wrap NumPy memory and refuse what CuPy's arrays
refuse, so that tests which run there find code that could not run on CuPy:

- functions, methods, ufunc methods and their arguments are those that CuPy has, no others
  (`SIGNATURES`, `METHODS`, `UFUNCS`; test_device_double.py compares them with an installed CuPy);
- an implicit conversion to NumPy raises, as does a NumPy array among the operands; Python and NumPy
  scalars are operands, and 0-d results stay arrays of the device;
- `get`, `item`, `tolist`, `asnumpy`, `int`, `float` and `bool` are the ways back to the host;
  `asarray`, `array` and `set` the ways there. `crossings` records each of them;
- memory starts as garbage (NaN, or -1);
- arrays of a GPU other than the current one are no operands (`DOUBLE` is GPU 1, the default GPU 0);
- memory that overlaps where a CuPy kernel would race, and repeated indices in an assignment, raise.

It is stricter than CuPy in two things: NumPy arrays as indices, which CuPy copies to the device at
each use, are refused, and indices out of range raise where CuPy wraps them around. What it cannot
show: numbers and rounding of a GPU, the order of atomic additions, streams, memory, and speed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from device_kernels import make_kernel
from opscope.framework import backend, scope
from opscope.framework.backend import Place

crossings: list[str] = []
"""Copies between host and device since the test emptied the list: "get", "asarray", "bool" ..."""

_current = [0]  # the current GPU, innermost last

_SCALARS = (bool, int, float, np.generic)

SIGNATURES = {
    # creation
    "arange": "start stop=None step=1 dtype=None",
    "empty": "shape dtype=float order=C",
    "empty_like": "prototype dtype=None order=K",
    "eye": "N M=None k=0 dtype=float",
    "full": "shape fill_value dtype=None order=C",
    "full_like": "a fill_value dtype=None",
    "linspace": "start stop num=50 endpoint=True retstep=False dtype=None axis=0",
    "ones": "shape dtype=float order=C",
    "ones_like": "a dtype=None",
    "zeros": "shape dtype=float order=C",
    "zeros_like": "a dtype=None",
    # shapes
    "ascontiguousarray": "a dtype=None",
    "broadcast_to": "array shape",
    "concatenate": "tup axis=0 out=None",
    "diag": "v k=0",
    "diagonal": "a offset=0 axis1=0 axis2=1",
    "expand_dims": "a axis",
    "flip": "a axis=None",
    "moveaxis": "a source destination",
    "pad": "array pad_width mode=constant",
    "ravel": "a order=C",
    "repeat": "a repeats axis=None",
    "reshape": "a newshape order=C",
    "roll": "a shift axis=None",
    "split": "ary indices_or_sections axis=0",
    "squeeze": "a axis=None",
    "stack": "tup axis=0 out=None",
    "swapaxes": "a axis1 axis2",
    "tile": "A reps",
    "transpose": "a axes=None",
    "tril": "m k=0",
    "triu": "m k=0",
    # values
    "argpartition": "a kth axis=-1",
    "argsort": "a axis=-1 kind=None",
    "bincount": "x weights=None minlength=None",
    "clip": "a a_min a_max out=None",
    "copyto": "dst src casting=same_kind where=None",
    "diff": "a n=1 axis=-1 prepend=None append=None",
    "flatnonzero": "a",
    "lexsort": "keys",
    "nonzero": "a",
    "partition": "a kth axis=-1",
    "searchsorted": "a v side=left sorter=None",
    "sort": "a axis=-1 kind=None",
    "take": "a indices axis=None out=None",
    "take_along_axis": "a indices axis",
    "unique": "ar return_index=False return_inverse=False return_counts=False axis=None",
    "where": "condition x y",
    # reductions and products
    "all": "a axis=None out=None keepdims=False",
    "any": "a axis=None out=None keepdims=False",
    "argmax": "a axis=None dtype=None out=None keepdims=False",
    "argmin": "a axis=None dtype=None out=None keepdims=False",
    "array_equal": "a1 a2 equal_nan=False",
    "count_nonzero": "a axis=None",
    "cumprod": "a axis=None dtype=None out=None",
    "cumsum": "a axis=None dtype=None out=None",
    "dot": "a b out=None",
    "inner": "a b",
    "max": "a axis=None out=None keepdims=False",
    "mean": "a axis=None dtype=None out=None keepdims=False",
    "min": "a axis=None out=None keepdims=False",
    "outer": "a b out=None",
    "prod": "a axis=None dtype=None out=None keepdims=False",
    "std": "a axis=None dtype=None out=None ddof=0 keepdims=False",
    "sum": "a axis=None dtype=None out=None keepdims=False",
    "tensordot": "a b axes=2",
    "trace": "a offset=0 axis1=0 axis2=1 dtype=None out=None",
    "var": "a axis=None dtype=None out=None ddof=0 keepdims=False",
    "vdot": "a b",
    "linalg.cholesky": "a",
    "linalg.eigh": "a UPLO=L",
    "linalg.inv": "a",
    "linalg.norm": "x ord=None axis=None keepdims=False",
    "linalg.qr": "a mode=reduced",
    "linalg.solve": "a b",
    "linalg.svd": "a full_matrices=True compute_uv=True",
    "lib.stride_tricks.as_strided": "x shape=None strides=None",
}
"""Functions of CuPy and their parameters, as far as there is use for them here."""

METHODS = {
    "all": "axis=None out=None keepdims=False",
    "any": "axis=None out=None keepdims=False",
    "argmax": "axis=None out=None dtype=None keepdims=False",
    "argmin": "axis=None out=None dtype=None keepdims=False",
    "astype": "dtype order=K casting=None subok=None copy=True",
    "clip": "min=None max=None out=None",
    "copy": "order=C",
    "cumprod": "axis=None dtype=None out=None",
    "cumsum": "axis=None dtype=None out=None",
    "diagonal": "offset=0 axis1=0 axis2=1",
    "dot": "b out=None",
    "fill": "value",
    "flatten": "order=C",
    "max": "axis=None out=None keepdims=False",
    "mean": "axis=None dtype=None out=None keepdims=False",
    "min": "axis=None out=None keepdims=False",
    "nonzero": "",
    "prod": "axis=None dtype=None out=None keepdims=False",
    "ravel": "order=C",
    "squeeze": "axis=None",
    "std": "axis=None dtype=None out=None ddof=0 keepdims=False",
    "sum": "axis=None dtype=None out=None keepdims=False",
    "swapaxes": "axis1 axis2",
    "take": "indices axis=None out=None",
    "trace": "offset=0 axis1=0 axis2=1 dtype=None out=None",
    "var": "axis=None dtype=None out=None ddof=0 keepdims=False",
}
"""Methods of CuPy's arrays and their parameters, likewise."""

UFUNCS = (
    "abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_or"
    " bitwise_xor cbrt ceil copysign cos cosh divide divmod equal exp exp2 expm1 floor floor_divide"
    " fmax"
    " fmin fmod greater greater_equal hypot invert isfinite isinf isnan left_shift less less_equal"
    " log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor maximum minimum"
    " mod multiply negative not_equal power reciprocal remainder right_shift rint sign signbit sin"
    " sinh sqrt square subtract tan tanh true_divide trunc"
).split()

_ATOMIC = {  # ufunc -> dtypes of its `at`, those that CuPy 13 and 14 have in common
    "add": "int32 uint32 uint64 float16 float32 float64".split(),
    "subtract": "int32 uint32".split(),
    "maximum": "int32 uint32 uint64 float32 float64".split(),
    "minimum": "int32 uint32 uint64 float32 float64".split(),
}
_RACING = {"sum", "prod", "max", "min", "mean", "std", "var", "argmax", "argmin", "all", "any"}
_RACING |= {"take", "concatenate", "stack", "trace"}
"""Functions whose `out` may share no memory with the operands."""


def _memory(value: ndarray) -> np.ndarray:
    """What a kernel takes: the memory of an array of the current device."""
    if value.device != _current[-1]:
        raise RuntimeError(f"an array of device {value.device} on device {_current[-1]}")
    return value.memory


def _host(value: Any) -> Any:
    """What NumPy computes with: the memory of a device array, a scalar as it is."""
    if type(value) is ndarray:
        return _memory(value)
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>: a NumPy array on the device")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_host, value))
    return value


def _device(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(np.asarray(value))
    if isinstance(value, (tuple, list)):
        return (
            type(value)(map(_device, value))
            if type(value) in (tuple, list)
            else tuple(map(_device, value))
        )
    return value


def _overlap(a: Any, b: Any) -> bool:
    """Whether two arrays share memory, but are not the same elements at the same places."""
    same = a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides
    return not same and np.may_share_memory(a, b) and np.shares_memory(a, b)


def _no_race(what: str, out: np.ndarray, *operands: Any, same: bool = False) -> None:
    for operand in operands:
        if isinstance(operand, np.ndarray) and operand.size and out.size:
            shared = _overlap(out, operand) or (not same and np.shares_memory(out, operand))
            if shared:
                raise RuntimeError(f"{what}: reads memory that it writes; a GPU would race")


def _signature(text: str) -> inspect.Signature:
    parameters = []
    for part in text.split():
        name, has_default, default = part.partition("=")
        given = {"default": default} if has_default else {}
        parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, **given))
    return inspect.Signature(parameters)


def _like(name: str, original: Callable[..., Any], text: str) -> Callable[..., Any]:
    """A function of the device: CuPy's parameters, NumPy's results."""
    signature = _signature(text)
    names = list(signature.parameters)
    required = [n for n, p in signature.parameters.items() if p.default is p.empty]
    racing = name in _RACING

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        out = given.get("out")
        if out is not None and type(out) is not ndarray:
            raise TypeError(f"{name}: out is {type(out)}, no array of the device")
        held = {key: _host(value) for key, value in given.items()}
        if out is not None and racing:
            _no_race(name, held["out"], *(held[n] for n in names if n in held and n != "out"))
        first = [held.pop(n) for n in required]
        if name not in _ANY_FIRST and not any(type(given[n]) is ndarray for n in required[:1]):
            if not isinstance(given[required[0]], (list, tuple)):
                raise TypeError(f"{name}: {type(given[required[0]])} is no array of the device")
        with np.errstate(all="ignore"):
            found = original(*first, **held)
        return out if out is not None else _device(found)

    call.__name__ = name
    call.__signature__ = signature
    return call


_ANY_FIRST = set("arange empty full linspace ones zeros eye searchsorted lexsort".split())


class Ufunc:
    """An elementwise function, with those of its methods that CuPy has."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.name = name
        self._original = getattr(np, name)
        self.nin, self.nout = self._original.nin, self._original.nout

    def __repr__(self) -> str:
        return f"<ufunc {self.name!r} of the double>"

    def __call__(
        self, *args: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind"
    ) -> Any:
        nin = self.nin
        if not nin <= len(args) <= nin + self.nout:
            raise TypeError(f"Wrong number of arguments for {self.name!r}: {len(args)}")
        if len(args) > nin:
            if out is not None:
                raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
            out = args[nin]
            args = args[:nin]
        if type(out) is tuple:
            (out,) = out
        if self.nout > 1 and out is None:
            return _device(self._original(*(_operand(self.name, arg) for arg in args)))
        operands = [_operand(self.name, arg) for arg in args]
        into = None
        if out is not None:
            if type(out) is not ndarray:
                raise TypeError(f"{self.name}: out is {type(out)}, no array of the device")
            into = _memory(out)
        kwargs = {} if dtype is None else {"dtype": dtype}
        with np.errstate(all="ignore"):
            found = self._original(*operands, out=into, casting=casting, **kwargs)
        return out if out is not None else _device(found)

    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        """Atomic operations; for some dtypes only."""
        if self.name not in _ATOMIC:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        if a.dtype.name not in _ATOMIC[self.name]:
            raise TypeError(f"{self.name}.at does not support {a.dtype}")
        value = _operand(self.name, b)
        _no_race(f"{self.name}.at", _memory(a), value)
        self._original.at(_memory(a), _index(indices), np.asarray(value).astype(a.dtype))

    def reduce(
        self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        method = {"add": "sum", "multiply": "prod"}.get(self.name)
        if method is None:
            raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")
        return getattr(array, method)(axis, dtype, out, keepdims)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        method = {"add": "cumsum", "multiply": "cumprod"}.get(self.name)
        if method is None:
            raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")
        return getattr(array, method)(axis, dtype, out)

    def reduceat(
        self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
    ) -> Any:
        if self.name != "add":
            raise NotImplementedError(f"`{self.name}.reduceat` is not supported yet")
        into = None if out is None else out.memory
        found = np.add.reduceat(_memory(array), _host(indices), axis, dtype, into)
        return out if out is not None else _device(found)

    def outer(self, a: Any, b: Any, **kwargs: Any) -> Any:
        return self(a.reshape(a.shape + (1,) * b.ndim), b, **kwargs)


def _operand(what: str, value: Any) -> Any:
    if type(value) is ndarray:
        return _memory(value)
    if isinstance(value, _SCALARS):
        return value
    raise TypeError(f"{what}: Unsupported type {type(value)}")


def _index(index: Any) -> Any:
    """An index for NumPy; arrays of the host are refused."""
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    if type(index) is ndarray:
        return _memory(index)
    if isinstance(index, (np.ndarray, list)):
        raise TypeError(f"an index of the host, {type(index)}: move it once, while binding")
    return index


class _Flags:
    def __init__(self, flags: Any) -> None:
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous
        self.owndata, self.forc = flags.owndata, flags.forc


class ndarray:  # noqa: N801  CuPy's name
    """An array of the device."""

    __array_priority__ = 100
    __slots__ = ("__weakref__", "device", "memory")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, memory: np.ndarray, device: int | None = None) -> None:
        self.memory = memory
        self.device = _current[-1] if device is None else device

    def _same(self, memory: np.ndarray) -> ndarray:
        """Other elements or another form of the same memory."""
        return ndarray(memory, self.device)

    # -- what NumPy asks ---------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc.__name__ not in UFUNCS and ufunc.__name__ != "matmul":
            return NotImplemented
        found = getattr(xp, ufunc.__name__)
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        return (found if method == "__call__" else getattr(found, method))(*inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        inside = func.__module__.split(".")[1:]
        try:
            found = functools.reduce(getattr, [*inside, func.__name__], xp)
        except AttributeError:
            return NotImplemented
        return found(*args, **kwargs)

    # -- what it is --------------------------------------------------------------------------------

    dtype = property(lambda self: self.memory.dtype)
    itemsize = property(lambda self: self.memory.itemsize)
    nbytes = property(lambda self: self.memory.nbytes)
    ndim = property(lambda self: self.memory.ndim)
    size = property(lambda self: self.memory.size)
    strides = property(lambda self: self.memory.strides)
    flags = property(lambda self: _Flags(self.memory.flags))
    data = property(lambda self: SimpleNamespace(ptr=self.memory.ctypes.data))
    T = property(lambda self: self._same(self.memory.T))
    real = property(lambda self: self._same(self.memory.real))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.memory.shape

    def __len__(self) -> int:
        return len(self.memory)

    def __iter__(self) -> Iterator[ndarray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"device {self.memory!r}"

    # -- to the host and back ----------------------------------------------------------------------

    def get(self, stream: Any = None, order: str = "C", out: Any = None) -> np.ndarray:
        crossings.append("get")
        return np.array(self.memory, order=order)

    def set(self, arr: Any, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch: {arr.shape} to {self.shape}")
        if not self.memory.flags.forc:
            raise RuntimeError("Cannot set to non-contiguous array")
        crossings.append("set")
        self.memory[...] = arr

    def item(self) -> Any:
        crossings.append("item")
        return self.memory.item()

    def tolist(self) -> Any:
        crossings.append("tolist")
        return self.memory.tolist()

    def tobytes(self) -> bytes:
        crossings.append("tobytes")
        return self.memory.tobytes()

    def __bool__(self) -> bool:
        crossings.append("bool")
        return bool(self.memory)

    def __int__(self) -> int:
        crossings.append("int")
        return int(self.memory)

    def __float__(self) -> float:
        crossings.append("float")
        return float(self.memory)

    # -- elements ----------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> ndarray:
        return self._same(np.asarray(self.memory[_index(index)]))

    def __setitem__(self, index: Any, value: Any) -> None:
        where, memory = _index(index), _memory(self)
        given = _operand("assignment", value)
        parts = where if isinstance(where, tuple) else (where,)
        arrays = [p for p in parts if isinstance(p, np.ndarray)]
        if not arrays:
            _memory_copy(memory[where], given)
        elif isinstance(given, np.ndarray):
            _no_race("assignment", memory, given, *arrays)
            if given.size > 1 and all(a.dtype.kind in "iu" for a in arrays):
                places = np.stack(np.broadcast_arrays(*arrays)).reshape(len(arrays), -1)
                if np.unique(places, axis=1).shape[1] < places.shape[1]:
                    raise RuntimeError("assignment to repeated indices: a GPU would race")
        memory[where] = given

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        return self._same(self.memory.reshape(*shape, order=order))

    def transpose(self, *axes: Any) -> ndarray:
        return self._same(self.memory.transpose(*axes))

    def view(self, dtype: Any = None) -> ndarray:
        return self._same(self.memory.view(self.dtype if dtype is None else dtype))


def _memory_copy(target: Any, source: Any) -> None:
    """Refuse what would become a memcpy between ranges that overlap."""
    if isinstance(source, np.ndarray) and isinstance(target, np.ndarray):
        plain = source.flags.c_contiguous and target.flags.c_contiguous
        if plain and source.dtype == target.dtype and source.shape == target.shape:
            _no_race("copy", target, source, same=True)


ndarray.__module__ = "cupy"  # framework.backend tells arrays by the module of their type

_METHOD_ORIGINALS = {
    "argmax": lambda a, dtype=None, **rest: np.argmax(a, **rest),
    "argmin": lambda a, dtype=None, **rest: np.argmin(a, **rest),
    "astype": lambda a, dtype, casting=None, subok=None, **rest: a.astype(
        dtype, casting=casting or "unsafe", **rest
    ),
    "take": lambda a, indices, axis=None, out=None: np.take(a, indices, axis, out),
}


def _method(name: str, text: str) -> Callable[..., Any]:
    original = _METHOD_ORIGINALS.get(name) or getattr(np.ndarray, name)
    return _like(name, original, f"self {text}")


for _name, _text in METHODS.items():
    setattr(ndarray, _name, _method(_name, _text))


def _binary(name: str, swapped: bool = False) -> Callable[[ndarray, Any], Any]:
    def call(self: ndarray, other: Any) -> Any:
        if not isinstance(other, (ndarray, np.ndarray, *_SCALARS)):
            return NotImplemented
        operands = (other, self) if swapped else (self, other)
        return getattr(xp, name)(*operands)

    return call


def _inplace(name: str) -> Callable[[ndarray, Any], Any]:
    return lambda self, other: getattr(xp, name)(self, other, self)


for _name, _ufunc in {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "divmod": "divmod",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "matmul": "matmul",
}.items():
    setattr(ndarray, f"__{_name}__", _binary(_ufunc))
    setattr(ndarray, f"__r{_name}__", _binary(_ufunc, swapped=True))
    if _name not in ("divmod", "matmul"):
        setattr(ndarray, f"__i{_name}__", _inplace(_ufunc))
for _name, _ufunc in {
    "lt": "less",
    "le": "less_equal",
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal",
}.items():
    setattr(ndarray, f"__{_name}__", _binary(_ufunc))
for _name, _ufunc in {"neg": "negative", "abs": "absolute", "invert": "invert"}.items():
    setattr(ndarray, f"__{_name}__", lambda self, ufunc=_ufunc: getattr(xp, ufunc)(self))


# -- the module ------------------------------------------------------------------------------------


def _garbage(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    array = np.empty(shape, dtype, "F" if order == "F" else "C")
    flat = array.reshape(-1, order="A")
    if array.size and array.dtype.kind != "b":
        flat.view(np.uint8).fill(255)
    return array


def _array(obj: Any, dtype: Any = None, copy: Any = True, order: str = "K") -> ndarray:
    if type(obj) is ndarray:  # perhaps of another device
        return ndarray(np.array(obj.memory, dtype, copy=copy or None, order=order))
    if isinstance(obj, (list, tuple)) and any(type(item) is ndarray for item in obj):
        return ndarray(np.array([_host(item) for item in obj], dtype))
    crossings.append("asarray")
    return ndarray(np.array(obj, dtype, order=order))


def _asarray(a: Any, dtype: Any = None, order: Any = None) -> ndarray:
    if type(a) is ndarray:
        found = np.asarray(a.memory, dtype, order=order)
        here = a.device == _current[-1]
        return a if found is a.memory and here else ndarray(found if here else found.copy())
    return _array(a, dtype, order=order or "K")


def _asnumpy(a: Any, stream: Any = None, order: str = "C") -> np.ndarray:
    return a.get() if type(a) is ndarray else np.asarray(a)


def _matmul(*args: Any, out: Any = None) -> Any:
    a, b = map(_host, args)
    into = None if out is None else _memory(out)
    if not (type(args[0]) is type(args[1]) is ndarray):
        raise TypeError("matmul: an operand is no array of the device")
    if into is not None and not into.flags.c_contiguous:
        into[...] = np.matmul(a, b)
        return out
    found = np.matmul(a, b, out=into)
    return out if out is not None else _device(found)


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    if out is not None:
        if np.result_type(a.dtype, b.dtype) != out.dtype:
            raise ValueError("Not supported dtype combination.")
        if not out.flags.c_contiguous:
            raise ValueError("Output array must be C-contiguous")
        _memory(out)[...] = np.dot(_memory(a), _memory(b))
        return out
    return _device(np.dot(_memory(a), _memory(b)))


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    if isinstance(src, np.ndarray) and src.size != 1:
        raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
    if type(dst) is not ndarray:
        raise TypeError(f"copyto: {type(dst)} is no array of the device")
    # The one function that takes arrays of different devices.
    given = src.memory if type(src) is ndarray else src
    if where is None:
        _memory_copy(dst.memory, given)
    mask = {} if where is None else {"where": _operand("copyto", where)}
    with np.errstate(all="ignore"):
        np.copyto(dst.memory, given, casting=casting, **mask)


def _searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    if not type(a) is type(v) is ndarray:
        raise NotImplementedError("searchsorted takes arrays of the device only")
    return _device(np.searchsorted(_memory(a), _memory(v), side))


def _einsum(*operands: Any, **kwargs: Any) -> Any:
    if kwargs.keys() - {"dtype", "optimize"}:
        raise TypeError(f"einsum: unexpected keyword arguments {sorted(kwargs)}")
    return _device(np.einsum(*map(_host, operands), **kwargs))


def _where(condition: Any, x: Any, y: Any) -> Any:
    return _device(np.where(_memory(condition), _operand("where", x), _operand("where", y)))


class _Philox:
    def __init__(self, seed: Any = None) -> None:
        self.seed = seed


class Generator:
    """CuPy's random generator, as far as it goes."""

    def __init__(self, bit_generator: _Philox) -> None:
        self._own = np.random.default_rng(bit_generator.seed)

    def _fill(self, draw: Any, size: Any, dtype: Any, out: Any) -> ndarray:
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
        drawn = self._own.uniform(_operand("uniform", low), _operand("uniform", high), size)
        return ndarray(np.asarray(drawn, dtype))

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> ndarray:
        return ndarray(np.asarray(self._own.integers(low, high, size, dtype, endpoint)))


class _Stream:
    def synchronize(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> None: ...


class _Device:
    """Makes a GPU current in a `with` block."""

    def __init__(self, index: int = 0) -> None:
        self._index = index

    def __enter__(self) -> None:
        _current.append(self._index)

    def __exit__(self, *error: Any) -> None:
        _current.pop()


class _Module:
    """What stands for the module `cupy`; whatever is not here raises AttributeError."""

    ndarray = ndarray
    ElementwiseKernel = staticmethod(functools.partial(make_kernel, _operand, _no_race))
    inf, nan, pi, e, newaxis = np.inf, np.nan, np.pi, np.e, None
    array, asarray = staticmethod(_array), staticmethod(_asarray)
    asnumpy, einsum, matmul = staticmethod(_asnumpy), staticmethod(_einsum), staticmethod(_matmul)
    random = SimpleNamespace(Philox4x3210=_Philox, Generator=Generator)
    cuda = SimpleNamespace(
        Device=_Device,
        Stream=_Stream,
        get_current_stream=_Stream,
        runtime=SimpleNamespace(getDeviceCount=lambda: 2),
    )


xp = _Module()
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
}


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if not isinstance(repeats, (int, list, tuple)):
        raise ValueError("`repeats` must be integers of the host")
    return _device(np.repeat(_memory(a), repeats, axis))


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
    _original = _OWN.get(_name) or functools.reduce(getattr, [*_path, _last], np)
    setattr(_holder, _last, _WHOLE.get(_name) or _like(_last, _original, _text))
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
    saved, scope.CPUPlace = scope.CPUPlace, lambda: DOUBLE
    try:
        with instead_of_cupy():
            yield xp
    finally:
        scope.CPUPlace = saved


@contextlib.contextmanager
def instead_of_cupy() -> Iterator[Any]:
    """Within it the package finds the double where it would import CuPy."""
    from device_sparse import sparse

    saved, backend._cupy = backend._cupy, lambda: xp
    modules = {"cupyx": SimpleNamespace(), "cupyx.scipy": SimpleNamespace(sparse=sparse)}
    held = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield xp
    finally:
        backend._cupy = saved
        for name, module in held.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
