"""Updates of parameters as in Kaldi's trainer: changes, their bounds, and constraints after them.

A component's change in one minibatch, times its learning rate, is collected in variables of its own
("delta"); with momentum a share of it stays there. `nnet3.max_change` finds by how much the changes
of all components must be scaled down, `nnet3.apply_change` adds them.

Source: Kaldi's `nnet3/nnet-training.cc`, `nnet3/nnet-utils.cc`.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.dtypes import is_float
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import copying
from ...operators.base.ranks import ranks_of

_NO_GRADIENT = "an update of parameters"
UPDATE_SPEED = 0.125
"""How fast a matrix moves to orthonormal rows; 1/8 converges quadratically (Povey et al. 2018)."""

parameter_delta = operator(
    "nnet3.parameter_delta",
    doc=(
        "The change of a component's parameters: delta_out = momentum * delta + rate * (grad -"
        " 2 l2 * l2_scale * param) for each parameter. Where `kept` is 0 or no delta is given,"
        " nothing is left of the change before; where no grad is given, it is 0."
    ),
    inputs=[
        Slot("param", "parameters, any shapes", duplicable=True),
        Slot("grad", "their gradients", duplicable=True, optional=True),
        Slot("delta", "the change before", duplicable=True, optional=True),
        Slot("rate", "learning rate, [1]"),
        Slot("l2_scale", "factor of l2, [1]"),
        Slot("kept", "[1]: 0 where the change before was not applied", optional=True),
    ],
    outputs=[Slot("delta_out", "the change", duplicable=True)],
    attrs=[
        AttrSpec("l2", "float", "L2 regularization of the component", 0.0, minimum=0.0),
        AttrSpec("momentum", "float", "share of the change before", 0.0, minimum=0.0),
    ],
    source="Kaldi: nnet3/nnet-training.cc, nnet3/nnet-utils.cc (ApplyL2Regularization)",
    no_gradient=_NO_GRADIENT,
)


def _scalars(s: ShapeArgs, *slots: str) -> None:
    for slot in slots:
        if s.has(slot):
            s.same_shape(f"{slot} and [1]", s[slot], (1,))


@parameter_delta.shape_rule
def parameter_delta_shape(s: ShapeArgs) -> None:
    _scalars(s, "rate", "l2_scale", "kept")
    s.floats("param")
    specs = s.specs("param")
    for slot in ("grad", "delta"):
        if s.has(slot):
            others = s.specs(slot)
            s.same(f"the numbers of param and {slot}", len(specs), len(others))
            for (shape, _), (other, _) in zip(specs, others, strict=True):
                s.same_shape(f"param and {slot}", shape, other)
    s.set("delta_out", *specs)


@parameter_delta.kernel
def parameter_delta_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    l2 = k.attrs["l2"]
    momentum = k.attrs["momentum"]
    rate = k["rate"]
    l2_scale = k["l2_scale"]
    kept = k.get("kept")
    params, targets = k.list("param"), k.list("delta_out")
    grads = k.list("grad") or [None] * len(params)
    deltas = k.list("delta") or [None] * len(params)
    scratch = [k.scratch(p.shape, p.dtype) for p in params] if grads[0] is not None or l2 else []

    def compute() -> None:
        step = float(k.state.fetched(rate)[0])
        decay = -2.0 * l2 * float(k.state.fetched(l2_scale)[0]) * step
        share = momentum if kept is None or kept[0] else 0.0
        for number, (param, grad, delta, target) in enumerate(
            zip(params, grads, deltas, targets, strict=True)
        ):
            real = param.dtype.type
            if delta is None or not share:
                fresh = True
            else:
                fresh = False
                xp.multiply(delta, real(share), out=target)
            if grad is not None:
                if fresh:
                    xp.multiply(grad, real(step), out=target)
                else:
                    xp.multiply(grad, real(step), out=scratch[number])
                    xp.add(target, scratch[number], out=target)
            elif fresh:
                target.fill(0)
            if decay:
                xp.multiply(param, real(decay), out=scratch[number])
                xp.add(target, scratch[number], out=target)

    return compute


max_change = operator(
    "nnet3.max_change",
    doc=(
        "Factors that keep changes of parameters within bounds. Component c has `arrays[c]` of the"
        " delta and may change by bounds[c] (0: any amount), all together by `total`, in Euclidean"
        " norm after multiplication with |scale| and relative to bound_scale. factors [C]: of each"
        " component for its own bound; change [1]: norm of all changes so bounded; scales [C]:"
        " factors of the deltas, all 0 where the change is not finite; kept [1]: 0 in that"
        " case, else 1."
    ),
    inputs=[
        Slot("delta", "changes, any shapes", duplicable=True),
        Slot("scale", "factor of all changes, [1]"),
        Slot("bound_scale", "factor of all bounds, [1]"),
    ],
    outputs=[
        Slot("scales", "[C]"),
        Slot("factors", "[C]"),
        Slot("change", "[1]"),
        Slot("kept", "[1]"),
    ],
    attrs=[
        AttrSpec("arrays", "ints", "number of arrays of each component", minimum=0),
        AttrSpec("bounds", "floats", "largest change of each component; 0 = any", minimum=0.0),
        AttrSpec("total", "float", "largest change of all together; 0 = any", 2.0, minimum=0.0),
    ],
    source="Kaldi: nnet3/nnet-utils.cc (UpdateNnetWithMaxChange)",
    no_gradient=_NO_GRADIENT,
)


@max_change.shape_rule
def max_change_shape(s: ShapeArgs) -> None:
    _scalars(s, "scale", "bound_scale")
    arrays, bounds = s.attrs["arrays"], s.attrs["bounds"]
    s.same("the lengths of arrays and bounds", len(arrays), len(bounds))
    s.same("the sum of arrays and the number of delta", sum(arrays), len(s.specs("delta")))
    if s.has("delta"):
        s.floats("delta")
    dtype = s.floats("scale")
    for slot, size in (("scales", len(arrays)), ("factors", len(arrays)), ("change", 1)):
        s.set(slot, ((size,), dtype))
    s.set("kept", ((1,), dtype))


@max_change.kernel
def max_change_kernel(k: KernelArgs) -> Call:
    xp, attrs = k.xp, k.attrs
    deltas = [delta.reshape(-1) for delta in k.list("delta")]
    parts = k.scratch((len(deltas),), deltas[0].dtype if deltas else k["scale"].dtype)
    squared = [parts[number, ...] for number in range(len(deltas))]
    starts = np.cumsum([0, *attrs["arrays"]])[:-1]
    bounds = np.array(attrs["bounds"])
    some = np.array(attrs["arrays"]) > 0

    def compute() -> None:
        scale, loose = (float(k.state.fetched(k[slot])[0]) for slot in ("scale", "bound_scale"))
        for delta, square in zip(deltas, squared, strict=True):
            xp.dot(delta, delta, out=square)
        squares = to_host(parts).astype(np.float64)
        sums = np.zeros(len(bounds))
        sums[some] = np.add.reduceat(squares, starts[some]) if some.any() else 0.0
        norms = np.sqrt(sums) * abs(scale)
        limits = bounds * loose
        over = (bounds > 0) & (norms > limits)
        factors = np.where(over, limits / np.where(over, norms, 1.0), 1.0)
        change = math.sqrt(float((factors**2 * sums).sum())) * abs(scale)
        finite = math.isfinite(change) and bool(np.isfinite(norms).all())
        most = attrs["total"] * loose
        if most and change > most:
            scale *= most / change
        k["factors"][...] = xp.asarray(factors)
        k["scales"][...] = xp.asarray(factors * scale if finite else np.zeros(len(bounds)))
        k["change"][0] = change
        k["kept"][0] = float(finite)

    return compute


apply_change = operator(
    "nnet3.apply_change",
    doc="Adds changes to parameters: param_out = param + scales[index] * delta.",
    inputs=[
        Slot("param", "parameters, any shapes", duplicable=True),
        Slot("delta", "their changes", duplicable=True),
        Slot("scales", "[C]"),
    ],
    outputs=[Slot("param_out", "the parameters", duplicable=True)],
    attrs=[AttrSpec("index", "int", "which scale", minimum=0)],
    source="Kaldi: nnet3/nnet-utils.cc (AddNnetComponents)",
    no_gradient=_NO_GRADIENT,
)


@apply_change.shape_rule
def apply_change_shape(s: ShapeArgs) -> None:
    s.floats("param")
    specs, deltas = s.specs("param"), s.specs("delta")
    s.same("the numbers of param and delta", len(specs), len(deltas))
    for (shape, _), (other, _) in zip(specs, deltas, strict=True):
        s.same_shape("param and delta", shape, other)
    length = s.rank("scales", 1)[0]
    if 0 <= length <= s.attrs["index"]:
        s.fail(f"there are {length} scales, and none at {s.attrs['index']}")
    s.set("param_out", *specs)


@apply_change.kernel
def apply_change_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    scales = k["scales"]
    index = k.attrs["index"]
    params, deltas, targets = k.list("param"), k.list("delta"), k.list("param_out")
    scratch = [k.scratch(p.shape, p.dtype) for p in params]
    arrays = list(zip(params, deltas, targets, scratch, strict=True))

    # A change that is not finite is multiplied by 0.
    def compute() -> None:
        scale = float(scales[index])
        for param, delta, target, part in arrays:
            if scale:
                xp.multiply(delta, param.dtype.type(scale), out=part)
                xp.add(param, part, out=target)
            elif target is not param:
                xp.copyto(target, param)

    return compute


constrain_orthonormal = operator(
    "nnet3.constrain_orthonormal",
    doc=(
        "One step of w [M, N] towards orthonormal rows (columns, where it has more rows) of norm"
        " `scale`, or where that is negative, of the norm that leaves w's own size alone. It is"
        " made in one of four runs, drawn at random, where `wanted` is not 0. Of several ranks the"
        " first one draws for all."
    ),
    inputs=[Slot("w", "[M, N]"), Slot("wanted", "[1]", optional=True)],
    outputs=[Slot("w_out", "[M, N]")],
    attrs=[
        AttrSpec("scale", "float", "norm of the rows; negative = as it comes"),
        AttrSpec("probability", "float", "share of runs with a step", 0.25, 0.0, 1.0),
    ],
    source="Kaldi: nnet3/nnet-utils.cc (ConstrainOrthonormal); Povey et al. 2018",
    no_gradient=_NO_GRADIENT,
    random=True,
    world=True,
)


@constrain_orthonormal.shape_rule
def constrain_orthonormal_shape(s: ShapeArgs) -> None:
    _scalars(s, "wanted")
    s.rank("w", 2)
    if s.attrs["scale"] == 0:
        s.fail("a scale of 0 is no constraint")
    s.set("w_out", (s["w"], s.floats("w")))


@constrain_orthonormal.kernel
def constrain_orthonormal_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    state = k.state
    wanted = k.get("wanted")
    ranks = ranks_of(k)
    w = k["w_out"] if k["w"].shape[0] <= k["w"].shape[1] else k["w_out"].T
    gram = k.scratch((len(w), len(w)), w.dtype)
    change = k.scratch(w.shape, w.dtype)
    probability, scale = k.attrs["probability"], k.attrs["scale"]

    def step() -> None:
        if wanted is not None and not state.fetched(wanted)[0]:
            return
        drawn = np.array([state.host_generator.random()])
        ranks().broadcast(drawn)
        if drawn[0] >= probability:
            return
        xp.matmul(w, w.T, out=gram)
        speed = UPDATE_SPEED
        square = scale * scale
        if scale < 0:
            trace = float(xp.trace(gram))
            twice = float((gram * gram).sum())
            if trace < 1e-15:
                return  # nothing uses the component
            square = twice / trace
            ratio = twice * len(w) / (trace * trace)  # 1 where all rows have the same norm
            speed *= 0.25 if ratio > 1.1 else 0.5 if ratio > 1.02 else 1.0
        diagonal = gram.reshape(-1)[:: len(w) + 1]
        xp.subtract(diagonal, gram.dtype.type(square), out=diagonal)
        xp.matmul(gram, w, out=change)
        xp.multiply(change, gram.dtype.type(-4.0 * speed / square), out=change)
        xp.add(w, change, out=w)

    return in_order(copying(xp, k["w"], k["w_out"]), step)


scale_states = operator(
    "nnet3.scale_states",
    doc="Multiplies statistics: x_out = factor * x for each of them; factor [1].",
    inputs=[Slot("x", "any shapes", duplicable=True), Slot("factor", "[1]")],
    outputs=[Slot("x_out", "of the same shapes", duplicable=True)],
    source="Kaldi: nnet3/nnet-utils.cc (ScaleBatchnormStats)",
    no_gradient=_NO_GRADIENT,
)


@scale_states.shape_rule
def scale_states_shape(s: ShapeArgs) -> None:
    _scalars(s, "factor")
    for shape, dtype in s.specs("x"):
        if not shape or not is_float(dtype):
            s.fail(f"x wants floating arrays of at least one dimension, not {dtype} {list(shape)}")
    s.set("x_out", *s.specs("x"))


@scale_states.kernel
def scale_states_kernel(k: KernelArgs) -> Call:
    pairs = zip(k.list("x"), k.list("x_out"), strict=True)
    return in_order(*(partial(k.xp.multiply, x, k["factor"], out) for x, out in pairs))
