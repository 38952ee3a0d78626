"""Which gradients natural gradient takes the place of, component type by component type.

Kaldi preconditions inside a component's backprop, in one of three ways:

- a product of two matrices, W's gradient = (output derivative)' input: the rows of both factors;
- a sum over rows, the gradient of a vector: the rows that are summed;
- the gradient itself, where all rows share one small matrix: its rows, or rows and columns.

Each way is a few operators here; the result is scaled so that the norms stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import in_order, reducing
from .lowering import FROZEN, OUT, OUT_DERIV, PARAMETER, Recipe, X, deriv_of, preconditions
from .step import Step
from .time_height import OFFSETS

_NO_GRADIENT = "it serves updates of parameters"


class _Estimate:
    """The settings of one preconditioner of a component, and its variables in a recipe."""

    def __init__(
        self,
        recipe: Recipe,
        name: str,
        rank: int,
        period: int,
        alpha: float = 4.0,
        samples: float = 2000.0,
        batches: float = 0.0,
    ) -> None:
        self.recipe, self.name, self.rank = recipe, name, int(rank)
        self.attrs = {
            "update_period": int(period),
            "alpha": float(alpha),
            "samples_history": float(samples),
            "batches_history": float(batches),
        }

    def apply(self, source: str, cols: int) -> tuple[str, tuple[str, ...]]:
        """The preconditioned rows of `source`, which has `cols` columns, and their scale."""
        rank = min(self.rank, cols - 1)
        if rank < 1:  # there is only one direction
            return source, ()
        recipe = self.recipe
        first = {
            "w": np.zeros((rank, cols), np.float32),
            "d": np.zeros(rank, np.float32),
            "rho": np.zeros(1, np.float32),
            "count": np.zeros(1, np.int64),
        }
        state = {slot: recipe.keep_memory(f"{self.name}_{slot}", a) for slot, a in first.items()}
        out, scale = recipe.temp(), recipe.temp()
        recipe.natural.append(
            Step.of(
                "nnet3.precondition",
                {"x": source, "frozen": FROZEN} | state,
                {"out": out, "scale": scale} | {f"{s}_out": var for s, var in state.items()},
                self.attrs,
            )
        )
        return out, (scale,)


def _add(recipe: Recipe, op_type: str, inputs: Any, outputs: Any, attrs: Any = None) -> None:
    given = {slot: names for slot, names in inputs.items() if names}
    recipe.natural.append(Step.of(op_type, given, outputs, attrs))


def _param_deriv(recipe: Recipe, name: str) -> str:
    return deriv_of(PARAMETER + recipe.path + name)


def _product(
    recipe: Recipe,
    before: _Estimate,
    after: _Estimate,
    shape: tuple[int, int],
    names: tuple[str, str | None],
    splice: Any = None,
) -> None:
    """W's gradient [M, K] from the spliced input [N, K] and the output derivative [N, M]."""
    weight, bias = names
    units, width = shape
    source = X
    if bias or splice:
        source = recipe.temp()
        attrs = {"ones": bool(bias)} | (splice or {})
        _add(recipe, "nnet3.splice_rows", {"x": X}, {"out": source}, attrs)
    x, scale_in = before.apply(source, width + bool(bias))
    grad, scale_out = after.apply(OUT_DERIV, units)
    outputs = {"w_grad": _param_deriv(recipe, weight)}
    if bias:
        outputs["b_grad"] = _param_deriv(recipe, bias)
    scales = scale_in + scale_out
    _add(recipe, "nnet3.scaled_product", {"x": x, "grad": grad, "scale": scales}, outputs)


@preconditions("NaturalGradientAffineComponent", "LinearComponent")
def precondition_natural_gradient_affine_component(c: Any, recipe: Recipe) -> None:
    common = (c.update_period, c.alpha, c.num_samples_history)
    linear = c.type == "LinearComponent"
    _product(
        recipe,
        _Estimate(recipe, "in", c.rank_in, *common),
        _Estimate(recipe, "out", c.rank_out, *common),
        (c.output_dim, c.input_dim),
        ("params", None) if linear else ("linear_params", "bias_params"),
    )


@preconditions("TdnnComponent")
def precondition_tdnn_component(c: Any, recipe: Recipe) -> None:
    if not c.use_natural_gradient:
        return
    _product(
        recipe,
        _Estimate(recipe, "in", c.rank_in, 4, c.alpha_in, c.num_samples_history),
        _Estimate(recipe, "out", c.rank_out, 4, c.alpha_out, c.num_samples_history),
        c.linear_params.shape,
        ("linear_params", "bias_params" if len(c.bias_params) else None),
        OFFSETS,
    )


def _sum(recipe: Recipe, estimate: _Estimate, source: str, width: int, name: str) -> None:
    """A vector's gradient [D] from what is summed over the rows and blocks of [N, B*D]."""
    folded = recipe.temp()
    _add(recipe, "reshape", {"x": source}, {"out": folded}, {"shape": [-1, width]})
    rows, scale = estimate.apply(folded, width)
    outputs = {"b_grad": _param_deriv(recipe, name)}
    _add(recipe, "nnet3.scaled_product", {"grad": rows, "scale": scale}, outputs)


@preconditions("PerElementOffsetComponent")
def precondition_per_element_offset_component(c: Any, recipe: Recipe) -> None:
    if c.use_natural_gradient:
        _sum(recipe, _Estimate(recipe, "offset", 20, 4), OUT_DERIV, len(c.offsets), "offsets")


@preconditions("ConstantFunctionComponent", "ConstantComponent")
def precondition_constant_function_component(c: Any, recipe: Recipe) -> None:
    if c.is_updatable and c.use_natural_gradient:
        # Kaldi leaves the preconditioner as it is made: rank 40, an update with each batch.
        _sum(recipe, _Estimate(recipe, "output", 40, 1), OUT_DERIV, len(c.output), "output")


@preconditions("NaturalGradientPerElementScaleComponent")
def precondition_natural_gradient_per_element_scale_component(c: Any, recipe: Recipe) -> None:
    product = recipe.temp()
    _add(recipe, "mul", {"x": X, "y": OUT_DERIV}, {"out": product})
    estimate = _Estimate(recipe, "scale", c.rank, c.update_period, c.alpha, c.num_samples_history)
    _sum(recipe, estimate, product, len(c.scales), "scales")


@preconditions("ScaleAndOffsetComponent")
def precondition_scale_and_offset_component(c: Any, recipe: Recipe) -> None:
    if not c.use_natural_gradient:
        return
    (step,) = recipe.steps  # its input is found from its output, as in the plain gradient
    product = recipe.temp()
    read = dict(step.inputs)
    inputs = {"out": OUT, "grad": OUT_DERIV, "scale": read["scale"], "offset": read["offset"]}
    _add(recipe, "nnet3.scale_offset_terms", inputs, {"terms": product}, step.attrs)
    width = len(c.scales)
    _sum(recipe, _Estimate(recipe, "offset", c.rank, 4), OUT_DERIV, width, "offsets")
    _sum(recipe, _Estimate(recipe, "scale", c.rank, 4), product, width, "scales")


def _own(recipe: Recipe, *names: str) -> tuple[str, ...]:
    """Plain gradients under names of their own, for operators that change them."""
    recipe.plain |= {recipe.path + name: recipe.temp() for name in names}
    return tuple(recipe.plain[recipe.path + name] for name in names)


@preconditions("NaturalGradientRepeatedAffineComponent")
def precondition_natural_gradient_repeated_affine_component(c: Any, recipe: Recipe) -> None:
    units, width = c.linear_params.shape
    joined = _joined(recipe)
    rank = max(1, min(40, width // 2))
    rows, scale = _Estimate(recipe, "in", rank, 4).apply(joined, width + 1)
    _parted(recipe, rows, scale)


@preconditions("TimeHeightConvolutionComponent")
def precondition_time_height_convolution_component(c: Any, recipe: Recipe) -> None:
    if not c.use_natural_gradient:
        return
    units, width = c.linear_params.shape
    batches = c.num_minibatches_history
    before = _Estimate(recipe, "in", c.rank_in, 1, c.alpha_in, batches=batches)
    after = _Estimate(recipe, "out", c.rank_out, 1, c.alpha_out, batches=batches)
    rows, scale_in = before.apply(_joined(recipe), width + 1)
    turned, back = recipe.temp(), recipe.temp()
    _add(recipe, "transpose", {"x": rows}, {"out": turned})
    cols, scale_out = after.apply(turned, units)
    _add(recipe, "transpose", {"x": cols}, {"out": back})
    _parted(recipe, back, scale_in + scale_out)


def _joined(recipe: Recipe) -> str:
    """The plain gradients of linear parameters and bias side by side: [M, K+1]."""
    w, b = _own(recipe, "linear_params", "bias_params")
    column, joined = recipe.temp(), recipe.temp()
    _add(recipe, "reshape", {"x": b}, {"out": column}, {"shape": [-1, 1]})
    _add(recipe, "concat", {"x": (w, column)}, {"out": joined}, {"axis": 1})
    return joined


def _parted(recipe: Recipe, joined: str, scale: tuple[str, ...]) -> None:
    outputs = {
        "w_grad": _param_deriv(recipe, "linear_params"),
        "b_grad": _param_deriv(recipe, "bias_params"),
    }
    _add(recipe, "nnet3.scaled_parts", {"x": joined, "scale": scale}, outputs)


@preconditions("LstmNonlinearityComponent")
def precondition_lstm_nonlinearity_component(c: Any, recipe: Recipe) -> None:
    (plain,) = _own(recipe, "params")
    estimate = _Estimate(recipe, "params", 20, 2, samples=1000.0)
    rows, scale = estimate.apply(plain, c.params.shape[1])
    outputs = {"w_grad": _param_deriv(recipe, "params")}
    _add(recipe, "nnet3.scaled_parts", {"x": rows, "scale": scale}, outputs)


@preconditions("GruNonlinearityComponent", "OutputGruNonlinearityComponent")
def precondition_gru_nonlinearity_component(c: Any, recipe: Recipe) -> None:
    step = recipe.steps[-1]
    inputs = {"out_grad": OUT_DERIV, "out": OUT} | dict(step.inputs)
    value, grad = recipe.temp(), recipe.temp()
    op_type = f"{step.type}_factors"
    _add(recipe, op_type, inputs, {"value": value, "delta": grad})
    if c.type == "OutputGruNonlinearityComponent":
        product = recipe.temp()
        _add(recipe, "mul", {"x": value, "y": grad}, {"out": product})
        estimate = _Estimate(recipe, "w_h", c.rank, c.update_period, c.alpha)
        _sum(recipe, estimate, product, len(c.w_h), "w_h")
        return
    units, width = c.w_h.shape
    settings = (c.update_period, c.alpha)
    x, scale_in = _Estimate(recipe, "in", c.rank_in, *settings).apply(value, width)
    delta, scale_out = _Estimate(recipe, "out", c.rank_out, *settings).apply(grad, units)
    inputs = {"x": x, "grad": delta, "scale": scale_in + scale_out}
    outputs = {"w_grad": _param_deriv(recipe, "w_h")}
    _add(recipe, "nnet3.scaled_product", inputs, outputs)


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
        AttrSpec("stride", "int", "distance of the rows of neighbouring outputs", 1, minimum=1),
        AttrSpec("rows", "int", "rows of the output, where `first` is given", 0, minimum=0),
        AttrSpec("ones", "bool", "append ones, which stand for a bias", False),
    ],
    source="Kaldi: nnet3/nnet-tdnn-component.cc (UpdateNaturalGradient)",
    no_gradient=_NO_GRADIENT,
)


@splice_rows.shape_rule
def splice_rows_shape(s: ShapeArgs) -> None:
    (rows, cols), a = s.rank("x", 2), s.attrs
    if a["first"]:
        last = max(a["first"]) + a["stride"] * (a["rows"] - 1)
        if rows >= 0 and a["rows"] and (min(a["first"]) < 0 or last >= rows):
            s.fail(f"rows {min(a['first'])} to {last} are read and x has {rows}")
        rows, cols = a["rows"], cols * len(a["first"]) if cols >= 0 else -1
    s.set("out", ((rows, cols + a["ones"] if cols >= 0 else -1), s.floats("x")))


@splice_rows.kernel
def splice_rows_kernel(k: KernelArgs) -> Call:
    xp, x, out, a = k.xp, k["x"], k["out"], k.attrs
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
        s.set("w_grad", ((units, width - bias if width >= 0 else -1), s.floats("grad", "x")))
    s.set("b_grad", ((units,), dtype))


def _times(factors: list[Any]) -> Callable[[Any], None]:
    """A function that multiplies an array by all factors."""

    def multiply(array: Any) -> None:
        for factor in factors:
            array *= factor

    return multiply


@scaled_product.kernel
def scaled_product_kernel(k: KernelArgs) -> Call:
    xp, grad = k.xp, k["grad"]
    x, w_grad, b_grad = (k.get(slot) for slot in ("x", "w_grad", "b_grad"))
    scaled = _times(k.list("scale"))
    summed = None if x is not None or b_grad is None else reducing(xp, grad, b_grad)

    def compute() -> None:
        if w_grad is not None:
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
    (rows, cols), dtype = s.rank("x", 2), s.floats("x")
    for shape in s.shapes("scale"):
        s.same_shape("scale and [1]", shape, (1,))
    bias = int(s.has("b_grad"))
    s.set("w_grad", ((rows, cols - bias if cols >= 0 else -1), dtype))
    s.set("b_grad", ((rows,), dtype))


@scaled_parts.kernel
def scaled_parts_kernel(k: KernelArgs) -> Call:
    xp, x, w_grad, b_grad = k.xp, k["x"], k["w_grad"], k.get("b_grad")
    scaled = _times(k.list("scale"))

    def compute() -> None:
        xp.copyto(w_grad, x[:, : w_grad.shape[1]])
        scaled(w_grad)
        if b_grad is not None:
            xp.copyto(b_grad, x[:, -1])
            scaled(b_grad)

    return compute
