"""Nets of every kind, for the tests that nets on disk keep their bytes and their numbers.

The locations of NetBuilder's operators are lines of this file, so it is read under a fixed name:
see `tests/framework/test_golden_nets.py`, which also says how to write the stored files anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cntk_runtime_nets import Builder, data, minibatch
from opscope import NetBuilder
from opscope.cntk.network import dialect as cntk_dialect
from opscope.framework.ir.desc import make_op
from opscope.framework.runtime.plain_net import PlainNet
from opscope.nnet3 import (
    Nnet,
    compile_computation,
    compile_request,
    simple_request,
    xconfig_to_config,
)
from opscope.nnet3.inference.looped import compile_looped, looped_requests
from opscope.nnet3.lower import command_dialect
from rnn_nets import rnn
from tree_nets import tree_desc


def mlp() -> NetBuilder:
    """Dense layers, normalization, dropout, a schedule, both kinds of clipping, adam."""
    b = NetBuilder("mlp")
    x, label = b.input("x", [-1, 6]), b.input("label", [-1], "int64")
    h = b.fc(x, size=8, activation="relu")
    h = b.batch_norm(h)
    h = b.dropout(h, p=0.25)
    h = b.layer_norm(b.fc(h, size=8, activation="tanh") + h * 0.5)
    h = b.concat([h, b.clip(h, minimum=-0.5, maximum=0.5)], axis=1)
    scores = b.fc(h, size=3, name="scores")
    cost = b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    b.backward_from(cost)
    steps = {"boundaries": [2, 4], "factors": [1, 0.5, 0.1]}
    clip = {"clip_value": 0.5, "clip_norm": 1.0}
    b.add_optimization(0.1, "adam", schedule="piecewise", schedule_attrs=steps, **clip)
    return b


def images() -> NetBuilder:
    """Convolution, pooling, momentum with weight decay; a parameter with its own rate."""
    b = NetBuilder("images")
    x, label = b.input("x", [-1, 1, 8, 8]), b.input("label", [-1], "int64")
    h = b.relu(b.conv2d(x, filters=4, kernel=3))
    h = b.reshape(b.max_pool2d(h, kernel=[2, 2]), shape=[0, -1])
    w = b.parameter("w", [36, 3], ("uniform_random", {"low": -0.1, "high": 0.1}), lr_factor=0.5)
    fixed = b.parameter("fixed", [3], 0.25, trainable=False)
    scores = b.add(b.matmul(h, w), fixed, name="scores")
    b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    b.backward_from("cost")
    b.add_optimization(0.05, "momentum", momentum=0.9, weight_decay=1e-3)
    return b


def words() -> NetBuilder:
    """Embedding with sparse gradients, an LSTM both ways, a GRU, pooling over sequences."""
    b = NetBuilder("words")
    token, label = b.input("token", [-1], "int64", levels=1), b.input("label", [-1], "int64")
    h = b.embedding(token, [11, 4])
    h, _ = b.lstm(h, 5, bidirectional=True, name="lstm")
    h, _ = b.gru(h, 4, name="gru")
    scores = b.fc(b.sequence_pool(h, pool_type="max"), size=3, name="scores")
    b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    b.backward_from("cost")
    b.add_optimization(0.1, "adagrad", clip_norm=5.0)
    return b


def block() -> NetBuilder:
    """A step block with two memories, one of delay 2, run backwards."""
    b = NetBuilder("block", "float64")
    x = b.input("x", [-1, 4], levels=1)
    with b.recurrent("cell", reverse=True) as step:
        row, before = step.input(x), step.memory(3, value=0.5)
        far = step.memory(3, delay=2)
        h = b.fc([row, before], size=3, activation="tanh", name="h") + far * 0.5
        step.update(before, h)
        step.update(far, h)
        states = step.output(h)
    b.reduce_sum(b.square(states), name="cost")
    b.backward_from("cost", ["x", "h.w0", "h.w1", "h.b"])
    b.add_optimization(0.1)
    return b


def trees() -> NetBuilder:
    """A binary tree-LSTM and a child-sum one."""
    b = NetBuilder("trees")
    token = b.input("token", [-1], "int64", levels=1)
    parent = b.input("parent", [-1], "int64", levels=1)
    embedded = b.embedding(token, [7, 4])
    both, _ = b.tree_lstm(embedded, parent, 3, arity=2, name="binary")
    summed, _ = b.tree_lstm(both, parent, 3, name="summed")
    b.mean(b.fc(summed, size=2), name="cost")
    b.backward_from("cost")
    b.add_optimization(0.1, "rmsprop")
    return b


def steps() -> Any:
    """A RECURRENT net: delays, boot variables, final states, sums over steps."""
    return rnn(
        [
            ("matmul", {"x": "x", "y": "u"}, {"out": "a"}),
            ("matmul", {"x": "p", "y": "w"}, {"out": "b"}),
            ("sum", {"x": ["a", "b", "far"]}, {"out": "s"}),
            ("tanh", {"x": "s"}, {"out": "h"}),
            ("reduce_sum", {"x": "h"}, {"out": "part"}, {"axes": [0]}),
        ],
        ins={"xs": "x"},
        outs={"ys": "h"},
        statics={"u": "u", "w": "w"},
        sums={"total": "part"},
        memories=[
            {"state": "h", "previous": "p", "boot": "start", "final": "last"},
            {"state": "h", "previous": "far", "delay": 2, "boot_value": 0.5},
        ],
        shapes={"x": (-1, 4), "p": (-1, 3), "far": (-1, 3), "u": (4, 3), "w": (3, 3)},
    )


def pairs() -> Any:
    """A RECURSIVE net with a child net."""
    return tree_desc(
        [
            ("matmul", {"x": "x", "y": "w"}, {"out": "a"}),
            ("add", {"x": "a", "y": "p"}, {"out": "s"}),
            ("tanh", {"x": "s"}, {"out": "h"}),
        ],
        ins={"xs": "x"},
        outs={"hs": "h"},
        statics={"w": "w"},
        memories=[{"state": "d", "previous": "p"}],
        shapes={"p": (-1, 3)},
        pair=[("mul", {"x": "c", "y": "x"}, {"out": "d"})],
        child_links={"h": "c"},
    )


def attributes() -> Any:
    """Attributes of every kind, empty lists among them; `add_op` with views and devices."""
    net = PlainNet()
    net.add_op("fill_constant", {}, {"out": "a"}, {"shape": [2, 3], "value": 1})
    net.add_op("constant", {}, {"out": "b"}, {"value": np.array([[1.5, -2.0, 3.0]])})
    net.add_op("cast", {"x": "b"}, {"out": "c"}, {"dtype": np.dtype("float32")})
    net.add_op("reduce_sum", {"x": "c"}, {"out": "d"}, {"axes": (), "keepdims": np.True_})
    net.add_op("add", {"x": "a", "y": "c"}, {"out": "e"})
    net.add_op(make_op("scale", {"x": "e"}, {"out": "f"}, {"scale": 2}, device="cpu"))
    return net


TDNN = """
input name=input dim=4
relu-batchnorm-layer name=tdnn1 dim=6 input=Append(-1,0,1)
tdnnf-layer name=tdnnf2 dim=6 bottleneck-dim=3 time-stride=1
output-layer name=output dim=5
"""
LSTMP = """
input name=input dim=4
fast-lstmp-layer name=lstm1 cell-dim=6 recurrent-projection-dim=3 non-recurrent-projection-dim=2 {}
output-layer name=output dim=5
""".format("delay=-1")


def _nnet(xconfig: str, frames: int, left: int = 0) -> tuple[Nnet, Any]:
    nnet = Nnet.from_config_text(xconfig_to_config(xconfig), 0)
    context = {"left_context": left, "derivatives": True}
    return nnet, simple_request(nnet, frames, 2, **context)


def nnet3_net() -> Any:
    """A network in the nnet3 dialect."""
    return _nnet(TDNN, 3)[0].to_desc()


def nnet3_commands() -> Any:
    """A compiled request in the dialect of commands."""
    return command_dialect.to_desc(compile_computation(*_nnet(TDNN, 3)))


def nnet3_tdnn() -> Any:
    """A TDNN lowered, with natural gradient."""
    return compile_request(*_nnet(TDNN, 3), natural_gradient=True)


def nnet3_lstm() -> Any:
    """An LSTM lowered, plain gradients, all sequences compiled one by one."""
    return compile_request(*_nnet(LSTMP, 4, 5), shortcut=False)


def nnet3_looped() -> Any:
    """A stream: segments, labels and marks."""
    nnet = Nnet.from_config_text(xconfig_to_config(TDNN), 0)
    return compile_looped(nnet.topology(), looped_requests(3, 2, 2))


def _cntk_network() -> Builder:
    """Two delays in one loop."""
    b = Builder()
    x = b.add("InputValue", "x", shape=2)
    near = b.add("PastValue", "near", shape=3, defaultHiddenActivation=0.2)
    far = b.add("PastValue", "far", shape=3, timeStep=3)
    both = b.add("Plus", "both", b.add("Times", "own", b.parameter("R", 3, 3), near), far)
    z = b.add("Plus", "z", b.add("Times", "up", b.parameter("W", 3, 2), x), both)
    h = b.add("Tanh", "h", z)
    b.network.connect(near, [h])
    b.network.connect(far, [h, b.parameter("start", 3)])
    b.criterion(h)
    return b


def cntk_network() -> Any:
    """A network in the cntk dialect."""
    b = _cntk_network()
    b.network.validate()
    return cntk_dialect.to_desc(b.network)


def cntk_program() -> tuple[Any, Any]:
    """What runs of it, with gradients, and the scope in which it has run."""
    b = _cntk_network()
    net = b.net()
    net.forward_backward(minibatch(x=data(b.rng, 2)), "total")
    return net._last.net, net.scope


DESCRIBED: dict[str, Callable[[], Any]] = {
    "nnet3_net": nnet3_net,
    "nnet3_commands": nnet3_commands,
    "nnet3_looped": nnet3_looped,
    "cntk_network": cntk_network,
}
"""Nets that only describe, or run in segments; `RUNNING` run by themselves."""

RUNNING: dict[str, Callable[[], Any]] = {
    "mlp": mlp,
    "images": images,
    "words": words,
    "block": block,
    "trees": trees,
    "steps": steps,
    "pairs": pairs,
    "attributes": attributes,
    "nnet3_tdnn": nnet3_tdnn,
    "nnet3_lstm": nnet3_lstm,
    "cntk_program": cntk_program,
}
