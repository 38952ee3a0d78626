"""Elementwise components: nonlinearities, scales and offsets, products, constants.

Sigmoid, tanh, relu, log-softmax, scales and offsets are shared operators. `nnet3.scale_offset`
reads its output for the gradient, as Kaldi does, so that it may run in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import in_order, reducing
from ..components.nonlinear import UNSET_THRESHOLD
from .columns import divided
from .lowering import IN_DERIV, OUT, OUT_DERIV, Recipe, X, lowers
from .step import Step

_SOURCE = "Kaldi: nnet3/nnet-simple-component.cc"
SCALE_EPSILON = 1e-4
"""Scales of a ScaleAndOffsetComponent closer to 0 are taken for this."""

# (default lower, upper threshold) of the average slope in self-repair
_REPAIRED = {"sigmoid": (0.05, 1.0), "tanh": (0.2, 1.0), "relu": (0.05, 0.95)}

_SHARED = {
    "SigmoidComponent": "sigmoid",
    "TanhComponent": "tanh",
    "RectifiedLinearComponent": "relu",
    "LogSoftmaxComponent": "log_softmax",
}


def keep_statistics(component: Any, recipe: Recipe) -> None:
    """Statistics of a nonlinearity: sums of its values, slopes and squared output derivatives."""
    if not recipe.statistics:
        return
    c, kind, width = component, _SHARED.get(component.type), (component.dim,)
    if kind != "log_softmax":
        count = recipe.state("count", c.count)
        total = recipe.state("value_sum", c.value_sum, width)
        recipe.keep("nnet3.column_sums", x=OUT, total=total, count=count)
    if kind in _REPAIRED:
        slopes = recipe.state("deriv_sum", c.deriv_sum, width)
        recipe.keep("nnet3.column_sums", {"of": f"{kind}_slope"}, x=OUT, total=slopes)
        if c.self_repair_scale:
            lower, upper = _REPAIRED[kind]
            unset = UNSET_THRESHOLD
            given = c.self_repair_lower_threshold, c.self_repair_upper_threshold
            attrs = {
                "kind": kind,
                "lower": lower if given[0] == unset else float(given[0]),
                "upper": upper if given[1] == unset else float(given[1]),
                "scale": float(c.self_repair_scale),
                "block": int(c.block_dim),
            }
            recipe.keep(
                "nnet3.self_repair",
                attrs,
                when="after",
                grad=IN_DERIV,
                out=OUT,
                slopes=slopes,
                count=count,
                repaired=recipe.state("num_dims_self_repaired", c.num_dims_self_repaired),
                processed=recipe.state("num_dims_processed", c.num_dims_processed),
            )
    squares = recipe.state("oderiv_sumsq", c.oderiv_sumsq, width)
    rows = recipe.state("oderiv_count", c.oderiv_count)
    attrs = {"of": "square"}
    slots = {"x": OUT_DERIV, "total": squares, "count": rows}
    recipe.keep("nnet3.column_sums", attrs, when="before", **slots)


@lowers(*_SHARED)
def lower_shared(component: Any, recipe: Recipe) -> None:
    recipe.op(_SHARED[component.type], OUT, x=X)
    keep_statistics(component, recipe)


@lowers("PerElementScaleComponent", "NaturalGradientPerElementScaleComponent")
def lower_per_element_scale_component(component: Any, recipe: Recipe) -> None:
    recipe.op("mul", OUT, x=X, y=recipe.parameter("scales", component.scales))


@lowers("FixedScaleComponent")
def lower_fixed_scale_component(component: Any, recipe: Recipe) -> None:
    scale_by(recipe, recipe.parameter("scales", component.scales, trainable=False))


def scale_by(recipe: Recipe, factors: str) -> None:
    """out = x * factors, which get no gradient: then that of x needs no value of x."""
    recipe.op("mul", OUT, x=X, y=factors)
    recipe.backward = [Step.of("mul", {"x": OUT_DERIV, "y": factors}, {"out": IN_DERIV})]


@lowers("FixedBiasComponent")
def lower_fixed_bias_component(component: Any, recipe: Recipe) -> None:
    recipe.op("add", OUT, x=X, y=recipe.parameter("bias", component.bias, trainable=False))


@lowers("PerElementOffsetComponent")
def lower_per_element_offset_component(component: Any, recipe: Recipe) -> None:
    b = recipe.parameter("offsets", component.offsets)
    blocked = len(component.offsets) != component.dim
    recipe.op("nnet3.block_offset" if blocked else "add", OUT, x=X, y=b)


@lowers("ScaleAndOffsetComponent")
def lower_scale_and_offset_component(component: Any, recipe: Recipe) -> None:
    scale = recipe.parameter("scales", component.scales)
    offset = recipe.parameter("offsets", component.offsets)
    attrs = {"epsilon": SCALE_EPSILON}
    recipe.op("nnet3.scale_offset", OUT, attrs=attrs, x=X, scale=scale, offset=offset)


@lowers("ElementwiseProductComponent")
def lower_elementwise_product_component(component: Any, recipe: Recipe) -> None:
    attrs = {"blocks": int(component.input_dim // component.output_dim)}
    recipe.op("nnet3.elementwise_product", OUT, attrs=attrs, x=X)


@lowers("ConstantFunctionComponent")
def lower_constant_function_component(component: Any, recipe: Recipe) -> None:
    y = recipe.parameter("output", component.output, bool(component.is_updatable))
    recipe.op("nnet3.constant_rows", OUT, x=X, y=y)


@lowers("ConstantComponent")
def lower_constant_component(component: Any, recipe: Recipe) -> None:
    y = recipe.parameter("output", component.output, bool(component.is_updatable))
    recipe.op("expand", OUT, attrs={"shape": [recipe.rows, len(component.output)]}, x=y)


def blocks_of(array: Any, width: int) -> Any:
    """A matrix [N, B*width] as [N, B, width]: a view, whatever its strides are."""
    rows, cols = array.shape
    return array.reshape(rows, cols // width, width)


def _block_rule(*vectors: str) -> Callable[[ShapeArgs], None]:
    def rule(s: ShapeArgs) -> None:
        dtype = s.floats("x", *vectors)
        cols = s.rank("x", 2)[1]
        widths = [s.rank(slot, 1)[0] for slot in vectors]
        width = s.same(f"the lengths of {' and '.join(vectors)}", *widths)
        if width == 0 or (min(cols, width) >= 0 and cols % width):
            s.fail(
                f"the {cols} columns of x are no multiple of {width}, the length of {vectors[0]}"
            )
        s.set("out", (s["x"], dtype))

    return rule


block_offset = operator(
    "nnet3.block_offset",
    doc="Offset of every block of columns: out[:, i] = x[:, i] + y[i % D]; x [N, B*D], y [D].",
    inputs=[
        Slot("x", "[N, B*D]", not_in_gradient=True),
        Slot("y", "[D]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[N, B*D]", inplace="x", not_in_gradient=True)],
    source=_SOURCE,
    shape=_block_rule("y"),
)


@block_offset.kernel
def block_offset_kernel(k: KernelArgs) -> Call:
    y = k["y"]
    return partial(k.xp.add, blocks_of(k["x"], len(y)), y, blocks_of(k["out"], len(y)))


@block_offset.backward("x", "y", inplace={"x_grad": "out_grad"})
def block_offset_grad_kernel(k: KernelArgs) -> Call:
    calls, grad = [], k["out_grad"]
    if k.get("y_grad") is not None:
        calls.append(reducing(k.xp, blocks_of(grad, len(k["y_grad"])), k["y_grad"]))
    if k.get("x_grad") is not None:
        calls.append(reducing(k.xp, grad, k["x_grad"]))
    return in_order(*calls)


scale_offset = operator(
    "nnet3.scale_offset",
    doc=(
        "Scale and offset of every block of columns: out[:, i] = s[i % D] x[:, i] + offset[i % D],"
        " where s is `scale` with elements between -epsilon and epsilon moved away from 0 to"
        " these bounds. x [N, B*D], scale [D], offset [D]. The gradient reads out, not x."
    ),
    inputs=[
        Slot("x", "[N, B*D]", not_in_gradient=True),
        Slot("scale", "[D]"),
        Slot("offset", "[D]"),
    ],
    outputs=[Slot("out", "[N, B*D]", inplace="x")],
    attrs=[AttrSpec("epsilon", "float", "least magnitude of a scale", 0.0, minimum=0.0)],
    source=_SOURCE,
    shape=_block_rule("scale", "offset"),
)


def _away_from_zero(k: KernelArgs, scale: Any) -> tuple[Any, Call | None]:
    """The scales used, and the call that computes them."""
    epsilon = k.attrs["epsilon"]
    if not epsilon:
        return scale, None
    xp, real = k.xp, scale.dtype.type
    used, positive, small = (k.scratch(scale.shape, d) for d in (scale.dtype, bool, bool))
    bound = k.scratch(scale.shape, scale.dtype)

    def compute() -> None:
        xp.greater_equal(scale, real(0), out=positive)
        xp.multiply(positive, real(2 * epsilon), out=bound)
        xp.subtract(bound, real(epsilon), out=bound)
        xp.copyto(used, scale)
        xp.absolute(scale, out=used)
        xp.less(used, real(epsilon), out=small)
        xp.copyto(used, scale)
        xp.copyto(used, bound, where=small)

    return used, compute


@scale_offset.kernel
def scale_offset_kernel(k: KernelArgs) -> Call:
    xp, width = k.xp, len(k["scale"])
    scale, prepare = _away_from_zero(k, k["scale"])
    x, out = blocks_of(k["x"], width), blocks_of(k["out"], width)
    return in_order(
        prepare,
        partial(xp.multiply, x, scale, out),
        partial(xp.add, out, k["offset"], out),
    )


@scale_offset.backward("x", "scale", "offset", inplace={"x_grad": "out_grad"})
def scale_offset_grad_kernel(k: KernelArgs) -> Call:
    xp, width, grad = k.xp, len(k["scale"]), k["out_grad"]
    scale, prepare = _away_from_zero(k, k["scale"])
    grad, out = blocks_of(grad, width), blocks_of(k["out"], width)
    calls = [prepare]
    if k.get("offset_grad") is not None:
        calls.append(reducing(xp, grad, k["offset_grad"]))
    if k.get("scale_grad") is not None:
        x = k.scratch(out.shape, out.dtype)
        calls += [
            partial(xp.subtract, out, k["offset"], x),
            partial(xp.divide, x, scale, x),
            partial(xp.multiply, x, grad, x),
            reducing(xp, x, k["scale_grad"]),
        ]
    if k.get("x_grad") is not None:
        calls.append(partial(xp.multiply, grad, scale, blocks_of(k["x_grad"], width)))
    return in_order(*calls)


scale_offset_terms = operator(
    "nnet3.scale_offset_terms",
    doc=(
        "What the gradient of the scales of nnet3.scale_offset is the sum of, over rows and blocks:"
        " terms = x * grad, with x found from out. out, grad and terms [N, B*D]; scale, offset [D]."
    ),
    inputs=[
        Slot("out", "[N, B*D]"),
        Slot("grad", "[N, B*D]"),
        Slot("scale", "[D]"),
        Slot("offset", "[D]"),
    ],
    outputs=[Slot("terms", "[N, B*D]")],
    attrs=[AttrSpec("epsilon", "float", "least magnitude of a scale", 0.0, minimum=0.0)],
    source=_SOURCE,
    no_gradient="it serves updates of parameters",
)


@scale_offset_terms.shape_rule
def scale_offset_terms_shape(s: ShapeArgs) -> None:
    shape = s.same_shape("out and grad", s["out"], s["grad"])
    s.same_shape("scale and offset", s["scale"], s["offset"])
    s.set("terms", (shape, s.floats("out", "grad", "scale", "offset")))


@scale_offset_terms.kernel
def scale_offset_terms_kernel(k: KernelArgs) -> Call:
    xp, width = k.xp, len(k["scale"])
    scale, prepare = _away_from_zero(k, k["scale"])
    terms = blocks_of(k["terms"], width)
    return in_order(
        prepare,
        partial(xp.subtract, blocks_of(k["out"], width), k["offset"], terms),
        partial(xp.divide, terms, scale, terms),
        partial(xp.multiply, terms, blocks_of(k["grad"], width), terms),
    )


elementwise_product = operator(
    "nnet3.elementwise_product",
    doc="Product over the blocks of columns: x [N, B*D] -> out [N, D].",
    inputs=[Slot("x", "[N, B*D]")],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    attrs=[AttrSpec("blocks", "int", "number of blocks, B", minimum=1)],
    source=_SOURCE,
)


@elementwise_product.shape_rule
def elementwise_product_shape(s: ShapeArgs) -> None:
    divided(s, s.attrs["blocks"], f"{s.attrs['blocks']} blocks")


@elementwise_product.kernel
def elementwise_product_kernel(k: KernelArgs) -> Call:
    xp, out, blocks = k.xp, k["out"], k.attrs["blocks"]
    parts = k["x"].reshape(out.shape[0], blocks, out.shape[1])
    if blocks == 1:
        return partial(xp.copyto, out, parts[:, 0])
    calls = [partial(xp.multiply, parts[:, 0], parts[:, 1], out)]
    calls += [partial(xp.multiply, out, parts[:, i], out) for i in range(2, blocks)]
    return in_order(*calls)


@elementwise_product.backward("x")
def elementwise_product_grad_kernel(k: KernelArgs) -> Call:
    xp, grad, blocks = k.xp, k["out_grad"], k.attrs["blocks"]
    shape = (grad.shape[0], blocks, grad.shape[1])
    x, x_grad, calls = k["x"].reshape(shape), k["x_grad"].reshape(shape), []
    for i in range(blocks):
        target, source = x_grad[:, i], grad
        for j in range(blocks):
            if j != i:
                calls.append(partial(xp.multiply, source, x[:, j], target))
                source = target
        if blocks == 1:
            calls.append(partial(xp.copyto, target, grad))
    return in_order(*calls)


constant_rows = operator(
    "nnet3.constant_rows",
    doc="The vector y [D] in every row: out [N, D], with as many rows as x [N, K].",
    inputs=[
        Slot("x", "[N, K]", shape_only=True, not_in_gradient=True),
        Slot("y", "[D]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    source=_SOURCE,
)


@constant_rows.shape_rule
def constant_rows_shape(s: ShapeArgs) -> None:
    s.set("out", ((s.rank("x", 2)[0], s.rank("y", 1)[0]), s.floats("y")))


@constant_rows.kernel
def constant_rows_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.copyto, k["out"], k["y"])


@constant_rows.backward("y")
def constant_rows_grad_kernel(k: KernelArgs) -> Call:
    return in_order(reducing(k.xp, k["out_grad"], k["y_grad"]))
