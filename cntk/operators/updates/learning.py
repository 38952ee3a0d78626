"""A learner: how a parameter follows its gradient, the operator that it becomes, and its names.

`learners` has CNTK's own. Others are added by `add_learner`, or by entry points of the group
`opscope.learners`. All read three numbers of a minibatch: `rate`, the learning rate per sample,
`momentum`, of this minibatch, and `columns`, its columns N (gaps count). A gradient with
`rows` changes these rows of the parameter and of its states only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ....framework.base.errors import OpscopeError, RunError
from ....framework.base.options.plugins import Plugins
from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.scalars.expression import names, parse
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, OperatorDef, Slot, operator, unregister
from ....operators.base.calls import copying
from ....operators.optim.updates import Method, dense_calls, merge_rows, prepare

SOURCE = "CNTK: Source/SGDLib/SGD.cpp"
RATE_SLOT = Slot("rate", "learning rate per sample, []")
COLUMNS_SLOT = Slot("columns", "N, columns of the minibatch, []")
CONTROL_SLOTS = (RATE_SLOT, Slot("momentum", "of this minibatch, []"), COLUMNS_SLOT)
ROWS_SLOT = Slot("rows", "the parameter's rows that grad holds, [R]; -1: none", optional=True)
RATE_ATTR = AttrSpec("rate_factor", "float", "multiplies the learning rate of this parameter", 1.0)


def check_control(s: ShapeArgs) -> None:
    """That what is there of rate, momentum and columns are numbers."""
    for slot in CONTROL_SLOTS:
        if s.has(slot.name):
            s.rank(slot.name, 0)
            s.floats(slot.name)


@dataclass(frozen=True)
class Learner:
    """How a parameter follows its gradient.

    Attributes:
        type: of the operator, `package.name`.
        doc: of the operator, a sentence.
        states: names of the states of the parameter's shape, in the order of CNTK's checkpoints.
        counted: whether there is a state `count`, a number.
        counts: whether checkpoints hold `count`; CNTK's lack it for RMSProp.
        grows: whether a checkpoint from before the first update holds one matrix of zeros for each
            parameter in place of the states, as CNTK's do.
        bind: (k, shape) -> update(control, p, g, states, count): changes p, the states and `count`
            in place; g is scratch; `control` is rate per sample, momentum, columns. It gets arrays
            of `shape`, or for sparse gradients rows of them, where `shape` is None. `k.attrs` has
            the attributes, `rate_factor` of the parameter among them.
        scalar: output -> expression of one element over slots and attributes, where an update by
            a dense gradient is such: it becomes a part of compiled loops, and `bind` serves
            gradients with rows only. Of `control` it reads what the expressions mention; the rest
            is NaN.
        attrs: attributes, which a config gives in a section that is called as the learner is.
        initial: first values of states, where not 0.
    """

    type: str
    doc: str
    states: tuple[str, ...]
    bind: Callable[[Any, Any], Callable[..., None]]
    counted: bool = False
    attrs: tuple[AttrSpec, ...] = ()
    initial: Mapping[str, float] = field(default_factory=dict)
    scalar: Mapping[str, str] = field(default_factory=dict)
    counts: bool = True
    grows: bool = False


GRADIENT_UPDATES = {
    "": "momentum_sgd",
    "none": "momentum_sgd",
    "normal": "momentum_sgd",
    "simple": "momentum_sgd",
    "adagrad": "adagrad",
    "rmsprop": "rms_prop",
    "fsadagrad": "fs_adagrad",
}
"""The learners of this package by CNTK's names, the values of `gradUpdateType` in lower case."""

PLUGINS: Plugins[Learner] = Plugins("learner", "opscope.learners", GRADIENT_UPDATES, any_case=True)
_OWN: dict[str, Learner] = {}
_MADE: dict[str, Learner] = {}


def add_learner(name: str, learner: Learner) -> None:
    """Let `gradUpdateType = name` of a config mean a learner. A package does the same by an entry
    point of the group `opscope.learners`, which names a `Learner`.

    Raises:
        OpscopeError: there is such a learner.
    """
    PLUGINS.add(name, learner)


def find_learner(name: str) -> Learner | None:
    """The learner that `SgdOptions.learner` names: the end of the type of one of this package, or
    the name of another; None where there is none.

    Raises:
        OpscopeError: a plug-in cannot be loaded, or is no Learner.
    """
    if name in _OWN:
        return _OWN[name]
    learner = PLUGINS.find(name)
    if learner is None:
        return None
    if not isinstance(learner, Learner):
        class_name = type(learner).__name__
        raise OpscopeError(
            f"{PLUGINS.owner(name)} is an object of the class {class_name}, no Learner"
        )
    if _MADE.get(learner.type) is not learner:
        if learner.type in _MADE:  # of a name which was removed and added again
            unregister(learner.type)
        _operator_of(learner)
        _MADE[learner.type] = learner
    return learner


def register(learner: Learner) -> OperatorDef:
    """Make a learner of this package known."""
    _OWN[learner.type.removeprefix("cntk.")] = learner
    return _operator_of(learner)


def _operator_of(learner: Learner) -> OperatorDef:
    """The operator of a learner."""
    state_slots = [*learner.states, *(["count"] if learner.counted else [])]
    docs = {name: "a state, of the shape of param" for name in learner.states}
    docs["count"] = "how much went into the states, float64 []"
    entry = operator(
        learner.type,
        doc=f"{learner.doc} Here rate has the factor rate_factor, m is momentum, N columns.",
        inputs=[
            Slot("param", "any shape"),
            Slot("grad", "its gradient, or with `rows` some rows of it"),
            *_control_slots(learner),
            ROWS_SLOT,
            *(Slot(name, docs[name]) for name in state_slots),
        ],
        outputs=[
            Slot("param_out", "the parameter after the update", inplace="param"),
            *(Slot(f"{name}_out", f"new {name}", inplace=name) for name in learner.states),
            *([Slot("count_out", "new count")] if learner.counted else []),
        ],
        attrs=[RATE_ATTR, *learner.attrs],
        source=SOURCE,
        shape=partial(_rule, learner),
        no_gradient="an update of parameters",
        scalar=learner.scalar,
    )
    entry.kernel(partial(_kernel, learner))
    return entry


def _control_slots(learner: Learner) -> tuple[Slot, ...]:
    """Those that a learner reads: a loop's operands are what its expressions mention."""
    if not learner.scalar:
        return CONTROL_SLOTS
    read = set().union(*(names(parse(text)) for text in learner.scalar.values()))
    return tuple(slot for slot in CONTROL_SLOTS if slot.name in read)


def _rule(learner: Learner, s: ShapeArgs) -> None:
    check_control(s)
    param = s["param"]
    dtype = s.floats("param", "grad", *learner.states)
    if s.has("rows"):
        s.integers("rows")
        s.same("the rows of grad and the length of rows", s["grad"][0], s.rank("rows", 1)[0])
        s.same_shape("the rows of param and grad", param[1:], s["grad"][1:])
    else:
        s.same_shape("param and grad", param, s["grad"])
    s.set("param_out", (param, dtype))
    for name in learner.states:
        s.same_shape(f"param and {name}", param, s[name])
        s.set(f"{name}_out", (param, dtype))
    if learner.counted:
        s.rank("count", 0)
        s.set("count_out", ((), s.dtype("count")))


def _kernel(learner: Learner, k: KernelArgs) -> Call:
    if learner.scalar and "rows" not in k.op.inputs:
        method = Method(learner.type, learner.doc, learner.scalar, shared=_control_slots(learner))
        pairs = [(k[name], k[f"{name}_out"]) for name in ("param", *learner.states)]
        before, update = prepare(method, k, list(learner.states))
        return in_order(*before, *dense_calls(k, update, pairs))
    written = ["param", *learner.states, *(["count"] if learner.counted else [])]
    copies = [copying(k.xp, k[name], k[f"{name}_out"]) for name in written]
    param, *states = (k[f"{name}_out"] for name in ("param", *learner.states))
    count = k["count_out"] if learner.counted else None
    if "rows" in k.op.inputs:
        update = learner.bind(k, None)
        run = partial(_some_rows, k, update, param, states, count)
    else:
        grad = k["grad"]
        scratch = k.scratch(grad.shape, grad.dtype)
        update = learner.bind(k, grad.shape)

        def run() -> None:
            k.xp.copyto(scratch, grad)
            update(_numbers(k, param.dtype), param, scratch, states, count)

    return in_order(*copies, run)


def number(k: KernelArgs, slot: str) -> float:
    """Rate, momentum or columns of this minibatch."""
    return float(k.state.fetched(k[slot]))


def _numbers(k: KernelArgs, dtype: Any) -> list[float]:
    """Rate, momentum and columns; CNTK rounds the momentum before it takes 1 - m."""
    rate, momentum, columns = (
        number(k, slot.name) if slot.name in k.op.inputs else math.nan for slot in CONTROL_SLOTS
    )
    return [rate, float(dtype.type(momentum)), columns]


def check_rows(k: KernelArgs, ids: Any, param: Any) -> None:
    """That a parameter has the rows `ids`, which are sorted.

    Raises:
        RunError: it has not.
    """
    if ids.size and ids[-1] >= len(param):
        why = f"rows {k.op.inputs['rows'][0]!r} holds {int(ids[-1])}, want below {len(param)}"
        raise RunError(k.describe(why))


def _some_rows(
    k: KernelArgs,
    update: Callable[..., None],
    param: Any,
    states: Sequence[Any],
    count: Any,
) -> None:
    """Take the rows out, update them, put them back."""
    ids, grad = merge_rows(k.xp, k["rows"], k["grad"])
    if not ids.size:
        return
    check_rows(k, ids, param)
    tables = [param, *states]
    taken = [table[ids] for table in tables]
    update(_numbers(k, param.dtype), taken[0], grad.copy(), taken[1:], count)
    for table, rows in zip(tables, taken, strict=True):
        table[ids] = rows
