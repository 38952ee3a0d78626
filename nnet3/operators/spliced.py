"""Products with rows of several matrices side by side, which are read where they lie.

Kaldi's commands copy the frames of a layer's offsets beside one another and multiply the result.
The products of the single matrices add up to the same.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.backends.products.product_kernels import register_product_kernels
from ...operators.linear.matmul import Product, of_one_factor, product

_SOURCE = "Kaldi: nnet3/nnet-computation.h, kCopyRows and kPropagate"
_NO_GRADIENT = "lowering makes it, and its gradient"


def column_blocks(array: Any, widths: list[int]) -> list[Any]:
    """The columns of a matrix as blocks of these widths."""
    ends = list(accumulate(widths))
    return [array[:, end - width : end] for end, width in zip(ends, widths, strict=True)]


def _parts(s: ShapeArgs, slot: str) -> tuple[int, int]:
    """Rows of each of the matrices of a slot, and their columns together."""
    rows = -1
    cols = 0
    for shape in s.shapes(slot):
        if len(shape) != 2:
            s.fail(f"{slot} wants matrices")
        rows = s.same(f"the rows of the matrices of {slot}", rows, shape[0])
        cols = cols + shape[1] if min(cols, shape[1]) >= 0 else -1
    return rows, cols


spliced_matmul = operator(
    "nnet3.spliced_matmul",
    doc=(
        "out = [x1 x2 ...] w^T for matrices x of equally many rows. x [N, D] each, w [M, sum of D]"
        " -> out [N, M]."
    ),
    inputs=[Slot("x", "[N, D] each", duplicable=True), Slot("w", "[M, sum of D]")],
    outputs=[Slot("out", "[N, M]")],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
)


@spliced_matmul.shape_rule
def spliced_matmul_shape(s: ShapeArgs) -> None:
    rows, cols = _parts(s, "x")
    units, taps = s.rank("w", 2)
    s.same("the columns of w and of all x", cols, taps)
    s.set("out", ((rows, units), s.floats("x", "w")))


@spliced_matmul.kernel
def bind_spliced_matmul(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `nnet3.spliced_matmul` on top of a product of two matrices."""
    parts = k.list("x")
    out = k["out"]
    by = k.scratch(out.shape, out.dtype)
    blocks = column_blocks(k["w"], [part.shape[1] for part in parts])
    return in_order(
        *(
            product(k.xp, part, block.T, out, by=by if number else None)
            for number, (part, block) in enumerate(zip(parts, blocks, strict=True))
        )
    )


spliced_weight_grad = operator(
    "nnet3.spliced_weight_grad",
    doc=(
        "Gradient of `nnet3.spliced_matmul` with respect to w: w_grad = out_grad^T [x1 x2 ...]."
        " x [N, D] each, out_grad [N, M] -> w_grad [M, sum of D]."
    ),
    inputs=[Slot("x", "[N, D] each", duplicable=True), Slot("out_grad", "[N, M]")],
    outputs=[Slot("w_grad", "[M, sum of D]")],
    source=_SOURCE,
    no_gradient="the gradient of a gradient is not built",
)


@spliced_weight_grad.shape_rule
def spliced_weight_grad_shape(s: ShapeArgs) -> None:
    rows, cols = _parts(s, "x")
    s.same("the rows of x and of out_grad", rows, s.rank("out_grad", 2)[0])
    s.set("w_grad", ((s["out_grad"][1], cols), s.floats("x", "out_grad")))


@spliced_weight_grad.kernel
def bind_spliced_weight_grad(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `nnet3.spliced_weight_grad` on top of a product of two matrices."""
    parts = k.list("x")
    grad = k["out_grad"]
    product = of_one_factor(product)
    blocks = column_blocks(k["w_grad"], [part.shape[1] for part in parts])
    return in_order(
        *(product(k.xp, grad.T, part, block) for part, block in zip(parts, blocks, strict=True))
    )


spliced_input_grad = operator(
    "nnet3.spliced_input_grad",
    doc=(
        "Gradients of `nnet3.spliced_matmul` with respect to its x, one after another:"
        " x_grad = out_grad w[:, first : first + columns]. Those whose entry of `adds` is not 0"
        " are added to what is there: `y` names these, and nothing in place of the others, which"
        " may lie in the same rows."
        " out_grad [N, M], w [M, sum of D] -> x_grad [N, D] each."
    ),
    inputs=[
        Slot("out_grad", "[N, M]"),
        Slot("w", "[M, sum of D]"),
        Slot("y", "[N, D] each, the x_grad that are added to", duplicable=True, optional=True),
    ],
    outputs=[Slot("x_grad", "[N, D] each", duplicable=True, inplace="y")],
    attrs=[
        AttrSpec("first", "ints", "for each x, the first of its columns of w"),
        AttrSpec("columns", "ints", "columns of each x"),
        AttrSpec("adds", "ints", "for each x, whether its gradient is added"),
    ],
    source=_SOURCE,
    no_gradient="the gradient of a gradient is not built",
)


@spliced_input_grad.shape_rule
def spliced_input_grad_shape(s: ShapeArgs) -> None:
    (rows, units), (outer, taps) = s.rank("out_grad", 2), s.rank("w", 2)
    first, columns, adds = (list(s.attrs[name]) for name in ("first", "columns", "adds"))
    s.same("the columns of out_grad and the rows of w", units, outer)
    if not len(first) == len(columns) == len(adds):
        s.fail(f"has {len(first)} first, {len(columns)} columns and {len(adds)} adds")
    ends = [at + width for at, width in zip(first, columns, strict=True)]
    if not ends or min(first) < 0 or min(columns) < 1 or 0 <= taps < max(ends):
        s.fail(f"has columns from {first} to {ends} of the {taps} of w")
    dtype = s.floats("out_grad", "w")
    s.set("x_grad", *(((rows, width), dtype) for width in columns))


@spliced_input_grad.kernel
def bind_spliced_input_grad(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `nnet3.spliced_input_grad` on top of a product of two matrices."""
    grad = k["out_grad"]
    product = of_one_factor(product)
    targets = k.list("x_grad")
    first = k.attrs["first"]
    w = k["w"]
    by = k.scratch((len(grad), max(target.shape[1] for target in targets)), grad.dtype)
    calls = []
    for target, begin, adds in zip(targets, first, k.attrs["adds"], strict=True):
        block = w[:, begin : begin + target.shape[1]]
        spare = by.reshape(-1)[: target.size].reshape(target.shape) if adds else None
        calls.append(product(k.xp, grad, block, target, by=spare))
    return in_order(*calls)


for _type, _bind in {
    "nnet3.spliced_matmul": bind_spliced_matmul,
    "nnet3.spliced_weight_grad": bind_spliced_weight_grad,
    "nnet3.spliced_input_grad": bind_spliced_input_grad,
}.items():
    register_product_kernels(_type, _bind)
