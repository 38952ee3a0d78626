"""Nets grown operator by operator from the registry, run with every switch beside a plain run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import GradientError, OpscopeError
from opscope.framework.base.scope import Scope
from opscope.framework.base.sizes.shape import ArraySpec, count
from opscope.framework.ir.desc import INPUT, OUTPUT, PARAMETER, make_op, make_var
from opscope.framework.ir.infer import infer_one
from opscope.framework.ir.op_list import OpList, OpNode
from opscope.framework.ir.operation import Operator
from opscope.framework.ir.printer import net_text
from opscope.framework.ir.registry import OperatorDef, lookup, operator_types
from opscope.framework.ir.schema import REQUIRED, AttrSpec
from opscope.framework.passes.cleanup import cleanup_passes
from opscope.framework.passes.pipeline import run_passes
from opscope.framework.passes.verify.verifier import verify
from opscope.framework.runtime.net import Net

from ..inputs import Depth, WrongError
from ..switched import EVERYWHERE, switched
from ..switches import difference
from .seeded import chosen, seeded

_LARGEST = 256  # elements of a variable
_TRIES = 8
_COMPILED = 0.01  # so many nets compile loops, which takes a tenth of a second each
_TOLERANCE = 1e-7
_HUGE = 1e6  # numbers beyond are not compared: rounding errors may be anything
_JUMPS = ("floor", "ceil", "round", "trunc", "sign", "step", "mod", "sort", "top_k", "arg", "top")
"""Parts of the names of operators whose results jump where a rounding error decides."""
_ELSEWHERE = ("sequence", "gather")  # want sequences and indexes, see `ops`
_CLEANUP = {step.name: step for step in cleanup_passes()}


def _continuous(entry: OperatorDef) -> bool:
    parts = entry.type.split("_")
    if parts[0] in _ELSEWHERE:
        return False
    return not any(jump in parts or entry.type.startswith(jump) for jump in _JUMPS)


@cache
def _types() -> list[str]:
    """Operators of a value, continuous in it, that draw nothing and exchange nothing."""
    found = []
    for name in operator_types():
        entry = lookup(name)
        plain = not (entry.random or entry.world or entry.boundary or entry.state_rule)
        nets = any(spec.type == "net" for spec in entry.attrs)
        if plain and not nets and not entry.no_gradient and not name.endswith("_grad"):
            if _continuous(entry) and entry.inputs and "." not in name:
                found.append(name)
    return found


@dataclass
class _Maker:
    rng: random.Random
    net: OpList = field(default_factory=lambda: OpList("grown"))
    feed: dict[str, np.ndarray] = field(default_factory=dict)
    specs: dict[str, ArraySpec] = field(default_factory=dict)

    def given(self, shape: tuple[int, ...], kind: int, dtype: str = "float64") -> str:
        name = f"g{len(self.feed)}"
        numbers = np.random.default_rng(self.rng.getrandbits(32))
        value = numbers.normal(size=shape) if dtype == "float64" else numbers.integers(0, 3, shape)
        self.feed[name] = value.astype(dtype)
        self.specs[name] = (shape, np.dtype(dtype))
        self.net.vars.append(make_var(name, shape, dtype, kind))
        return name

    def grow(self) -> None:
        """One more operator that takes variables that are there; none where none was found."""
        for _ in range(_TRIES):
            node = self._drawn(lookup(chosen(self.rng, _types())))
            try:
                specs = infer_one(Operator(node), self.specs, {})
            except (OpscopeError, KeyError):
                continue
            if all(0 < count(shape) <= _LARGEST for shape, _ in specs.values()):
                self.net.ops.append(node)
                self.specs |= specs
                return

    def _drawn(self, entry: OperatorDef) -> OpNode:
        rng, inputs = self.rng, {}
        names = list(self.specs)
        first = rng.choice(names[-4:])
        for slot in entry.inputs:
            if slot.optional and rng.random() < 0.6:
                continue
            alike = [name for name in names if self.specs[name] == self.specs[first]]
            many = rng.randint(1, 3) if slot.duplicable else 1
            chosen = [rng.choice(alike if rng.random() < 0.6 else names) for _ in range(many)]
            inputs[slot.name] = tuple(chosen if inputs else [first, *chosen[1:]])
        number = len(self.net.ops)
        outputs = {
            slot.name: (f"v{number}{slot.name}",) for slot in entry.outputs if not slot.optional
        }
        attrs = {
            spec.name: self._attr(spec)
            for spec in entry.attrs
            if spec.default is REQUIRED or rng.random() < 0.2
        }
        return make_op(entry.type, inputs, outputs, attrs)

    def _attr(self, spec: AttrSpec) -> object:
        rng = self.rng
        if spec.choices:
            return rng.choice(spec.choices)
        low = -1 if spec.minimum is None else int(spec.minimum)
        match spec.type:
            case "bool":
                return rng.random() < 0.5
            case "int":
                return rng.randint(low, low + 3)
            case "ints":
                return [rng.randint(low, low + 3) for _ in range(rng.randint(1, 3))]
            case "float":
                return rng.choice((0.5, 1.0, 2.0)) if spec.maximum is None else spec.maximum / 2
            case "string":
                return "ij,jk->ik"
            case _:  # left out
                return None if spec.default is REQUIRED else spec.default

    def make(self, length: int) -> None:
        rows, columns = self.rng.randint(1, 4), self.rng.randint(1, 4)
        shape: tuple[int, ...] = (rows, columns)
        if self.rng.random() < 0.25:
            shape = (self.rng.randint(1, 2), *shape, 3)
        self.given(shape, INPUT)
        self.given(shape, PARAMETER)
        self.given((columns, columns), PARAMETER)
        self.given((rows,), INPUT, "int64")
        for _ in range(length):
            self.grow()


@dataclass
class _Grown:
    """A net with what it is run on.

    Attributes:
        fetch: what is compared. sets: of switches, to run it with.
    """

    net: OpList
    feed: Mapping[str, np.ndarray]
    fetch: list[str]
    sets: list[list[str]]


def _build(rng: random.Random) -> tuple[str, _Grown]:
    maker = _Maker(rng)
    maker.make(rng.randint(2, 12))
    made = [name for op in maker.net.ops for name in op.output_names()]
    fetch = [name for name in made if maker.specs[name][1].kind == "f"][-3:]
    every = [name for name in (*EVERYWHERE, *_CLEANUP) if name != "fuse"]
    if rng.random() < _COMPILED:
        every.append("fuse")
    sets = [every, [name for name in every if rng.random() < 0.5]]
    return net_text(maker.net), _Grown(maker.net, maker.feed, fetch, sets)


def _run(_: str, grown: _Grown | None) -> Depth:
    if grown is None or not grown.fetch:
        return Depth.READ
    verify(grown.net)
    net, fetch = _with_gradients(grown)
    with switched(()):
        wanted = _values(net, grown.feed, fetch)
    for on in grown.sets:
        with switched(on):
            passed = run_passes(net, [step for name, step in _CLEANUP.items() if name in on])
            got = _values(passed, grown.feed, fetch)
        tame = {n: v for n, v in wanted.items() if np.all(np.abs(v) < _HUGE)}
        gap, where = difference(tame, {name: got[name] for name in tame})
        if gap > _TOLERANCE:
            raise WrongError("a switch changes a number", f"{where} by {gap:.3g}, on: {on}")
    return Depth.RAN


def _with_gradients(grown: _Grown) -> tuple[OpList, list[str]]:
    """The net with the gradients of its last value at parameters, where there are some."""
    last = grown.fetch[-1]
    desc = OpList("grown", vars=list(grown.net.vars), ops=list(grown.net.ops))
    desc.ops.append(make_op("reduce_sum", {"x": last}, {"out": "loss"}))
    net = Net.create(desc)
    try:
        gradients = net.add_backward_ops("loss")
    except GradientError:  # nothing that is trained on the way
        return _kept(grown.net, grown.fetch)
    return _kept(net.op_list, [*grown.fetch, *gradients.values()])


def _kept(net: OpList, fetch: list[str]) -> tuple[OpList, list[str]]:
    """The net with what is fetched as its outputs, which no pass removes."""
    others = [var for var in net.vars if var.name not in fetch]
    outputs = [make_var(name, None, None, OUTPUT) for name in fetch]
    return OpList(net.name, vars=[*others, *outputs], ops=list(net.ops)), fetch


def _values(net: OpList, feed: Mapping[str, np.ndarray], fetch: list[str]) -> dict[str, np.ndarray]:
    made, scope = Net.create(net), Scope()
    scope.feed({name: value.copy() for name, value in feed.items()})
    made.run(scope, OpContext(live_out=fetch, seed=1))
    return {name: np.array(scope.numpy(name)) for name in fetch}


GENERATORS = (seeded("operator nets", _build, _run, share=1),)
