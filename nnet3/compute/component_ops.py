"""Operators of components for a compiler: recipes with the names of a net's variables.

ops = ComponentOps(component)
forward = ops.propagate("m1", "m2", prefix="c7", parameters="tdnn1")
backward = ops.backprop("m1", "m2", "m2_deriv", "m1_deriv", prefix="c7", parameters="tdnn1",
                        param_derivs="tdnn1.deriv")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...framework.desc import BACKWARD, FORWARD, make_op
from ...framework.names import EMPTY
from ...framework.registry import lookup
from ...proto import net_pb2 as pb
from .lowering import (
    FROZEN,
    IN_DERIV,
    MEMORY,
    OUT,
    OUT_DERIV,
    PARAMETER,
    STATE,
    TEMPORARY,
    Recipe,
    Step,
    X,
    backward_steps,
    deriv_of,
    lower,
)

_SOURCES = frozenset({"ConstantComponent", "DropoutMaskComponent"})
"""Components without an input: they alone must be told how many rows they make."""
_GIVEN = frozenset({X, OUT, OUT_DERIV, IN_DERIV})


def _apart(steps: list[Step], read: str, write: str) -> list[Step]:
    """Steps that stay right when the variables `read` and `write` share their memory.

    They are right already where the only operator that writes is the last that reads, and may
    write over that input. Else they read a copy.
    """
    writer = next((i for i, step in enumerate(steps) if step.writes(write)), None)
    readers = [i for i, step in enumerate(steps) if step.reads(read)]
    if writer is None or not readers or max(readers) < writer:
        return steps
    step = steps[writer]
    slot = next(slot for slot, names in step.outputs.items() if write in names)
    over = lookup(step.type).output_slots[slot].inplace
    if max(readers) == writer and over and read in step.inputs.get(over, ()):
        slots = lookup(step.type).input_slots
        read_by = [slot for slot, names in step.inputs.items() if read in names]
        if sum(not slots[slot].shape_only for slot in read_by) == 1:
            return steps
    aside = f"{TEMPORARY}aside"
    moved = [s.renamed({read: aside}) for s in steps]
    return [Step("assign", {"x": (read,)}, {"out": (aside,)}, {}), *moved]


def _adding(steps: list[Step], write: str) -> list[Step]:
    """Steps that add to `write` instead of setting it."""
    part = f"{TEMPORARY}{write.removeprefix(PARAMETER)}/part"
    moved = [step.renamed({write: part}) for step in steps]
    return [*moved, Step("add", {"x": (write,), "y": (part,)}, {"out": (write,)}, {})]


class _Template:
    """Operators for many uses; each names x, out, their derivatives and the temporaries.

    Args:
        steps: what they are made of.
        role: of the operators.
        prefixes: for the names of all other variables, by kind.
        rename: names in place of those that the prefixes give.
    """

    def __init__(
        self, steps: list[Step], role: int, prefixes: Mapping[str, str], rename: Mapping[str, str]
    ) -> None:
        self._role = role
        self._ops = [(s.type, [*s.inputs.items()], [*s.outputs.items()], _attrs(s)) for s in steps]
        self._fixed = {EMPTY: EMPTY, FROZEN: FROZEN}
        self._temporaries: dict[str, str] = {}
        symbols = {name for step in steps for name in step.variables()}
        for symbol in symbols - self._fixed.keys() - _GIVEN:
            kind, bare = _kind(symbol)
            if kind == "temporary":
                self._temporaries[symbol] = bare
            else:
                name = prefixes[kind] + bare
                self._fixed[symbol] = rename.get(name, name)

    def use(self, given: dict[str, str], prefix: str) -> list[pb.OpDesc]:
        """The operators with names for what is `given`, and a prefix for the temporaries."""
        names = {**self._fixed, **given}
        for symbol, bare in self._temporaries.items():
            names[symbol] = f"{prefix}/{bare}"
        result = []
        for op_type, inputs, outputs, attrs in self._ops:
            op = pb.OpDesc(
                type=op_type,
                role=self._role,
                inputs=[{"name": s, "vars": [names[v] for v in given]} for s, given in inputs],
                outputs=[{"name": s, "vars": [names[v] for v in given]} for s, given in outputs],
            )
            if attrs is not None:
                op.MergeFrom(attrs)
            result.append(op)
        return result


def _attrs(step: Step) -> pb.OpDesc | None:
    """An operator that has nothing but the attributes of a step; None where there are none."""
    return make_op("", {}, {}, step.attrs) if step.attrs else None


def _kind(symbol: str) -> tuple[str, str]:
    """What prefix an inner variable gets, and the rest of its name."""
    if symbol.startswith(STATE):
        return "state", symbol.removeprefix(STATE)
    if symbol.startswith(MEMORY):
        return "memory", symbol.removeprefix(MEMORY)
    bare = symbol.removeprefix(PARAMETER)
    if bare != symbol and bare.endswith("@D"):
        return "deriv", bare.removesuffix("@D")
    if bare != symbol and "@" not in bare:
        return "parameter", bare
    return "temporary", symbol.removeprefix(TEMPORARY)


class ComponentOps:
    """Forward and backward operators of one component, as often as a compiler asks for them.

    Recipes are kept: later calls with the same `indexes` only name variables anew. The component's
    settings (test mode, dropout proportion) are read when a recipe is first made. Without
    `natural_gradient` nothing is made for it, and all gradients are plain.
    """

    def __init__(self, component: Any, natural_gradient: bool = True) -> None:
        self.component = component
        self._natural_gradient = natural_gradient
        self._recipes: dict[tuple[int, int], Recipe] = {}
        self._templates: dict[tuple[Any, ...], _Template] = {}

    def recipe(self, indexes: Any = None, rows: int = -1) -> Recipe:
        """The forward recipe for one set of precomputed indexes."""
        key = self._key(indexes, rows)
        if key not in self._recipes:
            self._recipes[key] = lower(self.component, indexes, rows, self._natural_gradient)
        return self._recipes[key]

    def _key(self, indexes: Any, rows: int) -> tuple[int, int]:
        """What tells recipes apart; each keeps its indexes alive."""
        return id(indexes), rows if self.component.type in _SOURCES else -1

    def propagate(
        self,
        x: str,
        out: str,
        *,
        prefix: str,
        parameters: str,
        indexes: Any = None,
        rows: int = -1,
        add: bool = False,
        states: str | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> list[pb.OpDesc]:
        """Operators that compute `out` from `x` (the same name: in place).

        Args:
            prefix: of the names of temporaries; those that the backward operators read again are
                found there, so give `backprop` the same.
            parameters: prefix of the parameters' variables: `PREFIX.linear_params`.
            indexes: of a component that is not simple, from `time_grid.precompute_indexes`.
            rows: of the output, where the component has no input.
            add: add to what `out` holds.
            states: prefix of the variables of the component's statistics, which are then added to;
                see `states`.
            rename: names in place of those with the prefixes `parameters` and `states`; always the
                same for the same prefixes.
        """
        key = ("forward", *self._key(indexes, rows), x == out, add, parameters, states)
        if key not in self._templates:
            recipe = self.recipe(indexes, rows)
            steps = recipe.steps
            if states is not None:
                steps = steps + recipe.stats
            if x == out:
                steps = _apart(steps, X, OUT)
            if add:
                steps = _adding(steps, OUT)
            prefixes = {"parameter": f"{parameters}.", "state": f"{states}."}
            self._templates[key] = _Template(steps, FORWARD, prefixes, rename or {})
        return self._templates[key].use({X: x, OUT: out}, prefix)

    def backprop(
        self,
        x: str,
        out: str,
        out_deriv: str,
        in_deriv: str | None,
        *,
        prefix: str,
        parameters: str,
        param_derivs: str | None = None,
        indexes: Any = None,
        rows: int = -1,
        add: bool = False,
        accumulate: bool = False,
        states: str | None = None,
        memory: str | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> list[pb.OpDesc]:
        """Operators that compute `in_deriv` and the gradient of the parameters.

        Args:
            in_deriv: None where nobody needs it; may be `out_deriv` itself.
            param_derivs: prefix of the gradients' variables, or None.
            add: add to what `in_deriv` holds.
            accumulate: add to what the gradients of the parameters hold.
            states: prefix of the variables of the component's statistics, as in training: they are
                added to, and self-repair changes `in_deriv`.
            memory: prefix of the variables of natural gradient, which then makes the gradients of
                components that have it; see `memory`. Without it all are plain gradients.
            rename: as for `propagate`.
        """
        given = in_deriv is not None
        wanted = param_derivs is not None
        same = in_deriv == out_deriv
        base = self._key(indexes, rows)
        stats, natural = states is not None, memory is not None
        prefixed = parameters, param_derivs, states, memory
        key = ("backward", *base, given, same, add, accumulate, *prefixed)
        if key not in self._templates:
            recipe = self.recipe(indexes, rows)
            derivs = list(recipe.parameters) if wanted else []
            steps = backward_steps(recipe, derivs, given, stats, natural)
            if same:
                steps = _apart(steps, OUT_DERIV, IN_DERIV)
            if add and given:
                steps = _adding(steps, IN_DERIV)
            if accumulate:
                for name in derivs:
                    steps = _adding(steps, deriv_of(PARAMETER + name))
            prefixes = {
                "parameter": f"{parameters}.",
                "deriv": f"{param_derivs}.",
                "state": f"{states}.",
                "memory": f"{memory}.",
            }
            self._templates[key] = _Template(steps, BACKWARD, prefixes, rename or {})
        names = {X: x, OUT: out, OUT_DERIV: out_deriv, IN_DERIV: in_deriv or ""}
        return self._templates[key].use(names, prefix)

    def states(self, prefix: str, indexes: Any = None, rows: int = -1) -> dict[str, np.ndarray]:
        """Variables of the component's statistics with their values so far, float64."""
        states = self.recipe(indexes, rows).states
        return {f"{prefix}.{name}": array for name, array in states.items()}

    def memory(self, prefix: str, indexes: Any = None, rows: int = -1) -> dict[str, np.ndarray]:
        """Variables that natural gradient keeps from batch to batch, with their first values."""
        recipe = self.recipe(indexes, rows)
        found = dict(recipe.memory)
        for part, _ in recipe.parts:
            found |= part.memory
        return {f"{prefix}.{name}": array for name, array in found.items()}

    def backprop_reads(self, indexes: Any = None, rows: int = -1) -> tuple[bool, bool]:
        """Whether the backward operators read the values of `x` and of `out`."""
        recipe = self.recipe(indexes, rows)
        steps = backward_steps(recipe, recipe.parameters, True)
        return any(step.reads(X) for step in steps), any(step.reads(OUT) for step in steps)

    def keeps_temporaries(self, indexes: Any = None, rows: int = -1) -> bool:
        """Whether the backward operators read what the forward ones leave besides `out`."""
        recipe = self.recipe(indexes, rows)
        kept = recipe.temps()
        steps = backward_steps(recipe, recipe.parameters, True)
        return any(step.reads(name) for step in steps for name in kept)

    def arrays(self, prefix: str, indexes: Any = None, rows: int = -1) -> dict[str, np.ndarray]:
        """Values of the variables that the operators read besides `x`: parameters and constants."""
        recipe = self.recipe(indexes, rows)
        both = recipe.parameters | recipe.constants
        return {f"{prefix}.{name}": array for name, array in both.items()}


def part_of(component: Any, path: str) -> tuple[Any, str]:
    """The part of a component and the attribute of it that a path such as `2.value_sum` names."""
    *numbers, field = path.split(".")
    for number in numbers:
        component = component.components[int(number)]
    return component, field


def set_statistic(component: Any, path: str, value: np.ndarray) -> None:
    """Hand a statistic, as `ComponentOps.states` gives it, back to the component."""
    holder, field = part_of(component, path)
    scalar = isinstance(getattr(holder, field), float)
    setattr(holder, field, float(value[0]) if scalar else np.array(value))
