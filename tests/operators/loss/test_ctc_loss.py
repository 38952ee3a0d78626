"""CTC loss against the sum over all paths, and against PyTorch's."""

import itertools

import numpy as np
import pytest

from opscope.framework.base.errors import RunError
from opscope.framework.base.sequence import offsets_of
from opscope.testing import Case, OpTest
from opscope.testing.op_setup import run


def brute_force(x, labels, blank):
    """Loss of one sequence from all paths; infinite where there is none."""
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    chance = 0.0
    for path in itertools.product(range(x.shape[1]), repeat=len(x)):
        if [c for c, _ in itertools.groupby(path) if c != blank] == list(labels):
            chance += np.prod(p[np.arange(len(x)), path])
    return -np.log(chance) if chance else np.inf


class TestCtcLoss(OpTest):
    type = "ctc_loss"
    grad = ("x",)
    tolerance = 1e-4

    def case(self, rng, lengths, labels, classes=3, dense=False, column=False, **attrs):
        shape = (len(lengths), lengths[0]) if dense else (sum(lengths),)
        flat = np.array(sum(labels, []), "int32")
        given = {
            "x": rng.normal(size=(*shape, classes)),
            "label": flat[:, None] if column else flat,
        }
        offsets = {"label": (offsets_of([len(own) for own in labels]),)}
        if not dense:
            offsets["x"] = (offsets_of(lengths),)
        return Case(given, attrs, offsets=offsets)

    def cases(self, rng):
        labels = [[1, 2], [1, 1], [], [2, 1, 2]]
        yield self.case(rng, [4, 3, 2, 5], labels)
        yield self.case(rng, [4, 3, 0, 5], labels, per_label=True, column=True)
        yield self.case(rng, [4] * 4, labels, dense=True)
        yield self.case(rng, [3, 2], [[0], [1, 0]], blank=2)
        yield self.case(rng, [2, 1, 0, 3], [[1, 1], [2, 1], [1], [1]], zero_infinity=True)
        yield self.case(rng, [3, 1], [[], []])
        yield self.case(rng, [2], [[1]])

    def reference(self, inputs, attrs):
        x, label, blank = inputs["x"], inputs["label"].reshape(-1), attrs["blank"]
        ends = attrs["offsets"]["label"][0]
        count = len(ends) - 1
        starts = attrs["offsets"]["x"][0] if x.ndim == 2 else np.arange(count + 1) * x.shape[1]
        rows = x.reshape(-1, x.shape[-1])
        out = []
        for i in range(count):
            own = label[ends[i] : ends[i + 1]].tolist()
            loss = brute_force(rows[starts[i] : starts[i + 1]], own, blank)
            loss = 0.0 if attrs["zero_infinity"] and loss == np.inf else loss
            out.append(loss / max(len(own), 1) if attrs["per_label"] else loss)
        return {"out": np.array(out)}

    def test_what_is_impossible(self):
        rng = np.random.default_rng(0)
        case = self.case(rng, [2, 3, 0, 0], [[1, 1], [1, 1], [1], []])
        setup = self.setup(case, "float64")
        arrays = run(setup).arrays
        assert np.array_equal(np.isinf(arrays["out"]), [True, False, True, False])
        assert arrays["out"][3] == 0
        (gradient,) = setup.gradients(arrays, ("x",)).values()
        assert np.isnan(gradient[:2]).all() and np.isfinite(gradient[2:]).all()

    def test_is_stable_over_many_rows(self):
        rng = np.random.default_rng(1)
        case = self.case(rng, [3000], [list(rng.integers(1, 5, 400))], classes=5)
        case.inputs["x"][...] *= 20
        setup = self.setup(case, "float32", want=False)
        arrays = run(setup).arrays
        (gradient,) = setup.gradients(arrays, ("x",)).values()
        assert np.isfinite(arrays["out"]).all() and arrays["out"][0] > 1000
        assert np.isfinite(gradient).all()
        np.testing.assert_allclose(gradient.sum(1), 0, atol=1e-5)

    def test_refuses(self):
        rng = np.random.default_rng(0)
        good = self.case(rng, [4, 3], [[1], [2]])

        def refuse(match, inputs, attrs=None, offsets=good.offsets):
            self.refuses(match, {**good.inputs, **inputs}, attrs, offsets=offsets)

        refuse("blank 3 is none of the 3 classes", {}, {"blank": 3})
        refuse("wants an integer dtype", {"label": np.zeros(2)})
        other = {**good.offsets, "label": (np.array([0, 1, 2, 2]),)}
        refuse("sequences of x and of label must agree", {}, offsets=other)
        refuse("carries no sequences", {}, offsets={"x": good.offsets["x"]})
        for bad, why in ((0, "holds 0, the blank"), (3, "holds 3, want"), (-1, "holds -1, want")):
            case = Case({**good.inputs, "label": np.array([1, bad])}, offsets=good.offsets)
            with pytest.raises(RunError, match=why):
                self.output(case)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_equals_pytorch(zero_infinity):
    """Values and gradients: repeats, empty labels, and labels that do not fit."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    lengths = [12, 7, 9, 4, 10, 5]
    labels = [[1, 2, 2, 3], [4, 4, 4], [], [1, 1, 1], [3, 1, 3, 1, 2], [2, 2, 1]]
    test = TestCtcLoss()
    case = test.case(rng, lengths, labels, classes=6, zero_infinity=zero_infinity)
    setup = test.setup(case, "float64", want=False)
    arrays = run(setup).arrays
    padded = np.zeros((max(lengths), len(lengths), 6))
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    padded.transpose(1, 0, 2)[mask] = case.inputs["x"]
    x = torch.tensor(padded, requires_grad=True)
    loss = torch.nn.functional.ctc_loss(
        x.log_softmax(-1),
        torch.tensor(sum(labels, [])),
        torch.tensor(lengths),
        torch.tensor([len(own) for own in labels]),
        reduction="none",
        zero_infinity=zero_infinity,
    )
    np.testing.assert_allclose(arrays["out"], loss.detach().numpy(), rtol=1e-10)
    assert np.isinf(arrays["out"]).sum() == (0 if zero_infinity else 1)
    loss.backward(torch.tensor(setup.seed("out")))
    wanted = x.grad.numpy().transpose(1, 0, 2)[mask]
    (found,) = setup.gradients(arrays, ("x",)).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-12)


def test_mean_equals_pytorchs():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    test, labels = TestCtcLoss(), [[1, 2], [3], []]
    case = test.case(rng, [6, 6, 6], labels, classes=4, dense=True, per_label=True)
    logs = torch.tensor(case.inputs["x"]).log_softmax(-1).transpose(0, 1)
    targets, counts = torch.tensor([1, 2, 3]), torch.tensor([2, 1, 0])
    wanted = torch.nn.functional.ctc_loss(logs, targets, torch.tensor([6, 6, 6]), counts)
    assert test.output(case, "float64")["out"].mean() == pytest.approx(wanted.item(), rel=1e-12)
