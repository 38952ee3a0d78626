"""Optimizers: their common schema, shape rule, and kernels that update a parameter in chunks.

A `Method` describes an optimizer: its states, attributes and expressions. The kernels for NumPy,
CuPy, C and CUDA follow from these. A dense gradient updates the parameter chunk by chunk, so that
temporaries stay in the cache. A gradient with `rows` updates those rows only, states and weight
decay included ("lazily").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.scalars.array_calls import (
    ArrayHost,
    ArrayPlan,
    ChunkScratch,
    array_calls,
    array_plan,
    per_run_values,
)
from ...framework.fusion.scalars.pointwise import ABSENT
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ..base.calls import copying

_CHUNK = 16384
"""Elements of a chunk: a handful of float32 chunks fit the second-level cache."""

# The attribute is a number when the loop is written, so the choice costs nothing there. Without
# decay the parameter is not read: 0 times an infinite one would be NaN.
GRADIENT = "(weight_decay > 0 ? grad_scale * grad + weight_decay * param : grad_scale * grad)"
"""The gradient that methods with L2 weight decay see, as a scalar expression."""

_INPUTS = (
    Slot("param", "parameter, any shape"),
    Slot("grad", "its gradient, of the same shape; with `rows`: [R, ...], some rows of it"),
    Slot("lr", "learning rate, []"),
    Slot(
        "rows",
        "row numbers [R] that the rows of grad belong to: repeated ones are summed, -1 is skipped,"
        " and no other row of the parameter or its states changes",
        optional=True,
    ),
    Slot("grad_scale", "factor of the gradient, []; absent = 1", optional=True),
)
_STEP = Slot("step", "number of this update, counted from 1, []")
_LR_FACTOR = AttrSpec("lr_factor", "float", "factor of the learning rate for this parameter", 1.0)


@dataclass(frozen=True)
class State:
    """A state variable of the parameter's shape; it starts as zeros.

    Attributes:
        needed_by: the attribute without which (at 0 or false) the state may be left out.
    """

    name: str
    doc: str
    needed_by: str = ""

    @property
    def optional(self) -> bool:
        return bool(self.needed_by)


@dataclass(frozen=True)
class Method:
    """An optimizer.

    Attributes:
        type: name of the operator, which is also the optimizer's name.
        doc: its formulas.
        scalar: output slot -> expression of one element, over the slots and the attributes. Later
            ones may mention the slots before them. Subexpressions of lr, step,
            grad_scale and attributes alone are computed once a run, in float64.
        states: variables of the parameter's shape that go from update to update.
        attrs: attributes besides `lr_factor` and `weight_decay`.
        source: the paper, and where the same formulas are in other toolkits.
        step: whether there is a `step` slot.
        shared: slots of numbers, [], that are the same for all parameters. The operator `TYPE_SLOT`
            computes such a number once a run; see framework/passes/optimizer.py.
        decoupled: whether `weight_decay` shrinks the parameter itself; only for the documentation.
        weight_decay: its default.
    """

    type: str
    doc: str
    scalar: Mapping[str, str]
    states: tuple[State, ...] = ()
    attrs: tuple[AttrSpec, ...] = ()
    source: str = ""
    step: bool = False
    shared: tuple[Slot, ...] = ()
    decoupled: bool = False
    weight_decay: float = 0.0


def register(method: Method) -> OperatorDef:
    """Register the operator of a method."""
    entry = operator(method.type, **schema_of(method), scalar=method.scalar)
    entry.kernel(partial(_bind, method))
    return entry


def schema_of(method: Method, *, sparse: bool = True) -> dict[str, Any]:
    """The arguments of `operator` for a method, without its expressions.

    `sparse`: whether it takes gradients with rows for only a part of the parameter.
    """
    decay = "decoupled weight decay" if method.decoupled else "weight decay (L2, in the gradient)"
    step = ["step"] if method.step else []
    numbers = ", ".join(["lr", *step, *(slot.name for slot in method.shared)])
    return {
        "doc": f"{method.doc} All but {numbers} and grad_scale have the shape of param.",
        "inputs": [
            *(slot for slot in _INPUTS if sparse or slot.name != "rows"),
            *([_STEP] if method.step else []),
            *method.shared,
            *(
                Slot(s.name, s.doc, optional=s.optional, needed_by=s.needed_by)
                for s in method.states
            ),
        ],
        "outputs": [
            Slot("param_out", "the parameter after the update", inplace="param"),
            *(
                Slot(f"{s.name}_out", f"new {s.name}", optional=s.optional, inplace=s.name)
                for s in method.states
            ),
        ],
        "attrs": [
            AttrSpec("weight_decay", "float", decay, method.weight_decay, minimum=0),
            _LR_FACTOR,
            *method.attrs,
        ],
        "source": method.source,
        "shape": partial(_rule, method),
        "no_gradient": "an update of parameters",
    }


def _rule(method: Method, s: ShapeArgs) -> None:
    states = [state.name for state in method.states if s.has(state.name)]
    param = s["param"]
    dtype = s.floats("param", "grad", *states)
    grad = s["grad"]
    if s.has("rows"):
        if not param:
            s.fail("a scalar parameter has no rows")
        s.integers("rows")
        s.same("the rows of grad and the length of rows", grad[0], s.rank("rows", 1)[0])
        s.same_shape("the rows of param and grad", param[1:], grad[1:])
    else:
        s.same_shape("param and grad", param, grad)
    for scalar in ("lr", "grad_scale", *(slot.name for slot in method.shared)):
        if s.has(scalar):
            s.rank(scalar, 0)
            s.floats(scalar)
    if method.step:
        s.rank("step", 0)
        s.integers("step")
    s.set("param_out", (param, dtype))
    for state in method.states:
        if s.has(state.name):
            s.same_shape(f"param and {state.name}", param, s[state.name])
            s.set(f"{state.name}_out", (param, dtype))
    for state in method.states:
        # A state that is read and not written would stand still silently.
        if s.has(state.name) != s.has(f"{state.name}_out"):
            s.fail(f"{state.name} and {state.name}_out must be given together")
        if state.needed_by and s.attrs[state.needed_by] and not s.has(state.name):
            s.fail(f"{state.needed_by} wants the state {state.name}")


def _bind(method: Method, k: KernelArgs) -> Call:
    names = [state.name for state in method.states if k.get(state.name) is not None]
    pairs = [(k["param"], k["param_out"])]
    pairs += [(k[name], k[f"{name}_out"]) for name in names]
    before, update = prepare(method, k, names)
    if "rows" in k.op.inputs:
        # Only some rows are written, so the others must be there already; in place nothing is
        # copied.
        copies = [copying(k.xp, old, new) for old, new in pairs]
        return in_order(*copies, *before, _sparse(k, update, [new for _, new in pairs]))
    return in_order(*before, *dense_calls(k, update, pairs))


@dataclass(frozen=True)
class _Update:
    """The update of one chunk, with everything that is the same for all chunks of a parameter.

    Attributes:
        names: of the states that there are.
        per_run: arrays of one number that the plan reads.
        result: what the plan computes beside the new states.
    """

    plan: ArrayPlan
    names: list[str]
    per_run: dict[str, Any]
    result: str

    def calls(self, host: ArrayHost, arrays: Sequence[Any]) -> list[Call]:
        """Calls for one chunk.

        Args:
            arrays: grad, param, the result, and then each state, old and new.
        """
        grad, param, out, *rest = arrays
        old = dict(zip(self.names, rest[::2], strict=True))
        new = {f"{n}_out": array for n, array in zip(self.names, rest[1::2], strict=True)}
        inputs = {"param": param, "grad": grad, **self.per_run, **old}
        return array_calls(host, self.plan, inputs, {**new, self.result: out})


def prepare(
    method: Method,
    k: KernelArgs,
    names: list[str],
    more: Mapping[str, Any] | None = None,
    result: str = "param_out",
) -> tuple[list[Call], _Update]:
    """Calls that come first in a run, and the update of one chunk after them.

    Args:
        names: of the states that there are.
        more: further arrays of one number that the expressions read; computed before those calls.
        result: the expression to compute beside the new states.
    """
    numbers = {n: repr(float(v)) for n, v in k.attrs.items() if isinstance(v, (int, float))}
    slots = ("lr", "step", "grad_scale", *(slot.name for slot in method.shared))
    single = {slot: k[slot] for slot in slots if slot in k.op.inputs} | dict(more or {})
    if "grad_scale" not in single:
        numbers["grad_scale"] = repr(ABSENT["grad_scale"])
    wanted = (*(f"{name}_out" for name in names), result)
    # Tuples are keys of a cache: parameters with the same attributes share one plan.
    texts = tuple(method.scalar.items())
    plan = array_plan(texts, wanted, tuple(numbers.items()), single=tuple(single))
    calls, per_run = per_run_values(k, plan, single, k["param"].dtype)
    return calls, _Update(plan, names, per_run, result)


def dense_calls(k: KernelArgs, update: _Update, pairs: list[tuple[Any, Any]]) -> list[Call]:
    """The update of a whole parameter, chunk by chunk.

    `pairs`: the parameter and the result, and then each state, old and new.
    """
    arrays = [k["grad"], *(array for pair in pairs for array in pair)]
    size = arrays[0].size
    # A step of 0 is no range, and a parameter may be empty.
    step = max(size, 1)
    # Only then a flat view exists for all; other arrays are updated as a whole.
    if all(array.flags.c_contiguous for array in arrays):
        arrays = [array.reshape(-1) for array in arrays]
        # On a GPU a chunk would cost the start of a kernel and gain nothing.
        step = _CHUNK if k.xp is np else step
    scratch = ChunkScratch(k)
    calls = []
    for begin in range(0, size, step):
        chunk = slice(begin, begin + step) if arrays[0].ndim == 1 else ()
        scratch.begin()
        calls += update.calls(scratch, [array[chunk] for array in arrays])
    return calls


def _sparse(k: KernelArgs, update: _Update, tables: list[Any]) -> Call:
    """A call that updates some rows of `tables`, the parameter and its states.

    It copies these rows, updates them as a dense parameter, and writes them back.
    """
    xp = k.xp
    rows = k["rows"]
    grad = k["grad"]
    host = _FreshScratch(xp)
    count = tables[0].shape[0]

    def run() -> None:
        ids, merged = merge_rows(xp, rows, grad)
        if not ids.size:
            return
        if ids[-1] >= count:  # they are sorted
            name = k.op.inputs["rows"][0]
            raise RunError(k.describe(f"rows {name!r} holds {int(ids[-1])}, want below {count}"))
        # Indexing copies; merged rows are unique, so that writing back loses no update.
        taken = [table[ids] for table in tables]
        # Each copy is old and new at once: updated in place.
        arrays = [merged, *(array for array in taken for _ in range(2))]
        for call in update.calls(host, arrays):
            call()
        for table, values in zip(tables, taken, strict=True):
            table[ids] = values

    return run


class _FreshScratch:
    """New memory for each array: the number of rows changes from run to run."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def scratch(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.xp.empty(shape, dtype)


def merge_rows(xp: Any, rows: Any, grad: Any) -> tuple[Any, Any]:
    """Sorted row numbers without repetition, negative ones left out, and the sums of their rows."""
    keep = rows >= 0
    if not keep.all():
        rows, grad = rows[keep], grad[keep]
    ids, place, counts = xp.unique(rows, return_inverse=True, return_counts=True)
    if xp is np:
        # Stable: equal rows are summed in the order in which they came, in every run alike.
        order = place.argsort(kind="stable")
        # No row comes twice: sorting is all.
        if len(ids) == len(rows):
            return ids, grad[order]
        starts = np.concatenate(([0], counts.cumsum()[:-1]))
        return ids, np.add.reduceat(grad[order], starts, axis=0)
    merged = xp.zeros((len(ids), *grad.shape[1:]), grad.dtype)
    xp.add.at(merged, place, grad)
    return ids, merged
