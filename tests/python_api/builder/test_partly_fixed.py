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


def joined_with_fixed(b, h, x, y):
    """Ways to go on from h, which is trained, with operators that read x and y, which are fed."""
    gate = b.greater(x, y)
    yield lambda: b.fc(b.concat([h, x], axis=1), 4)
    yield lambda: b.fc(b.concat([x, h, y], axis=-1), 4)
    yield lambda: b.reduce_sum(b.stack([x, h, y], axis=1), axes=[1])
    yield lambda: b.sum([x, h, y, h])
    yield lambda: h * x - y
    yield lambda: b.maximum(b.minimum(h, x + 1.5), y - 1.5)
    yield lambda: b.where(gate, h, x)
    yield lambda: b.where(gate, x, h)
    yield lambda: b.matmul(h, b.matmul(x, y, transpose_x=True))
    yield lambda: b.einsum("ij,kj,kl->il", h, x, y) * 0.1
    yield lambda: b.scaled_dot_product_attention(h, x, y)
    yield lambda: b.prelu(x) + h
    yield lambda: b.layer_norm(x) * h
    yield lambda: b.scatter_add(x, b.argmax(y, axis=1) * 0, h)


@pytest.mark.parametrize("seed", range(10))
def test_random_nets_with_fixed_inputs_train(seed):
    """Gradients are right, with whole minibatches and with one of a single row."""
    rng = np.random.default_rng(seed)
    b, scope = NetBuilder(dtype="float64"), Scope()
    x, y = b.input("x", [-1, 4]), b.input("y", [-1, 4])
    h = b.fc(x, 4, name="first")
    for _ in range(5):
        ways = list(joined_with_fixed(b, h, x, y))
        h = b.tanh(ways[rng.integers(len(ways))]()) + 0.5 * h
    b.backward_from(b.mean(b.square(h - y), name="loss"))
    batches = [{"x": rng.normal(size=(n, 4)), "y": rng.normal(size=(n, 4))} for n in (5, 1)]
    b.initialize(scope)
    for batch in batches:
        check_slope(b, scope, batch, rng)
    b.add_optimizer_ops(OptimizerAttrs(type="adam", learning_rate=0.01))
    history = opscope.train(b, batches, epochs=20, scope=scope, progress=False)
    assert history["loss"][-1] < history["loss"][0]


def check_slope(b, scope, batch, rng):
    """The gradients along a random direction are what a small step gives."""
    names = list(b.gradients)
    found = b.run(scope, feed=batch, fetch=[b.gradients[name] for name in names])
    before = {name: scope.numpy(name).copy() for name in names}
    steps = {name: rng.normal(size=before[name].shape) for name in names}
    slope = sum(float((found[b.gradients[name]] * steps[name]).sum()) for name in names)
    losses = []
    for size in (1e-6, -1e-6):
        for name in names:
            scope.get(name).set(before[name] + size * steps[name])
        losses.append(b.run(scope, feed=batch, fetch=["loss"], need_backward=False)["loss"])
    for name in names:
        scope.get(name).set(before[name])
    assert slope == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4, abs=1e-7)
