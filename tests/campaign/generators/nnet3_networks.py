"""Networks of nnet3, recurrent ones among them, compiled and streamed beside what they mean."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from opscope.nnet3.graph.graph import NotComputableError
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.looped_computer import LoopedComputer
from opscope.nnet3.inference.pieces import ChunkOptions, LoopedOptions
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import OptimizeOptions, compile_optimized
from opscope.nnet3.run.computer import NnetComputer
from opscope.nnet3.xconfig import xconfig_to_config

from ..inputs import Depth, Generator, WrongError
from .descriptors import Grammar, indexes
from .nnet3_meaning import Network, moved

_TOLERANCE = 2e-4
_AFFINE = ("AffineComponent", "NaturalGradientAffineComponent", "LinearComponent")
_SAME = (
    *("RectifiedLinear", "Sigmoid", "Tanh", "LogSoftmax", "Softmax", "NoOp", "Normalize"),
    *("PerElementScale", "NaturalGradientPerElementScale", "PerElementOffset"),
)
_HALF = ("ElementwiseProduct", "Pnorm")  # as many columns as they give, twice
_BOUNDED = ("Sigmoid", "Tanh", "Softmax")  # a loop of others grows without bound


@dataclass
class _Config:
    """A config that grows by layers.

    Args:
        streamed: whether it reads only what chunks of a stream have.
    """

    rng: random.Random
    streamed: bool
    dims: dict[str, int] = field(default_factory=lambda: {"input": 3})
    lines: list[str] = field(default_factory=lambda: ["input-node name=input dim=3"])

    def read(self) -> tuple[str, int]:
        """A descriptor, and how many columns it has."""
        if self.streamed:
            return self.spliced()
        grammar = Grammar(self.rng, self.dims, 0.0, x=False)
        parts = [self.rng.choice([*self.dims.values()]) for _ in range(self.rng.randint(1, 2))]
        made = [grammar.sum(dim) for dim in parts]
        return (made[0] if len(made) == 1 else f"Append({', '.join(made)})"), sum(parts)

    def spliced(self) -> tuple[str, int]:
        node = self.rng.choice(list(self.dims))
        times = sorted(self.rng.sample(range(-2, 3), self.rng.randint(1, 3)))
        parts = [f"Offset({node}, {t})" if t else node for t in times]
        if len(parts) == 1:
            return parts[0], self.dims[node]
        if len(parts) == 2 and self.rng.random() < 0.3:
            return f"Sum({', '.join(parts)})", self.dims[node]
        return f"Append({', '.join(parts)})", self.dims[node] * len(parts)

    def layer(self, number: int) -> None:
        rng, name, dim = self.rng, f"l{number}", self.rng.randint(2, 4)
        read, width = self.read()
        recurrent = rng.random() < 0.4
        delay = rng.randint(1, 3)
        lstm = recurrent and rng.random() < 0.4
        if recurrent:
            # Its own input ends the loop, which otherwise may read earlier times for ever.
            own = f"IfDefined(Offset({name}, -{delay}))"
            read, width = f"Append(input, {read}, {own})", 3 + width + dim * (1 + lstm)
        half = not recurrent and rng.random() < 0.3
        rows = dim * (4 if lstm else 1 + half)
        kind = rng.choice(_HALF if half else _BOUNDED if recurrent else _SAME)
        shape = f"input-dim={rows} output-dim={dim}" if half else f"dim={dim}"
        gates = f"{name}a"
        if lstm:
            kind, shape = "LstmNonlinearity", f"cell-dim={dim} self-repair-scale=0"
            gates = f"Append({name}a, IfDefined(Offset({name}c, -{delay})))"
        self.lines += [
            f"component name={name}a {self.affine(width, rows, recurrent)}",
            f"component-node name={name}a component={name}a input={read}",
            f"component name={name} type={kind}Component {shape}",
            f"component-node name={name} component={name} input={gates}",
        ]
        if lstm:
            self.lines.append(
                f"dim-range-node name={name}c input-node={name} dim-offset=0 dim={dim}"
            )
            dim *= 2
        self.dims[name] = dim
        if dim > 2 and rng.random() < 0.3:
            self.lines.append(f"dim-range-node name={name}r input-node={name} dim-offset=1 dim=2")
            self.dims[f"{name}r"] = 2

    def affine(self, width: int, rows: int, recurrent: bool) -> str:
        """A component from so many columns to others."""
        shape = f"input-dim={width} output-dim={rows}"
        draw = self.rng.random()
        if draw < 0.15 and not recurrent:
            times = sorted(self.rng.sample(range(-2, 3), self.rng.randint(1, 3)))
            return f"type=TdnnComponent {shape} time-offsets={','.join(map(str, times))}"
        if draw < 0.3 and width % 2 == rows % 2 == 0:
            return f"type=BlockAffineComponent {shape} num-blocks=2"
        return f"type={self.rng.choice(_AFFINE)} {shape}"

    def text(self) -> str:
        for number in range(self.rng.randint(1, 3)):
            self.layer(number)
        last = list(self.dims)[-1]
        read = last if self.rng.random() < 0.6 else self.read()[0]
        return "\n".join([*self.lines, f"output-node name=output input={read}"]) + "\n"


def _make(rng: random.Random) -> str:
    words = [str(rng.randint(1, 4)), str(rng.randint(1, 2)), str(rng.randint(0, 999))]
    words += [word for word in ("deriv", "optimize", "shortcut") if rng.random() < 0.5]
    return f"{' '.join(words)}\n{_Config(rng, streamed=False).text()}"


def _features(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)


def _nnet(config: str, seed: int) -> Nnet:
    nnet = Nnet.from_config_text(config, seed)
    if nnet.num_parameters:
        values = np.random.default_rng(seed).normal(0, 0.5, nnet.vectorize().shape)
        nnet.unvectorize(values.astype(np.float32))
    return nnet


def _run(text: str) -> Depth:
    head, config = text.split("\n", 1)
    frames, sequences, seed, *flags = head.split()
    many, nnet = int(sequences), _nnet(config, int(seed))
    times, given = range(int(frames)), range(-9, int(frames) + 9)
    features = [_features(int(seed) + n, len(given)) for n in range(many)]
    meaning = Network.of(config, nnet.components)
    assert meaning is not None
    rows = [meaning.run({"input": (given[0], each.astype(float))}) for each in features]
    wanted = [rows[n]("output", t) for n in range(many) for t in times]
    deriv = "deriv" in flags
    request = ComputationRequest(
        [IoSpecification("input", indexes(many, [(t, 0) for t in given]), deriv)],
        [IoSpecification("output", indexes(many, [(t, 0) for t in times]), deriv)],
        need_model_derivative=deriv and nnet.num_parameters > 0,
    )
    options = OptimizeOptions(optimize="optimize" in flags)
    computable = all(row is not None for row in wanted)
    try:
        computation = compile_optimized(nnet.topology(), request, options, "shortcut" in flags)
    except NotComputableError:
        if computable:
            raise WrongError("what can be computed is refused") from None
        return Depth.READ
    if not computable:
        raise WrongError("what cannot be computed is compiled")
    computer = NnetComputer(lower_computation(computation), nnet)
    computer.accept_input("input", np.concatenate(features))
    computer.run()
    _compare("output of a network", computer.get_output("output"), np.array(wanted))
    if deriv:
        _check_slopes(computer, nnet, config, features, times)
    return Depth.RAN


def _check_slopes(
    computer: NnetComputer, nnet: Nnet, config: str, features: list[np.ndarray], times: range
) -> None:
    """The derivatives at the input and of the parameters along a direction, beside differences of
    two outputs."""
    rng, step = np.random.default_rng(5), 1e-6
    along = [rng.normal(size=each.shape) for each in features]
    way = nnet.copy()
    if nnet.num_parameters:
        way.unvectorize(rng.normal(size=nnet.num_parameters).astype(np.float32))

    def output(of_inputs: float, of_parameters: float) -> np.ndarray:
        meaning = Network.of(config, moved(nnet.components, way.components, of_parameters))
        assert meaning is not None
        rows = [
            meaning.run({"input": (-9, each + of_inputs * there)})
            for each, there in zip(features, along, strict=True)
        ]
        return np.array([one("output", t) for one in rows for t in times])

    slope = rng.normal(size=output(0, 0).shape)
    computer.accept_input("output", slope.astype(np.float32))
    computer.run()
    found = [(computer.get_output("input") * np.concatenate(along)).sum()]
    changes = [output(step, 0) - output(-step, 0)]
    if nnet.num_parameters:
        found.append(computer.model_derivative() @ way.vectorize())
        changes.append(output(0, step) - output(0, -step))
    wanted = [(slope * change).sum() / (2 * step) for change in changes]
    for what, one, other in zip(("input", "parameters"), found, wanted, strict=False):
        _compare(f"derivative at the {what} of a network", np.array([one]), np.array([other]), 50)


def _compare(what: str, got: np.ndarray, wanted: np.ndarray, more: float = 1) -> None:
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    if got.shape != wanted.shape or not np.abs(got - wanted).max() <= more * _TOLERANCE * scale:
        raise WrongError(what, f"{got} for {wanted}")


# Streams


def _make_streamed(rng: random.Random) -> str:
    words = [str(rng.randint(1, 40)), str(rng.choice((1, 2, 5, 8))), str(rng.randint(0, 999))]
    return f"{' '.join(words)}\n{_Config(rng, streamed=True).text()}"


def _run_streamed(text: str) -> Depth:
    head, config = text.split("\n", 1)
    frames, chunk, seed = map(int, head.split())
    nnet = _nnet(config, seed)
    meaning = Network.of(config, nnet.components)
    assert meaning is not None
    computer = LoopedComputer(nnet, LoopedOptions(frames_per_chunk=chunk), collapse=False)
    features = _features(seed, frames)
    stream = computer.stream()
    cut = frames // 3
    parts = [stream.accept(features[:cut]), stream.accept(features[cut:]), stream.finish()]
    begin = -computer.left_context
    end = frames + computer.frames_per_chunk + computer.right_context
    padded = np.take(features, np.arange(begin, end), axis=0, mode="clip").astype(float)
    rows = meaning.run({"input": (begin, padded)})
    wanted = [rows("output", t) for t in range(frames)]
    if any(row is None for row in wanted):
        raise WrongError("what cannot be computed is streamed")
    _compare("output of a stream", np.concatenate(parts), np.array(wanted))
    whole = computer.compute(features)
    _compare("output of a stream at once", whole, np.array(wanted))
    _check_chunks(nnet, config, chunk, features)
    return Depth.RAN


def _check_chunks(nnet: Nnet, config: str, length: int, features: np.ndarray) -> None:
    """Chunks of which each begins anew, beside the frames that it is given."""
    left, right = 4, 3  # a loop reads what it is given of the past
    options = ChunkOptions(
        frames_per_chunk=length, extra_left_context=left, extra_right_context=right
    )
    computer = ChunkComputer(nnet, options, collapse=False)
    meaning = Network.of(config, nnet.components)
    assert meaning is not None
    left += computer.left_context
    right += computer.right_context
    length = computer.frames_per_chunk
    wanted = []
    for begin in range(0, len(features), length):
        given = np.arange(begin - left, begin + length + right)
        rows = meaning.run({"input": (given[0], np.take(features, given, 0, mode="clip"))})
        wanted += [rows("output", t) for t in range(begin, min(begin + length, len(features)))]
    _compare("output in chunks", computer.compute(features), np.array(wanted))


# xconfig

_BASIC = ("relu", "relu-batchnorm", "relu-renorm", "tanh", "sigmoid", "relu-batchnorm-so")
_LAYERS: Mapping[str, str] = {
    **{f"{name}-layer": "dim={dim}" for name in _BASIC},
    "relu-batchnorm-dropout-layer": "dim={dim} dropout-proportion=0.0",
    "tdnnf-layer": "dim={dim} bottleneck-dim=2 time-stride={stride}",
    "prefinal-layer": "big-dim={dim} small-dim=3",
    "lstm-layer": "cell-dim={dim} delay=-{delay}",
    "lstmp-layer": "cell-dim={dim} recurrent-projection-dim=2 non-recurrent-projection-dim=2",
    "fast-lstm-layer": "cell-dim={dim} delay=-{delay} decay-time=20",
    "fast-lstmp-layer": "cell-dim={dim} recurrent-projection-dim=2 non-recurrent-projection-dim=1",
    "gru-layer": "cell-dim={dim} delay=-{delay}",
    "attention-relu-batchnorm-layer": "num-heads=1 value-dim=2 key-dim=2 time-stride=1"
    " num-left-inputs=1 num-right-inputs=1",
    "stats-layer": "config=mean+stddev(-9:1:1:9)",
}


def _make_xconfig(rng: random.Random) -> str:
    lines, known = ["input dim=3 name=input"], ["input"]
    for number in range(rng.randint(1, 3)):
        kind = rng.choice(list(_LAYERS))
        values = {"dim": rng.randint(3, 6), "stride": rng.randint(0, 3), "delay": rng.randint(1, 3)}
        line = f"{kind} name=l{number} {_LAYERS[kind].format(**values)}"
        source = rng.choice(known)
        reads = ("", f" input={source}", f" input=Append(-1,0,{rng.randint(1, 3)})")
        reads += (f" input=Append(Offset({source}, -1), {source})",)
        if kind == "stats-layer":
            reads = (f" input={source}",)
        if kind == "tdnnf-layer":
            reads = ("",)
        lines.append(line + rng.choice(reads))
        known.append(f"l{number}")
    lines.append(f"output-layer name=output dim=2{rng.choice(('', ' include-log-softmax=false'))}")
    return "\n".join([str(rng.randint(0, 999)), *lines]) + "\n"


def _run_xconfig(text: str) -> Depth:
    seed, xconfig = text.split("\n", 1)
    nnet = _nnet(xconfig_to_config(xconfig), int(seed))
    left, right = nnet.context()
    given, times = range(-left, 3 + right), range(3)
    request = ComputationRequest(
        [IoSpecification("input", indexes(1, [(t, 0) for t in given]))],
        [IoSpecification("output", indexes(1, [(t, 0) for t in times]))],
    )
    found = []
    for optimize in (True, False):
        options = OptimizeOptions(optimize=optimize)
        computation = compile_optimized(nnet.topology(), request, options)
        computer = NnetComputer(lower_computation(computation), nnet)
        computer.accept_input("input", _features(int(seed), len(given)))
        computer.run()
        found.append(computer.get_output("output"))
    _compare("output of an xconfig, optimized", found[0], found[1])
    return Depth.RAN


GENERATORS = (
    Generator("nnet3 networks", _make, _run, share=1),
    Generator("nnet3 streams", _make_streamed, _run_streamed, share=0.3),
    Generator("xconfigs", _make_xconfig, _run_xconfig, share=0.5),
)
