"""Training steps of twelve kinds of nets, for the budget of a step on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chain_graphs import random_hmm, random_supervision
from cntk_runtime_nets import minibatch
from opscope import NetBuilder, OpContext, Scope, Sequences
from opscope.cntk.config import parse_config
from opscope.cntk.network.network import Network
from opscope.cntk.run.runtime import CntkNet
from opscope.cntk.sgd.options import SgdOptions
from opscope.cntk.sgd.updates import Updates, learning_parameters
from opscope.kaldi.files.sparse import SparseMatrix
from opscope.nnet3.chain.denominator import DenominatorGraph
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision
from opscope.nnet3.chain.objective import ChainOptions
from opscope.nnet3.egs.chain_changes import merge_chain_examples
from opscope.nnet3.egs.merging import merge_examples
from opscope.nnet3.egs.rows import example_io
from opscope.nnet3.files.examples import NnetExample, NnetIo
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.training import NnetTrainer, NnetTrainerOptions
from opscope.nnet3.training.chain_objectives import ChainObjectives
from opscope.nnet3.xconfig import xconfig_to_config
from rnn_nets import simple
from tree_nets import random_trees

Step = Callable[[], Any]

BATCH, CLASSES = 8, 5


def _trained(b: NetBuilder, loss: Any, feed: dict[str, Any]) -> Step:
    """A step of Adam, in a scope of its own, and the value of the loss."""
    b.backward_from(loss)
    b.add_optimization(0.001, "adam")
    scope = Scope()
    b.initialize(scope, OpContext(seed=1))
    return lambda: b.run(scope, feed=feed, fetch=[loss])


def _classified(b: NetBuilder, scores: Any, feed: dict[str, Any], samples: int = BATCH) -> Step:
    """A step that fits scores to labels."""
    loss = b.cross_entropy_loss(scores, b.input("label", [-1], "int64"))
    labels = np.random.default_rng(2).integers(0, CLASSES, samples)
    return _trained(b, loss, {**feed, "label": labels})


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _sequences(count: int, length: int, width: int) -> Sequences:
    return Sequences.from_list([_normal(length, width) for _ in range(count)])


def mlp() -> Step:
    """Three layers."""
    b = NetBuilder("mlp")
    hidden = b.fc(b.fc(b.input("x", [-1, 12]), 16, "relu"), 16, "relu")
    return _classified(b, b.fc(hidden, CLASSES), {"x": _normal(BATCH, 12)})


def conv() -> Step:
    """Two convolutions with pooling, and a layer."""
    b = NetBuilder("conv")
    x = b.input("x", [-1, 1, 12, 12])
    for filters in (4, 6):
        x = b.conv2d(x, filters, 3, "relu")
        x = b.max_pool2d(x, kernel=2)
    return _classified(b, b.fc(b.flatten(x), CLASSES), {"x": _normal(BATCH, 1, 12, 12)})


def lstm() -> Step:
    """40 steps, and a layer over them."""
    b = NetBuilder("lstm")
    states, _ = b.lstm(b.input("x", [-1, 6], levels=1), 8)
    feed = {"x": _sequences(4, 40, 6)}
    return _classified(b, b.fc(states, CLASSES), feed, 160)


def step_net() -> Step:
    """A recurrent net that is written out, over 10 steps."""
    b = NetBuilder("steps")
    b.input("xs", [-1, 5], levels=1)
    for name, rows in (("u", 5), ("w", 3)):
        b.parameter(name, [rows, 3], init="xavier")
    (states,) = b.recurrent_net(simple(dtype="float32"))
    return _trained(b, b.mean(b.square(states)), {"xs": _sequences(4, 10, 5)})


def transformer() -> Step:
    """A layer of an encoder over embedded words."""
    b = NetBuilder("transformer")
    text = b.input("text", [-1, 7], "int64")
    x = b.positional_encoding(b.embedding(text, [20, 8], init="xavier"))
    x = b.transformer_encoder(x, layers=1, heads=2, dropout=0.0)
    words = np.random.default_rng(1).integers(0, 20, (4, 7))
    scores = b.fc(b.reshape(x, shape=[-1, 8]), CLASSES)
    return _classified(b, scores, {"text": words}, 28)


def ctc() -> Step:
    """Labels without places in time."""
    b = NetBuilder("ctc")
    scores = b.fc(b.input("x", [-1, 6], levels=1), CLASSES)
    label = b.input("label", [-1], "int64", levels=1)
    labels = Sequences.from_list([np.array(one) for one in ([1, 2], [3], [4, 4, 1])])
    feed = {"x": _sequences(3, 9, 6), "label": labels}
    return _trained(b, b.mean(b.ctc_loss(scores, label)), feed)


def tree() -> Step:
    """A tree LSTM and a layer over the roots."""
    b = NetBuilder("tree")
    parents, offsets = random_trees(np.random.default_rng(0), [7, 1, 12], arity=2)
    given = b.input("parents", [-1], "int64", levels=1)
    _, roots = b.tree_lstm(b.input("x", [-1, 6]), given, 4, arity=2)
    feed = {"x": _normal(len(parents), 6), "parents": Sequences(parents, (offsets,))}
    return _classified(b, b.fc(roots, CLASSES), feed, 3)


# -- nnet3 -----------------------------------------------------------------------------------------

_FRAMES = 12
_WIDE = 15
"""Frames of context that the nets below may ask for, on each side."""


def _kaldi(layers: str) -> Step:
    text = f"input name=input dim=4\n{layers}\noutput-layer name=output dim=3\n"
    nnet = Nnet.from_config_text(xconfig_to_config(text), 1)
    trainer = NnetTrainer(NnetTrainerOptions(momentum=0.5), nnet, log=[].append)
    targets = SparseMatrix.from_dense(np.eye(3)[np.arange(_FRAMES) % 3])
    rows = _normal(_FRAMES + 2 * _WIDE, 4)
    example = NnetExample([example_io("input", rows, -_WIDE), example_io("output", targets)])
    merged = merge_examples([example] * 2)
    return _trained_by(trainer, nnet, merged)


def _trained_by(trainer: NnetTrainer, nnet: Nnet, minibatch: Any) -> Step:
    def step() -> dict[str, Any]:
        trainer.train(minibatch)
        trainer.store()
        return {"parameters": nnet.vectorize()}

    return step


def tdnn() -> Step:
    """Two layers with natural gradient."""
    return _kaldi(
        "relu-batchnorm-layer name=a dim=8 input=Append(-1,0,1)\n"
        "relu-batchnorm-layer name=b dim=8 input=Append(-3,0,3)"
    )


def tdnn_f() -> Step:
    """Two factored layers."""
    return _kaldi(
        "relu-batchnorm-layer name=a dim=8\n"
        "tdnnf-layer name=b dim=8 bottleneck-dim=4 time-stride=1\n"
        "tdnnf-layer name=c dim=8 bottleneck-dim=4 time-stride=3"
    )


def lstmp() -> Step:
    """An LSTM with projections."""
    return _kaldi(
        "fast-lstmp-layer name=a cell-dim=8 recurrent-projection-dim=4"
        " non-recurrent-projection-dim=4 delay=-3"
    )


def lattice_free_mmi() -> Step:
    """A layer, and the objective of LF-MMI."""
    text = (
        "input name=input dim=4\nrelu-batchnorm-layer name=a dim=8 input=Append(-1,0,1)\n"
        "output-layer name=output dim=3 include-log-softmax=false\n"
        "output-layer name=output-xent dim=3 input=a learning-rate-factor=5\n"
    )
    nnet = Nnet.from_config_text(xconfig_to_config(text), 1)
    rng, frames = np.random.default_rng(2), 4
    graph = DenominatorGraph.of_fst(random_hmm(rng), 3)
    times = np.zeros((frames + 2, 3), np.int32)
    times[:, 1] = np.arange(-1, frames + 1)
    examples = [
        NnetChainExample(
            [NnetIo("input", times, rng.normal(size=(frames + 2, 4)).astype(np.float32))],
            [
                NnetChainSupervision(
                    "output", times[1:-1], random_supervision(rng, frames), np.ones(4, np.float32)
                )
            ],
        )
        for _ in range(2)
    ]
    options = ChainOptions(l2_regularize=1e-4, xent_regularize=0.1)
    trainer = NnetTrainer(
        NnetTrainerOptions(), nnet, log=[].append, objective=ChainObjectives(graph, options)
    )
    merged = merge_chain_examples(examples)
    return _trained_by(trainer, nnet, merged)


# -- CNTK ------------------------------------------------------------------------------------------


def cntk() -> Step:
    """Two layers, and SGD with momentum."""
    network = Network("dnn")
    below, width = network.add("InputValue", "x", shape=6), 6
    for number, size in enumerate((8, 3)):
        w = network.add("LearnableParameter", f"W{number}", shape=(size, width))
        w.value = np.asfortranarray(_normal(size, width))
        bias = network.add("LearnableParameter", f"b{number}", shape=(size,))
        bias.value = np.zeros(size, np.float32)
        product = network.add("Times", f"p{number}", [w, below])
        below, width = network.add("Plus", f"z{number}", [product, bias]), size
        if number == 0:
            below = network.add("Sigmoid", "h", [below])
    label = network.add("InputValue", "y", shape=3)
    network.add("CrossEntropyWithSoftmax", "loss", [label, below], tags=["criterion"])
    network.validate()
    net, criterion = CntkNet(network), network.find("loss")
    section = parse_config("SGD = [ maxEpochs = 1 ; learningRatesPerSample = 0.05 ]").section("SGD")
    updates = Updates(
        SgdOptions.of(section), learning_parameters(network, criterion), np.dtype(np.float32)
    )
    updates.reset(net.scope)
    updates.control(net.scope, 0.05, 0.5, BATCH)
    bound = net.bound_net([criterion], criterion, extend=updates.extend, key=updates)
    targets = np.eye(3, dtype=np.float32)[np.arange(BATCH) % 3]
    batch = minibatch(np.ones(BATCH, int), x=_normal(BATCH, 6), y=targets)
    return lambda: bound.run(batch, OpContext(train=True, seed=0))


STEPS: dict[str, Callable[[], Step]] = {
    **{"mlp": mlp, "conv": conv, "lstm": lstm, "step net": step_net, "transformer": transformer},
    **{"tdnn": tdnn, "tdnn-f": tdnn_f, "lstmp": lstmp, "lf-mmi": lattice_free_mmi},
    **{"cntk": cntk, "tree": tree, "ctc": ctc},
}
