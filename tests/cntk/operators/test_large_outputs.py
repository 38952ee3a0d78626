"""Criteria that score some words only, and given gradients."""

import numpy as np
import pytest

import opscope.cntk.operators  # noqa: F401  registers them
from opscope.framework.base.errors import RunError
from opscope.testing import Case, OpTest

CLASSES = np.array([[0, 3], [3, 4], [4, 9]])  # words of three classes
CLASS_OF = np.repeat(np.arange(3), np.diff(CLASSES).ravel())


def log_softmax(x):
    return x - np.logaddexp.reduce(x, 1, keepdims=True)


def labels(words):
    found = CLASS_OF[words]
    return np.column_stack([words, found, CLASSES[found]]).astype(float)


class TestClassCrossEntropy(OpTest):
    type = "cntk.class_cross_entropy"
    grad = ("x", "w", "classes")

    def cases(self, rng):
        for words in ([4, 0, 8, 3, 2, 4, 5], [3], [1, 1, 0]):
            yield Case(
                {
                    "label": labels(np.array(words)),
                    "x": rng.normal(size=(len(words), 5)),
                    "w": rng.normal(size=(9, 5)),
                    "classes": rng.normal(size=(len(words), 3)),
                }
            )

    def reference(self, inputs, attrs):
        logs = log_softmax(inputs["classes"])
        total = 0.0
        for row, (word, class_, first, end) in enumerate(inputs["label"].astype(int)):
            scores = inputs["w"][first:end] @ inputs["x"][row]
            total += logs[row, class_] + log_softmax(scores[None])[0, word - first]
        return {"out": np.array([-total]), "log_softmax": logs}

    @pytest.mark.parametrize("label", [[3, 0, 0, 3], [0, 3, 0, 3], [8, 2, 4, 10], [-1, 0, -1, 3]])
    def test_refuses_words_outside(self, label):
        case = next(self.cases(np.random.default_rng(0)))
        inputs = {**case.inputs, "label": np.concatenate([[label], case.inputs["label"][1:]])}
        with pytest.raises(RunError, match=f"row 0 of label is word {label[0]} of class"):
            self.output(Case(inputs))

    def test_refuses_shapes(self):
        inputs = next(self.cases(np.random.default_rng(0))).inputs
        self.refuses("columns of label", {**inputs, "label": np.ones((7, 3))})
        self.refuses("columns of x and w", {**inputs, "w": np.ones((9, 4))})


def samples(rng, rows, noise, words=6):
    found = np.empty((rows, 2 + 2 * noise))
    found[:, ::2] = rng.integers(words, size=(rows, noise + 1))
    found[:, 1::2] = rng.uniform(0.5, 3, (rows, noise + 1))
    found[:, 1] *= -1
    return found


class TestNoiseContrastive(OpTest):
    type = "cntk.noise_contrastive"
    grad = ("x", "w", "b")

    def cases(self, rng):
        for rows, noise in ((4, 3), (1, 1), (6, 2)):
            yield Case(
                {
                    "samples": samples(rng, rows, noise),
                    "x": rng.normal(size=(rows, 3)),
                    "w": rng.normal(size=(6, 3)),
                    "b": rng.normal(size=6),
                }
            )

    def reference(self, inputs, attrs):
        given, total = inputs["samples"], 0.0
        for row, held in enumerate(given):
            for number, (word, prob) in enumerate(held.reshape(-1, 2)):
                score = inputs["x"][row] @ inputs["w"][int(word)] + inputs["b"][int(word)]
                noise = np.exp(prob if number == 0 else -prob) * (len(held) // 2 - 1)
                real = np.exp(score) / (np.exp(score) + noise)
                total -= np.log(real if number == 0 else 1 - real)
        return {"out": np.array([total])}

    def test_refuses(self):
        case = next(self.cases(np.random.default_rng(0)))
        self.refuses("5 columns", {**case.inputs, "samples": np.ones((4, 5))})
        with pytest.raises(RunError, match=r"not in 0 \.\. 5"):
            self.output(Case({**case.inputs, "samples": np.full((4, 4), 6.0)}))


class TestWordScore(OpTest):
    type = "cntk.word_score"

    def cases(self, rng):
        inputs = {"x": rng.normal(size=(3, 4)), "w": rng.normal(size=(5, 4))}
        inputs["b"] = rng.normal(size=5)
        words = np.array([[4.0], [0.0], [2.0]])
        for mode in ("softmax", "unnormalised", "either"):
            sign = -1 if mode == "unnormalised" else 1
            yield Case({"label": sign * words, **inputs}, {"mode": mode})
        yield Case({"label": -words, **inputs}, {"mode": "either"})

    def reference(self, inputs, attrs):
        scores = inputs["x"] @ inputs["w"].T + inputs["b"]
        if (inputs["label"] >= 0).all():
            scores = log_softmax(scores)
        words = np.abs(inputs["label"][:, 0]).astype(int)
        return {"out": np.array([-scores[np.arange(len(words)), words].sum()])}


class TestGivenGradient(OpTest):
    type = "cntk.given_gradient"

    def cases(self, rng):
        yield Case({slot: rng.normal(size=(4, 3)) for slot in ("value", "slope", "x")})
        yield Case({"value": np.ones((2, 1)), "slope": np.ones((2, 3)), "x": np.ones((2, 3))})

    def reference(self, inputs, attrs):
        return {"out": np.array([inputs["value"].sum()])}

    def test_grad_names_what_there_is(self):
        """Its gradient is none of out's, so it is no slope to compare with."""
        setup = self.setup(next(self.cases(np.random.default_rng(0))), "float64")
        found = setup.gradients(dict(setup.arrays), ("x",))
        seed = setup.seed("out")
        assert np.allclose(found["x"], setup.arrays["slope"] * seed)

    def test_refuses(self):
        self.refuses(
            "slope and x", {n: np.ones((2, i)) for i, n in enumerate(("value", "slope", "x"))}
        )
