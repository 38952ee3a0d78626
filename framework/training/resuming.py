"""`resume="weights"`: what a changed training takes over from a checkpoint, and what it does not.

- Parameters, and the states of forward operators, where name and shape are the same.
- The states of an optimizer where the same optimizer updates the same parameters, which were taken
  over themselves. The rate, a schedule and other attributes may be others.
- The step counter of an optimizer. Some (Adam, say) correct their running means by it, so where the
  states of one parameter begin afresh, the counter and all states that go with it do, too, and with
  them the schedule.
- A learning rate that is a variable, where the same first rate is asked for as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.errors import FormatError
from ..base.scope import Scope
from ..base.untrusted.values import member, shown
from ..files.checkpoint import Checkpoint
from ..files.loading import can_take, converted_to, listed, place_values, spec_text
from ..ir.desc import OPTIMIZE, PARAMETER
from ..ir.names import next_name
from ..ir.op_list import OpList, OpNode
from ..passes.optimizer import constant_rates
from ..runtime.initialize import persistent_vars


@dataclass(frozen=True)
class Resumed:
    """What a training took over from a checkpoint; `print` tells it in a few lines.

    Attributes:
        path: the checkpoint.
        epochs: how many were over there; the training goes on with the next one.
        parameters: names of the parameters that were taken over.
        states: names of the states that were taken over.
        afresh: parameters and states of this net that were not -> why. They begin with what the
            user has loaded or set in the scope, or are initialized.
        left: variables of the checkpoint that this net lacks.
    """

    path: str
    epochs: int
    parameters: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    afresh: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        by_reason: dict[str, list[str]] = {}
        for name, why in self.afresh.items():
            by_reason.setdefault(why, []).append(name)
        lines = [
            f"{self.path}: taken over after epoch {self.epochs}: {len(self.parameters)} parameters"
            f" and {len(self.states)} states"
        ]
        lines += [f"  reset, {why}: {listed(names)}" for why, names in by_reason.items()]
        if self.left:
            lines.append(f"  left there, not in this net: {listed(self.left)}")
        return "\n".join(lines)


def take_over(
    checkpoint: Checkpoint, net: OpList, path: str
) -> tuple[dict[str, np.ndarray], Resumed]:
    """The values that a net takes over from a checkpoint of another, and the report."""
    variables = {var.name: var for var in persistent_vars(net)}
    why: dict[str, str] = {}
    for name, var in variables.items():
        array = checkpoint.values.get(name)
        if array is None:
            why[name] = "not in the checkpoint"
        elif not can_take(var, array):
            theirs = spec_text(array.shape, array.dtype)
            why[name] = f"{theirs} there and {spec_text(var.shape, var.dtype)} here"
    rates = constant_rates(net)
    before = constant_rates(checkpoint.op_list)
    for name, rate in rates.items():
        # Whoever asks for another rate means it; the old one in the checkpoint would win otherwise.
        if name not in why and before.get(name) != rate:
            was = f"{before[name]:g} there" if name in before else "computed there"
            why[name] = f"rate {was} and {rate:g} here"
    why |= _fresh_states(checkpoint.op_list, net, why)
    taken = {
        name: converted_to(var, checkpoint.values[name])
        for name, var in variables.items()
        if name not in why
    }
    kinds = {name: var.kind == PARAMETER for name, var in variables.items()}
    report = Resumed(
        path,
        member(checkpoint.state, "epoch", int, path),
        tuple(name for name in taken if kinds[name]),
        tuple(name for name in taken if not kinds[name]),
        why,
        tuple(v.name for v in persistent_vars(checkpoint.op_list) if v.name not in variables),
    )
    return taken, report


def rows_of(state: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """The rows of the history in the state of a checkpoint.

    Raises:
        FormatError: they are missing, or are none.
    """
    rows = member(state, "rows", list, path)
    for row in rows:
        if not isinstance(row, dict):
            raise FormatError(f"{path}: a row of the history is {shown(row)}")
    return rows


def put_values(values: Mapping[str, np.ndarray], report: Resumed, scope: Scope) -> None:
    """Give a scope what was taken over; what a training there left of the rest begins anew."""
    place_values(values, scope)
    for name in report.afresh:
        variable = scope.find(name)
        if variable is not None and variable.origin is not None:
            # Only what an initializer or a feed left there: values that the user set have no
            # origin.
            variable.clear()


def _fresh_states(former_net: OpList, net: OpList, why: Mapping[str, str]) -> dict[str, str]:
    """The optimizers' states that begin afresh, and why, beside those in `why`."""
    fresh: dict[str, str] = {}
    former = {states: op for op in former_net.ops if (states := _states(op))}
    counting: dict[str, set[str]] = {}
    restarted: dict[str, str] = {}
    for op in net.ops:
        states = _states(op)
        if not states:
            continue
        reason = _why_afresh(op, former.get(states), why)
        if reason:
            fresh |= {name: reason for name in states if name not in why}
        for counter in op.inputs.get("step", ()):
            counting.setdefault(counter, {counter}).update(states)
            if reason:
                restarted.setdefault(counter, f"with the states of {_owner(op)}")
    for counter, reason in restarted.items():
        names = counting[counter] - why.keys() - fresh.keys()
        fresh |= dict.fromkeys(names, reason)
    return fresh


def _why_afresh(op: OpNode, before: OpNode | None, why: Mapping[str, str]) -> str:
    """Why the states of an update do not go on; "" where they do."""
    parameters = op.inputs.get("param", ())
    if before is None:
        return f"states of another optimizer than {op.type} there"
    if before.type != op.type or before.inputs.get("param", ()) != parameters:
        return f"states of {before.type} over other parameters there"
    lost = [name for name in (*_states(op), *parameters) if name in why]
    return f"with {lost[0]}" if lost else ""


def _owner(op: OpNode) -> str:
    """What an update belongs to: its parameter, or what it is."""
    return ", ".join(op.inputs.get("param", ())) or op.type


def _states(op: OpNode) -> frozenset[str]:
    """The states that an operator of an optimizer carries from run to run."""
    if op.role != OPTIMIZE or not op.inputs.keys() & {"param", "previous"}:
        return frozenset()
    written = set(op.output_names())
    own = (
        name
        for slot, names in op.inputs.items()
        if slot != "param"
        for name in names
        if name in written or next_name(name) in written
    )
    return frozenset(own)
