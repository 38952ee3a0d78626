"""The CUDA of fused chains is valid: every operator's scalar expression goes through nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cuda_compiler import nvrtc, ptx_of
from scalar_kernels import HEAD, kernel, loops_of

HALVES = """\
#include <cuda_fp16.h>
typedef __half float16;
"""


def nvcc() -> str:
    """The CUDA compiler: on the PATH or where CUDA is usually installed; "" for none."""
    folders = [os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    places = [str(Path(folder) / "bin") for folder in folders if folder]
    return shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(places)) or ""


@pytest.mark.skipif(
    nvrtc() is None or bool(nvcc()), reason="no nvidia-cuda-nvrtc-cu12, or nvcc does it below"
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_expression_compiles_without_a_gpu(dtype):
    parts = [kernel(loop, number) for number, loop in enumerate(loops_of(dtype))]
    assert ptx_of(HEAD + "".join(parts), 70).count(".entry") == len(parts) > 100


@pytest.mark.skipif(not nvcc(), reason="no CUDA compiler (nvcc)")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_expression_compiles(dtype, tmp_path):
    parts = [kernel(loop, number) for number, loop in enumerate(loops_of(dtype))]
    assert len(parts) > 100
    source = tmp_path / "chains.cu"
    source.write_text(HALVES + HEAD + "".join(parts))
    ran = subprocess.run(
        [nvcc(), "-ptx", "-Xcicc", "-O1", "-diag-suppress", "39,177", str(source)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert ran.returncode == 0, ran.stderr[:3000]
    assert (tmp_path / "chains.ptx").read_text().count(".entry") == len(parts)
