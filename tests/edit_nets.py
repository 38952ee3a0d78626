"""Small networks of each kind for the tests of edits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import opscope
from opscope.cntk.models.v1 import write_model
from opscope.cntk.ndl import Evaluator, parse_ndl
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.network import Network
from opscope.nnet3.network.nnet import Nnet

CONFIG = """
input-node name=input dim=8
component name=a1 type=NaturalGradientAffineComponent input-dim=16 output-dim=7 max-change=2
component name=r1 type=RectifiedLinearComponent dim=7
component name=drop type=DropoutComponent dim=7 dropout-proportion=0.1
component name=a2 type=NaturalGradientAffineComponent input-dim=7 output-dim=5
component name=s type=LogSoftmaxComponent dim=5
component-node name=a1 component=a1 input=Append(Offset(input, -1), input)
component-node name=r1 component=r1 input=a1
component-node name=drop component=drop input=r1
component-node name=a2 component=a2 input=drop
component-node name=s component=s input=a2
output-node name=output input=s
output-node name=output-x input=Offset(r1, 1)
"""
NDL = """
    features = Input(6, tag=feature) ; labels = Input(3, tag=label)
    L1.W = Parameter(8, 6, init=uniform) ; L1.b = Parameter(8, init=uniform)
    L1.t = Times(L1.W, features) ; L1.z = Plus(L1.t, L1.b) ; L1.y = Tanh(L1.z)
    OL.W = Parameter(3, 8, init=uniform) ; OL.b = Parameter(3, init=uniform)
    OL.t = Times(OL.W, L1.y) ; OL.z = Plus(OL.t, OL.b)
    ce = CrossEntropyWithSoftmax(labels, OL.z, tag=criterion) ; OutputNodes = (OL.z)
"""


def nnet() -> Nnet:
    """A network of nnet3 with two outputs."""
    return Nnet.from_config_text(CONFIG, 0)


def network() -> Network:
    """A DNN of CNTK's with a criterion."""
    evaluator = Evaluator(Network())
    evaluator.run(parse_ndl(NDL))
    evaluator.connect()
    evaluator.network.validate()
    initialize(evaluator.network)
    return evaluator.network


def model(path: Path) -> Path:
    """The same in a file."""
    write_model(network(), path)
    return path


def saved(path: Path, train: bool = False) -> Path:
    """A net of operators in a file; `train`: with gradients and updates."""
    b = opscope.NetBuilder("small")
    h = b.fc(b.input("x", [-1, 6]), size=8, activation="relu", name="hidden")
    y = b.softmax(b.fc(b.dropout(h, p=0.1, name="drop"), size=3, name="scores"), name="y")
    feed = {"x": np.ones((2, 6), "f")}
    scope = opscope.Scope()
    if train:
        label = b.input("label", [-1], dtype="int64")
        b.add_backward_ops(b.mean(b.cross_entropy(y, label), name="loss"))
        b.add_optimizer_ops(opscope.OptimizerAttrs("sgd", learning_rate=0.1))
        feed["label"] = np.zeros(2, np.int64)
    b.run(scope, feed=feed, need_backward=train, context=opscope.OpContext(seed=0))
    opscope.save(b, scope, path)
    return path
