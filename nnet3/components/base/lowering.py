"""How a component becomes operators: recipes with symbolic names.

`Component.lower` writes the forward operators of a component type into a recipe, once, between the
symbolic variables `x` and `out`. The backward operators follow from the gradients in the registry;
nothing is written twice. `ComponentOps` puts recipes to use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np

from ....framework.ir.desc import FORWARD, INPUT, make_var
from ....framework.ir.names import EMPTY
from ....framework.ir.op_list import OpList
from ....framework.ir.registry import lookup
from ....framework.passes.backward import build_backward
from .lowered_op import Attrs, LoweredOp

X, OUT, OUT_DERIV, IN_DERIV = "x", "out", "out@D", "x@D"
PARAMETER, TEMPORARY, STATE, MEMORY = "param/", "temp/", "state/", "memory/"
FROZEN = "natural_gradient@FROZEN"
"""The variable [1] that all preconditioners read: not 0 while their estimates must not change."""


class Lowerable(Protocol):
    """A component, which writes its operators into a recipe."""

    def lower(self, recipe: Recipe, /) -> None: ...

    def precondition(self, recipe: Recipe, /) -> None: ...


class Recipe:
    """The operators of one component over symbolic variables, from `X` to `OUT` and back.

    Attributes:
        indexes: the result of the component's `precompute`; None for simple components.
        rows: number of rows of the output, for components without an input; else -1.
        natural_gradient: whether the recipe needs `natural`, `plain` and `memory`.
        statistics: whether it needs `states` and the operators that add to them.
        is_general: whether `indexes` and `rows` were never read, so that the recipe serves for all
            uses; attributes may stand for the indexes of each use, see `of_indexes`.
        forward: the forward operators.
        parameters: arrays that may be trained, by field (`linear_params`; inside a composite
            `2.linear_params`), in Kaldi's order of vectorizing.
        constants: other arrays that the operators read, by name.
        states: statistics that the component collects, by attribute, float64.
        stats: operators that add to them after the forward operators; they write to the states.
        stats_before: those that run just before the backward operators, and may read `out@D`.
        stats_after: those that follow the backward operators; they may change `x@D`.
        backward: gradient operators where those in the registry would do more than is needed.
        natural: operators that make gradients of parameters by natural gradient, in place of those
            in `backward`, with which they run.
        plain: parameters whose plain gradients `natural` reads, and its names for these.
        memory: arrays that `natural` saves from one batch to the next, by name.
        parts: for a chain of components their recipes, with the names of their variables in this
            one; backward operators and statistics are then the parts' own.
    """

    def __init__(
        self,
        use: tuple[Any, int] = (None, -1),
        natural_gradient: bool = True,
        statistics: bool = True,
        path: str = "",
    ) -> None:
        self.use = use
        self.natural_gradient = natural_gradient
        self.statistics = statistics
        self.is_general = True
        self.path = path
        self._temps = 0
        self.forward: list[LoweredOp] = []
        self.parameters: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.states: dict[str, np.ndarray] = {}
        self.stats: list[LoweredOp] = []
        self.stats_before: list[LoweredOp] = []
        self.stats_after: list[LoweredOp] = []
        self.backward: list[LoweredOp] = []
        self.natural: list[LoweredOp] = []
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
        self.forward.append(LoweredOp.of(op_type, inputs, written, attrs))

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

    def collect(
        self,
        op_type: str,
        attrs: Any = None,
        /,
        *,
        when: Literal["forward", "before", "after"] = "forward",
        **slots: str,
    ) -> None:
        """Append an operator that adds to statistics.

        The variable of an input slot S is also written, where the operator has an output S_out.

        Args:
            when: after the forward operators, or before or after the backward ones.
        """
        if not self.statistics:
            return
        known = lookup(op_type).output_slots
        outputs = {f"{slot}_out": name for slot, name in slots.items() if f"{slot}_out" in known}
        targets = {"forward": self.stats, "before": self.stats_before, "after": self.stats_after}
        targets[when].append(LoweredOp.of(op_type, slots, outputs, attrs))

    def saved(self, name: str, first: np.ndarray) -> str:
        """The variable in `memory` of an array that one batch saves for the next; first `first`."""
        self.memory[self.path + name] = first
        return f"{MEMORY}{self.path}{name}"

    def temps(self) -> list[str]:
        """All variables that `temp` has made."""
        return [f"{TEMPORARY}{number}" for number in range(self._temps)]

    def parameter(self, name: str, array: Any, trainable: bool = True) -> str:
        """The variable of an array of the component; `trainable` ones get derivatives."""
        target = self.parameters if trainable else self.constants
        target[self.path + name] = np.asarray(array)
        return f"{PARAMETER}{self.path}{name}"

    def key(self) -> tuple[Any, ...]:
        """A key that recipes with the same operators share."""
        return (
            tuple(self.forward),
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
    component: Lowerable,
    indexes: Any = None,
    rows: int = -1,
    natural_gradient: bool = True,
    statistics: bool = True,
) -> Recipe:
    """The forward recipe of a component.

    Raises:
        UnknownOperatorError: its type has no computation.
    """
    recipe = Recipe((indexes, rows), natural_gradient, statistics)
    lower_into(component, recipe)
    return recipe


def lower_into(component: Lowerable, recipe: Recipe) -> None:
    """Append a component's operators to a recipe, from `x` to `out`."""
    component.lower(recipe)
    if recipe.natural_gradient:
        component.precondition(recipe)


@lru_cache(maxsize=4096)
def is_own(symbol: str) -> bool:
    """Whether a symbol is a variable of the component itself, which all its uses share."""
    if symbol.startswith(PARAMETER):
        return "@" not in symbol or symbol.endswith("@D")
    return symbol.startswith((STATE, MEMORY))


def deriv_of(name: str) -> str:
    """The symbolic name of a derivative."""
    return name + "@D"


def backward_ops(
    recipe: Recipe,
    derivs: Collection[str],
    want_input: bool,
    stats: bool = False,
    natural: bool = False,
) -> list[LoweredOp]:
    """Gradient operators of a recipe: from `out@D` to `x@D` and `param/NAME@D` of `derivs`.

    `stats`: with those that add to statistics, and self-repair. `natural`: by natural gradient,
    where the component has it.
    """
    if recipe.parts:
        return _chain(recipe, derivs, want_input, stats, natural)
    if natural and recipe.natural and derivs:
        lowered = _natural_ops(recipe, want_input)
    else:
        lowered = _plain_ops(recipe, derivs, want_input)
    if stats:
        after = [op for op in recipe.stats_after if want_input or not op.writes(IN_DERIV)]
        lowered = [*recipe.stats_before, *lowered, *after]
    return lowered


def _natural_ops(recipe: Recipe, want_input: bool) -> list[LoweredOp]:
    """As `backward_ops`, for a component whose parameters natural gradient updates."""
    own = {deriv_of(PARAMETER + name): other for name, other in recipe.plain.items()}
    lowered = [op.renamed(own) for op in _plain_ops(recipe, recipe.plain, want_input)]
    return lowered + recipe.natural if recipe.plain else recipe.natural + lowered


def _plain_ops(recipe: Recipe, derivs: Collection[str], want_input: bool) -> list[LoweredOp]:
    """As `backward_ops`, without statistics, by plain gradients."""
    wanted = [PARAMETER + name for name in derivs] + ([X] if want_input else [])
    if not wanted:
        return []
    lowered = _asked_for(recipe.backward, wanted) or _from_registry(recipe, wanted)
    written = {name for op in lowered for _, names in op.outputs for name in names}
    for name in wanted:  # variables that the output does not depend on
        if deriv_of(name) not in written:
            lowered.append(
                LoweredOp.of("fill_like", {"x": name}, {"out": deriv_of(name)}, {"value": 0.0})
            )
    return lowered


def _chain(
    recipe: Recipe, derivs: Collection[str], want_input: bool, stats: bool, natural: bool
) -> list[LoweredOp]:
    """Gradient operators of the parts of a recipe, the last part first."""
    lowered: list[LoweredOp] = []
    left = list(derivs)
    for number, (part, names) in reversed(list(enumerate(recipe.parts))):
        mine = [name for name in left if name in part.parameters]
        left = [name for name in left if name not in part.parameters]
        ops = [*part.stats] if stats else []
        onward = bool(want_input or left)
        if onward or mine:
            ops += backward_ops(part, mine, onward, stats, natural)
        known = {deriv_of(name): deriv_of(outer) for name, outer in names.items()} | names
        for op in ops:
            for name in op.variables():
                if name not in known:  # an inner one gets a name of its own
                    own = name.startswith((PARAMETER, STATE, MEMORY)) or name in (EMPTY, FROZEN)
                    known[name] = name if own else f"{number}/{name}"
        lowered += [op.renamed(known) for op in ops]
    return lowered


def _asked_for(lowered: list[LoweredOp], wanted: list[str]) -> list[LoweredOp]:
    """Operators without the outputs that nothing reads."""
    names = {deriv_of(name) for name in wanted}
    left = []
    for op in lowered:
        outputs = tuple([(slot, read) for slot, read in op.outputs if names & set(read)])
        if outputs:
            left.append(op._replace(outputs=outputs))
    return left


_LARGEST_CACHED = 1 << 16  # bytes of attributes of a recipe whose gradient operators are kept


def _from_registry(recipe: Recipe, wanted: list[str]) -> list[LoweredOp]:
    """Gradient operators by the gradient makers of the recipe's forward operators.

    The same forward operators with the same attributes have the same: components of one type and
    shape share them.
    """
    few = sum([op.attrs.nbytes for op in recipe.forward]) <= _LARGEST_CACHED
    make = _gradients if few else _gradients.__wrapped__
    arrays = *recipe.parameters, *recipe.constants
    return list(make(tuple(recipe.forward), arrays, tuple(wanted)))


@lru_cache(maxsize=1024)
def _gradients(
    lowered: tuple[LoweredOp, ...], arrays: tuple[str, ...], wanted: tuple[str, ...]
) -> tuple[LoweredOp, ...]:
    """Gradient operators of those that read `x` and parameters or constants `arrays`."""
    net = OpList()
    for name in (X, *(PARAMETER + name for name in arrays)):
        net.vars.append(make_var(name, None, None, INPUT))
    net.ops = [op.node(FORWARD) for op in lowered]
    result = build_backward(net, targets={OUT: OUT_DERIV}, wrt=list(wanted), required=False)
    renames = {gradient: deriv_of(name) for name, gradient in result.gradients.items()}
    backward = [LoweredOp.of(op.type, op.inputs, op.outputs, Attrs(op.attrs)) for op in result.ops]
    if OUT_DERIV in renames:  # the gradient passes unchanged
        del renames[OUT_DERIV]
        backward.append(LoweredOp.of("assign", {"x": OUT_DERIV}, {"out": IN_DERIV}))
    return tuple(_without_shapes(op.renamed(renames)) for op in backward)


def _without_shapes(op: LoweredOp) -> LoweredOp:
    """A gradient operator that takes a shape from its `out_grad` where that has the same shape.

    A value that is read for its shape alone would have to be kept from the forward run.
    """
    inputs = dict(op.inputs)
    forward = op.type.removesuffix("_grad")
    if forward == op.type or "out_grad" not in inputs:
        return op
    same = lookup(forward).output_slots["out"].inplace
    if not same or not lookup(op.type).input_slots[same].shape_only:
        return op
    inputs[same] = inputs["out_grad"]
    return op._replace(inputs=tuple(inputs.items()))


def scale_by(recipe: Recipe, factors: str) -> None:
    """out = x * factors, which get no gradient: so the gradient of x needs no value of x."""
    recipe.op("mul", OUT, x=X, y=factors)
    recipe.backward = [LoweredOp.of("mul", {"x": OUT_DERIV, "y": factors}, {"out": IN_DERIV})]
