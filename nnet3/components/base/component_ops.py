"""Operators of components for a compiler: recipes with the names of a net's variables.

lowered = []
ops = ComponentOps(component, "tdnn1")
ops.propagate(lowered, "m1", "m2", prefix="step7")
ops.backprop(lowered, "m1", "m2", "m2_deriv", "m1_deriv", prefix="step7", trained=True)
net.ops += lowered
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

import numpy as np

from ....framework.ir.desc import BACKWARD, FORWARD
from ....framework.ir.op_list import OpNode
from ....framework.ir.registry import lookup
from .lowered_op import LoweredOp
from .lowering import (
    IN_DERIV,
    MEMORY,
    OUT,
    OUT_DERIV,
    PARAMETER,
    STATE,
    TEMPORARY,
    Recipe,
    X,
    backward_ops,
    deriv_of,
    lower,
)
from .template import Template, own_field

Templates = dict[tuple[Any, ...], Template]
"""Operators of one recipe by how they are used: the flags of the functions that make them."""
_Use = tuple[Recipe, Templates]


@lru_cache(maxsize=256)
def _shared_templates(key: Hashable) -> Templates:
    """Templates that all recipes with the same operators share; see `Recipe.key`."""
    return {}


def _apart(lowered: list[LoweredOp], read: str, write: str) -> list[LoweredOp]:
    """Operators that stay right when the variables `read` and `write` share their memory.

    They are right already where the only operator that writes is the last that reads, and may
    write over that input. Else they read a copy.
    """
    writer = next((i for i, op in enumerate(lowered) if op.writes(write)), None)
    readers = [i for i, op in enumerate(lowered) if op.reads(read)]
    if writer is None or not readers or max(readers) < writer:
        return lowered
    op = lowered[writer]
    slot = next(slot for slot, names in op.outputs if write in names)
    over = lookup(op.type).output_slots[slot].inplace
    if max(readers) == writer and over and read in dict(op.inputs).get(over, ()):
        slots = lookup(op.type).input_slots
        read_by = [slot for slot, names in op.inputs if read in names]
        if sum(not slots[slot].shape_only for slot in read_by) == 1:
            return lowered
    aside = f"{TEMPORARY}aside"
    moved = [s.renamed({read: aside}) for s in lowered]
    return [LoweredOp.of("assign", {"x": read}, {"out": aside}), *moved]


def _adding(lowered: list[LoweredOp], write: str) -> list[LoweredOp]:
    """Operators that add to `write` instead of setting it."""
    part = f"{TEMPORARY}{write.removeprefix(PARAMETER)}/part"
    moved = [op.renamed({write: part}) for op in lowered]
    return [*moved, LoweredOp.of("add", {"x": write, "y": part}, {"out": write})]


def _forward_ops(recipe: Recipe, same: bool, add: bool, statistics: bool) -> list[LoweredOp]:
    """See `ComponentOps.propagate`."""
    lowered = recipe.forward
    if statistics:
        lowered = lowered + recipe.stats
    if same:
        lowered = _apart(lowered, X, OUT)
    return _adding(lowered, OUT) if add else lowered


def _backward_ops(
    recipe: Recipe,
    want_input: bool,
    same: bool,
    trained: bool,
    add: bool,
    accumulate: bool,
    statistics: bool,
    natural: bool,
) -> list[LoweredOp]:
    """See `ComponentOps.backprop`."""
    derivs = list(recipe.parameters) if trained else []
    lowered = backward_ops(recipe, derivs, want_input, statistics, natural)
    if same:
        lowered = _apart(lowered, OUT_DERIV, IN_DERIV)
    if add and want_input:
        lowered = _adding(lowered, IN_DERIV)
    if accumulate:
        for name in derivs:
            lowered = _adding(lowered, deriv_of(PARAMETER + name))
    return lowered


class ComponentOps:
    """Forward and backward operators of one component, as often as a compiler asks for them.

    Recipes are kept: later calls with the same `indexes` only name other variables. The component's
    settings (test mode, dropout proportion) are read when a recipe is first made.

    Parameters, constants and statistics are variables `NAME/FIELD`, gradients of parameters
    `NAME/FIELD@GRAD`, what natural gradient keeps `NAME/FIELD@NATURAL_GRADIENT`.

    Args:
        name: the component's, for its variables.
        natural_gradient: without, nothing is made for it, and all gradients are plain.
        statistics: without, none are known.
    """

    def __init__(
        self, component: Any, name: str, natural_gradient: bool = True, statistics: bool = True
    ) -> None:
        self.component = component
        self._wanted = natural_gradient, statistics
        self._name = name
        self._uses: dict[tuple[int, int], _Use] = {}
        self._for_all: _Use | None = None  # where there is one recipe alone

    def recipe(self, indexes: Any = None, rows: int = -1) -> Recipe:
        """The forward recipe for one set of precomputed indexes."""
        return self._use(indexes, rows)[0]

    def _use(self, indexes: Any, rows: int) -> _Use:
        if self._for_all is not None:
            return self._for_all
        key = id(indexes), rows  # it holds as long as the recipe, which keeps its indexes alive
        use = self._uses.get(key)
        if use is None:
            recipe = lower(self.component, indexes, rows, *self._wanted)
            # A recipe for certain indexes has no other use, and may be large.
            templates = _shared_templates(recipe.key()) if recipe.is_general else {}
            use = self._uses[key] = recipe, templates
            if recipe.is_general:
                self._for_all = use
        return use

    def propagate(
        self,
        ops: list[OpNode],
        x: str,
        out: str,
        *,
        prefix: str,
        indexes: Any = None,
        rows: int = -1,
        add: bool = False,
        statistics: bool = False,
        role: int = FORWARD,
    ) -> None:
        """Append operators that compute `out` from `x` (the same name: in place).

        Args:
            ops: the list.
            prefix: of the names of temporaries; those that the backward operators read again are
                looked up there, so give `backprop` the same.
            indexes: of a component that is not simple, from `time_grid.precompute_indexes`.
            rows: of the output, where the component has no input.
            add: add to `out`.
            statistics: add to the component's statistics; see `states`.
            role: of the operators.
        """
        recipe, templates = self._for_all or self._use(indexes, rows)
        how = role, x == out, add, statistics
        template = templates.get(how)
        if template is None:
            lowered = _forward_ops(recipe, *how[1:])
            template = templates[how] = Template(lowered, role)
        template.append(ops, (x, out, prefix, self._name), indexes)

    def backprop(
        self,
        ops: list[OpNode],
        x: str,
        out: str,
        out_deriv: str,
        in_deriv: str | None,
        *,
        prefix: str,
        trained: bool = False,
        indexes: Any = None,
        rows: int = -1,
        add: bool = False,
        accumulate: bool = False,
        statistics: bool = False,
        natural: bool = False,
    ) -> None:
        """Append operators that compute `in_deriv` and the gradient of the parameters.

        Args:
            in_deriv: None where it is not needed; may be `out_deriv` itself.
            trained: make the gradients of the parameters.
            add: add to `in_deriv`.
            accumulate: add to the gradients of the parameters.
            statistics: add to the component's statistics, as in training, and change `in_deriv` by
                self-repair.
            natural: natural gradient makes the gradients of components that have it; see `memory`.
                Without, all are plain gradients.
        """
        recipe, templates = self._for_all or self._use(indexes, rows)
        want_input = in_deriv is not None
        same = in_deriv == out_deriv
        how = want_input, same, trained, add, accumulate, statistics, natural
        template = templates.get(how)
        if template is None:
            lowered = _backward_ops(recipe, *how)
            template = templates[how] = Template(lowered, BACKWARD)
        strings = x, out, prefix, self._name, out_deriv, in_deriv or ""
        template.append(ops, strings, indexes)

    def parameters(self, indexes: Any = None, rows: int = -1) -> dict[str, np.ndarray]:
        """Variables that may be trained, with their values."""
        return self._variables(PARAMETER, self.recipe(indexes, rows).parameters)

    def constants(self, indexes: Any = None, rows: int = -1) -> dict[str, np.ndarray]:
        """Other variables that the operators read besides `x`, with their values."""
        return self._variables(PARAMETER, self.recipe(indexes, rows).constants)

    def states(self, indexes: Any = None, rows: int = -1) -> dict[str, np.ndarray]:
        """Variables of the component's statistics with their values so far, float64."""
        return self._variables(STATE, self.recipe(indexes, rows).states)

    def memory(self, indexes: Any = None, rows: int = -1) -> dict[str, np.ndarray]:
        """Variables that natural gradient keeps from batch to batch, with their first values."""
        recipe = self.recipe(indexes, rows)
        values = dict(recipe.memory)
        for part, _ in recipe.parts:
            values |= part.memory
        return self._variables(MEMORY, values)

    def _variables(self, kind: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        name = self._name
        return {name + own_field(kind + field): array for field, array in arrays.items()}

    def keeps_temporaries(self, indexes: Any = None, rows: int = -1) -> bool:
        """Whether the backward operators read temporaries of the forward ones, besides `out`."""
        recipe = self.recipe(indexes, rows)
        kept = recipe.temps()
        lowered = backward_ops(recipe, recipe.parameters, True)
        return any(op.reads(name) for op in lowered for name in kept)


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
