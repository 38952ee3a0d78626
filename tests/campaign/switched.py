"""Random nets of all kinds, each run with any set of its switches on."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import shape_nets
from cntk_random_nets import DIM, batch, make, random_network
from nnet3_runs import computed, request_for, spliced
from nnet3_runs import random_net as random_nnet
from opscope import NetBuilder, OpContext, Scope, Sequences, options
from opscope.framework.base.cpu.threads import threads_set
from opscope.framework.base.options.settings import Options
from opscope.framework.ir.desc import PARAMETER, STATE
from opscope.framework.ir.names import grad_name
from opscope.framework.passes.cleanup import cleanup_passes
from opscope.framework.passes.pipeline import run_passes
from opscope.framework.runtime.net import Net
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.looped_computer import LoopedComputer
from opscope.nnet3.inference.pieces import ChunkOptions, LoopedOptions
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import PASSES, OptimizeOptions, compile_optimized
from random_nets import random_net, results
from random_steps import Maker
from rnn_nets import gradients as step_gradients
from rnn_nets import run as run_steps
from tree_cells import H, binary_desc, binary_values
from tree_nets import random_trees, set_all

Results = Mapping[str, np.ndarray]
Run = Callable[[Collection[str]], Results]

_FLAGS = tuple(each.name for each in dataclasses.fields(Options) if each.type == "bool")
_LIBRARIES = ("packed", "direct", "native", "mkl", "blas")
_THREADS = 2
EVERYWHERE = (*_FLAGS, "whole sequences", *_LIBRARIES, "threads")
"""Switches that every kind of net has."""

_CLEANUP = {step.name: step for step in cleanup_passes()}
_OPTIONS = tuple(
    each.name
    for each in dataclasses.fields(OptimizeOptions)
    if each.type == "bool" and each.name != "optimize"
)
_SKIPPED = tuple(f"pass {step.name}" for step in PASSES if not step.needed)


@dataclass(frozen=True)
class Kind:
    """A kind of random net.

    Attributes:
        make: by a seed, a net that runs with a set of switches on; None: this seed makes none.
        switches: those of this kind. tolerance: relative to the largest number of a result.
    """

    name: str
    make: Callable[[int], Run | None]
    switches: tuple[str, ...]
    tolerance: float


@contextlib.contextmanager
def switched(on: Collection[str]) -> Iterator[None]:
    """The switches that every net has, for a while."""
    chosen = options(
        **{name: name in on for name in _FLAGS},
        recurrent="fast" if "whole sequences" in on else "steps",
        libraries=[*(name for name in _LIBRARIES if name in on), "xp"],
    )
    with chosen, threads_set(_THREADS if "threads" in on else 1):
        yield


def _operators(seed: int) -> Run:
    """Operators of all sorts, gradients, two steps of descent."""
    net = random_net(seed)

    def run(on: Collection[str]) -> Results:
        chosen = [step for name, step in _CLEANUP.items() if name in on]
        return results(net, run_passes(net.desc, chosen))

    return run


# Nets of layers, trained for two steps


def _layers(seed: int) -> Run:
    rng = np.random.default_rng(seed)
    b = NetBuilder("layers", "float64")
    rows = int(rng.integers(1, 9))
    h: Any = b.input("x", [-1, 2, 8, 8])
    for _ in range(int(rng.integers(0, 3))):
        channels = int(rng.integers(1, 5))
        h = b.conv2d(h, filters=channels, kernel=int(rng.choice([1, 3])))
        h = _between(b, h, rng)
    if rng.random() < 0.5:
        h = b.max_pool2d(h, kernel=[2, 2])
    h = b.reshape(h, shape=[0, -1])
    for _ in range(int(rng.integers(1, 4))):
        h = _between(b, b.fc(h, size=int(rng.integers(2, 9))), rng)
        if rng.random() < 0.3:
            h = b.layer_norm(h)
        if rng.random() < 0.3:
            h = b.concat([h, b.tanh(h)], axis=1)
    feed = {"x": rng.normal(size=(rows, 2, 8, 8)), "label": rng.integers(0, 3, rows)}
    return _trained(b, h, rng, feed, seed)


def _between(b: NetBuilder, h: Any, rng: np.random.Generator) -> Any:
    if rng.random() < 0.3:
        h = b.batch_norm(h)
    return getattr(b, str(rng.choice(["relu", "tanh", "sigmoid", "softplus", "elu"])))(h)


def _sequences(seed: int) -> Run:
    rng = np.random.default_rng(seed)
    b = NetBuilder("sequences", "float64")
    lengths = rng.integers(1, 7, int(rng.integers(1, 5)))
    h: Any = b.embedding(b.input("token", [-1], "int64", levels=1), [11, 4])
    for number in range(int(rng.integers(1, 3))):
        layer = getattr(b, str(rng.choice(["lstm", "gru"])))
        both = bool(rng.random() < 0.4)
        h, _ = layer(h, int(rng.integers(2, 6)), bidirectional=both, name=f"r{number}")
        if rng.random() < 0.5:
            h = b.tanh(b.fc(h, size=int(rng.integers(2, 6))))
    h = b.sequence_pool(h, pool_type=str(rng.choice(["max", "mean", "sum", "last"])))
    begin = np.append(0, np.cumsum(lengths))
    feed = {
        "token": Sequences(rng.integers(0, 11, lengths.sum()), (begin,)),
        "label": rng.integers(0, 3, len(lengths)),
    }
    return _trained(b, h, rng, feed, seed)


def _trained(
    b: NetBuilder, h: Any, rng: np.random.Generator, feed: Mapping[str, Any], seed: int
) -> Run:
    label = b.input("label", [-1], "int64")
    cost = b.mean(b.softmax_cross_entropy(b.fc(h, size=3), label), name="cost")
    b.backward_from(cost)
    kind = str(rng.choice(["sgd", "momentum", "adam", "rmsprop", "adagrad"]))
    # A small epsilon would make steps of the rounding errors in place of gradients that are 0, as
    # those of a bias in front of a normalization.
    damped = {} if kind in ("sgd", "momentum") else {"epsilon": 1e-3}
    b.add_optimization(0.01, kind, clip_norm=float(rng.choice([0.5, 1e3])), **damped)
    names = [var.name for var in b.op_list.vars if var.kind in (PARAMETER, STATE)]
    made = {name for op in b.op_list.ops for name in op.output_names()}
    fetch = ["cost", *(grad_name(name) for name in names if grad_name(name) in made)]

    def run(on: Collection[str]) -> Results:
        scope = Scope()
        b.initialize(scope, OpContext(seed=seed), share=True)
        net = Net.create(b.op_list)
        found: dict[str, np.ndarray] = {}
        for step in range(2):
            for name, value in feed.items():
                if isinstance(value, Sequences):
                    scope.var(name).set(value.data, value.levels)
                else:
                    scope.var(name).set(value)
            net.run(scope, OpContext(train=True, seed=1, live_out=fetch))
            found |= {f"{name} {step}": scope.numpy(name) for name in fetch}
        found |= {name: scope.numpy(name) for name in names if scope.find(name)}
        return found

    return run


# Loops


def _steps(seed: int) -> Run:
    made = Maker(seed)

    def run(on: Collection[str]) -> Results:
        found = dict(run_steps(made.desc, made.values, made.results))
        slopes = step_gradients(made.desc, made.values, made.results, list(made.values))
        return found | {f"{name}'": value for name, value in slopes.items()}

    return run


def _trees(seed: int) -> Run:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, int(rng.integers(1, 4)))
    parents, offsets = random_trees(rng, list(sizes), arity=2)
    values = binary_values(rng, parents, len(sizes))
    outputs = {"OUT": (len(parents), H), "ROOT": (len(sizes), H), "MROOT": (len(sizes), H)}
    arriving = {f"{name}_arriving": rng.normal(size=shape) for name, shape in outputs.items()}
    wanted = ["X", "W", "U", "V", "B0", "B1"]

    def run(on: Collection[str]) -> Results:
        net, scope = Net.create(binary_desc()), Scope()
        slopes = net.add_backward_ops({name: f"{name}_arriving" for name in outputs}, wanted)
        set_all(scope, {**values, **arriving}, {"parent": offsets})
        fetch = [*outputs, *slopes.values()]
        net.run(scope, OpContext(live_out=fetch, seed=1))
        return {name: scope.numpy(name) for name in fetch}

    return run


# The other languages


def _nnet3(seed: int) -> Run:
    rng = np.random.default_rng(seed)
    nnet = random_nnet(seed)
    request = request_for(nnet, int(rng.integers(1, 7)), int(rng.integers(1, 5)))

    def run(on: Collection[str]) -> Results:
        options = _optimize_options(on)
        computation = compile_optimized(nnet.topology(), request, options, "shortcut" in on)
        return computed(computation, nnet)

    return run


def _optimize_options(on: Collection[str]) -> OptimizeOptions:
    chosen: dict[str, Any] = {name: name in on for name in _OPTIONS}
    skip = tuple(name.removeprefix("pass ") for name in _SKIPPED if name not in on)
    level = int("memory_compression_level" in on)
    return OptimizeOptions(memory_compression_level=level, skip=skip, **chosen)


def _utterances(seed: int) -> Run:
    """A network without recurrences, over whole utterances: looped, or chunk by chunk."""
    rng = np.random.default_rng(seed)
    lines, before, dim = ["input-node name=input dim=3"], "input", 3
    for layer in range(int(rng.integers(1, 4))):
        read, width = spliced(rng, before, dim)
        name, dim = f"l{layer}", int(rng.integers(3, 7))
        kind = rng.choice(("RectifiedLinear", "Sigmoid", "Tanh", "Normalize", "LogSoftmax"))
        lines += [
            f"component name={name}a type=AffineComponent input-dim={width} output-dim={dim}",
            f"component-node name={name}a component={name}a input={read}",
            f"component name={name} type={kind}Component dim={dim}",
            f"component-node name={name} component={name} input={name}a",
        ]
        before = name
    lines.append(f"output-node name=output input={before}")
    nnet = Nnet.from_config_text("\n".join(lines) + "\n", seed)
    frames = rng.normal(size=(int(rng.integers(1, 90)), 3)).astype(np.float32)
    many = int(rng.integers(1, 30))

    def run(on: Collection[str]) -> Results:
        optimize, collapse = _optimize_options(on), "collapse" in on
        given: dict[str, Any] = {"optimize": optimize, "collapse": collapse}
        if "looped" in on:
            return {"output": LoopedComputer(nnet, LoopedOptions(many), **given).compute(frames)}
        return {"output": ChunkComputer(nnet, ChunkOptions(many), **given).compute(frames)}

    return run


def _cntk(seed: int) -> Run | None:
    rng = np.random.default_rng(seed)
    built = random_network(rng, future=True)
    if built is None:
        return None
    lengths = rng.integers(1, 7, int(rng.integers(1, 5)))
    rows = {name: rng.normal(size=(lengths.sum(), DIM)) for name in "xy"}
    out, total = built[2:]

    def run(on: Collection[str]) -> Results:
        net = make(built)
        found = {"out": net.forward(batch(lengths, **rows), [out])[out].data}
        value = net.forward_backward(batch(lengths, **rows), total)[total]
        found |= {f"{name}'": net.gradient(name) for name in net.parameters()}
        return found | {"total": np.asarray(value)}

    return run


def _shapes(seed: int) -> Run:
    """Images of many sizes, by one net or by a net of its own for each."""
    return lambda on: shape_nets.results(seed, one_net="one net" in on)


KINDS = (
    Kind("shapes", _shapes, (*EVERYWHERE, "one net"), 1e-9),
    Kind("operators", _operators, (*EVERYWHERE, *_CLEANUP), 1e-9),
    Kind("layers", _layers, EVERYWHERE, 1e-9),
    Kind("sequences", _sequences, EVERYWHERE, 1e-9),
    Kind("steps", _steps, EVERYWHERE, 1e-9),
    Kind("trees", _trees, EVERYWHERE, 1e-9),
    Kind(
        "nnet3",
        _nnet3,
        (*EVERYWHERE, *_OPTIONS, "memory_compression_level", *_SKIPPED, "shortcut"),
        1e-3,
    ),
    Kind(
        "nnet3 utterances",
        _utterances,
        # The verifier refuses what loops carry from turn to turn: it is written without a read.
        (*(n for n in EVERYWHERE if n != "verify"), *_OPTIONS, *_SKIPPED, "looped", "collapse"),
        1e-4,
    ),
    Kind("cntk", _cntk, EVERYWHERE, 1e-9),
)
