"""Small nets and data of all forms that `opscope convert` takes."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np

import opscope
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.cntk.models.v1 import write_model
from opscope.cntk.network.network import Network
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.files.transition_model import HmmState, TransitionModel
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.formats.table import TABLE_OF

TDNN = """
input-node name=input dim=4
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=6 max-change=0.5
component name=r type=RectifiedLinearComponent dim=6
component name=d type=DropoutComponent dim=6 dropout-proportion=0.2
component name=o type=NaturalGradientAffineComponent input-dim=6 output-dim=3
component name=s type=LogSoftmaxComponent dim=3
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 2))
component-node name=r component=r input=a
component-node name=d component=d input=r
component-node name=o component=o input=d
component-node name=s component=s input=o
output-node name=output input=s
"""


def nnet3(path="a.raw", text=TDNN) -> Nnet:
    nnet = Nnet.from_config_text(text, 0)
    nnet.write(path)
    return nnet


def transitions(pdfs=3) -> TransitionModel:
    states = [HmmState(n, n, [(n, 0.5), (n + 1, 0.5)]) for n in range(pdfs)]
    tuples = np.array([(1, n, n) for n in range(pdfs)], np.int32)
    probs = np.full(1 + 2 * pdfs, np.log(0.5), np.float32)
    return TransitionModel([1], [-1, 0], [[*states, HmmState()]], "<Triples>", tuples, probs)


def acoustic(path="a.mdl") -> AmNnetSimple:
    writer = Writer(True, header=False)
    transitions().write_to(writer)
    model = AmNnetSimple(Nnet.from_config_text(TDNN, 0), writer.getvalue(), True)
    model.set_context()
    model.set_priors(np.array([0.5, 0.25, 0.25], np.float32))
    model.write(path)
    return model


def cntk(path="a.dnn", dropout=True) -> Network:
    rng, network = np.random.default_rng(0), Network("small")
    x = network.add("InputValue", "features", shape=4, tags=["feature"])
    labels = network.add("InputValue", "labels", shape=3, tags=["label"])

    def parameter(name, *shape):
        node = network.add("LearnableParameter", name, shape=shape)
        node.value = np.asfortranarray(rng.normal(size=shape), np.float32)
        return node

    hidden = network.add(
        "Plus", "h", [network.add("Times", "t", [parameter("w", 5, 4), x]), parameter("b", 5, 1)]
    )
    hidden = network.add("Sigmoid", "act", [hidden])
    if dropout:
        hidden = network.add("Dropout", "drop", [hidden])
    z = network.add(
        "Plus",
        "z",
        [network.add("Times", "u", [parameter("v", 3, 5), hidden]), parameter("c", 3, 1)],
    )
    network.add_to_group("output", z)
    ce = network.add("CrossEntropyWithSoftmax", "ce", [labels, z])
    network.add_to_group("criterion", ce)
    network.validate()
    write_model(network, path)
    return network


def net(path="n.pb", trained=False):
    b = opscope.NetBuilder("small")
    hidden = b.fc(b.input("x", [-1, 4]), size=5, activation="relu")
    y = b.softmax(b.fc(hidden, size=3), name="y")
    scope = opscope.Scope()
    if trained:
        loss = b.mean(b.square(y), name="loss")
        b.backward_from(loss)
        b.add_optimization(0.1, "sgd")
        b.run(scope, feed={"x": np.ones((2, 4))})
    else:
        b.run(scope, feed={"x": np.ones((2, 4))}, fetch=["y"], need_backward=False)
    opscope.save(b, scope, path)


def onnx(path="g.onnx"):
    g, rng = Graph("g"), np.random.default_rng(1)
    w = g.constant(rng.normal(size=(3, 4)), "w", np.float32)
    y = g.node("MatMul", [g.input("x", np.float32, ["N", "T", 3]), w], "m")
    g.output(g.node("Tanh", [y], "y"), np.float32, ["N", "T", 4])
    Path(path).write_bytes(model_bytes(g))


def checked(report):
    """A report of a conversion that was compared, and what it lost."""
    assert report.error is not None and report.error <= 1e-5, str(report)
    assert Path(report.target).exists()
    return "; ".join(report.lost)


def features(count=3, rank=2):
    rng = np.random.default_rng(0)
    shapes = [(5 + n, 4)[:rank] for n in range(count)]
    return {f"utt-{n}": rng.normal(size=shape).astype(np.float32) for n, shape in enumerate(shapes)}


def archive(path, arrays, kind="matrix"):
    with TableWriter(f"ark:{path}", kind) as writer:
        for key, array in arrays.items():
            writer.write(key, array)


def use(entries, used, tests, folder, monkeypatch):
    """Run tests, in folders of their own, until the functions of all entries have ended.

    Args:
        used: those that have. tests: names of a module; what takes no argument can be run.
    """
    for name, test in tests.items():
        if entries <= used:
            return
        if name.startswith("test_") and not inspect.signature(test).parameters:
            (folder / name).mkdir()
            monkeypatch.chdir(folder / name)
            test()


def note_entries(monkeypatch, used):
    """Have the functions of the table note in `used` that they have ended."""
    for key, entry in TABLE_OF.items():

        def function(job, key=key, own=entry.function):
            own(job)
            used.add(key)

        monkeypatch.setitem(TABLE_OF, key, replace(entry, function=function))
