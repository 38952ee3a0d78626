"""One interface to NumPy and CuPy: places, array modules, copies between them."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import DeviceError
from .options.settings import switch
from .untrusted.values import shown


@dataclass(frozen=True)
class Place:
    """Where tensors live: `Place("cpu")` or `Place("gpu", 0)`."""

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"

    @property
    def xp(self) -> Any:
        """The array module of the place.

        Raises:
            DeviceError: a GPU is wanted and CuPy, or the GPU, is not there.
        """
        if self.kind == "cpu":
            return np
        cupy = _cupy()
        count = cupy.cuda.runtime.getDeviceCount()
        if self.index >= count:
            from .machine.local_rank import local_rank  # without a GPU it is not needed

            why = f"GPU {self.index} was asked for, but CuPy finds {count}, from 0 on"
            if self.index == local_rank():
                why += (
                    f"; this is process {self.index} of its machine, from 0 on: start no more than"
                    " it has GPUs, or let them share these: opscope launch --share-gpus"
                )
            raise DeviceError(why)
        return cupy


def CPUPlace() -> Place:  # noqa: N802  the field's name for it
    """The host's memory."""
    return Place("cpu")


def GPUPlace(index: int | None = None) -> Place:  # noqa: N802
    """The memory of GPU `index`; without a number of this process's own.

    That is the first one, or where a launcher has started several processes (mpiexec, srun,
    torchrun), the one with the number of the process on its machine.
    """
    if index is None:
        from .machine.local_rank import own_gpu  # without a GPU it is not needed

        index = own_gpu()
    return Place("gpu", index)


def describe_device(place: Place) -> str:
    """What computes at a place, and the versions that decide about its numbers: two places with
    one description give the same."""
    if place.kind == "cpu":
        return place.kind
    cupy = place.xp
    gpu = cupy.cuda.runtime.getDeviceProperties(place.index)
    name = gpu["name"].decode(errors="replace")
    version = cupy.cuda.runtime.runtimeGetVersion()
    return f"{name} ({gpu['major']}.{gpu['minor']}), CuPy {cupy.__version__}, CUDA {version}"


def default_place() -> Place:
    """Where a scope is that is given no place: on the CPU, or as `OPSCOPE_DEVICE` says.

    Raises:
        DeviceError: that names no place.
    """
    text = switch("OPSCOPE_DEVICE")
    return parse_place(text) if text else CPUPlace()


def parse_place(text: str) -> Place:
    """`cpu`, `gpu` (see `GPUPlace`) or `gpu:N`.

    Raises:
        DeviceError: the text names no place.
    """
    kind, _, index = text.partition(":")
    # `isdigit` alone takes other scripts' digits and superscripts, which `int` refuses or reads.
    is_number = index.isascii() and index.isdigit() and len(index) <= 6
    if kind in ("cpu", "gpu") and (text == kind or (kind == "gpu" and is_number)):
        return CPUPlace() if kind == "cpu" else GPUPlace(int(index) if index else None)
    raise DeviceError(f"{shown(text)} is no device: want cpu, gpu or gpu:N")


_NO_DRIVER = 35
"""cudaErrorInsufficientDriver."""


# Errors are not cached by functools: a GPU that appears later is found.
@functools.cache
def _cupy() -> Any:
    try:
        cupy = importlib.import_module("cupy")
        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        if getattr(error, "name", None) not in (None, "cupy"):
            raise DeviceError(f"a GPU was asked for, but CuPy cannot be loaded: {error}") from error
        raise DeviceError(
            "a GPU was asked for, but CuPy is not installed: pip install opscope[gpu-cuda12]"
            " (or gpu-cuda13)"
        ) from None
    except Exception as error:  # CuPy raises its driver's own errors
        if getattr(error, "status", None) == _NO_DRIVER:
            raise DeviceError(
                "a GPU was asked for, but this machine has no NVIDIA driver, or one that is too old"
                f" for this CuPy: {error}"
            ) from None
        raise DeviceError(f"a GPU was asked for, but CuPy finds none: {error}") from None
    if count == 0:
        raise DeviceError("a GPU was asked for, but CuPy finds none")
    return cupy


def gpu_present() -> bool:
    """Whether CuPy and a GPU are there."""
    try:
        _cupy()
    except DeviceError:
        return False
    return True


def array_module(array: Any) -> Any:
    """NumPy or CuPy, whichever `array` belongs to."""
    # By the name of the module, so that CuPy is never loaded for NumPy's arrays.
    return _cupy() if type(array).__module__.startswith("cupy") else np


def address(array: Any) -> int:
    """Where the memory of an array begins, on whichever place."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def same_memory(a: Any, b: Any) -> bool:
    """Whether two arrays are views of the same elements, in the same order."""
    return (
        a.shape == b.shape
        and a.strides == b.strides
        and a.dtype == b.dtype
        and address(a) == address(b)
    )


def to_host(array: Any) -> np.ndarray:
    """The values of an array as NumPy's: itself where it is there already."""
    return array if isinstance(array, np.ndarray) else array.get()


@functools.lru_cache(maxsize=64)
def require_dtype(place: Place, dtype: np.dtype) -> None:
    """Refuse bfloat16 on a GPU whose CuPy does not have it, as CuPy 13.

    Raises:
        DeviceError: that is so.
    """
    if place.kind == "cpu" or dtype.name != "bfloat16":
        return
    try:
        place.xp.empty(1, dtype).fill(0)
    except (TypeError, ValueError, AttributeError) as error:
        raise DeviceError(
            f"bfloat16 cannot be on {place}: this CuPy does not have it ({error}); float16 can"
        ) from None


def to_place(array: Any, place: Place, *, copy: bool = False) -> Any:
    """`array`, C-contiguous, on `place`; itself where nothing is to do and `copy` is false."""
    on_gpu = array_module(array) is not np
    if place.kind == "cpu":
        host = array.get() if on_gpu else array
        if copy and host is array:
            # A copy from the GPU is new already; only the caller's own array needs one.
            return np.array(host, order="C")
        return np.asarray(host, order="C")
    require_dtype(place, array.dtype)
    xp = place.xp
    with on_device(place):
        return xp.array(array, order="C") if copy else xp.asarray(array, order="C")


def on_device(place: Place, stream: Any = None) -> contextlib.ExitStack:
    """A `with` block in which a GPU, and a stream if one is given, are current."""
    stack = contextlib.ExitStack()
    if place.kind != "cpu":
        stack.enter_context(place.xp.cuda.Device(place.index))
        if stream is not None:
            stack.enter_context(stream)
    return stack


def random_generator(place: Place, seed: int | Sequence[int] | None) -> Any:
    """A generator of random numbers of the place.

    On a GPU it is Philox: nothing has to be computed to start it, unlike CuPy's default XORWOW.
    """
    if place.kind == "cpu":
        return np.random.Generator(np.random.PCG64(seed))
    with on_device(place):
        random = place.xp.random
        return random.Generator(random.Philox4x3210(seed))


def copy_into(target: Any, source: Any) -> None:
    """Copy values between arrays of equal shape, wherever either of them lives."""
    if array_module(target) is np:
        np.copyto(target, source if array_module(source) is np else source.get())
    elif array_module(source) is np:
        target.set(np.asarray(source, order="C"))
    else:  # perhaps on another GPU
        array_module(target).copyto(target, source)
