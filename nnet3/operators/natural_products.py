"""Gradients of matrices and vectors from preconditioned factors, for natural gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import reducing

_NO_GRADIENT = "it serves updates of parameters"

splice_rows = operator(
    "nnet3.splice_rows",
    doc=(
        "Rows of x [N, D] side by side: row r of out [rows, K*D] holds the rows first[k] + stride *"
        " r of x; without `first`, x itself. `ones` appends a column of ones."
    ),
    inputs=[Slot("x", "[N, D]")],
    outputs=[Slot("out", "[rows, K*D] or [rows, K*D+1]")],
    attrs=[
        AttrSpec("first", "ints", "input row that the first output row reads, for each part", ()),
        AttrSpec("stride", "int", "distance of the rows of neighboring outputs", 1, minimum=1),
        AttrSpec("rows", "int", "rows of the output, where `first` is given", 0, minimum=0),
        AttrSpec("ones", "bool", "append ones, which stand for a bias", False),
    ],
    source="Kaldi: nnet3/nnet-tdnn-component.cc (UpdateNaturalGradient)",
    no_gradient=_NO_GRADIENT,
)


@splice_rows.shape_rule
def splice_rows_shape(s: ShapeArgs) -> None:
    rows, cols = s.rank("x", 2)
    a = s.attrs
    if a["first"]:
        last = max(a["first"]) + a["stride"] * (a["rows"] - 1)
        if rows >= 0 and a["rows"] and (min(a["first"]) < 0 or last >= rows):
            s.fail(f"rows {min(a['first'])} to {last} are read and x has {rows}")
        rows = a["rows"]
        cols = cols * len(a["first"]) if cols >= 0 else -1
    s.set("out", ((rows, cols + a["ones"] if cols >= 0 else -1), s.floats("x")))


@splice_rows.kernel
def splice_rows_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    a = k.attrs
    parts = [x]
    if a["first"]:
        span = a["stride"] * (a["rows"] - 1) + 1 if a["rows"] else 0
        parts = [x[at : at + span : a["stride"]] for at in a["first"]]
    width = x.shape[1]
    pairs = [(out[:, i * width : (i + 1) * width], part) for i, part in enumerate(parts)]
    ones = out[:, -1:] if a["ones"] else out[:, :0]

    def compute() -> None:
        for target, part in pairs:
            xp.copyto(target, part)
        ones.fill(1)

    return compute


scaled_product = operator(
    "nnet3.scaled_product",
    doc=(
        "Gradients of an affine map from factors: w_grad [M, K] = s grad' x[:, :K], b_grad [M] = s"
        " grad' x[:, K], where x [N, K+1] has a column for the bias, else s times the sum of the"
        " rows of grad [N, M]. s is the product of all `scale`."
    ),
    inputs=[
        Slot("grad", "[N, M]"),
        Slot("x", "[N, K] or, with w_grad and b_grad, [N, K+1]", optional=True),
        Slot("scale", "factors, [1]", duplicable=True, optional=True),
    ],
    outputs=[
        Slot("w_grad", "[M, K]", optional=True),
        Slot("b_grad", "[M]", optional=True),
    ],
    source="Kaldi: nnet3/nnet-simple-component.cc",
    no_gradient=_NO_GRADIENT,
)


@scaled_product.shape_rule
def scaled_product_shape(s: ShapeArgs) -> None:
    rows, units = s.rank("grad", 2)
    dtype = s.floats("grad")
    for shape in s.shapes("scale"):
        s.same_shape("scale and [1]", shape, (1,))
    if s.has("x"):
        other, width = s.rank("x", 2)
        s.same("the rows of grad and x", rows, other)
        bias = int(s.has("b_grad"))
        if width == 0 and bias:
            s.fail("x has no column for b_grad")
        s.set("w_grad", ((units, width - bias if width >= 0 else -1), s.floats("grad", "x")))
    elif s.has("w_grad"):
        s.fail("w_grad wants x")
    s.set("b_grad", ((units,), dtype))


def _times(factors: list[Any]) -> Callable[[Any], None]:
    """A function that multiplies an array by all factors."""

    def multiply(array: Any) -> None:
        for factor in factors:
            array *= factor

    return multiply


@scaled_product.kernel
def scaled_product_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["grad"]
    x, w_grad, b_grad = (k.get(slot) for slot in ("x", "w_grad", "b_grad"))
    scaled = _times(k.list("scale"))
    summed = None if x is not None or b_grad is None else reducing(xp, grad, b_grad)

    def compute() -> None:
        if w_grad is not None:
            assert x is not None, "w_grad is computed from x"
            xp.matmul(grad.T, x[:, : w_grad.shape[1]], out=w_grad)
            scaled(w_grad)
        if b_grad is None:
            return
        if x is not None:
            xp.matmul(grad.T, x[:, -1], out=b_grad)
        scaled(b_grad)

    return in_order(summed, compute)


scaled_parts = operator(
    "nnet3.scaled_parts",
    doc=(
        "The columns of x [M, K+1], times s: w_grad [M, K] all but the last, b_grad [M] the last."
        " Without b_grad, w_grad is [M, K+1]. s is the product of all `scale`."
    ),
    inputs=[
        Slot("x", "[M, K+1]"),
        Slot("scale", "factors, [1]", duplicable=True, optional=True),
    ],
    outputs=[Slot("w_grad", "[M, K]"), Slot("b_grad", "[M]", optional=True)],
    source="Kaldi: nnet3/nnet-convolutional-component.cc",
    no_gradient=_NO_GRADIENT,
)


@scaled_parts.shape_rule
def scaled_parts_shape(s: ShapeArgs) -> None:
    rows, cols = s.rank("x", 2)
    dtype = s.floats("x")
    for shape in s.shapes("scale"):
        s.same_shape("scale and [1]", shape, (1,))
    bias = int(s.has("b_grad"))
    if cols == 0 and bias:
        s.fail("x has no column for b_grad")
    s.set("w_grad", ((rows, cols - bias if cols >= 0 else -1), dtype))
    s.set("b_grad", ((rows,), dtype))


@scaled_parts.kernel
def scaled_parts_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    w_grad = k["w_grad"]
    b_grad = k.get("b_grad")
    scaled = _times(k.list("scale"))

    def compute() -> None:
        xp.copyto(w_grad, x[:, : w_grad.shape[1]])
        scaled(w_grad)
        if b_grad is not None:
            xp.copyto(b_grad, x[:, -1])
            scaled(b_grad)

    return compute
