"""What a mean divides by: the weight of a rank's loss among the losses of all ranks."""

from __future__ import annotations

from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator

element_count = operator(
    "element_count",
    doc="""How many elements x has: out [], float64. With mask, sum(mask) times the number of
elements of x that each of its entries goes for: what `masked_mean` divides by.""",
    inputs=[
        Slot("x", "any shape; its values are not read", shape_only=True),
        Slot("mask", "leading dimensions of x", optional=True),
    ],
    outputs=[Slot("out", "[], float64")],
    no_gradient="it depends on the shape of x alone",
)


@element_count.shape_rule
def element_count_shape(s: ShapeArgs) -> None:
    if s.has("mask"):
        x, mask = s["x"], s["mask"]
        if len(mask) > len(x):
            s.fail(f"mask has {len(mask)} dimensions, more than x with {len(x)}")
        s.same_shape("mask and the leading dimensions of x", x[: len(mask)], mask)
    s.set("out", ((), "float64"))


@element_count.kernel
def element_count_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    shape = k.shape("x")
    mask = k.get("mask")
    if mask is None:
        return lambda: out.fill(count(shape))
    each = count(shape[mask.ndim :])

    def run() -> None:
        # float64, as counts of many ranks are added up: float32 is exact to 2^24 only.
        out[...] = mask.sum(dtype="float64") * each

    return run
