"""accuracy, edit_distance and auc."""

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, RunError
from opscope.testing import Case, OpTest


class TestAccuracy(OpTest):
    type = "accuracy"
    exact_dtype = ("out",)

    def cases(self, rng):
        for k in (1, 2, 5):
            yield Case({"x": rng.normal(size=(7, 5)), "label": rng.integers(0, 5, 7)}, {"k": k})
            label = rng.integers(0, 5, (2, 3, 1)).astype("int32")
            yield Case({"x": rng.normal(size=(2, 3, 5)), "label": label}, {"k": k})
            tied = {
                "x": np.array([[1.0, 1, 0], [0, 1, 1], [1, 1, 1]]),
                "label": np.array([1, 1, 2]),
            }
            yield Case(tied, {"k": min(k, 3)})
            some = {"x": rng.normal(size=(4, 5)), "label": np.array([0, -100, 3, -100])}
            yield Case(some, {"k": k})
            nan = {
                "x": np.array([[np.nan, 1.0, 2.0], [np.nan, 3.0, 2.0]]),
                "label": np.array([0, 1]),
            }
            yield Case(nan, {"k": min(k, 2)})

    def reference(self, inputs, attrs):
        x = inputs["x"].reshape(-1, inputs["x"].shape[-1])
        right = total = 0
        for row, label in zip(x, inputs["label"].ravel(), strict=True):
            if label == attrs["ignore_index"]:
                continue
            total += 1
            order = sorted(range(len(row)), key=lambda i: (not np.isnan(row[i]), -row[i], i))
            right += label in order[: attrs["k"]] and not np.isnan(row[label])
        return {
            "out": np.float32(right / max(total, 1)),
            "correct": np.int64(right),
            "total": np.int64(total),
        }

    def test_without_samples(self):
        out = self.output(Case({"x": np.zeros((0, 3)), "label": np.zeros(0, int)}))["out"]
        assert out == 0

    def test_label_out_of_range(self):
        inputs = {"x": np.zeros((3, 2)), "label": np.array([0, 1, 2])}
        with pytest.raises(RunError, match="label 'label' holds 2 at sample 2, want 0 .. 1"):
            self.output(Case(inputs))

    def test_refuses(self):
        x = np.zeros((3, 2))
        self.refuses("samples of x and label", {"x": x, "label": np.zeros(2, int)})
        self.refuses("below 1", {"x": x, "label": np.zeros(3, int)}, {"k": 0}, AttributeTypeError)
        self.refuses("no classes", {"x": x[:, :0], "label": np.zeros(3, int)})


def levenshtein(a, b):
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    table[:, 0], table[0] = range(len(a) + 1), range(len(b) + 1)
    for i, one in enumerate(a, 1):
        for j, other in enumerate(b, 1):
            table[i, j] = min(
                table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (one != other)
            )
    return table[-1, -1]


class TestEditDistance(OpTest):
    type = "edit_distance"
    exact_dtype = ("out",)

    def cases(self, rng):
        for s, t in ((4, 6), (7, 3), (5, 5), (1, 1), (0, 3), (3, 0), (0, 0)):
            for normalized in (False, True):
                x, label = rng.integers(0, 3, (5, s)), rng.integers(0, 3, (5, t))
                yield Case({"x": x, "label": label}, {"normalized": normalized})
                lengths = {
                    "x_length": rng.integers(0, s + 1, 5),
                    "label_length": rng.integers(0, t + 1, 5).astype("int32"),
                }
                yield Case({"x": x, "label": label, **lengths}, {"normalized": normalized})

    def reference(self, inputs, attrs):
        x, label = inputs["x"], inputs["label"]
        x_length = inputs.get("x_length", [x.shape[1]] * len(x))
        label_length = inputs.get("label_length", [label.shape[1]] * len(x))
        out = [
            levenshtein(a[:i], b[:j])
            for a, b, i, j in zip(x, label, x_length, label_length, strict=True)
        ]
        divisor = np.maximum(label_length, 1) if attrs["normalized"] else 1
        return {"out": (np.array(out, float) / divisor).astype("float32")}

    def test_words(self):
        words = [("kitten", "sitting", 3), ("flaw", "lawn", 2), ("", "abc", 3), ("same", "same", 0)]
        x, label = np.zeros((4, 8), "uint8"), np.zeros((4, 8), "uint8")
        for row, (a, b, _) in enumerate(words):
            x[row, : len(a)], label[row, : len(b)] = list(a.encode()), list(b.encode())
        lengths = {
            "x_length": np.array([len(a) for a, _, _ in words]),
            "label_length": np.array([len(b) for _, b, _ in words]),
        }
        out = self.output(Case({"x": x, "label": label, **lengths}))["out"]
        np.testing.assert_array_equal(out, [distance for *_, distance in words])

    def test_length_out_of_range(self):
        x = np.zeros((2, 3), int)
        for bad in (4, -1):
            with pytest.raises(RunError, match=f"x_length 'x_length' holds {bad} for row 1"):
                self.output(Case({"x": x, "label": x, "x_length": np.array([3, bad])}))

    def test_refuses(self):
        x = np.zeros((2, 3), int)
        self.refuses("must agree", {"x": x, "label": x[:1]})
        self.refuses("must agree", {"x": x, "label": x, "x_length": np.zeros(3, int)})
        self.refuses("2 dimensions", {"x": x[0], "label": x})
        self.refuses("integer dtype", {"x": x.astype(float), "label": x})
        self.refuses("integer dtype", {"x": x, "label": x, "label_length": np.zeros(2)})


class TestAuc(OpTest):
    type = "auc"
    exact_dtype = ("out",)

    def cases(self, rng):
        label = rng.integers(0, 2, 40)
        yield Case({"x": rng.normal(size=40), "label": label})
        yield Case({"x": label + rng.normal(size=40), "label": label})
        yield Case({"x": rng.integers(0, 4, (40, 1)).astype(float), "label": label[:, None]})
        yield Case({"x": np.array([0.1, 0.2]), "label": np.array([1, 1])})

    def reference(self, inputs, attrs):
        x, positive = inputs["x"].ravel(), inputs["label"].ravel() != 0
        gaps = x[positive][:, None] - x[~positive]
        area = ((gaps > 0) + 0.5 * (gaps == 0)).mean() if gaps.size else 0.5
        return {"out": np.float32(area)}

    def test_refuses(self):
        x, label = np.zeros(3), np.zeros(3, int)
        self.refuses("must agree", {"x": x, "label": label[:2]})
        self.refuses("must agree", {"x": np.zeros((3, 2)), "label": label})
        self.refuses("integer dtype", {"x": x, "label": x})
