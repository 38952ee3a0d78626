"""Scaled dot-product attention: values, masks, heads, dropout, and PyTorch where it is there."""

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest
from opscope.testing.op_setup import run

ALLOWED = np.array(
    [[True, True, False, True], [False, False, False, False], [True, False, True, False]]
)


KEYS = np.array([[True, True, True, False, True, False], [True, True, True, True, True, True]])


def heads_apart(x, heads):
    """[N, T, heads d] as [N, heads, T, d]."""
    if not heads:
        return x
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def attend(query, key, value, mask=None, causal=False, scale=0.0, past=0):
    """Attention and its weights by the formula."""
    scores = (scale or max(query.shape[-1], 1) ** -0.5) * query @ key.swapaxes(-1, -2)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        queries, keys = scores.shape[-2:]
        last = np.reshape(past, (-1, *(1,) * (scores.ndim - 1))) + np.arange(queries)[:, None]
        last = last if np.ndim(past) else last.reshape(queries, 1)
        scores = np.where(np.arange(keys) <= last, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    exps = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = exps.sum(-1, keepdims=True)
    weights = exps / np.where(total == 0, 1, total)
    out = weights @ value
    return out, np.broadcast_to(weights, (*out.shape[:-1], weights.shape[-1]))


class TestAttention(OpTest):
    type = "scaled_dot_product_attention"
    grad = ("query", "key", "value")
    dtypes = ("float16", "float32", "float64")
    tolerance16 = 1e-2

    def cases(self, rng):
        def arrays(q, k, v):
            return {
                "query": rng.normal(size=q),
                "key": rng.normal(size=k),
                "value": rng.normal(size=v),
            }

        plain = arrays((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 7))
        yield Case(plain)
        yield Case(plain, {"causal": True})
        yield Case(plain, {"causal": True}, train=False)
        yield Case(arrays((3, 4), (4, 4), (4, 2)) | {"mask": ALLOWED}, {"scale": 0.7})
        yield Case(plain | {"mask": rng.random((2, 1, 1, 6)) < 0.7})
        yield Case(arrays((2, 3, 2, 4), (1, 3, 5, 4), (3, 5, 4)) | {"mask": rng.random((5,)) < 0.6})
        yield Case(plain | {"key_mask": KEYS}, {"causal": True})
        side_by_side = arrays((2, 3, 6), (2, 4, 6), (2, 4, 9))
        yield Case(side_by_side, {"heads": 3})
        yield Case(side_by_side | {"mask": ALLOWED}, {"heads": 3, "causal": True})
        yield Case(side_by_side | {"mask": ALLOWED, "key_mask": KEYS[:, 2:]}, {"heads": 3})
        cached = arrays((2, 3, 2, 4), (2, 3, 9, 4), (2, 3, 9, 7)) | {
            "past": np.array([0, 6], np.int64)
        }
        yield Case(cached, {"causal": True})
        cached = arrays((2, 2, 6), (2, 9, 6), (2, 9, 9)) | {"past": np.array([7, 1], np.int64)}
        yield Case(cached | {"key_mask": np.tile(KEYS, 2)[:, :9]}, {"heads": 3, "causal": True})
        yield Case(cached, {"heads": 3, "causal": True}, train=False)

    def reference(self, inputs, attrs):
        heads = attrs["heads"]
        query, key, value = (heads_apart(inputs[s], heads) for s in ("query", "key", "value"))
        mask = inputs.get("mask")
        if "key_mask" in inputs:
            keys = inputs["key_mask"][:, None, None]
            mask = keys if mask is None else np.where(keys, mask, False)
        past = inputs.get("past", 0)
        out, weights = attend(query, key, value, mask, attrs["causal"], attrs["scale"], past)
        if heads:
            out = np.concatenate(list(out.swapaxes(0, 1)), -1)
        return {"out": out, "weights": weights}

    def test_rows_that_see_nothing_are_zero_and_have_no_gradient(self):
        rng = np.random.default_rng(0)
        q, k, v = rng.normal(size=(3, 4)), rng.normal(size=(4, 4)), rng.normal(size=(4, 2))
        setup = self.setup(Case({"query": q, "key": k, "value": v, "mask": ALLOWED}), "float64")
        arrays = run(setup).arrays
        assert np.array_equal(arrays["out"][1], [0, 0])
        found = setup.gradients(arrays, ("query", "key", "value"))
        assert np.array_equal(found["query"][1], np.zeros(4))
        assert all(np.isfinite(gradient).all() for gradient in found.values())

    def test_rows_before_the_cache_are_zero(self):
        rng = np.random.default_rng(0)
        given = {name: rng.normal(size=(2, 3, 1, 4)) for name in ("query", "key", "value")}
        given["past"] = np.array([-1, 0], np.int64)
        for train in (False, True):  # without the weights, and with them
            out = self.output(Case(given, {"causal": True}, train=train), "float64")["out"]
            assert not out[0].any()
            np.testing.assert_allclose(out[1], given["value"][1])

    def test_without_keys_there_is_nothing_to_see(self):
        given = {
            "query": np.ones((2, 3, 4)),
            "key": np.ones((2, 0, 4)),
            "value": np.ones((2, 0, 5)),
        }
        setup = self.setup(Case(given), "float64", want=False)
        arrays = run(setup).arrays
        assert np.array_equal(arrays["out"], np.zeros((2, 3, 5)))
        assert not setup.gradients(arrays, ("query",))["query"].any()

    def test_is_stable(self):
        big = np.array([[1e4, 0.0], [-1e4, 0.0]])
        given = {"query": big, "key": big, "value": np.eye(2)}
        np.testing.assert_array_equal(self.output(Case(given))["out"], np.eye(2))

    def test_dropout(self):
        rng = np.random.default_rng(3)
        q, k, v = (rng.normal(size=(4, 30, 8)) for _ in range(3))
        case = Case({"query": q, "key": k, "value": v}, {"dropout": 0.25, "seed": 5})
        setup = self.setup(case, "float64", want=False)
        arrays = run(setup).arrays
        kept = arrays["kept"]
        assert set(np.unique(kept)) == {0.0, 1 / 0.75} and abs((kept == 0).mean() - 0.25) < 0.02
        np.testing.assert_allclose(arrays["weights"], attend(q, k, v)[1], rtol=1e-12)
        np.testing.assert_allclose(arrays["out"], (arrays["weights"] * kept) @ v, rtol=1e-9)
        steps = {name: rng.uniform(-1, 1, x.shape) for name, x in setup.arrays.items()}
        gradients = setup.gradients(arrays, tuple(steps))
        along = sum((gradients[name] * steps[name]).sum() for name in steps)
        assert setup.slope(steps, 1e-4, None) == pytest.approx(along, rel=1e-7)
        tested = self.output(Case(case.inputs, case.attrs, train=False), "float64")
        np.testing.assert_allclose(tested["out"], attend(q, k, v)[0], rtol=1e-9, atol=1e-12)

    def test_dropping_everything_gives_zeros(self):
        given = {"query": np.ones((3, 2)), "key": np.ones((3, 2)), "value": np.ones((3, 2))}
        assert not self.output(Case(given, {"dropout": 1.0}))["out"].any()

    def test_refuses(self):
        def given(q=(2, 3, 4), k=(2, 5, 4), v=(2, 5, 4), **more):
            return {"query": np.zeros(q), "key": np.zeros(k), "value": np.zeros(v)} | more

        self.refuses("columns of query and key must agree", given(k=(2, 5, 6)))
        self.refuses("rows of key and value must agree", given(v=(2, 6, 4)))
        self.refuses("do not divide by 3 heads", given(), {"heads": 3})
        self.refuses("query wants 3 dimensions", given(q=(3, 4)), {"heads": 2})
        self.refuses("wants 2 dimensions or more", given(q=(4,)))
        wide = "do not broadcast together|does not broadcast to the weights"
        self.refuses(wide, given(mask=np.zeros((7, 3, 5), bool)))
        self.refuses(
            r"does not broadcast to the weights \[2, 3, 5\]",
            given(mask=np.zeros((1, 1, 3, 5), bool)),
        )
        self.refuses("have one shape", given(key_mask=np.ones((2, 4), bool)))
        self.refuses("key_mask wants bool", given(key_mask=np.ones((2, 5))))
        flat = given((3, 4), (5, 4), (5, 4), key_mask=np.ones((2, 5), bool))
        self.refuses("no axis N in front", flat)
        self.refuses("mask wants bool", given(mask=np.zeros((3, 5), int)))
        self.refuses("past says what rows", given(past=np.zeros(2, np.int64)))
        self.refuses("above 1", given(), {"dropout": 1.5}, AttributeTypeError)


class TestAttentionWithAddedMask(TestAttention):
    """A float mask is added, and has a gradient."""

    grad = ("query", "key", "value", "mask")
    dtypes = ("float32", "float64")

    def cases(self, rng):
        q, k, v = (rng.normal(size=(2, 3, 4, 5)) for _ in range(3))
        given = {"query": q, "key": k, "value": v}
        yield Case(given | {"mask": rng.normal(size=(3, 4, 4))}, {"causal": True})
        yield Case(given | {"mask": rng.normal(size=(2, 1, 1, 4))})
        some = rng.normal(size=(4, 4))
        some[1, 2] = some[3] = -np.inf
        yield Case(given | {"mask": some})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_equals_pytorch(causal, mask):
    torch = pytest.importorskip("torch")
    if causal and mask != "none":
        pytest.skip("PyTorch takes one of both")
    rng = np.random.default_rng(1)
    given = {name: rng.normal(size=(2, 3, 6, 4)) for name in ("query", "key", "value")}
    q, k, v = (torch.tensor(x, requires_grad=True) for x in given.values())
    theirs = None
    if mask != "none":
        allowed = rng.random((6, 6)) < 0.6
        allowed[:, 0] = True
        given["mask"] = allowed if mask == "bool" else rng.normal(size=(6, 6))
        theirs = torch.tensor(given["mask"])
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, theirs, is_causal=causal)
    test = TestAttention()
    setup = test.setup(Case(given, {"causal": causal}), "float64", want=False)
    arrays = run(setup).arrays
    np.testing.assert_allclose(arrays["out"], wanted.detach().numpy(), rtol=1e-10, atol=1e-12)
    wanted.backward(torch.tensor(setup.seed("out")))
    found = setup.gradients(arrays, test.grad)
    for name, tensor in zip(test.grad, (q, k, v), strict=True):
        np.testing.assert_allclose(found[name], tensor.grad.numpy(), rtol=1e-9, atol=1e-12)
