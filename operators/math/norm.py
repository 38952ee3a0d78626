"""Normalization: batch, layer, group, instance and root mean square.

All of them are out = (x - mean) / sqrt(variance + epsilon) * scale + bias; they differ in the axes
that mean and variance are taken over, and in the shape of scale and bias. So there is one pair of
kernels, and each operator says how it looks at its arrays (`_View`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...framework.base.dtypes import HALVES, wide
from ...framework.base.errors import ShapeError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ...framework.ir.rows import beside
from ..base.calls import copying, reducing


def _epsilon(default: float) -> AttrSpec:
    return AttrSpec("epsilon", "float", "added to the variance", default, minimum=0.0)


@dataclass(frozen=True)
class _View:
    """The shapes in which a normalization views its arrays.

    Attributes:
        shape: of x, out and their gradients. axes: those that statistics are taken over.
        param: shape of scale and bias, which broadcasts to `shape`.
        centered: whether the mean is taken off.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    param: tuple[int, ...]
    centered: bool = True

    @property
    def stat(self) -> tuple[int, ...]:
        """Shape of the statistics, the reduced axes as 1."""
        return tuple(1 if i in self.axes else dim for i, dim in enumerate(self.shape))

    @property
    def size(self) -> int:
        """Number of elements that one mean is taken over."""
        total = 1
        for axis in self.axes:
            total *= self.shape[axis]
        return total


def _stat(k: KernelArgs, view: _View, slot: str, dtype: Any) -> Any:
    """An array of statistics: the variable of an output slot, or scratch memory."""
    array = k.get(slot) if slot in k.op.inputs or slot in k.op.outputs else None
    return k.scratch(view.stat, dtype) if array is None else array.reshape(view.stat)


def _mean(k: KernelArgs, view: _View, source: Any, target: Any) -> Call:
    """target = mean of source."""
    return in_order(
        partial(k.xp.sum, source, axis=view.axes, keepdims=True, out=target),
        partial(k.xp.multiply, target, target.dtype.type(1 / view.size), out=target),
    )


def _to_inverse(k: KernelArgs, variance: Any) -> Call:
    """variance -> 1 / sqrt(variance + epsilon), in place."""
    xp = k.xp
    number = variance.dtype.type
    return in_order(
        partial(xp.add, variance, number(k.attrs["epsilon"]), out=variance),
        partial(xp.sqrt, variance, out=variance),
        partial(xp.divide, number(1), variance, out=variance),
    )


def _affine(k: KernelArgs, view: _View, out: Any) -> Call:
    """out = out * scale + bias; either may be left out."""
    scale = k.get("scale")
    bias = k.get("bias") if "bias" in k.op.entry.input_slots else None
    return in_order(
        None if scale is None else partial(k.xp.multiply, out, scale.reshape(view.param), out=out),
        None if bias is None else partial(k.xp.add, out, bias.reshape(view.param), out=out),
    )


def _normalize(
    k: KernelArgs, view: _View, mean: Any, inverse: Any, on_variance: Call | None = None
) -> Call:
    """The forward calls; `mean` and `inverse` are left holding the statistics.

    Args:
        on_variance: called while `inverse` still holds the variance.
    """
    xp = k.xp
    x, out = k["x"].reshape(view.shape), k["out"].reshape(view.shape)
    squares = k.scratch(view.shape, x.dtype)
    source = x
    calls = []
    if view.centered:
        calls += [_mean(k, view, x, mean), partial(xp.subtract, x, mean, out=out)]
        # Deviations wait in `out` until they are scaled, which spares an array.
        source = out
    return in_order(
        *calls,
        # Of deviations, in a second pass: the mean of squares less the square of the mean would
        # cancel.
        partial(xp.multiply, source, source, out=squares),
        _mean(k, view, squares, inverse),
        on_variance,
        _to_inverse(k, inverse),
        partial(xp.multiply, source, inverse, out=out),
        _affine(k, view, out),
    )


def _gradients(k: KernelArgs, view: _View, mean: Any, inverse: Any, constant: bool = False) -> Call:
    """The backward calls; `constant` statistics do not depend on x.

    With h = (x - mean) * inverse and g = out_grad * scale:
    x_grad = inverse * (g - mean(g) - h * mean(g * h)).
    """
    xp = k.xp
    x, grad = k["x"].reshape(view.shape), k["out_grad"].reshape(view.shape)
    scale, x_grad = k.get("scale"), k.get("x_grad")
    scale_grad = k.get("scale_grad")
    bias_grad = k.get("bias_grad") if "bias_grad" in k.op.outputs else None
    normal, product = k.scratch(view.shape, x.dtype), k.scratch(view.shape, x.dtype)
    calls: list[Call | None] = []
    if bias_grad is not None:
        calls.append(_summed(xp, view, grad, bias_grad))
    # The gradient of scale reads h; the gradient of x reads it through statistics of its own input.
    if scale_grad is not None or not constant:
        calls += [
            partial(xp.subtract, x, mean, out=normal) if view.centered else None,
            partial(xp.multiply, normal if view.centered else x, inverse, out=normal),
        ]
    if scale_grad is not None:
        calls += [
            partial(xp.multiply, grad, normal, out=product),
            _summed(xp, view, product, scale_grad),
        ]
    if x_grad is None:
        return in_order(*calls)
    x_grad = x_grad.reshape(view.shape)
    if scale is not None:
        # g lies in x_grad: later steps read all of it before it is changed, or go place by place.
        calls.append(partial(xp.multiply, grad, scale.reshape(view.param), out=x_grad))
        grad = x_grad
    if not constant:
        average = k.scratch(view.stat, x.dtype)
        if view.centered:
            shift = k.scratch(view.stat, x.dtype)
            calls.append(_mean(k, view, grad, shift))
        calls += [
            partial(xp.multiply, grad, normal, out=product),
            _mean(k, view, product, average),
            partial(xp.multiply, normal, average, out=normal),
            partial(xp.subtract, grad, normal, out=x_grad),
            partial(xp.subtract, x_grad, shift, out=x_grad) if view.centered else None,
        ]
        grad = x_grad
    return in_order(*calls, partial(xp.multiply, grad, inverse, out=x_grad))


def _summed(xp: Any, view: _View, source: Any, target: Any) -> Call | None:
    return reducing(xp, source, target.reshape(view.param))


# -- batch -------------------------------------------------------------------------------------


def _batch_view(shape: Sequence[int]) -> _View:
    axes = (0, *range(2, len(shape)))
    return _View(tuple(shape), axes, (1, shape[1], *(1,) * (len(shape) - 2)))


def _uses_batch(k: KernelArgs) -> bool:
    return k.train and not k.attrs["use_global_stats"]


_CHANNELS = ("scale", "bias", "mean", "variance")

batch_norm = operator(
    "batch_norm",
    doc="""Batch normalization of [N, C, ...], channel by channel:
out = (x - mean) / sqrt(variance + epsilon) * scale + bias.

While training, mean and (biased) variance are the batch's, and the running ones follow:
mean_out = (1 - momentum) * mean + momentum * batch mean, and alike variance_out with the unbiased
variance; they are usually written to the variables of `mean` and `variance`, which may be float32
where x is of half precision. While testing, or with
`use_global_stats`, the running ones are used and stay.""",
    inputs=[
        Slot("x", "[N, C, ...]"),
        Slot("scale", "[C]"),
        Slot("bias", "[C]", not_in_gradient=True),
        Slot("mean", "[C]: running mean", not_in_gradient=True),
        Slot("variance", "[C]: running variance", not_in_gradient=True),
    ],
    outputs=[
        Slot("out", "shape of x", not_in_gradient=True),
        Slot(
            "mean_out",
            "[C]",
            optional=True,
            intermediate=True,
            not_in_gradient=True,
            inplace="mean",
        ),
        Slot(
            "variance_out",
            "[C]",
            optional=True,
            intermediate=True,
            not_in_gradient=True,
            inplace="variance",
        ),
        Slot("saved_mean", "[C]: the mean that was used", intermediate=True),
        Slot("saved_inv_std", "[C]: 1 / sqrt(variance + epsilon) that was used", intermediate=True),
    ],
    attrs=[
        AttrSpec("momentum", "float", "weight of the batch in the running values", 0.1, 0.0, 1.0),
        _epsilon(1e-5),
        AttrSpec("use_global_stats", "bool", "also use the running values in training", False),
    ],
    source="Ioffe and Szegedy 2015; names and defaults as in PyTorch",
)


@batch_norm.shape_rule
def batch_norm_shape(s: ShapeArgs) -> None:
    x = s["x"]
    dtype = s.floats("x", "scale", "bias")
    running = s.floats("mean", "variance")
    if running not in (dtype, wide(dtype)):
        s.fail(f"mean and variance want dtype {dtype}" + (" or float32" * (dtype in HALVES)))
    if len(x) < 2:
        s.fail("x wants at least 2 dimensions")
    sizes = [s.rank(slot, 1)[0] for slot in _CHANNELS]
    channels = s.same(f"the channels of x and the sizes of {', '.join(_CHANNELS)}", x[1], *sizes)
    s.set("out", (x, dtype))
    for slot in ("mean_out", "variance_out"):
        s.set(slot, ((channels,), running))
    for slot in ("saved_mean", "saved_inv_std"):
        s.set(slot, ((channels,), wide(dtype)))


@batch_norm.kernel
def batch_norm_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    view = _batch_view(k.shape("x"))
    mean, inverse = (_stat(k, view, slot, x.dtype) for slot in ("saved_mean", "saved_inv_std"))
    running = [k[slot].reshape(view.stat) for slot in ("mean", "variance")]
    if not _uses_batch(k):
        return _with_running_values(k, view, running, mean, inverse)
    # Refused here: the shape rule does not know whether the run is one of training.
    if view.size < 2:
        specs = {k.op.inputs["x"][0]: (x.shape, x.dtype)}
        why = "training wants more than one value a channel"
        raise ShapeError(k.op.describe(f"{why} and has {view.size}", specs))
    momentum = k.attrs["momentum"]
    unbiased = momentum * view.size / (view.size - 1)
    return in_order(
        _normalize(k, view, mean, inverse, _move(k, running[1], "variance_out", inverse, unbiased)),
        _move(k, running[0], "mean_out", mean, momentum),
    )


def _move(k: KernelArgs, running: Any, slot: str, batch: Any, weight: float) -> Call | None:
    """Output `slot` = (1 - momentum) * running + weight * batch."""
    out = k.get(slot)
    if out is None:
        return None
    xp = k.xp
    number = running.dtype.type
    out = out.reshape(running.shape)
    step = k.scratch(running.shape, running.dtype)
    return in_order(
        partial(xp.multiply, running, number(1 - k.attrs["momentum"]), out=out),
        partial(xp.multiply, batch, number(weight), out=step),
        partial(xp.add, out, step, out=out),
    )


def _with_running_values(k: KernelArgs, view: _View, running: Any, mean: Any, inverse: Any) -> Call:
    """out = x * factor + term, with one factor and one term a channel."""
    xp = k.xp
    x = k["x"]
    out = k["out"]
    scale, bias = k["scale"].reshape(view.param), k["bias"].reshape(view.param)
    # Scale, bias and statistics meet once a channel, so an element costs one product and one sum.
    factor, term = k.scratch(view.stat, x.dtype), k.scratch(view.stat, x.dtype)
    copies = []
    for source, slot in zip(running, ("mean_out", "variance_out"), strict=True):
        target = k.get(slot)
        if target is not None:
            copies.append(copying(xp, source, target.reshape(view.stat)))
    return in_order(
        partial(xp.copyto, mean, running[0]),
        partial(xp.copyto, inverse, running[1]),
        *copies,
        _to_inverse(k, inverse),
        partial(xp.multiply, scale, inverse, out=factor),
        partial(xp.multiply, mean, factor, out=term),
        partial(xp.subtract, bias, term, out=term),
        partial(xp.multiply, x, factor, out=out),
        partial(xp.add, out, term, out=out),
    )


@batch_norm.backward("x", "scale", "bias")
def batch_norm_grad_kernel(k: KernelArgs) -> Call:
    view = _batch_view(k.shape("x"))
    mean, inverse = (k[slot].reshape(view.stat) for slot in ("saved_mean", "saved_inv_std"))
    return _gradients(k, view, mean, inverse, constant=not _uses_batch(k))


# -- within one sample -------------------------------------------------------------------------


def _register(
    name: str,
    doc: str,
    attrs: Sequence[AttrSpec],
    rule: Callable[[ShapeArgs], tuple[tuple[int, ...], tuple[int, ...]]],
    look: Callable[[Any], _View],
    *,
    centered: bool = True,
    source: str = "",
) -> OperatorDef:
    """An operator that normalizes with the statistics of its own input.

    Args:
        rule: gives the shapes of the statistics and of scale and bias, or refuses the input.
        look: gives the view of the arrays of a kernel.
    """
    params = ("scale", "bias") if centered else ("scale",)
    stats = ("mean", "inv_std") if centered else ("inv_rms",)

    def shape(s: ShapeArgs) -> None:
        present = [slot for slot in params if s.has(slot)]
        dtype = s.floats("x", *present)
        stat, param = rule(s)
        for slot in present:
            s.same_shape(f"{slot} and what it scales or shifts of x", s[slot], param)
        s.set("out", (s["x"], dtype))
        for slot in stats:
            s.set(slot, (stat, wide(dtype)))

    entry = operator(
        name,
        doc=doc,
        inputs=[
            Slot("x", "floats"),
            *(
                Slot(
                    slot, "see above; left out: none", optional=True, not_in_gradient=slot == "bias"
                )
                for slot in params
            ),
        ],
        outputs=[
            Slot("out", "shape of x", not_in_gradient=True),
            *(Slot(slot, "statistics that were used", intermediate=True) for slot in stats),
        ],
        attrs=attrs,
        source=source,
        shape=shape,
    )

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        view = look(k)
        arrays = [_stat(k, view, slot, k["x"].dtype) for slot in stats]
        # For rms_norm both are its one statistic; without centering the mean is not read.
        return _normalize(k, view, arrays[0], arrays[-1])

    @entry.backward("x", *params)
    def grad_kernel(k: KernelArgs) -> Call:
        view = look(k)
        arrays = [k[slot].reshape(view.stat) for slot in stats]
        return _gradients(k, view, arrays[0], arrays[-1])

    return entry


_BEGIN = AttrSpec("begin_norm_axis", "int", "first of the axes that are normalized", -1)


def _trailing_rule(s: ShapeArgs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    x = s["x"]
    begin = s.axis(s.attrs["begin_norm_axis"], len(x), "begin_norm_axis")
    if 0 in x[begin:]:
        s.fail("x has no elements along the axes that are normalized")
    return x[:begin], x[begin:]


def _trailing_view(k: KernelArgs, centered: bool = True) -> _View:
    shape = k.shape("x")
    begin = k.attrs["begin_norm_axis"] % len(shape)
    return _View(shape, tuple(range(begin, len(shape))), shape[begin:], centered)


layer_norm = _register(
    "layer_norm",
    "Layer normalization: out = (x - mean) / sqrt(variance + epsilon) * scale + bias, with mean and"
    " (biased) variance over the axes from `begin_norm_axis` on; scale and bias have the shape of"
    " these axes.",
    [_BEGIN, _epsilon(1e-5)],
    _trailing_rule,
    _trailing_view,
    source="Ba, Kiros and Hinton 2016",
)
layer_norm.rows = beside("begin_norm_axis", but=("scale", "bias"))

rms_norm = _register(
    "rms_norm",
    "Root mean square normalization: out = x / sqrt(mean(x**2) + epsilon) * scale, the mean over"
    " the axes from `begin_norm_axis` on; scale has the shape of these axes.",
    [_BEGIN, _epsilon(1e-6)],
    _trailing_rule,
    lambda k: _trailing_view(k, centered=False),
    centered=False,
    source="Zhang and Sennrich 2019",
)
rms_norm.rows = beside("begin_norm_axis", but=("scale", "bias"))


def _group_rule(s: ShapeArgs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    x = s["x"]
    if len(x) < 3 - ("groups" in s.attrs):
        s.fail(f"x wants at least {3 - ('groups' in s.attrs)} dimensions")
    groups = s.attrs.get("groups", x[1])
    if x[1] > 0 and x[1] % groups:
        s.fail(f"the {x[1]} channels of x do not split into {groups} groups")
    # x[0] may be 0: without a sample there is no mean to take.
    if 0 in x[1:]:
        s.fail("x has no elements along the axes that are normalized")
    return (x[0], groups), (x[1],)


def _group_view(k: KernelArgs) -> _View:
    batch, channels, *spatial = k.shape("x")
    # instance_norm has no such attribute: there each channel is a group.
    groups = k.attrs.get("groups", channels)
    shape = (batch, groups, channels // groups, *spatial)
    param = (1, groups, channels // groups, *(1,) * len(spatial))
    return _View(shape, tuple(range(2, len(shape))), param)


group_norm = _register(
    "group_norm",
    "Group normalization of [N, C, ...]: out = (x - mean) / sqrt(variance + epsilon) * scale + bias"
    " with mean and (biased) variance over each sample's groups of C / groups channels; scale and"
    " bias are [C].",
    [AttrSpec("groups", "int", "number of groups", minimum=1), _epsilon(1e-5)],
    _group_rule,
    _group_view,
    source="Wu and He 2018",
)

instance_norm = _register(
    "instance_norm",
    "Instance normalization of [N, C, ...]: out = (x - mean) / sqrt(variance + epsilon) * scale +"
    " bias, with mean and (biased) variance over the spatial axes of each sample's channel; scale"
    " and bias are [C].",
    [_epsilon(1e-5)],
    _group_rule,
    _group_view,
    source="Ulyanov, Vedaldi and Lempitsky 2016",
)
