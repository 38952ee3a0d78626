"""NVIDIA's compiler as a library (nvidia-cuda-nvrtc-cu12): CUDA to PTX, without a GPU."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ARCHITECTURES = (70, 80, 90)


@cache
def nvrtc() -> ctypes.CDLL | None:
    """The library; None where it is not installed."""
    try:
        spec = find_spec("nvidia.cuda_nvrtc")
    except ModuleNotFoundError:
        return None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for folder in folders for path in Path(folder).glob("lib/libnvrtc.so.*")]
    return ctypes.CDLL(str(found[0])) if found else None


@cache
def ptx_of(source: str, architecture: int, lines: bool = False) -> str:
    """The PTX of a text, with `lines` also the places of instructions in it.

    Raises:
        ValueError: the compiler refuses it, with its words.
    """
    library = nvrtc()
    assert library is not None
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    given = [f"--gpu-architecture=compute_{architecture}", *(["-lineinfo"] if lines else [])]
    flags = (ctypes.c_char_p * len(given))(*(flag.encode() for flag in given))
    try:
        if library.nvrtcCompileProgram(program, len(given), flags):
            raise ValueError(_text(library, program, "ProgramLog"))
        return _text(library, program, "PTX")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    held = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, held)
    return held.value.decode(errors="replace")
