"""Products with weights in blocks of 4, 8 or 16 bits, read as they lie (library "native").

Where rows are few, reading the weights takes the time: 32 numbers are 20 bytes with 4 bits, 36 with
8, 64 in bfloat16, and 128 as float32. Rows that are rounded to bytes are multiplied by VNNI, on
aarch64 by products of bytes, elsewhere as 16-bit integers, and all have the same sums. Numbers in
bfloat16 become floats in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....framework.base.sizes.shape import count
from ....framework.fusion import team
from ....framework.fusion.compiled import native
from ....framework.fusion.compiled.arguments import bind
from ....framework.ir.kernel_args import Call, KernelArgs
from ...base.calls import is_whole
from ...base.nbits import elements
from ...linear.matmul import as_rows
from ...linear.matmul_nbits import matmul_nbits

_UNIT = 32
"""Elements of which a block holds a whole number."""
_READ, _SPEED = 4, 4
"""Work of reading a byte of the weights; multiplications in the time of one of float32."""


def _kernel(k: KernelArgs) -> Call | None:
    library = native.load("block_products")
    w, bits = k["w"], k.attrs["bits"]
    block = elements(w.shape[2], bits)
    others = {slot: k.get(slot) for slot in ("scale", "zero", "bias")}
    given = [w, *(one for one in others.values() if one is not None)]
    if library is None or block % _UNIT or not all(map(is_whole, given)):
        return None
    depth = k["x"].shape[-1]
    x, load = as_rows(k, k["x"], count(k["x"].shape[:-1]), depth)
    out, store = as_rows(k, k["out"], len(x), len(w), write=True)
    if not x.size or not out.size or not _lie_well(x, out):
        return None
    blocks = w.shape[1]
    both: dict[str, Any] = {"m": len(x), "k": depth, "bits": bits, "block": block}
    if k.attrs["int8_x"]:
        both["rounded"] = k.scratch((len(x), blocks * block), np.uint8)
        both["scales"] = k.scratch((len(x), blocks), np.float32)
        both["sums"] = k.scratch((len(x), blocks), np.int32)
    else:
        both["reals"] = k.scratch((len(x), blocks * block), np.float32)
    arranging = bind(library, "arrange_blocks", x=x, **both)
    multiplying = bind(library, "block_product", n=len(w), w=w, out=out, **others, **both)
    speed = _SPEED if k.attrs["int8_x"] else 1
    work = max(_READ * w.size, out.size * depth // speed)
    product = team.block_task(work, arranging, multiplying)
    return team.in_order(*load, product, *store)


def _lie_well(*arrays: Any) -> bool:
    """Whether these are matrices of NumPy whose rows lie in one piece, one after another."""
    return all(
        type(one) is np.ndarray
        and one.flags.aligned
        and one.strides[1] == one.itemsize
        and one.strides[0] >= 0
        for one in arrays
    )


matmul_nbits.kernel(_kernel, device="cpu", dtypes=(np.float32,), library="native")
