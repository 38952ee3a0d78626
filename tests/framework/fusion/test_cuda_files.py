"""Files of CUDA: every kernel compiles for every architecture, in both types of elements."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from cuda_compiler import ARCHITECTURES, nvrtc, ptx_of
from opscope import native
from opscope.framework.fusion.cuda.device_kernels import cuda_text, source_of
from opscope.nnet3.chain import operator_cuda
from opscope.nnet3.components.base import columns_cuda
from opscope.nnet3.operators import natural_gradient_cuda, updates_cuda

FILES = sorted(path.stem for path in (Path(native.__file__).parent / "cuda").glob("*.cu"))
WHOLE = {
    "batch_norm": columns_cuda._text(),
    "chain": operator_cuda._text(),
    "ctc": cuda_text("ctc").replace("LABEL", "int64"),
    "copies": cuda_text("copies").replace("UNIT", "uint16"),
    "indexes": cuda_text("indexes").replace("ID ", "int32 "),
    "natural_gradient": natural_gradient_cuda._text(),
    "recurrent": columns_cuda._recurrent(),
    "row_lists": "",  # kernels that test_device_budget.py compiles, with the loops of its nets
    "rows": cuda_text("labels", "rows"),
    "updates": updates_cuda._text(),
    "windows": cuda_text("windows").replace("WINNER", "int32"),
}
"""The texts of files that begin with definitions of their own."""


@pytest.mark.skipif(nvrtc() is None, reason="no nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize("name", sorted({*FILES} - {"names", "prelude"}))
def test_every_kernel_compiles(name):
    text = WHOLE.get(name, cuda_text(name))
    kernels = re.findall(r"^KERNEL (\w+)", text, re.MULTILINE)
    assert kernels or name in ("row_lists", "columns")
    for dtype, architecture in product(("float32", "float64"), ARCHITECTURES):
        ptx = ptx_of(source_of(text, dtype), architecture)
        assert {f".entry {kernel}(" for kernel in kernels} == set(re.findall(r"\.entry \w+\(", ptx))


def test_wheels_hold_the_files():
    settings = (Path(native.__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert '"cuda/*.cu"' in settings and len(FILES) > 10
