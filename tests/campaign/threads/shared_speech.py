"""Networks of Kaldi's and CNTK's kinds that threads share; see `shared_nets.py`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cntk_runtime_nets import Builder, data, minibatch
from component_lines import LINES
from opscope import OpscopeError
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config.files import parse_config
from opscope.cntk.models.v1 import read_model
from opscope.framework.base.errors import ShapeError
from opscope.framework.ir.op_list import OpList
from opscope.kaldi.files.packed import packed
from opscope.kaldi.files.sparse import SparseMatrix
from opscope.kaldi.fst.algorithms.compose import compose
from opscope.kaldi.fst.algorithms.determinize_star import determinize_star
from opscope.kaldi.fst.algorithms.local_epsilons import remove_epsilons_locally
from opscope.kaldi.fst.algorithms.partition import minimize_unpushed
from opscope.kaldi.graphs.context import Context, compose_context
from opscope.kaldi.lattices.determinize import DeterminiseOptions
from opscope.kaldi.lattices.phone_determinize import determinized
from opscope.nnet3 import (
    NnetComputer,
    NnetTrainer,
    NnetTrainerOptions,
    compile_request,
    simple_request,
    xconfig_to_config,
)
from opscope.nnet3.egs.merging import merge_examples
from opscope.nnet3.egs.rows import example_io
from opscope.nnet3.files.examples import NnetExample
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.looped_computer import LoopedComputer
from opscope.nnet3.inference.pieces import ChunkOptions, LoopedOptions, Utterance
from opscope.nnet3.network.adjust import set_dropout_test_mode
from opscope.nnet3.network.nnet import Nnet
from opscope.speech.features.computers import Mfcc
from opscope.speech.features.transforms import SpliceOptions
from opscope.speech.fst.graph import LookaheadGraph
from opscope.speech.ivector.extractor import IvectorExtractor
from opscope.speech.ivector.gmm import DiagGmm
from opscope.speech.ivector.model import IvectorModel
from opscope.speech.ivector.online import online_ivectors
from opscope.speech.lattice.bayes_risk import minimum_bayes_risk
from opscope.speech.search.decoder import Decoder
from opscope.speech.search.options import SearchOptions
from opscope.speech.search.raw_lattice import raw_lattice
from speech_graphs import lookahead_file, random_first, random_grammar

from .shared_nets import Results, Work

TDNN = """input-node name=input dim=40
component name=a type=NaturalGradientAffineComponent input-dim=120 output-dim=256
component name=r type=RectifiedLinearComponent dim=256
component name=b type=AffineComponent input-dim=512 output-dim=100
component name=s type=LogSoftmaxComponent dim=100
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=r component=r input=a
component-node name=b component=b input=Append(Offset(r, -3), r)
component-node name=s component=s input=b
output-node name=output input=s
"""
_TIME_DELAY = """input name=input dim=40
relu-batchnorm-layer name=tdnn1 dim=128 input=Append(-1,0,1)
tdnnf-layer name=tdnnf2 dim=128 bottleneck-dim=48 time-stride=1
output-layer name=output dim=50
"""
_SPLICED = """input name=input dim=40
relu-batchnorm-layer name=tdnn1 dim=96 input=Append(-1,0,1)
relu-batchnorm-layer name=tdnn2 dim=96 input=Append(-3,0,3)
output-layer name=output dim=50
"""
_GATES = """input name=input dim=20
{} name=gates cell-dim=48 {} delay=-1
output-layer name=output dim=30
"""
_PROJECTED = "recurrent-projection-dim=16 non-recurrent-projection-dim=16"
_CONVOLUTION = """input-node name=input dim=60
component name=c type=TimeHeightConvolutionComponent num-filters-in=3 num-filters-out=16 \
height-in=20 height-out=20 time-offsets=-1,0,1 height-offsets=-1,0,1 required-time-offsets=0
component name=r type=NaturalGradientRepeatedAffineComponent input-dim=320 output-dim=400 \
num-repeats=4
component name=t type=TdnnComponent input-dim=400 output-dim=90 time-offsets=-3,0,3
component-node name=c component=c input=input
component-node name=r component=r input=c
component-node name=t component=t input=r
output-node name=output input=t
"""


def _gradient(program: OpList, nnet: Nnet, seed: int = 3) -> dict[str, np.ndarray]:
    """The output of a compiled request, and the gradients by the network and by its input."""
    computer = NnetComputer(program, nnet)
    rng = np.random.default_rng(seed)
    sizes = {var.name: var.shape for var in program.vars}
    computer.accept_input("input", rng.normal(size=sizes["input.input"]))
    computer.run()
    computer.accept_input("output", rng.normal(size=sizes["output_deriv.output"]))
    computer.run()
    found = {name: np.array(computer.get_output(name)) for name in ("output", "input")}
    return found | {"model": computer.model_derivative()}


def gradient(config: str, frames: int, sequences: int, left: int = 0) -> Work:
    """One compiled request; each run computes it in a computer of its own."""
    nnet = Nnet.from_config_text(config, 0)
    request = simple_request(nnet, frames, sequences, left_context=left, derivatives=True)
    program = compile_request(nnet, request)
    return lambda: _gradient(program, nnet)


def every_component() -> Work:
    """Each component type that computes rows from rows, as a network of its own."""
    made: dict[str, tuple[OpList, Nnet]] = {}
    for kind, (line, dim, *_) in LINES.items():
        text = (
            f"input-node name=input dim={dim}\ncomponent name=c type={kind} {line}\n"
            "component-node name=c component=c input=input\noutput-node name=output input=c\n"
        )
        try:
            nnet = Nnet.from_config_text(text, 0)
            set_dropout_test_mode(nnet, True)  # nothing is drawn at random
            request = simple_request(nnet, 4, 2, derivatives=True)
            program = compile_request(nnet, request)
        except OpscopeError:
            continue  # its rows follow from other rows than these
        if {"input.input", "output_deriv.output"} <= {var.name for var in program.vars}:
            made[kind] = program, nnet
    assert len(made) > len(LINES) - 10
    return lambda: {
        f"{kind} {name}": value
        for kind, (program, nnet) in made.items()
        for name, value in _gradient(program, nnet).items()
    }


def trained() -> Work:
    """Steps of a trainer, natural gradient and constraints among them, on copies of a network."""
    nnet = Nnet.from_config_text(xconfig_to_config(_TIME_DELAY), 1)
    left, right = nnet.context()
    rng = np.random.default_rng(5)
    batch = []
    for _ in range(16):
        features = rng.normal(size=(8 + left + right, 40)).astype(np.float32)
        targets = SparseMatrix.from_dense(np.eye(50)[rng.integers(0, 50, 8)])
        batch.append(
            NnetExample([example_io("input", features, -left), example_io("output", targets)])
        )
    merged = merge_examples(batch)

    def train() -> Results:
        mine = nnet.copy()
        trainer = NnetTrainer(NnetTrainerOptions(momentum=0.5), mine, seed=2, log=[].append)
        for _ in range(2):
            trainer.train(merged)
        trainer.store()
        return {"parameters": mine.vectorize()}

    return train


def chunks() -> Work:
    """One `ChunkComputer` for all threads, over an utterance of several chunks."""
    computer = ChunkComputer(Nnet.from_config_text(TDNN, 1), ChunkOptions(frames_per_chunk=50))
    rows = np.random.default_rng(3).normal(size=(130, 40)).astype(np.float32)
    return lambda: {"output": computer.compute(rows)}


def looped(chunk: int = 20) -> Work:
    """One `LoopedComputer` for all threads: utterances as a whole, and one bit by bit."""
    computer = LoopedComputer(Nnet.from_config_text(TDNN, 1), LoopedOptions(frames_per_chunk=chunk))
    rows = np.random.default_rng(4).normal(size=(70, 40)).astype(np.float32)
    utterances = [Utterance(str(n), rows[n:]) for n in range(9)]

    def compute() -> Results:
        found = dict(computer.compute_all(utterances))
        stream = computer.stream()
        parts = [stream.accept(rows[i : i + 7]) for i in range(0, len(rows), 7)]
        return found | {"bits": np.concatenate([*parts, stream.finish()])}

    return compute


def looped_gates() -> Work:
    """A stream through an LSTM, whose states go from chunk to chunk."""
    config = xconfig_to_config(_GATES.format("fast-lstmp-layer", _PROJECTED))
    computer = LoopedComputer(Nnet.from_config_text(config, 1), LoopedOptions(frames_per_chunk=10))
    rows = np.random.default_rng(6).normal(size=(55, 20)).astype(np.float32)
    return lambda: {"output": computer.compute(rows)}


def cntk_loop() -> Work:
    """A network with two delays in one loop, and all its gradients; each run has its own."""

    def make() -> Builder:
        b = Builder()
        x = b.add("InputValue", "x", shape=20)
        near = b.add("PastValue", "near", shape=30, defaultHiddenActivation=0.2)
        far = b.add("PastValue", "far", shape=30, timeStep=3)
        own = b.add("Times", "own", b.parameter("R", 30, 30), near)
        up = b.add("Times", "up", b.parameter("W", 30, 20), x)
        h = b.add("Tanh", "h", b.add("Plus", "z", up, b.add("Plus", "both", own, far)))
        b.network.connect(near, [h])
        b.network.connect(far, [h, b.parameter("start", 30)])
        b.criterion(h)
        return b

    lengths = np.array([9, 4, 7, 5, 1, 8])
    rows = data(np.random.default_rng(7), 20, int(lengths.sum()))

    def run() -> Results:
        net = make().net()
        total = net.forward_backward(minibatch(lengths, x=rows), "total")["total"]
        return {"total": np.array(total)} | {n: net.gradient(n) for n in net.parameters()}

    return run


_CNTK = """command = Train
precision = {precision} ; modelPath = "{folder}/m.dnn"
makeMode = false
deviceId = -1
Train = [ action = train
reader = [ readerType = "CNTKTextFormatReader" ; file = "{data}" ; randomize = false
    input = [ features = [ dim = 30 ; format = "dense" ] ; labels = [ dim = 5 ; format = "dense" ] ]
]
BrainScriptNetworkBuilder = {{
    features = Input {{30}}
    labels = Input {{5, tag = 'label'}}
    h = Sigmoid (Parameter {{64, 30, init = 'uniform'}} * features + Parameter {{64}})
    z = Parameter {{5, 64, init = 'uniform'}} * h
    ce = CrossEntropyWithSoftmax (labels, z, tag = 'criterion')
    wrong = ClassificationError (labels, z, tag = 'evaluation')
}}
SGD = [ maxEpochs = 1 ; minibatchSize = 40 ; learningRatesPerSample = 0.02 ; momentumPerMB = 0.5
    gradUpdateType = {learner} ] ]
"""


def cntk_training(learner: str, precision: str = "float") -> Work:
    """CNTK's training of a small network, from its config to its model file."""
    folder = tempfile.TemporaryDirectory(prefix="opscope-campaign-")
    path = Path(folder.name, "train.ctf")
    rng = np.random.default_rng(8)
    lines = []
    for row in rng.normal(size=(120, 30)):
        label = " ".join("1" if n == row[:5].argmax() else "0" for n in range(5))
        lines.append(f"|features {' '.join(f'{x:.4f}' for x in row)} |labels {label}\n")
    path.write_text("".join(lines))

    def train() -> Results:
        with tempfile.TemporaryDirectory(dir=folder.name) as own:
            text = _CNTK.format(folder=own, data=path, learner=learner, precision=precision)
            run_commands(parse_config(text, "t.cntk"), Run(say=lambda _: None))
            model = read_model(Path(own, "m.dnn"))
        return {node.name: node.value for node in model.nodes.values() if node.value is not None}

    return train


_WORDS_ONLY = DeterminiseOptions(phone_determinize=False)


def search() -> Work:
    """Token passing in C, each time over a composition that is made anew on the way, and its
    lattice."""
    rng = np.random.default_rng(2)
    first, second = random_first(rng, 60, 20), random_grammar(rng, 60)
    graph = LookaheadGraph.of(lookahead_file(first, second.states + 3), second)
    pdfs = np.array([0, *(label % 11 for label in range(20))], np.int32)
    likelihoods = rng.normal(-2, 2, (24, 11)).astype(np.float32)

    def run() -> Results:
        decoder = Decoder(graph, pdfs, SearchOptions(beam=9.0, lattice_beam=4.0, graph_arcs=300))
        decoder.accept(likelihoods[:12])
        begin = decoder.best_path()
        heard = decoder.traced().ids
        decoder.prune()
        decoder.accept(likelihoods[12:])
        decoder.finalize()
        found = {f"tokens {n}": frame.tokens["cost"] for n, frame in enumerate(decoder.frames)}
        lattice = determinized(raw_lattice(decoder), 4.0, None, _WORDS_ONLY).lattice
        costs = np.array([arc.weight.cost for group in lattice.arcs for arc in group])
        words = [word.confidence for word in minimum_bayes_risk(lattice).words]
        found |= {"begin": begin.transition_ids, "heard": heard, "costs": costs}
        return found | {"confidences": np.array(words)}

    return run


def transducers() -> Work:
    """One pair of FSTs, composed, with contexts too, determinized; one that is not functional."""
    rng = np.random.default_rng(4)
    first, second = random_first(rng, 60, 20), random_grammar(rng, 60)
    apart = first.with_columns(ilabel=np.arange(1, len(first.arcs) + 1))  # functional
    same = first.with_columns(ilabel=np.ones(len(first.arcs)))

    def run() -> Results:
        composed = compose(apart, second)
        in_context = compose_context(Context([], 2, 1), apart)
        made = determinize_star(composed)
        try:
            determinize_star(same)
        except ShapeError as error:
            text = str(error)
        return {
            "composed": composed.arcs["weight"],
            "in context": in_context.arcs["ilabel"],
            "determinized": made.arcs["weight"],
            "without epsilons": remove_epsilons_locally(composed).arcs["weight"],
            "minimized": minimize_unpushed(made, 1.0).arcs["weight"],
            "error": np.frombuffer(text.encode(), np.uint8),
        }

    return run


def ivectors() -> Work:
    """Estimates by one extractor, whose Gaussians are derived when they are first heard, beside
    features of one computer."""
    rng = np.random.default_rng(6)
    gaussians, dim, wide = 12, 5, 7
    means = rng.normal(size=(gaussians, dim)).astype(np.float32)
    ones = np.ones_like(means)
    gmm = DiagGmm.of(np.full(gaussians, 1 / gaussians, np.float32), means, ones)
    precisions = np.tile(packed(np.eye(dim)), (gaussians, 1))
    projections = rng.normal(size=(gaussians, dim, wide))
    features = rng.normal(size=(40, dim)).astype(np.float32)
    stats = np.vstack((np.append(features.sum(axis=0), 40), np.append(features.sum(axis=0), 0)))

    def model() -> IvectorModel:
        extractor = IvectorExtractor(projections, precisions, 10.0, gmm.weights.astype(float))
        splice = SpliceOptions(0, 0)
        return IvectorModel(np.eye(dim, dtype=np.float32), stats, gmm, extractor, splice=splice)

    shared, computer = model(), Mfcc()
    sound = rng.normal(0, 3000, 4000).astype(np.float32)

    def run() -> Results:
        return {
            "features": computer.compute(sound),
            "shared": online_ivectors(shared, features),
            "own": online_ivectors(model(), features),
        }

    return run


def _gates(layer: str, more: str) -> Callable[[], Work]:
    config: Any = partial(xconfig_to_config, _GATES.format(layer, more))
    return lambda: gradient(config(), 5, 8, 6)


WORKS: dict[str, Callable[[], Work]] = {
    "TDNN-F gradient": lambda: gradient(xconfig_to_config(_TIME_DELAY), 12, 8),
    "spliced gradient": lambda: gradient(xconfig_to_config(_SPLICED), 20, 64),
    "convolution gradient": lambda: gradient(_CONVOLUTION, 10, 8),
    "LSTMP gradient": _gates("fast-lstmp-layer", _PROJECTED),
    "LSTM gradient": _gates("lstm-layer", ""),
    "GRU gradient": _gates("fast-opgru-layer", _PROJECTED),
    "every component": every_component,
    "nnet3 training": trained,
    "chunks": chunks,
    "looped": looped,
    "search": search,
    "transducers": transducers,
    "ivectors": ivectors,
    "looped LSTM": looped_gates,
    "CNTK loop": cntk_loop,
    "CNTK training": partial(cntk_training, "none"),
    "CNTK training, double": partial(cntk_training, "none", "double"),
    "CNTK training, adaptive": partial(cntk_training, "fsAdaGrad"),
}
