"""Random operators of every type, as their registrations describe them: a value or one error.

A case is a net of one to three operators with inputs to run it on: slots present or missing, any
number of variables in duplicable slots, attributes within their types and bounds, any shapes and
dtypes. What the verifier passes must run to a value, or to an error of the package.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from opscope.framework.base.context import OpContext
from opscope.framework.base.dtypes import DTYPES, HALVES, to_dtype
from opscope.framework.base.errors import OpscopeError
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import Sequences, offsets_of
from opscope.framework.base.sizes.shape import ArraySpec, count
from opscope.framework.ir.desc import INPUT, RECURRENT, make_op, make_var
from opscope.framework.ir.infer import infer_one
from opscope.framework.ir.messages import attr_value
from opscope.framework.ir.names import EMPTY
from opscope.framework.ir.op_list import Link, OpList, OpNode, StepDecl
from opscope.framework.ir.operation import Operator
from opscope.framework.ir.printer import net_text
from opscope.framework.ir.registry import lookup, operator_types
from opscope.framework.ir.schema import REQUIRED, AttrSpec, Slot
from opscope.framework.passes.verify.verifier import ERROR, problems
from opscope.framework.runtime.net import Net

from ..inputs import Depth
from .seeded import chosen, seeded

_TRIES = 12  # sets of shapes that are drawn for an operator until its shape rule takes them
_FLOATS = (*("float32",) * 4, *("float64",) * 2, *(dtype.name for dtype in HALVES))
_INTS = ("int64", "int64", "int32", "uint8", "bool")
_LARGEST = 1 << 16  # elements of a value that is made for a gradient
_NUMBERS = (0, 0, 1, 1, 1, 2, 2, 3, 4, 5, -1, -1, -2, -3, 7, 64)
_FAR = (2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
_REALS = (0.0, 1.0, 0.5, 0.1, 2.0, -1.0, 1e-8)
_ODD = (1e300, -1e300, 1e-300, float("inf"), float("nan"))
_COUNTED = ("id", "label", "index", "length", "class", "target", "position", "parent", "offset")
"""Parts of the names of slots that rather hold integers."""
_FOREIGN = (AttributeError, KeyError, NameError, AssertionError)
"""What no kernel and no shape rule may fail with, not even where that becomes an own error."""


class FindError(AssertionError):
    """A case that ended in neither a value nor an error of the package."""


@dataclass
class Case:
    """A net with values for what it reads.

    Attributes:
        live_out: temporaries to be read; None: those that a run leaves.
        train: the phase of the run.
    """

    net: OpList
    feed: dict[str, Any] = field(default_factory=dict)
    live_out: tuple[str, ...] | None = None
    train: bool | None = None

    def __str__(self) -> str:
        fed = ", ".join(f"{name}: {_shown(value)}" for name, value in self.feed.items())
        return f"{net_text(self.net)}\nfed {fed}; live_out {self.live_out}, train {self.train}"


def case(rng: random.Random, op_type: str = "") -> Case:
    """A random case.

    Args:
        op_type: of the first operator; any where it is left out.
    """
    return _Maker(rng).make(op_type)


def check(case: Case) -> str:
    """Verify and run a case: "refused" by the verifier, ended in an "error", or in a "value".

    Raises:
        FindError: anything else came of it.
    """
    try:
        if any(problem.severity == ERROR for problem in problems(case.net)):
            return "refused"
        _run(case)
    except OpscopeError as error:
        cause = error.__cause__
        if isinstance(cause, _FOREIGN):
            raise FindError(f"{type(cause).__name__} behind: {error}\n{case}") from error
        return "error"
    except Exception as error:
        raise FindError(f"{type(error).__name__}: {error}\n{case}") from error
    return "value"


def _run(case: Case) -> None:
    net, scope = Net.create(case.net), Scope()
    scope.feed(case.feed)
    net.run(scope, OpContext(live_out=case.live_out, train=case.train, seed=1))
    for name in case.live_out or ():
        scope.numpy(name)


def _shown(value: Any) -> str:
    levels = [level.tolist() for level in value.levels] if isinstance(value, Sequences) else ""
    array = value.data if isinstance(value, Sequences) else value
    return f"{array.dtype}{list(array.shape)}{levels or ''}"


def _types() -> list[str]:
    """The types that a net of chance can hold: without nets in attributes and without ranks."""
    return _without_nets_and_ranks(tuple(operator_types()))


@cache
def _without_nets_and_ranks(types: tuple[str, ...]) -> list[str]:
    return [
        name
        for name in types
        if not any(spec.type == "net" for spec in lookup(name).attrs)
        and not lookup(name).world
        and not lookup(name).boundary
        and not name.startswith("rows.")  # which describe alone
    ]


class _Maker:
    """Grows one case."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.dims = rng.choices((0, 1, 2, 3, 4, 5, 6), (1, 3, 4, 4, 2, 1, 1), k=2)
        self.rank = rng.choices(range(6), (1, 3, 8, 3, 3, 1))[0]
        self.dtype = rng.choice(_FLOATS)
        self.net = OpList("chance")
        self.feed: dict[str, Any] = {}
        self.specs: dict[str, ArraySpec] = {}
        self.rows: Sequences | None = None
        self.count = 0

    def make(self, op_type: str) -> Case:
        rng = self.rng
        for number in range(rng.choices((1, 2, 3), (6, 2, 1))[0]):
            self._grow(op_type if op_type and not number else chosen(rng, _types()))
        written = {name for op in self.net.ops for name in op.output_names() if name != EMPTY}
        live_out = tuple(sorted(written)) if rng.random() < 0.6 else None
        if rng.random() < 0.05:
            self._into_loop()
            live_out = None
        return Case(self.net, self.feed, live_out, rng.choice((None, True, False)))

    # -- operators

    def _grow(self, op_type: str) -> None:
        """One more operator, with inputs that its shape rule takes where some are found."""
        forward = op_type.removesuffix("_grad")
        source = lookup(forward) if forward != op_type and forward in _types() else None
        best: OpNode | None = None
        for _ in range(_TRIES):
            node = self._gradient(op_type, forward) if source else self._draw(op_type, {})
            if node is None:
                continue
            best = node
            if self._results(node):
                break
        if best is None:
            best = self._draw(op_type, {})
        if self.rng.random() < 0.25:
            best = self._damaged(best)
        self.net.ops.append(best)
        for name, spec in self._results(best).items():
            self.specs.setdefault(name, spec)
        used = {name for op in self.net.ops for name in op.input_names()}
        for name in [name for name in self.feed if name not in used]:
            del self.feed[name], self.specs[name]
        self.net.vars = [var for var in self.net.vars if var.name in used]

    def _results(self, node: OpNode) -> dict[str, ArraySpec]:
        """What the operator writes; nothing where it refuses its inputs."""
        try:
            op = Operator(node)
            if op.entry.shape is None:
                return {}
            return infer_one(op, self.specs, {})
        except (OpscopeError, KeyError):
            return {}

    def _draw(self, op_type: str, known: Mapping[str, tuple[str, ...]]) -> OpNode:
        """An operator with variables and attributes of chance; `known` gives some slots."""
        entry, rng = lookup(op_type), self.rng
        if rng.random() < 0.3:
            self.rank = rng.choices(range(6), (1, 3, 8, 3, 3, 1))[0]
        shape = self._shape()
        inputs = dict(known)
        for slot in entry.inputs:
            if slot.name in known or (slot.optional and rng.random() < 0.5):
                continue
            count = rng.choices((0, 1, 2, 3), (1, 5, 5, 2))[0] if slot.duplicable else 1
            inputs[slot.name] = tuple(self._input(slot, shape) for _ in range(count))
        outputs = {slot.name: self._outputs(slot, inputs) for slot in entry.outputs}
        attrs = {spec.name: self._attr(spec) for spec in entry.attrs if self._is_given(spec)}
        return make_op(op_type, inputs, outputs, attrs)

    def _gradient(self, op_type: str, forward: str) -> OpNode | None:
        """The gradient of an operator whose inputs fit; None where none were found."""
        node = self._draw(forward, {})
        results = self._results(node)
        if not results or any(not 0 <= count(shape) <= _LARGEST for shape, _ in results.values()):
            return None
        known = dict(node.inputs)
        entry = lookup(op_type)
        for slot, names in node.outputs.items():
            for wanted in (slot, f"{slot}_grad"):
                if wanted in entry.input_slots:
                    known[wanted] = tuple(
                        self._given(*results[name]) for name in names if name in results
                    )
        known = {slot: names for slot, names in known.items() if slot in entry.input_slots}
        made = self._draw(op_type, known)
        attrs = {name: value for name, value in node.attrs.items() if name in entry.attr_specs}
        outputs = dict(made.outputs)
        for slot, names in node.inputs.items():
            if f"{slot}_grad" in outputs:
                outputs[f"{slot}_grad"] = tuple(self._name() for _ in names)
        return made.changed(attrs=made.attrs | attrs, outputs=outputs)

    def _damaged(self, node: OpNode) -> OpNode:
        """The operator with one slot or attribute that is not what was meant."""
        rng, entry = self.rng, lookup(node.type)
        inputs, outputs, attrs = dict(node.inputs), dict(node.outputs), dict(node.attrs)
        slots = rng.choice((inputs, outputs))
        way = rng.randrange(5)
        if way == 0 and slots:
            del slots[rng.choice(sorted(slots))]
        elif way == 1 and outputs:
            slot = rng.choice(sorted(outputs))
            outputs[slot] = (*outputs[slot], self._name())[rng.randrange(2) :]
        elif way == 2 and inputs:
            slot = rng.choice(sorted(inputs))
            inputs[slot] = (*inputs[slot][1:], self._input(entry.input_slots[slot], self._shape()))
        elif way == 3 and entry.attrs:
            spec = rng.choice(entry.attrs)
            attrs[spec.name] = self._attr(spec, rng.random() < 0.5)
        elif inputs and outputs:  # in place
            name = rng.choice([name for names in inputs.values() for name in names] or [EMPTY])
            outputs[rng.choice(sorted(outputs))] = (name,)
        return node.changed(inputs=inputs, outputs=outputs, attrs=attrs)

    def _into_loop(self) -> None:
        """The operators as the step of a recurrent net over their inputs."""
        step = StepDecl(net=OpList("step", ops=self.net.ops))
        for name, value in self.feed.items():
            inner = Link(name, name)
            looped = isinstance(value, Sequences) or self.rng.random() < 0.5
            (step.in_links if looped else step.static_links).append(inner)
        for name in sorted({name for op in self.net.ops for name in op.output_names()} - {EMPTY}):
            step.out_links.append(Link(f"{name}@OUT", name))
        self.net = OpList("chance", type=RECURRENT, vars=self.net.vars, steps=[step])
        for name, value in self.feed.items():
            if not isinstance(value, Sequences) and value.ndim and self.rng.random() < 0.7:
                half = len(value) // 2
                self.feed[name] = Sequences(value, (offsets_of([half, len(value) - half]),))

    # -- variables

    def _name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice(self.dims) for _ in range(self.rank))

    def _input(self, slot: Slot, shape: tuple[int, ...]) -> str:
        """A variable for an input slot: one that is there, or a new one."""
        rng = self.rng
        if self.specs and rng.random() < 0.2:
            return rng.choice(sorted(self.specs))
        dtype = self.dtype
        if any(part in slot.name for part in _COUNTED) or rng.random() < 0.05:
            dtype = rng.choice(_INTS)
        way = rng.random()
        if way < 0.3:
            shape = self._shape()
        elif way < 0.5:
            shape = tuple(rng.choice(self.dims) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))))
        elif way < 0.7:
            shape = shape[: rng.randint(0, len(shape))]
        return self._given(shape, to_dtype(dtype))

    def _given(self, shape: tuple[int, ...], dtype: np.dtype) -> str:
        """A new input of the net with a value."""
        rng, name = self.rng, self._name()
        numbers = np.random.default_rng(rng.randrange(1 << 30))
        if dtype.kind in "iub":
            high = rng.choice((1, 2, 3, 9)) if dtype.kind != "b" else 2
            low = -1 if dtype.kind == "i" and rng.random() < 0.1 else 0
            value: Any = numbers.integers(low, high, size=shape).astype(dtype)
        else:
            value = numbers.normal(size=shape).astype(dtype)
        levels = 0
        if shape and rng.random() < 0.25:
            value, levels = self._sequences(value)
        declared = tuple(-1 if rng.random() < 0.15 else dim for dim in shape)
        self.net.vars.append(make_var(name, declared, dtype, INPUT, sequence_levels=levels))
        self.feed[name] = value
        self.specs[name] = (shape, dtype)
        return name

    def _sequences(self, value: np.ndarray) -> tuple[Sequences, int]:
        """The rows as sequences of one or two levels; those of one net often lie alike."""
        rng, rows = self.rng, len(value)
        if self.rows is not None and len(self.rows.data) == rows and rng.random() < 0.7:
            return Sequences(value, self.rows.levels), len(self.rows.levels)
        cuts = sorted(rng.randint(0, rows) for _ in range(rng.randrange(3)))
        levels = [np.array([0, *cuts, rows], np.int64)]
        if rng.random() < 0.2:
            count = len(levels[0]) - 1
            levels.insert(0, np.array([0, rng.randint(0, count), count], np.int64))
        self.rows = Sequences(value, tuple(levels))
        return self.rows, len(levels)

    def _outputs(self, slot: Slot, inputs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Variables for an output slot: new ones, in duplicable slots mostly as many as inputs."""
        rng = self.rng
        if (slot.optional or slot.intermediate) and rng.random() < 0.3:
            return ()
        if not slot.duplicable:
            return (self._name(),)
        counts = [len(names) for names in inputs.values() if len(names) != 1]
        if counts and rng.random() < 0.7:
            count = rng.choice(counts)
        else:
            count = rng.choices((0, 1, 2, 3), (1, 5, 4, 2))[0]
        return tuple(EMPTY if rng.random() < 0.1 else self._name() for _ in range(count))

    # -- attributes

    def _is_given(self, spec: AttrSpec) -> bool:
        return spec.default is REQUIRED or self.rng.random() < 0.4

    def _attr(self, spec: AttrSpec, odd: bool = False) -> Any:
        """A value of an attribute's type, mostly within its bounds; odd ones are far away."""
        rng, kind = self.rng, spec.type
        if kind == "tensor":
            shape = tuple(rng.choice(self.dims) for _ in range(rng.choice((0, 1, 1, 2))))
            numbers = np.random.default_rng(rng.randrange(1 << 30))
            if rng.random() < 0.5:
                return attr_value(numbers.normal(size=shape).astype("float32"))
            return attr_value(numbers.integers(-1, 3, size=shape))
        if kind in ("bools", "ints", "floats", "strings"):
            count = rng.choices((0, 1, 2, 3, 4), (2, 4, 5, 2, 2))[0]
            return attr_value(tuple(self._one(kind[:-1], spec, odd) for _ in range(count)))
        return attr_value(self._one(kind, spec, odd))

    def _one(self, kind: str, spec: AttrSpec, odd: bool) -> Any:
        rng = self.rng
        if spec.choices and rng.random() < 0.98:
            return rng.choice(spec.choices)
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "string":
            return rng.choice(("", "x", "relu", "sum", "ij,jk->ik", "..."))
        if kind == "dtype":
            return rng.choice(sorted(DTYPES, key=str))
        if kind == "int":
            value: Any = rng.choice(_FAR) if odd else rng.choice((*_NUMBERS, *self.dims))
            low, high = spec.minimum, spec.maximum
            if rng.random() < 0.95:
                value = value if low is None else max(value, int(low))
                value = value if high is None else min(value, int(high))
            return value
        value = rng.choice(_ODD) if odd else rng.choice((*_REALS, rng.uniform(-2, 2)))
        if rng.random() < 0.95:
            value = value if spec.minimum is None else max(value, spec.minimum)
            value = value if spec.maximum is None else min(value, spec.maximum)
        return float(value)


def _build(rng: random.Random) -> tuple[str, Case]:
    made = case(rng)
    return str(made), made


def _checked(_: str, made: Case | None) -> Depth:
    if made is None or check(made) == "refused":
        return Depth.REFUSED
    return Depth.RAN


GENERATORS = (seeded("operators of chance", _build, _checked, share=2),)
