"""Losses that come as one number, against PyTorch's functions and formulas."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder, Scope, to_half
from opscope.framework.base.errors import AttributeTypeError, ShapeError

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(6, 4))
LABEL = np.array([0, 3, -100, 1, 3, 3])
WEIGHT = np.array([0.5, 2.0, 1.0, 3.0])
SOFT = np.exp(RNG.normal(size=(6, 4)))
SOFT /= SOFT.sum(1, keepdims=True)


def loss_and_gradient(make, scores=SCORES, label=LABEL, **more):
    """The value of a loss and the gradient of its sum with respect to the scores."""
    b = NetBuilder("loss", dtype="float64")
    x = b.input("x", [-1, scores.shape[1]])
    kind = "int64" if label.dtype.kind == "i" else "float64"
    out = make(b, x, b.input("label", [-1] if kind == "int64" else [-1, scores.shape[1]], kind))
    b.backward_from(b.reduce_sum(out), wrt=[x])
    feed = {"x": scores, "label": label, **more}
    found = b.run(Scope(), feed=feed, fetch=[out.name, b.gradients["x"]])
    return found[out.name], found[b.gradients["x"]]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("label", [LABEL, SOFT], ids=["index", "soft"])
def test_cross_entropy_loss_equals_pytorch(label, weight, smoothing, reduction):
    torch = pytest.importorskip("torch")
    value, gradient = loss_and_gradient(
        lambda b, x, y: b.cross_entropy_loss(
            x, y, weight=weight, label_smoothing=smoothing, reduction=reduction
        ),
        label=label,
    )
    scores = torch.tensor(SCORES, requires_grad=True)
    wanted = torch.nn.functional.cross_entropy(
        scores,
        torch.tensor(label),
        None if weight is None else torch.tensor(weight),
        label_smoothing=smoothing,
        reduction=reduction,
    )
    wanted.sum().backward()
    np.testing.assert_allclose(value, wanted.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(gradient, scores.grad.numpy(), rtol=1e-10, atol=1e-14)


def test_the_weighted_mean_by_its_formula():
    value, _ = loss_and_gradient(lambda b, x, y: b.cross_entropy_loss(x, y, weight=WEIGHT))
    logs = SCORES - np.log(np.exp(SCORES).sum(1, keepdims=True))
    rows = [0, 1, 3, 4, 5]
    share = WEIGHT[LABEL[rows]]
    assert value == pytest.approx(-(share * logs[rows, LABEL[rows]]).sum() / share.sum(), rel=1e-12)


def test_without_samples_the_mean_is_zero():
    nothing = np.full(6, -100)
    value, gradient = loss_and_gradient(lambda b, x, y: b.cross_entropy_loss(x, y), label=nothing)
    assert value == 0 and not gradient.any()


def test_weights_may_be_a_variable():
    b = NetBuilder("loss", dtype="float64")
    x, y = b.input("x", [-1, 4]), b.input("label", [-1], "int64")
    loss = b.cross_entropy_loss(x, y, weight=b.input("weight", [4]), name="cost")
    feed = {"x": SCORES, "label": LABEL, "weight": WEIGHT}
    found = b.run(Scope(), feed=feed, fetch=[loss.name])
    wanted, _ = loss_and_gradient(lambda b, x, y: b.cross_entropy_loss(x, y, weight=WEIGHT))
    assert loss.name == "cost" and found["cost"] == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_softmax_focal_loss(gamma, reduction):
    value, gradient = loss_and_gradient(
        lambda b, x, y: b.softmax_focal_loss(x, y, gamma=gamma, alpha=WEIGHT, reduction=reduction)
    )

    def by_formula(scores):
        p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        valid = LABEL >= 0
        right = p[np.arange(6), LABEL * valid]
        each = -WEIGHT[LABEL * valid] * (1 - right) ** gamma * np.log(right) * valid
        totals = {"none": each, "sum": each.sum(), "mean": each.sum() / valid.sum()}
        return totals[reduction]

    np.testing.assert_allclose(value, by_formula(SCORES), rtol=1e-12)
    step = RNG.uniform(-1, 1, SCORES.shape)
    slope = (by_formula(SCORES + 1e-5 * step) - by_formula(SCORES - 1e-5 * step)).sum() / 2e-5
    assert (gradient * step).sum() == pytest.approx(slope, rel=1e-7)


def test_sigmoid_focal_loss_equals_torchvisions_formula():
    torch = pytest.importorskip("torch")
    label = (SOFT > 0.3).astype(float)
    value, gradient = loss_and_gradient(
        lambda b, x, y: b.mean(b.sigmoid_focal_loss(x, y)), label=label
    )
    x, y = torch.tensor(SCORES, requires_grad=True), torch.tensor(label)
    p = torch.sigmoid(x)
    cross = torch.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none")
    right = p * y + (1 - p) * (1 - y)
    loss = (cross * (1 - right) ** 2 * (0.25 * y + 0.75 * (1 - y))).mean()
    loss.backward()
    assert value == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-10)


def test_what_is_refused():
    b = NetBuilder("loss")
    x, y = b.input("x", [-1, 4]), b.input("label", [-1], "int64")
    with pytest.raises(AttributeTypeError, match="reduction is one of mean, sum, none, not 'avg'"):
        b.cross_entropy_loss(x, y, reduction="avg")
    with pytest.raises(ShapeError, match="classes of x and of weight"):
        b.cross_entropy_loss(x, y, weight=[1.0, 2.0])
    with pytest.raises(AttributeTypeError, match="label_smoothing"):
        b.cross_entropy_loss(x, y, label_smoothing=1.5)


def test_ctc_finds_labels_whose_places_it_is_not_told():
    """Each label is a few noisy rows; a linear layer learns to spell them."""
    rng = np.random.default_rng(5)
    codes = rng.normal(size=(4, 6))
    labels = [rng.integers(1, 4, rng.integers(0, 4)) for _ in range(12)]
    frames = [
        np.concatenate([codes[:1], *(codes[[c] * rng.integers(1, 4) + [0]] for c in own)])
        for own in labels
    ]
    b = NetBuilder("ctc")
    x = b.input("x", [-1, 6], levels=1)
    # From random weights, one start in 60 ends in a local minimum: a label at its neighbor's rows.
    scores = b.fc(x, size=4, init="zeros", name="scores")
    loss = b.mean(b.ctc_loss(scores, b.input("label", [-1], "int64", levels=1)))
    b.backward_from(loss)
    b.add_optimization(0.1, "adam")
    scope, feed = Scope(), {"x": frames, "label": labels}
    costs = [b.run(scope, feed=feed, fetch=[loss.name])[loss.name] for _ in range(80)]
    assert costs[-1] < 0.1 * costs[0]
    b.run(scope, feed=feed, fetch=["scores"], need_backward=False)
    for found, wanted in zip(scope.sequences("scores").to_list(), labels, strict=True):
        best = found.argmax(1)
        spelt = best[np.append(True, best[1:] != best[:-1])]
        assert spelt[spelt > 0].tolist() == wanted.tolist()


def test_a_sum_of_losses_need_not_be_fetched():
    b = NetBuilder("sum")
    out = b.fc(b.input("x", [-1, 4]), size=4)
    losses = [b.mean(out * out, name=name) for name in ("one", "two", "three")]
    b.backward_from(losses[0] + losses[1] + losses[2])
    found = b.run(Scope(), feed={"x": SCORES}, fetch=losses)
    assert found["one"] == found["two"] == found["three"] > 0


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("native", [False, True])
def test_attention_and_losses_in_half_precision(half, native):
    """Losses are float32; a net of halves and one that became so give what float32 gives."""
    pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    feed = {"text": [rng.integers(0, 20, n) for n in (3, 7, 4)], "spelt": [[1, 2], [3], []]}
    feed["label"] = np.array([0, 1, 3])

    def net(dtype):
        b = NetBuilder("half", dtype=dtype)
        x = b.embedding(b.input("text", [-1], "int64", levels=1), [20, 16], init="xavier")
        x = b.positional_encoding(x)
        x = b.transformer_encoder(x, layers=1, heads=2, rotary=True, dropout=0.0)
        scores, label = b.fc(b.sequence_pool(x), size=4), b.input("label", [-1], "int64")
        one = b.cross_entropy_loss(scores, label, weight=WEIGHT, label_smoothing=0.1, name="one")
        two = b.softmax_focal_loss(scores, label, alpha=WEIGHT, name="two")
        spelt = b.input("spelt", [-1], "int64", levels=1)
        three = b.mean(b.ctc_loss(b.fc(x, size=7), spelt), name="three")
        b.backward_from(one + two + three)
        return b

    whole, scope = net("float32"), Scope()
    wanted = whole.run(scope, feed=feed, fetch=["one", "two", "three"])
    values = {v.name: scope.numpy(v.name) for v in whole.forward_net.op_list.vars if v.initializer}
    scope = Scope()
    if native:
        b = net(half)
        scope.feed({name: value.astype(b.dtype) for name, value in values.items()})
    else:
        scope.feed(values)
        b = to_half(whole, half, scope=scope)
    found = b.run(scope, feed=feed, fetch=["one", "two", "three"])
    for name, value in wanted.items():
        assert found[name].dtype == np.float32
        assert found[name] == pytest.approx(value, rel=0.05)
