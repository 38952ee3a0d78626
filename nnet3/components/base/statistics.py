"""Statistics that components collect while they run: sums in float64, added to with every batch.

Each operator reads its totals and replaces them; a net gives both the same variable. Kaldi
draws by lot which batches it takes into account; here every batch counts, as only the averages
matter.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator
from ....operators.base.calls import reducing

NO_GRADIENT: Final = "statistics are not trained"
_SOURCE = "Kaldi: nnet3/nnet-component-itf.cc"


def totals_slots(**docs: str) -> tuple[list[Slot], list[Slot]]:
    """Input slots, and the output slots that replace them."""
    inputs = [Slot(name, doc) for name, doc in docs.items()]
    outputs = [
        Slot(f"{name}_out", f"{name}, added to", inplace="" if name == "count" else name)
        for name in docs
    ]
    return inputs, outputs


def keep_totals(s: ShapeArgs, **shapes: tuple[int, ...]) -> None:
    """Totals keep their shapes, which must be these."""
    for name, wanted in shapes.items():
        s.same_shape(f"{name} and what is added to it", s[name], wanted)
        s.set(f"{name}_out", (s[name], s.floats(name)))


_SUMMED = ("value", "square", "sigmoid_slope", "tanh_slope", "relu_slope")

column_sums = operator(
    "nnet3.column_sums",
    doc=(
        "Adds the sums of the first D columns of f(x) [N, E] to total [D], and N to count [1]. f:"
        " x itself, its square, or the slope of a nonlinearity at its output x: x (1 - x) for"
        " sigmoid, 1 - x^2 for tanh, x > 0 for relu."
    ),
    inputs=[
        Slot("x", "[N, E]"),
        Slot("total", "[D], D <= E"),
        Slot("count", "[1]: rows so far", optional=True),
    ],
    outputs=[
        Slot("total_out", "total, added to", inplace="total"),
        Slot("count_out", "count, added to", optional=True),
    ],
    attrs=[AttrSpec("of", "string", "function f", "value", choices=_SUMMED)],
    source=_SOURCE,
    no_gradient=NO_GRADIENT,
)


@column_sums.shape_rule
def column_sums_shape(s: ShapeArgs) -> None:
    s.floats("x")
    counted = {"count": (1,)} if s.has("count") else {}
    cols, width = s.rank("x", 2)[1], s.rank("total", 1)[0]
    if 0 <= cols < width:
        s.fail(f"total wants sums of {width} columns and x has {cols}")
    keep_totals(s, total=(width,), **counted)


@column_sums.kernel
def column_sums_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    of = k.attrs["of"]
    x = k["x"][:, : k["total"].shape[0]]
    sums = k.scratch(x.shape[1:], x.dtype)
    work = k.scratch(x.shape, x.dtype)
    one = x.dtype.type(1)
    calls = []
    source = work
    if of == "value":
        source = x
    elif of == "relu_slope":
        calls.append(partial(xp.greater, x, x.dtype.type(0), work, casting="unsafe"))
    elif of == "sigmoid_slope":
        calls += [partial(xp.subtract, one, x, work), partial(xp.multiply, work, x, work)]
    else:
        calls.append(partial(xp.multiply, x, x, work))
        if of == "tanh_slope":
            calls.append(partial(xp.subtract, one, work, work))
    calls += [
        reducing(xp, source, sums),
        partial(xp.add, k["total"], sums, k["total_out"]),
    ]
    if k.get("count") is not None:
        calls.append(partial(xp.add, k["count"], x.shape[0], k["count_out"]))
    return in_order(*calls)
