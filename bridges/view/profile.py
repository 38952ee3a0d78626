"""Time and memory of the operators of a net, measured on random inputs and put into its graph."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.random import Generator

from ...framework.base.context import Hook, OpContext
from ...framework.base.errors import VariableError
from ...framework.base.options.settings import read_options, using
from ...framework.base.scope import Scope
from ...framework.base.sequence import Sequences
from ...framework.base.sizes.byte_sizes import size_text
from ...framework.ir.desc import FORWARD, INPUT, PARAMETER, STATE
from ...framework.ir.op_list import VarDecl
from ...framework.runtime.plain_net import PlainNet
from ..model.model import Model
from .graph import Item, NetGraph
from .texts import seconds_text

if TYPE_CHECKING:
    from ...cntk.network.network import Network
    from ...nnet3.network.nnet import Nnet
    from ..model.nnet3_models import Nnet3Model

_RUNS = 3
"""Runs that count, after one that does not: it compiles and plans."""


class Measured(NamedTuple):
    """A step of a run: its operators by number, main results, seconds and bytes of results.

    Of several operators, `apart` are the seconds that each takes by itself.
    """

    operators: list[int]
    results: list[list[str]]
    seconds: float
    memory: int
    apart: Sequence[float] = (1.0,)


class _Times(Hook):
    """The least time of each step over several runs."""

    def __init__(self) -> None:
        self.steps: dict[tuple[int, ...], Measured] = {}
        self.place = "the CPU"
        self._start = 0.0
        self._obstacles: dict[str, str] = {}
        self._graphs = 0

    def after_run(self, frame: Any) -> None:
        if frame.place.kind == "cpu":
            return
        # With hooks each operator runs by itself.
        self._obstacles |= frame.recording.obstacles
        self._graphs = max(self._graphs, frame.recording.graphs)
        whys = [f"{kind} {why}" for kind, why in self._obstacles.items()]
        runs = f"else as {'a CUDA graph' if self._graphs == 1 else f'{self._graphs} CUDA graphs'}"
        if whys:
            runs += f", without {'; '.join(whys)}"
        self.place = f"{frame.place}, {runs}"

    def before_op(self, frame: Any, index: int) -> None:
        self._start = time.perf_counter()

    def after_op(self, frame: Any, index: int) -> None:
        spent = time.perf_counter() - self._start
        step = frame.plan.steps[index]
        key = tuple(operator.index for operator in step.operators)
        before = self.steps.get(key)
        if before is not None:
            self.steps[key] = before._replace(seconds=min(before.seconds, spent))
            return
        arrays = [frame.array(name) for name in dict.fromkeys(step.writes)]
        memory = sum(int(array.nbytes) for array in arrays if array is not None)
        results = [operator.node.output_names() for operator in step.operators]
        self.steps[key] = Measured(list(key), results, spent, memory)


def profile(graph: NetGraph, model: Model, rows: int, seed: int = 0) -> None:
    """Run the net forward on random inputs and put time and memory into the items of its graph.

    Args:
        rows: of a batch where the first dimension is unknown; frames of a network of Kaldi's.

    Raises:
        OpscopeError: the net does not run: parameters without values, a network that is not simple.
    """
    if model.family not in ("nnet3", "cntk", "operators"):
        raise VariableError(f"{model.title}: {model.what}, which does not run")
    rng = np.random.default_rng(seed)
    if model.dialect == "nnet3":
        shares = _nnet3_shares(graph, cast("Nnet3Model", model).nnet, rows, rng)
        what = f"{rows} frames"
    elif model.dialect == "cntk":
        shares = _cntk_shares(graph, cast("Network", model.network), rows, rng)
        what = f"{rows} samples"
    else:
        shares = _operator_shares(graph, model, rows, rng)
        what = f"{rows} rows"
    for item, seconds, memory in shares:
        item.time = (item.time or 0.0) + seconds
        item.memory = max(item.memory or 0, memory)
    for item in list(graph.items.values()):
        if item.time is None:
            continue
        item.lines = [*item.lines, f"{seconds_text(item.time)}   {size_text(item.memory or 0)}"]
        for key in item.path:
            group = graph.groups[key]
            group.time = (group.time or 0.0) + item.time
            group.memory = max(group.memory or 0, item.memory or 0)
    for group in graph.groups.values():
        if group.time is not None:
            group.lines = [*group.lines, seconds_text(group.time)]
    graph.profiled = f"forward, {what} of random input, on {graph.place}, best of {_RUNS}"


Share = tuple[Item, float, int]
"""An item, its seconds and its bytes."""


def _split(step: Measured, items: Sequence[Sequence[Item]]) -> Iterator[Share]:
    """The time of a step, for the items of each of its operators.

    A fused step has one time; its operators share it as the times that they take by themselves.
    """
    whole = sum(seconds for seconds, own in zip(step.apart, items, strict=True) if own) or 1.0
    for seconds, own in zip(step.apart, items, strict=True):
        for item in own:
            yield item, step.seconds * seconds / (whole * len(own)), step.memory


def _measure(graph: NetGraph, run: Callable[[list[Hook]], object]) -> list[Measured]:
    """The steps of a run, which is done several times.

    Args:
        graph: learns where it ran. run: does it with some hooks.
    """

    def measured() -> list[Measured]:
        times = _Times()
        run([])
        for _ in range(_RUNS):
            run([times])
        graph.place = times.place
        return list(times.steps.values())

    steps = measured()
    if all(len(step.operators) == 1 for step in steps):
        return steps
    with using(replace(read_options(), fuse=False)):
        apart = {step.operators[0]: step.seconds for step in measured()}
    for step in steps:
        if len(step.operators) == 1 and step.operators[0] in apart:
            # Of an operator that is cut in two, a product and its bias, the rest is in a loop.
            number = step.operators[0]
            apart[number] = max(apart[number] - step.seconds, 0.0)
    return [
        step._replace(apart=[apart.get(number, 0.0) for number in step.operators])
        if len(step.operators) > 1
        else step
        for step in steps
    ]


def _run(graph: NetGraph, net: PlainNet, scope: Scope) -> list[Measured]:
    return _measure(
        graph, lambda hooks: net.run(scope, OpContext(seed=0, train=False, hooks=hooks))
    )


# -- nets of operators


def _operator_shares(graph: NetGraph, model: Model, rows: int, rng: Generator) -> Iterator[Share]:
    forward = model.desc.copy()
    forward.ops = [op for op in model.desc.ops if op.role == FORWARD]
    scope = Scope()
    read = {name for op in forward.ops for name in op.input_names()}
    for var in forward.vars:
        if var.kind in (PARAMETER, STATE) and var.name in read:
            if var.name not in model.arrays:
                raise VariableError(f"{model.title}: no value of {var.name!r}, so it does not run")
            scope.var(var.name).set(np.array(model.arrays[var.name]))
        elif var.kind == INPUT and var.name in read:
            scope.var(var.name).set(*_random(var, rows, rng))
    there = {item.number: item for item in (*graph.items.values(), *graph.groups.values())}
    numbers = [at for at, op in enumerate(model.desc.ops) if op.role == FORWARD]
    for step in _run(graph, PlainNet(forward, check=False), scope):
        yield from _split(step, [[there[numbers[place]]] for place in step.operators])


def _random(var: VarDecl, rows: int, rng: Generator) -> tuple[Any, ...]:
    """A value of an input, with offsets if it carries sequences. Whole numbers are 0, which every
    table of embeddings has."""
    if var.shape is None or var.dtype is None:
        raise VariableError(f"the input {var.name!r} has no declared shape or dtype")
    shape = [size if size >= 0 else (rows if at == 0 else 1) for at, size in enumerate(var.shape)]
    if var.dtype.kind == "f":
        array = rng.standard_normal(shape).astype(var.dtype)
    else:
        array = np.zeros(shape, var.dtype)
    if not var.sequence_levels:
        return (array,)
    levels = [np.array([0, 1])] * (var.sequence_levels - 1) + [np.array([0, shape[0]])]
    return (Sequences(array, tuple(levels)),)


# -- CNTK


def _cntk_shares(graph: NetGraph, network: Network, rows: int, rng: Generator) -> Iterator[Share]:
    """The nodes below the outputs. Operators are named after their nodes; a loop's nodes run as
    one operator, which counts for the node that it gives out."""
    from ...cntk.run.runtime import CntkNet
    from ...cntk.run.values import minibatch_of

    wanted = network.groups["output"]
    if not wanted:
        raise VariableError("the network has no output nodes, so that nothing is run")
    data = {}
    for node in network.below(wanted):
        if node.is_input:
            size = int(np.prod(node.shape))
            is_sparse = node.operation == "SparseInputValue"
            words = rng.integers(0, size, rows)
            data[node.name] = [words if is_sparse else rng.standard_normal((rows, size))]
    net = CntkNet(network)
    minibatch = minibatch_of(network, data)

    def run(hooks: list[Hook]) -> None:
        net.context = OpContext(seed=0, hooks=hooks)
        net.forward(minibatch, wanted)

    for step in _measure(graph, run):
        names = [dict.fromkeys(one.partition("@")[0] for one in each) for each in step.results]
        yield from _split(
            step, [[graph.items[name] for name in each if name in graph.items] for each in names]
        )


# -- Kaldi


def _nnet3_shares(graph: NetGraph, nnet: Nnet, rows: int, rng: Generator) -> Iterator[Share]:
    """The nodes that a request for some frames computes. What gathers rows counts for the node
    that reads them."""
    from ...nnet3.components import part_of
    from ...nnet3.lower.spans import lower_with_spans
    from ...nnet3.lower.variables import first_value
    from ...nnet3.network.for_inference import for_request
    from ...nnet3.network.simple_request import simple_request
    from ...nnet3.optimize import OptimizeOptions, compile_optimized

    request = simple_request(nnet, rows)
    ready = for_request(nnet, request, None)
    options = OptimizeOptions.chosen(True)
    computation = compile_optimized(ready.topology(), request, options, True)
    lowered, spans = lower_with_spans(computation)
    scope = Scope()
    for var in lowered.vars:
        if var.kind == PARAMETER:
            component, _, path = var.name.partition("/")
            scope.var(var.name).set(getattr(*part_of(ready.components[component], path)))
        elif var.kind == STATE:
            scope.var(var.name).set(first_value(var).copy())
        elif var.kind == INPUT:
            scope.var(var.name).set(*_random(var, rows, rng))
    commands = spans.computation.commands
    nodes = spans.computation.topology.nodes
    computes = [n for n, command in enumerate(commands) if command.type == "Propagate"]
    ends = [end for _, end in spans.ranges]
    for step in _run(graph, PlainNet(lowered, check=False), scope):
        items: list[list[Item]] = []
        for operator in step.operators:
            command = bisect_right(ends, operator)
            at = min(bisect_left(computes, command), len(computes) - 1)
            name = nodes[commands[computes[at]].node].name
            items.append([graph.items[name]] if name in graph.items else [])
        yield from _split(step, items)
