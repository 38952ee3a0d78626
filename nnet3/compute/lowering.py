"""How a component becomes operators: recipes with symbolic names.

A lowering is a function (component, recipe) that writes the forward operators of one component
type, once, between the symbolic variables `x` and `out`. The backward operators follow from the
gradients in the registry; nothing is written twice. `ComponentOps` puts recipes to use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from ...framework.base.errors import UnknownOperatorError, nearest
from ...framework.ir.desc import FORWARD, INPUT, make_var
from ...framework.ir.names import EMPTY
from ...framework.ir.op_list import OpList
from ...framework.ir.registry import lookup
from ...framework.passes.backward import build_backward
from .step import Attrs, Step

X, OUT, OUT_DERIV, IN_DERIV = "x", "out", "out@D", "x@D"
PARAMETER, TEMPORARY, STATE, MEMORY = "param/", "temp/", "state/", "memory/"
FROZEN = "natural_gradient@FROZEN"
"""The variable [1] that all preconditioners read: not 0 while their estimates must not change."""
Lowering = Callable[[Any, "Recipe"], None]

_lowerings: dict[str, Lowering] = {}
_preconditioned: dict[str, Lowering] = {}


def lowers(*types: str) -> Callable[[Lowering], Lowering]:
    """Decorator: the lowering of component types, by Kaldi's names."""

    def register(lowering: Lowering) -> Lowering:
        _lowerings.update(dict.fromkeys(types, lowering))
        return lowering

    return register


def preconditions(*types: str) -> Callable[[Lowering], Lowering]:
    """Decorator: how natural gradient makes the gradients of component types; see `natural`."""

    def register(rule: Lowering) -> Lowering:
        _preconditioned.update(dict.fromkeys(types, rule))
        return rule

    return register


def lowered_types() -> list[str]:
    """Every component type that can be computed, sorted."""
    return sorted(_lowerings)


class Recipe:
    """The forward operators of one component, from `x` to `out`.

    Attributes:
        indexes: what the component's `precompute_indexes` returned; None for simple components.
        rows: number of rows of the output, for components without an input; else -1.
        natural_gradient: whether `natural`, `plain` and `memory` are wanted.
        statistics: whether `states` and the operators that add to them are wanted.
        is_general: neither `indexes` nor `rows` was looked at, so the recipe serves for all;
            attributes may stand for those of each use, see `of_indexes`.
        parameters: arrays that may be trained, by field (`linear_params`; inside a composite
            `2.linear_params`), in Kaldi's order of vectorising.
        constants: other arrays that the operators read, by name.
        states: statistics that the component keeps, by attribute, float64.
        stats: operators that add to them after the forward operators; they write to the states.
        stats_before: those that run just before the backward operators, and may read `out@D`.
        stats_after: those that follow the backward operators; they may change `x@D`.
        backward: gradient operators where those in the registry would do more than is needed.
        natural: operators that make gradients of parameters by natural gradient, in place of those
            in `backward`, with which they run.
        plain: parameters whose plain gradients `natural` reads, and the names it has for them.
        memory: what `natural` keeps from one batch to the next, by name.
        parts: recipes that this one is a chain of, with the names of their variables in it; the
            backward operators and statistics are then theirs.
    """

    def __init__(
        self,
        use: tuple[Any, int] = (None, -1),
        natural_gradient: bool = True,
        statistics: bool = True,
        path: str = "",
    ) -> None:
        self.use, self.natural_gradient, self.statistics = use, natural_gradient, statistics
        self.is_general, self.path, self._temps = True, path, 0
        self.steps: list[Step] = []
        self.parameters: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.states: dict[str, np.ndarray] = {}
        self.stats: list[Step] = []
        self.stats_before: list[Step] = []
        self.stats_after: list[Step] = []
        self.backward: list[Step] = []
        self.natural: list[Step] = []
        self.plain: dict[str, str] = {}
        self.memory: dict[str, np.ndarray] = {}
        self.parts: list[tuple[Recipe, dict[str, str]]] = []

    def op(
        self,
        op_type: str,
        outputs: str | Mapping[str, str] = OUT,
        /,
        *,
        attrs: Any = None,
        **inputs: str,
    ) -> None:
        """Append an operator; a single name for `outputs` is the variable of its slot `out`."""
        written = {"out": outputs} if isinstance(outputs, str) else outputs
        self.steps.append(Step.of(op_type, inputs, written, attrs))

    @property
    def indexes(self) -> Any:
        self.is_general = False
        return self.use[0]

    @property
    def rows(self) -> int:
        self.is_general = False
        return self.use[1]

    def temp(self) -> str:
        """A new variable that lives from the forward to the backward operators."""
        self._temps += 1
        return f"{TEMPORARY}{self._temps - 1}"

    def state(self, name: str, value: Any, shape: tuple[int, ...] = (1,)) -> str:
        """The variable of a statistic; one that is empty begins with zeros of `shape`."""
        if not self.statistics:
            return f"{STATE}{self.path}{name}"
        array = np.asarray(value, np.float64).reshape(-1)
        array = array.reshape(shape) if array.size else np.zeros(shape)
        self.states[self.path + name] = array
        return f"{STATE}{self.path}{name}"

    def keep(
        self,
        op_type: str,
        attrs: Any = None,
        /,
        *,
        when: Literal["forward", "before", "after"] = "forward",
        **slots: str,
    ) -> None:
        """Append an operator that adds to statistics.

        A slot S is written, too, where the operator has an output S_out.

        Args:
            when: after the forward operators, or before or after the backward ones.
        """
        if not self.statistics:
            return
        known = lookup(op_type).output_slots
        outputs = {f"{slot}_out": name for slot, name in slots.items() if f"{slot}_out" in known}
        targets = {"forward": self.stats, "before": self.stats_before, "after": self.stats_after}
        targets[when].append(Step.of(op_type, slots, outputs, attrs))

    def keep_memory(self, name: str, first: np.ndarray) -> str:
        """The variable of something in `memory`, which begins as `first`."""
        self.memory[self.path + name] = first
        return f"{MEMORY}{self.path}{name}"

    def temps(self) -> list[str]:
        """The variables that `temp` has handed out."""
        return [f"{TEMPORARY}{number}" for number in range(self._temps)]

    def parameter(self, name: str, array: Any, trainable: bool = True) -> str:
        """The variable of an array of the component; `trainable` ones get derivatives."""
        target = self.parameters if trainable else self.constants
        target[self.path + name] = np.asarray(array)
        return f"{PARAMETER}{self.path}{name}"

    def key(self) -> tuple[Any, ...]:
        """What is the same for recipes with the same operators."""
        return (
            tuple(self.steps),
            tuple(self.backward),
            tuple(self.natural),
            tuple(self.plain.items()),
            tuple(self.stats),
            tuple(self.stats_before),
            tuple(self.stats_after),
            tuple(self.parameters),
            tuple(self.constants),
            tuple([(part.key(), tuple(names.items())) for part, names in self.parts]),
        )


def lower(
    component: Any,
    indexes: Any = None,
    rows: int = -1,
    natural_gradient: bool = True,
    statistics: bool = True,
) -> Recipe:
    """The forward recipe of a component.

    Raises:
        UnknownOperatorError: no lowering is known for its type.
    """
    recipe = Recipe((indexes, rows), natural_gradient, statistics)
    lower_into(component, recipe)
    return recipe


def lower_into(component: Any, recipe: Recipe) -> None:
    """Append a component's operators to a recipe, from `x` to `out`."""
    lowering = _lowerings.get(component.type)
    if lowering is None:
        raise UnknownOperatorError(
            f"components of type {component.type!r} cannot be computed"
            f"{nearest(component.type, _lowerings)}"
        )
    lowering(component, recipe)
    if recipe.natural_gradient and component.type in _preconditioned:
        _preconditioned[component.type](component, recipe)


@lru_cache(maxsize=4096)
def is_own(symbol: str) -> bool:
    """Whether a symbol stands for a variable of the component, which all its uses share."""
    if symbol.startswith(PARAMETER):
        return "@" not in symbol or symbol.endswith("@D")
    return symbol.startswith((STATE, MEMORY))


def deriv_of(name: str) -> str:
    """The symbolic name of a derivative."""
    return name + "@D"


def backward_steps(
    recipe: Recipe,
    derivs: Collection[str],
    want_input: bool,
    stats: bool = False,
    natural: bool = False,
) -> list[Step]:
    """Gradient operators of a recipe: from `out@D` to `x@D` and `param/NAME@D` of `derivs`.

    `stats`: with those that add to statistics, and self-repair. `natural`: by natural gradient,
    where the component has it.
    """
    if recipe.parts:
        return _chain(recipe, derivs, want_input, stats, natural)
    if natural and recipe.natural and derivs:
        steps = _natural_steps(recipe, want_input)
    else:
        steps = _plain_steps(recipe, derivs, want_input)
    if stats:
        after = [step for step in recipe.stats_after if want_input or not step.writes(IN_DERIV)]
        steps = [*recipe.stats_before, *steps, *after]
    return steps


def _natural_steps(recipe: Recipe, want_input: bool) -> list[Step]:
    """As `backward_steps`, for a component whose parameters natural gradient updates."""
    own = {deriv_of(PARAMETER + name): other for name, other in recipe.plain.items()}
    steps = [step.renamed(own) for step in _plain_steps(recipe, recipe.plain, want_input)]
    return steps + recipe.natural if recipe.plain else recipe.natural + steps


def _plain_steps(recipe: Recipe, derivs: Collection[str], want_input: bool) -> list[Step]:
    """As `backward_steps`, without statistics, by plain gradients."""
    wanted = [PARAMETER + name for name in derivs] + ([X] if want_input else [])
    if not wanted:
        return []
    steps = _asked_for(recipe.backward, wanted) or _from_registry(recipe, wanted)
    written = {name for step in steps for _, names in step.outputs for name in names}
    for name in wanted:  # what the output does not depend on
        if deriv_of(name) not in written:
            steps.append(Step.of("fill_like", {"x": name}, {"out": deriv_of(name)}, {"value": 0.0}))
    return steps


def _chain(
    recipe: Recipe, derivs: Collection[str], want_input: bool, stats: bool, natural: bool
) -> list[Step]:
    """Gradient operators of the parts of a recipe, the last part first."""
    steps: list[Step] = []
    left = list(derivs)
    for number, (part, names) in reversed(list(enumerate(recipe.parts))):
        mine = [name for name in left if name in part.parameters]
        left = [name for name in left if name not in part.parameters]
        made = [*part.stats] if stats else []
        onward = bool(want_input or left)
        if onward or mine:
            made += backward_steps(part, mine, onward, stats, natural)
        known = {deriv_of(name): deriv_of(outer) for name, outer in names.items()} | names
        for step in made:
            for name in step.variables():
                if name not in known:  # an inner one gets a name of its own
                    own = name.startswith((PARAMETER, STATE, MEMORY)) or name in (EMPTY, FROZEN)
                    known[name] = name if own else f"{number}/{name}"
        steps += [step.renamed(known) for step in made]
    return steps


def _asked_for(steps: list[Step], wanted: list[str]) -> list[Step]:
    """Steps without the outputs that nobody wants."""
    names = {deriv_of(name) for name in wanted}
    left = []
    for step in steps:
        outputs = tuple([(slot, given) for slot, given in step.outputs if names & set(given)])
        if outputs:
            left.append(step._replace(outputs=outputs))
    return left


_MOST_KEPT = 1 << 16  # bytes of attributes of a recipe whose gradient operators are kept


def _from_registry(recipe: Recipe, wanted: list[str]) -> list[Step]:
    """Steps by the gradient makers of the recipe's operators.

    The same operators, with the same attributes, have the same steps: components of one type and
    shape share them.
    """
    few = sum([step.attrs.nbytes for step in recipe.steps]) <= _MOST_KEPT
    make = _gradients if few else _gradients.__wrapped__
    arrays = *recipe.parameters, *recipe.constants
    return list(make(tuple(recipe.steps), arrays, tuple(wanted)))


@lru_cache(maxsize=1024)
def _gradients(
    steps: tuple[Step, ...], arrays: tuple[str, ...], wanted: tuple[str, ...]
) -> tuple[Step, ...]:
    """Gradient steps of forward steps that read `x` and parameters or constants `arrays`."""
    net = OpList()
    for name in (X, *(PARAMETER + name for name in arrays)):
        net.vars.append(make_var(name, None, None, INPUT))
    net.ops = [step.node(FORWARD) for step in steps]
    result = build_backward(net, targets={OUT: OUT_DERIV}, wrt=list(wanted), required=False)
    renames = {given: deriv_of(name) for name, given in result.gradients.items()}
    backward = [Step.of(op.type, op.inputs, op.outputs, Attrs(op.attrs)) for op in result.ops]
    if OUT_DERIV in renames:  # the gradient passes unchanged
        del renames[OUT_DERIV]
        backward.append(Step.of("assign", {"x": OUT_DERIV}, {"out": IN_DERIV}))
    return tuple(_without_shapes(step.renamed(renames)) for step in backward)


def _without_shapes(step: Step) -> Step:
    """A gradient operator that takes a shape from its `out_grad` where that has the same shape.

    A value that is read for its shape alone would have to be kept from the forward run.
    """
    inputs = dict(step.inputs)
    forward = step.type.removesuffix("_grad")
    if forward == step.type or "out_grad" not in inputs:
        return step
    same = lookup(forward).output_slots["out"].inplace
    if not same or not lookup(step.type).input_slots[same].shape_only:
        return step
    inputs[same] = inputs["out_grad"]
    return step._replace(inputs=tuple(inputs.items()))
