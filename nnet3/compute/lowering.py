"""How a component becomes operators: recipes with symbolic names, and their way into a net.

A lowering is a function (component, recipe) that writes the forward operators of one component
type, once, between the symbolic variables `x` and `out`. The backward operators follow from the
gradients in the registry; nothing is written twice. A compiler instantiates recipes:

    ops = ComponentOps(component)
    forward = ops.propagate("m1", "m2", prefix="c7", parameters="tdnn1")
    backward = ops.backprop("m1", "m2", "m2_deriv", "m1_deriv", prefix="c7", parameters="tdnn1",
                            param_derivs="tdnn1.deriv")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...framework.backward import build_backward
from ...framework.desc import BACKWARD, FORWARD, make_op, make_var, slot_map
from ...framework.errors import UnknownOperatorError, nearest
from ...framework.names import EMPTY
from ...framework.registry import lookup
from ...proto import net_pb2 as pb

X, OUT, OUT_DERIV, IN_DERIV = "x", "out", "out@D", "x@D"
_PARAMETER, _TEMPORARY, _STATE = "param/", "temp/", "state/"
Lowering = Callable[[Any, "Recipe"], None]

_lowerings: dict[str, Lowering] = {}


def lowers(*types: str) -> Callable[[Lowering], Lowering]:
    """Decorator: the lowering of component types, by Kaldi's names."""

    def register(lowering: Lowering) -> Lowering:
        _lowerings.update(dict.fromkeys(types, lowering))
        return lowering

    return register


def lowered_types() -> list[str]:
    """Every component type that can be computed, sorted."""
    return sorted(_lowerings)


@dataclass(frozen=True)
class Step:
    """One operator of a recipe, over symbolic names."""

    type: str
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    attrs: Mapping[str, Any]

    def reads(self, name: str) -> bool:
        """Whether the operator reads the value of `name` (and not its shape alone)."""
        slots = lookup(self.type).input_slots
        return any(name in names and not slots[s].shape_only for s, names in self.inputs.items())

    def writes(self, name: str) -> bool:
        return any(name in names for names in self.outputs.values())

    def renamed(self, names: Mapping[str, str]) -> Step:
        return replace(
            self,
            inputs={s: tuple(names.get(v, v) for v in given) for s, given in self.inputs.items()},
            outputs={s: tuple(names.get(v, v) for v in given) for s, given in self.outputs.items()},
        )


@dataclass
class Recipe:
    """The forward operators of one component, from `x` to `out`.

    Attributes:
        indexes: what the component's `precompute_indexes` returned; None for simple components.
        rows: number of rows of the output, for components without an input; else -1.
        parameters: arrays that may be trained, by field (`linear_params`; inside a composite
            `2.linear_params`), in Kaldi's order of vectorising.
        constants: other arrays that the operators read, by name.
        states: statistics that the component keeps, by attribute, float64.
        stats: operators that add to them after the forward operators; they write to the states.
        back_stats: those that go with the backward operators; they may change `x@D`.
        backward: gradient operators where those in the registry would do more than is needed.
    """

    indexes: Any = None
    rows: int = -1
    steps: list[Step] = field(default_factory=list)
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    states: dict[str, np.ndarray] = field(default_factory=dict)
    stats: list[Step] = field(default_factory=list)
    back_stats: list[Step] = field(default_factory=list)
    backward: list[Step] = field(default_factory=list)
    path: str = ""
    _temps: int = 0

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
        self.steps.append(
            Step(
                op_type,
                {slot: (name,) for slot, name in inputs.items()},
                {slot: (name,) for slot, name in written.items()},
                dict(attrs or {}),
            )
        )

    def temp(self) -> str:
        """A new variable that lives from the forward to the backward operators."""
        self._temps += 1
        return f"{_TEMPORARY}{self._temps - 1}"

    def state(self, name: str, value: Any, shape: tuple[int, ...] = (1,)) -> str:
        """The variable of a statistic; one that is empty begins with zeros of `shape`."""
        array = np.asarray(value, np.float64).reshape(-1)
        array = array.reshape(shape) if array.size else np.zeros(shape)
        self.states[self.path + name] = array
        return f"{_STATE}{self.path}{name}"

    def keep(self, op_type: str, attrs: Any = None, /, *, back: bool = False, **slots: str) -> None:
        """Append an operator that adds to statistics: its slots that are states are outputs, too.

        `back`: it belongs to the backward operators.
        """
        inputs = {slot: (name,) for slot, name in slots.items()}
        outputs = {
            f"{slot}_out": (name,)
            for slot, name in slots.items()
            if name.startswith(_STATE) and f"{slot}_out" in lookup(op_type).output_slots
        }
        if back and slots.get("grad") == IN_DERIV:
            outputs["grad_out"] = (IN_DERIV,)
        target = self.back_stats if back else self.stats
        target.append(Step(op_type, inputs, outputs, attrs or {}))

    def temps(self) -> list[str]:
        """The variables that `temp` has handed out."""
        return [f"{_TEMPORARY}{number}" for number in range(self._temps)]

    def parameter(self, name: str, array: Any, trainable: bool = True) -> str:
        """The variable of an array of the component; `trainable` ones get derivatives."""
        target = self.parameters if trainable else self.constants
        target[self.path + name] = np.asarray(array)
        return f"{_PARAMETER}{self.path}{name}"


def lower(component: Any, indexes: Any = None, rows: int = -1) -> Recipe:
    """The forward recipe of a component.

    Raises:
        UnknownOperatorError: no lowering is known for its type.
    """
    recipe = Recipe(indexes, rows)
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


def deriv_of(name: str) -> str:
    """The symbolic name of a derivative."""
    return name + "@D"


def backward_steps(recipe: Recipe, derivs: Collection[str], want_input: bool) -> list[Step]:
    """Gradient operators of a recipe: from `out@D` to `x@D` and `param/NAME@D` of `derivs`."""
    wanted = [_PARAMETER + name for name in derivs] + ([X] if want_input else [])
    steps = _asked_for(recipe.backward, wanted) or _from_registry(recipe, wanted)
    written = {name for step in steps for names in step.outputs.values() for name in names}
    for name in wanted:  # what the output does not depend on
        if deriv_of(name) not in written:
            outputs = {"out": (deriv_of(name),)}
            steps.append(Step("fill_like", {"x": (name,)}, outputs, {"value": 0.0}))
    return steps


def _asked_for(steps: list[Step], wanted: list[str]) -> list[Step]:
    """Steps without the outputs that nobody wants."""
    names = {deriv_of(name) for name in wanted}
    left = []
    for step in steps:
        outputs = {slot: given for slot, given in step.outputs.items() if names & set(given)}
        if outputs:
            left.append(replace(step, outputs=outputs))
    return left


def _from_registry(recipe: Recipe, wanted: list[str]) -> list[Step]:
    """Steps by the gradient makers of the recipe's operators."""
    net = pb.NetDesc()
    for name in (X, *(_PARAMETER + name for name in recipe.parameters | recipe.constants)):
        net.vars.append(make_var(name, None, None, pb.VarDesc.INPUT))
    for step in recipe.steps:
        net.ops.append(make_op(step.type, step.inputs, step.outputs, step.attrs))
    result = build_backward(net, targets={OUT: OUT_DERIV}, wrt=wanted, required=False)
    renames = {given: deriv_of(name) for name, given in result.gradients.items()}
    steps = [
        Step(
            op.type,
            {slot: tuple(given) for slot, given in slot_map(op.inputs).items()},
            {slot: tuple(given) for slot, given in slot_map(op.outputs).items()},
            {name: op.attrs[name] for name in op.attrs},
        )
        for op in result.ops
    ]
    if OUT_DERIV in renames:  # the gradient passes unchanged
        del renames[OUT_DERIV]
        steps.append(Step("assign", {"x": (OUT_DERIV,)}, {"out": (IN_DERIV,)}, {}))
    return [_without_shapes(step.renamed(renames)) for step in steps]


def _without_shapes(step: Step) -> Step:
    """A gradient operator that takes a shape from its `out_grad` where that has the same shape.

    A value that is read for its shape alone would have to be kept from the forward run.
    """
    entry = lookup(step.type)
    forward = step.type.removesuffix("_grad")
    grad = step.inputs.get("out_grad")
    if forward == step.type or grad is None:
        return step
    same = lookup(forward).output_slots["out"].inplace
    if not same or not entry.input_slots[same].shape_only:
        return step
    return replace(step, inputs={**step.inputs, same: grad})


def _apart(steps: list[Step], read: str, write: str) -> list[Step]:
    """Steps that stay right when the variables `read` and `write` share their memory.

    They are right already where the only operator that writes is the last that reads, and may
    write over that input. Else the result takes a way round.
    """
    writer = next((i for i, step in enumerate(steps) if step.writes(write)), None)
    readers = [i for i, step in enumerate(steps) if step.reads(read)]
    if writer is None or not readers or max(readers) < writer:
        return steps
    step = steps[writer]
    slot = next(slot for slot, names in step.outputs.items() if write in names)
    over = lookup(step.type).output_slots[slot].inplace
    if max(readers) == writer and over and read in step.inputs.get(over, ()):
        if sum(names.count(read) for names in step.inputs.values()) == 1:
            return steps
    aside = f"{_TEMPORARY}aside"
    moved = [s.renamed({write: aside}) for s in steps]
    return [*moved, Step("assign", {"x": (aside,)}, {"out": (write,)}, {})]


def _adding(steps: list[Step], write: str) -> list[Step]:
    """Steps that add to `write` instead of setting it."""
    part = f"{_TEMPORARY}{write.removeprefix(_PARAMETER)}/part"
    moved = [step.renamed({write: part}) for step in steps]
    return [*moved, Step("add", {"x": (write,), "y": (part,)}, {"out": (write,)}, {})]


class _Template:
    """OpDescs made once, whose variables are named anew for every use."""

    def __init__(self, steps: list[Step], role: int) -> None:
        self._ops: list[tuple[pb.OpDesc, list[list[str]]]] = []
        symbols: dict[str, None] = {}
        for step in steps:
            op = make_op(step.type, step.inputs, step.outputs, step.attrs, role=role)
            slots = [list(slot.vars) for slot in (*op.inputs, *op.outputs)]
            symbols.update(dict.fromkeys(name for names in slots for name in names))
            for slot in (*op.inputs, *op.outputs):
                del slot.vars[:]
            self._ops.append((op, slots))
        fixed = (X, OUT, OUT_DERIV, IN_DERIV, EMPTY)
        self._inner = [(name, *_kind(name)) for name in symbols if name not in fixed]

    def use(self, names: dict[str, str], prefixes: Mapping[str, str]) -> list[pb.OpDesc]:
        """The operators with `names` for x and out, and prefixes for all other variables."""
        for symbol, kind, bare in self._inner:
            names[symbol] = prefixes[kind] + bare
        result = []
        for template, slots in self._ops:
            op = pb.OpDesc()
            op.CopyFrom(template)
            used = iter(slots)
            for slot in op.inputs:
                slot.vars.extend([names[name] for name in next(used)])
            for slot in op.outputs:
                slot.vars.extend([names[name] for name in next(used)])
            result.append(op)
        return result


def _kind(symbol: str) -> tuple[str, str]:
    """What prefix an inner variable gets, and the rest of its name."""
    if symbol.startswith(_STATE):
        return "state", symbol.removeprefix(_STATE)
    bare = symbol.removeprefix(_PARAMETER)
    if bare != symbol and bare.endswith("@D"):
        return "deriv", bare.removesuffix("@D")
    if bare != symbol and "@" not in bare:
        return "parameter", bare
    return "temporary", symbol.removeprefix(_TEMPORARY)


def _prefixes(temporaries: str, parameters: str) -> dict[str, str]:
    return {"temporary": temporaries + "/", "parameter": parameters + "."}


class ComponentOps:
    """Forward and backward operators of one component, as often as a compiler asks for them.

    Recipes are kept: later calls with the same `indexes` only name variables anew. The component's
    settings (test mode, dropout proportion) are read when a recipe is first made.
    """

    def __init__(self, component: Any) -> None:
        self.component = component
        self._recipes: dict[tuple[int, int], Recipe] = {}
        self._templates: dict[tuple[Any, ...], _Template] = {}

    def recipe(self, indexes: Any = None, rows: int = -1) -> Recipe:
        """The forward recipe for one set of precomputed indexes."""
        key = (id(indexes), rows)
        if key not in self._recipes:
            self._recipes[key] = lower(self.component, indexes, rows)
        return self._recipes[key]

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
    ) -> list[pb.OpDesc]:
        """Operators that compute `out` from `x` (the same name: in place).

        Args:
            prefix: of the names of temporaries; those that the backward operators read again are
                found there, so give `backprop` the same.
            parameters: prefix of the parameters' variables: `PREFIX.linear_params`.
            indexes: of a component that is not simple, from `time_grid.precompute_indexes`.
            rows: of the output, where the component has no input.
            add: add to what `out` holds.
        """
        key = ("forward", id(indexes), rows, x == out, add)
        if key not in self._templates:
            steps = self.recipe(indexes, rows).steps
            if x == out:
                steps = _apart(steps, X, OUT)
            if add:
                steps = _adding(steps, OUT)
            self._templates[key] = _Template(steps, FORWARD)
        prefixes = _prefixes(prefix, parameters)
        return self._templates[key].use({X: x, OUT: out}, prefixes)

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
    ) -> list[pb.OpDesc]:
        """Operators that compute `in_deriv` and the plain gradient of the parameters.

        Args:
            in_deriv: None where nobody needs it; may be `out_deriv` itself.
            param_derivs: prefix of the gradients' variables, or None.
            add: add to what `in_deriv` holds.
            accumulate: add to what the gradients of the parameters hold.
        """
        given = in_deriv is not None
        wanted = param_derivs is not None
        key = ("backward", id(indexes), rows, wanted, given, in_deriv == out_deriv, add, accumulate)
        if key not in self._templates:
            recipe = self.recipe(indexes, rows)
            derivs = list(recipe.parameters) if wanted else []
            steps = backward_steps(recipe, derivs, given)
            if in_deriv == out_deriv:
                steps = _apart(steps, OUT_DERIV, IN_DERIV)
            if add and given:
                steps = _adding(steps, IN_DERIV)
            if accumulate:
                for name in derivs:
                    steps = _adding(steps, deriv_of(_PARAMETER + name))
            self._templates[key] = _Template(steps, BACKWARD)
        prefixes = _prefixes(prefix, parameters) | {"deriv": f"{param_derivs}."}
        names = {X: x, OUT: out, OUT_DERIV: out_deriv, IN_DERIV: in_deriv or "", EMPTY: EMPTY}
        return self._templates[key].use(names, prefixes)

    def store_stats(
        self,
        x: str,
        out: str,
        *,
        prefix: str,
        parameters: str,
        states: str,
        indexes: Any = None,
        rows: int = -1,
    ) -> list[pb.OpDesc]:
        """Operators that add to the component's statistics; they follow those of `propagate`.

        Args:
            states: prefix of the variables of the statistics, see `states`.
        """
        key = ("stats", id(indexes), rows)
        if key not in self._templates:
            self._templates[key] = _Template(self.recipe(indexes, rows).stats, FORWARD)
        prefixes = _prefixes(prefix, parameters) | {"state": states + "."}
        return self._templates[key].use({X: x, OUT: out}, prefixes)

    def backprop_stats(
        self,
        x: str,
        out: str,
        out_deriv: str,
        in_deriv: str | None,
        *,
        prefix: str,
        parameters: str,
        states: str,
        indexes: Any = None,
        rows: int = -1,
    ) -> list[pb.OpDesc]:
        """Operators that follow those of `backprop` in training: statistics and self-repair.

        Self-repair changes `in_deriv`. `out_deriv` must still hold its value.
        """
        key = ("back_stats", id(indexes), rows, in_deriv is not None)
        if key not in self._templates:
            steps = [
                step
                for step in self.recipe(indexes, rows).back_stats
                if in_deriv is not None or not step.writes(IN_DERIV)
            ]
            self._templates[key] = _Template(steps, BACKWARD)
        prefixes = _prefixes(prefix, parameters) | {"state": states + "."}
        names = {X: x, OUT: out, OUT_DERIV: out_deriv, IN_DERIV: in_deriv or ""}
        return self._templates[key].use(names, prefixes)

    def states(self, prefix: str, indexes: Any = None, rows: int = -1) -> dict[str, np.ndarray]:
        """Variables of the component's statistics with their values so far, float64."""
        states = self.recipe(indexes, rows).states
        return {f"{prefix}.{name}": array for name, array in states.items()}

    def set_states(self, prefix: str, values: Mapping[str, np.ndarray]) -> None:
        """Hand statistics back to the component: those of `values` that `states` named."""
        for name, value in values.items():
            path = name.removeprefix(prefix + ".").split(".")
            target = self.component
            for number in path[:-1]:
                target = target.components[int(number)]
            scalar = isinstance(getattr(target, path[-1]), float)
            setattr(target, path[-1], float(value[0]) if scalar else np.array(value))

    def backprop_reads(self, indexes: Any = None, rows: int = -1) -> tuple[bool, bool]:
        """Whether the backward operators read the values of `x` and of `out`."""
        recipe = self.recipe(indexes, rows)
        steps = backward_steps(recipe, recipe.parameters, True)
        return any(step.reads(X) for step in steps), any(step.reads(OUT) for step in steps)

    def arrays(self, prefix: str, indexes: Any = None, rows: int = -1) -> dict[str, np.ndarray]:
        """Values of the variables that the operators read besides `x`: parameters and constants."""
        recipe = self.recipe(indexes, rows)
        both = recipe.parameters | recipe.constants
        return {f"{prefix}.{name}": array for name, array in both.items()}
