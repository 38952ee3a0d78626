"""Arrays and elementwise functions of the stand-in of CuPy (device_double.py)."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from .device_graphs import Crossings, is_pinned, keep, launches, recorded
from .device_names import ATOMIC, METHODS, RACING, UFUNCS, VIEWING

crossings: list[str] = Crossings()
"""Copies between host and device since the test emptied the list: "get", "asarray", "bool" ..."""


class _Current(threading.local):
    """The current GPU of a thread, innermost last."""

    def __init__(self) -> None:
        self.gpus = [0]


current = _Current()

_SCALARS = (bool, int, float, np.generic)


def memory_of(value: ndarray) -> np.ndarray:
    """What a kernel takes: the memory of an array of the current device."""
    if value.device != current.gpus[-1]:
        raise RuntimeError(f"an array of device {value.device} on device {current.gpus[-1]}")
    return value.memory


def to_numpy(value: Any) -> Any:
    """What NumPy computes with: the memory of a device array, a scalar as it is."""
    if type(value) is ndarray:
        return memory_of(value)
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>: a NumPy array on the device")
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_numpy, value))
    return value


def to_device(value: Any) -> Any:
    """What NumPy computed as an array of the current device, or several."""
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(np.asarray(value))
    if isinstance(value, (tuple, list)):  # NumPy's named tuples become plain ones
        return (list if type(value) is list else tuple)(map(to_device, value))
    return value


def _overlap(a: Any, b: Any) -> bool:
    """Whether two arrays share memory, but are not the same elements at the same places."""
    same = a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides
    return not same and np.may_share_memory(a, b) and np.shares_memory(a, b)


def no_race(what: str, out: np.ndarray, *operands: Any, same: bool = False) -> None:
    """Refuse to write what is read; with `same` an operand may be `out` itself."""
    for read in operands:
        if isinstance(read, np.ndarray) and read.size and out.size:
            shared = _overlap(out, read) or (not same and np.shares_memory(out, read))
            if shared:
                raise RuntimeError(f"{what}: reads memory that it writes; a GPU would race")


def _signature(text: str) -> inspect.Signature:
    parameters = []
    for part in text.split():
        name, has_default, default = part.partition("=")
        given = {"default": default} if has_default else {}
        parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, **given))
    return inspect.Signature(parameters)


def like(name: str, original: Callable[..., Any], text: str) -> Callable[..., Any]:
    """A function of the device: CuPy's parameters, NumPy's results."""
    signature = _signature(text)
    names = list(signature.parameters)
    required = [n for n, p in signature.parameters.items() if p.default is p.empty]
    racing = name in RACING
    all_names, wanted = frozenset(names), frozenset(required)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        each_once = len(given) == len(args) + len(kwargs)
        if not (each_once and wanted <= given.keys() <= all_names):
            signature.bind(*args, **kwargs)  # says what is wrong; for all calls it is slow
        out = given.get("out")
        if out is not None and type(out) is not ndarray:
            raise TypeError(f"{name}: out is {type(out)}, no array of the device")
        held = {key: to_numpy(value) for key, value in given.items()}
        if out is not None and racing:
            no_race(name, held["out"], *(held[n] for n in names if n in held and n != "out"))
        first = [held.pop(n) for n in required]
        if name not in _ANY_FIRST and not any(type(given[n]) is ndarray for n in required[:1]):
            if not isinstance(given[required[0]], (list, tuple)):
                raise TypeError(f"{name}: {type(given[required[0]])} is no array of the device")
        with np.errstate(all="ignore"):
            found = original(*first, **held)
        if name not in VIEWING or not _is_view(found, first[0]):
            launches.append(name)
        return out if out is not None else to_device(found)

    call.__name__ = name
    call.__module__ = "cupy"
    call.__signature__ = signature
    return recorded(call)


def _is_view(found: Any, given: Any) -> bool:
    """Whether a function of `VIEWING` computed nothing."""
    if isinstance(found, (list, tuple)):
        return all(_is_view(one, given) for one in found)
    return not isinstance(given, np.ndarray) or np.may_share_memory(found, given)


_ANY_FIRST = set("arange empty full linspace ones zeros eye searchsorted lexsort".split())


class Ufunc:
    """An elementwise function, with the methods that CuPy has."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.name = name
        self._original = getattr(np, name)
        self.nin = self._original.nin
        self.nout = self._original.nout

    def __repr__(self) -> str:
        return f"<ufunc {self.name!r} of the double>"

    @recorded
    def __call__(
        self, *args: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind"
    ) -> Any:
        nin = self.nin
        if not nin <= len(args) <= nin + self.nout:
            raise TypeError(f"Wrong number of arguments for {self.name!r}: {len(args)}")
        launches.append(self.name)
        if len(args) > nin:
            if out is not None:
                raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
            out = args[nin]
            args = args[:nin]
        if type(out) is tuple:
            (out,) = out
        if self.nout > 1 and out is None:
            return to_device(self._original(*(operand(self.name, arg) for arg in args)))
        operands = [operand(self.name, arg) for arg in args]
        into = None
        if out is not None:
            if type(out) is not ndarray:
                raise TypeError(f"{self.name}: out is {type(out)}, no array of the device")
            into = memory_of(out)
        kwargs = {} if dtype is None else {"dtype": dtype}
        with np.errstate(all="ignore"):
            found = self._original(*operands, out=into, casting=casting, **kwargs)
        return out if out is not None else to_device(found)

    @recorded
    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        """Atomic operations; for some dtypes only."""
        if self.name not in ATOMIC:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        if a.dtype.name not in ATOMIC[self.name]:
            raise TypeError(f"{self.name}.at does not support {a.dtype}")
        launches.append(f"{self.name}.at")
        value = operand(self.name, b)
        no_race(f"{self.name}.at", memory_of(a), value)
        where = _wrapped(memory_of(a), _index(indices))
        self._original.at(memory_of(a), where, np.asarray(value).astype(a.dtype))

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

    @recorded
    def reduceat(
        self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
    ) -> Any:
        if self.name != "add":
            raise NotImplementedError(f"`{self.name}.reduceat` is not supported yet")
        launches.append("add.reduceat")
        into = None if out is None else out.memory
        found = np.add.reduceat(memory_of(array), to_numpy(indices), axis, dtype, into)
        return out if out is not None else to_device(found)

    def outer(self, a: Any, b: Any, **kwargs: Any) -> Any:
        return self(a.reshape(a.shape + (1,) * b.ndim), b, **kwargs)


def operand(what: str, value: Any) -> Any:
    """What NumPy computes with, of an array of the device or a scalar; nothing else is taken."""
    if type(value) is ndarray:
        return memory_of(value)
    if isinstance(value, _SCALARS):
        return value
    raise TypeError(f"{what}: Unsupported type {type(value)}")


def _index(index: Any) -> Any:
    """An index for NumPy; arrays of the host are refused."""
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    if type(index) is ndarray:
        return memory_of(index)
    if isinstance(index, (np.ndarray, list)):
        raise TypeError(f"an index of the host, {type(index)}: move it once, while binding")
    return index


def _wrapped(memory: np.ndarray, where: Any) -> Any:
    """An index whose numbers are counted round and round, as CuPy's kernels do."""
    parts = where if isinstance(where, tuple) else (where,)
    if any(part is None or part is Ellipsis or _is_mask(part) for part in parts):
        return where
    sizes = memory.shape[: len(parts)]
    return tuple(
        np.mod(part, size, dtype=np.int64) if isinstance(part, np.ndarray) and size else part
        for part, size in zip(parts, sizes, strict=False)
    )


def _is_above(asked: Any, where: Any) -> bool:
    """Whether an index was counted round, from numbers that are not below 0."""
    parts = asked if isinstance(asked, tuple) else (asked,)
    wrapped = where if isinstance(where, tuple) else (where,)
    return any(
        isinstance(part, np.ndarray) and bool(((part >= 0) & (part != own)).any())
        for part, own in zip(parts, wrapped, strict=True)
    )


def _is_mask(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype.kind == "b"


class _Flags:
    def __init__(self, flags: Any) -> None:
        self.c_contiguous = flags.c_contiguous
        self.f_contiguous = flags.f_contiguous
        self.owndata = flags.owndata
        self.forc = flags.forc


class ndarray:  # noqa: N801  CuPy's name
    """An array of the device."""

    _module: Any = None  # set by device_double
    __array_priority__ = 100
    __slots__ = ("__weakref__", "device", "memory")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, memory: np.ndarray, device: int | None = None) -> None:
        self.memory = memory
        self.device = current.gpus[-1] if device is None else device
        keep(self)

    def _same(self, memory: np.ndarray) -> ndarray:
        """Other elements or another form of the same memory."""
        return ndarray(memory, self.device)

    # -- what NumPy asks ---------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc.__name__ not in UFUNCS and ufunc.__name__ != "matmul":
            return NotImplemented
        found = getattr(self._module, ufunc.__name__)
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        return (found if method == "__call__" else getattr(found, method))(*inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        inside = func.__module__.split(".")[1:]
        try:
            found = functools.reduce(getattr, [*inside, func.__name__], self._module)
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

    def get(
        self, stream: Any = None, order: Any = "C", out: Any = None, blocking: bool = True
    ) -> np.ndarray:
        if blocking:
            crossings.append("get")
        if out is None:
            return np.array(self.memory, order=order)
        if not (blocking or (stream is not None and is_pinned(out))):
            raise ValueError("a copy that nothing waits for wants a stream and pinned memory")
        if blocking:
            np.copyto(out, self.memory)
        else:
            stream.later(np.copyto, out, self.memory)
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch: {arr.shape} to {self.shape}")
        if not self.memory.flags.forc:
            raise RuntimeError("Cannot set to non-contiguous array")
        if stream is not None and is_pinned(arr):
            stream.later(np.copyto, self.memory, arr)
            return
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

    @recorded
    def __getitem__(self, index: Any) -> ndarray:
        found = np.asarray(self.memory[_wrapped(self.memory, _index(index))])
        if not np.may_share_memory(found, self.memory):
            launches.append("getitem")
        return self._same(found)

    @recorded
    def __setitem__(self, index: Any, value: Any) -> None:
        launches.append("setitem")
        memory = memory_of(self)
        asked = _index(index)
        where = _wrapped(memory, asked)
        given = operand("assignment", value)
        parts = where if isinstance(where, tuple) else (where,)
        arrays = [p for p in parts if isinstance(p, np.ndarray)]
        if not arrays:
            memory_copy(memory[where], given)
        elif isinstance(given, np.ndarray):
            no_race("assignment", memory, given, *arrays)
            # Of numbers out of range a kernel has taken note: what they write is not read.
            if _is_above(asked, where) or given.size <= 1:
                arrays = []
            if arrays and all(a.dtype.kind in "iu" for a in arrays):
                places = np.stack(np.broadcast_arrays(*arrays)).reshape(len(arrays), -1)
                if np.unique(places, axis=1).shape[1] < places.shape[1]:
                    raise RuntimeError("assignment to repeated indices: a GPU would race")
        memory[where] = given

    def reshape(self, *shape: Any, order: Any = "C") -> ndarray:
        return self._same(self.memory.reshape(*shape, order=order))

    def transpose(self, *axes: Any) -> ndarray:
        return self._same(self.memory.transpose(*axes))

    def view(self, dtype: Any = None) -> ndarray:
        return self._same(self.memory.view(self.dtype if dtype is None else dtype))


def memory_copy(target: Any, source: Any) -> None:
    """Refuse what would become a memcpy between ranges that overlap."""
    if isinstance(source, np.ndarray) and isinstance(target, np.ndarray):
        plain = source.flags.c_contiguous and target.flags.c_contiguous
        if plain and source.dtype == target.dtype and source.shape == target.shape:
            no_race("copy", target, source, same=True)


Ufunc.__module__ = "cupy"
ndarray.__module__ = "cupy"  # framework.backend tells arrays by the module of their type

_METHOD_ORIGINALS = {
    "argmax": lambda a, dtype=None, **rest: np.argmax(a, **rest),
    "argmin": lambda a, dtype=None, **rest: np.argmin(a, **rest),
    "astype": lambda a, dtype, casting=None, subok=None, **rest: a.astype(
        dtype, casting=casting or "unsafe", **rest
    ),
    "take": lambda a, indices, axis=None, out=None: np.take(a, indices, axis, out, "wrap"),
}


def _method(name: str, text: str) -> Callable[..., Any]:
    original = _METHOD_ORIGINALS.get(name) or getattr(np.ndarray, name)
    return like(name, original, f"self {text}")


for _name, _text in METHODS.items():
    setattr(ndarray, _name, _method(_name, _text))


def _binary(name: str, swapped: bool = False) -> Callable[[ndarray, Any], Any]:
    def call(self: ndarray, other: Any) -> Any:
        if not isinstance(other, (ndarray, np.ndarray, *_SCALARS)):
            return NotImplemented
        operands = (other, self) if swapped else (self, other)
        return getattr(self._module, name)(*operands)

    return call


def _inplace(name: str) -> Callable[[ndarray, Any], Any]:
    return lambda self, other: getattr(self._module, name)(self, other, self)


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
    setattr(ndarray, f"__{_name}__", lambda self, ufunc=_ufunc: getattr(self._module, ufunc)(self))
