"""GNU OpenMP's thread pool, which compiled loops and matrix libraries share."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

_SPINS = "1000"


@functools.cache
def load_openmp() -> bool:
    """Load libgomp, where there is one, so that its idle threads soon sleep; whether it is there.

    By default they spin for milliseconds and take the cores of other pools (NumPy's OpenBLAS) and
    processes: a training step of 4 ms took 30 to 200 ms. With a short spin nothing was lost on an
    idle machine. `GOMP_SPINCOUNT` and `OMP_WAIT_POLICY` of the user are left alone; libgomp reads
    them once, while it is loaded.
    """
    if sys.platform != "linux":
        return False
    ours = not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
    if ours:
        os.environ["GOMP_SPINCOUNT"] = _SPINS
    try:
        ctypes.CDLL("libgomp.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    finally:
        if ours:
            del os.environ["GOMP_SPINCOUNT"]
    return True
