"""Every scalar expression of operators as a kernel in CUDA."""

from __future__ import annotations

from opscope.framework.fusion.cuda.cuda_source import gpu_source
from opscope.framework.fusion.scalars.codegen import FULL, ONE, Loop
from opscope.framework.ir.registry import load_operators, operator_types
from scalar_loops import loop_of

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
