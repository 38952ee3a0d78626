"""The NVIDIA driver of this machine, asked without CuPy."""

from __future__ import annotations

import ctypes
import sys

from .process import StepError


def cuda_extra() -> str:
    """The extra of pyproject.toml with the CuPy that suits the driver.

    Raises:
        StepError: there is no driver, or no GPU.
    """
    instead = "`build.py test` checks without one what can be checked so"
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        raise StepError(f"gpu: this machine has no NVIDIA driver; {instead}") from None
    count, version = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise StepError(f"gpu: the NVIDIA driver finds no GPU; {instead}")
    driver.cuDriverGetVersion(ctypes.byref(version))
    if version.value < 12000:
        have = f"{version.value // 1000}.{version.value % 1000 // 10}"
        raise StepError(f"gpu: the NVIDIA driver is for CUDA {have}; 12.0 or newer is wanted")
    return "gpu-cuda13" if version.value >= 13000 else "gpu-cuda12"
