"""Nets in which only some inputs of an operator with several want a gradient."""

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, OptimizerAttrs, Scope
from opscope.framework.ir.messages import from_message, to_message
from opscope.framework.ir.names import EMPTY
from opscope.framework.passes.cleanup import clean_up

WAYS = ("concat", "stack", "sum")


def partly_fixed(way, **how):
    """A loss of an operator on a layer's result and on the input itself, with its gradients."""
    builder = NetBuilder()
    x = builder.input("x", [-1, 4])
    parts = [builder.fc(x, 4, name="layer"), x]
    joined = builder.sum(parts) if way == "sum" else getattr(builder, way)(parts, axis=1)
    loss = builder.mean(builder.square(joined), name="loss")
    builder.backward_from(loss, **how)
    return builder


def minibatch(rows=3):
    return {"x": np.random.default_rng(rows).normal(size=(rows, 4)).astype("float32")}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_trained_gets_its_gradient(way):
    builder, scope = partly_fixed(way), Scope()
    builder.initialize(scope)
    (weights,) = (name for name in builder.gradients if name.endswith("w"))
    found = builder.run(scope, feed=minibatch(), fetch=["loss", builder.gradients[weights]])
    x = minibatch()["x"].astype("float64")
    layer = x @ scope.numpy(weights)
    out_grad = 2 * (layer + x) / x.size if way == "sum" else layer / x.size
    wanted = x.T @ out_grad
    np.testing.assert_allclose(found[builder.gradients[weights]], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_such_a_net_trains_and_predicts(way):
    builder, scope = partly_fixed(way), Scope()
    builder.add_optimizer_ops(OptimizerAttrs(type="sgd", learning_rate=0.1))
    batches = [minibatch(3), minibatch(1)]
    history = opscope.train(builder, batches, epochs=3, scope=scope, progress=False)
    assert history["loss"][-1] < history["loss"][0]
    assert np.isfinite(builder.predict(minibatch(1), fetch=["loss"], scope=scope)["loss"])


def test_such_a_net_is_shown_saved_and_cleaned_up(tmp_path):
    builder = partly_fixed("concat")
    net = builder.net
    assert EMPTY in str(net.desc), "the net has a gradient that nobody wants"
    for shown in (str(net.summary()), net._repr_svg_(), net._repr_html_()):
        assert shown and EMPTY not in shown
    assert to_message(from_message(net.desc)) == net.desc
    assert clean_up(net.op_list, live_out=["loss"]).ops
    scope = Scope()
    builder.initialize(scope)
    opscope.save(builder, scope, tmp_path / "net")
    found = opscope.load(tmp_path / "net").predict(minibatch(), fetch=["loss"])
    assert np.isfinite(found["loss"])


def test_a_variable_of_the_net_is_never_called_empty():
    net = partly_fixed("concat").net
    assert EMPTY not in net.vars
    assert all(EMPTY not in op.node.output_names() + op.node.input_names() for op in net.operators)
