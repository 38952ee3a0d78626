"""The CUDA of fused chains is valid: every operator's scalar expression goes through nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cuda_compiler import nvrtc, ptx_of
from opscope.framework.fusion.codegen import FULL, ONE, Loop
from opscope.framework.fusion.cuda_source import gpu_source
from opscope.framework.ir.registry import load_operators, operator_types
from scalar_loops import loop_of

HALVES = """\
#include <cuda_fp16.h>
typedef __half float16;
"""
HEAD = """\
typedef float float32;
typedef double float64;
typedef int int32;
typedef long long int64;
"""
KERNEL = """\
extern "C" __global__ void {name}({parameters}, int64 size) {{
  for (int64 i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x) {{
{elements}
{operation}
  }}
}}
"""


def nvcc() -> str:
    """The CUDA compiler: on the PATH or where CUDA is usually installed; "" for none."""
    folders = [os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    places = [str(Path(folder) / "bin") for folder in folders if folder]
    return shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(places)) or ""


def kernel(loop: Loop, number: int) -> str:
    """The loop as a CUDA function, with arrays as CuPy gives them to elementwise kernels."""
    source = gpu_source(loop)
    ins = [part.split() for part in source.in_params.split(", ") if part]
    outs = [part.split() for part in source.out_params.split(", ")]
    parameters = [f"const {dtype} *all_{name}" for dtype, name in ins]
    parameters += [f"{dtype} *all_{name}" for dtype, name in outs]
    elements = [f"    const {dtype} &{name} = all_{name}[i];" for dtype, name in ins]
    elements += [f"    {dtype} &{name} = all_{name}[i];" for dtype, name in outs]
    return KERNEL.format(
        name=f"{source.name}_{number}",
        parameters=", ".join(parameters),
        elements="\n".join(elements),
        operation="\n".join(f"    {line}" for line in source.operation.splitlines()),
    )


def loops_of(dtype: str) -> list[Loop]:
    """A loop of every scalar expression, over whole arrays and over one number."""
    load_operators()
    loops = [loop_of(op_type, dtype, kind) for op_type in operator_types() for kind in (FULL, ONE)]
    return [loop for loop in loops if loop is not None]


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
