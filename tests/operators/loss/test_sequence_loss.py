"""Means that leave gaps out, and the error rate of sequences."""

import numpy as np
import pytest

from opscope.framework.base.errors import RunError
from opscope.testing import Case, OpTest
from sequence_cases import BATCHES, EMPTY, RAGGED, parts, values

MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]])


class TestMaskedMean(OpTest):
    type = "masked_mean"
    grad = ("x",)

    def cases(self, rng):
        for mask in (MASK.astype(bool), MASK, MASK * rng.uniform(0.5, 2, MASK.shape)):
            yield Case({"x": rng.normal(size=(4, 3)), "mask": mask})
            yield Case({"x": rng.normal(size=(4, 3, 2)), "mask": mask})
        yield Case({"x": rng.normal(size=(4, 3)), "mask": np.zeros((4, 3), bool)})
        yield Case({"x": rng.normal(size=(4, 3)), "mask": np.array([1, 0, 1, 0])})
        yield Case({"x": np.zeros((4, 0)), "mask": np.zeros((4, 0))})

    def reference(self, inputs, attrs):
        x, mask = inputs["x"], inputs["mask"].astype(float)
        weights = np.broadcast_to(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x.shape)
        total = weights.sum()
        return {"out": np.asarray((x * weights).sum() / total if total else 0.0)}

    def test_gaps_may_hold_anything(self):
        x = np.where(MASK, 2.0, np.nan)
        assert self.output(Case({"x": x, "mask": MASK}))["out"] == 2
        x[2] = np.inf
        assert self.output(Case({"x": x, "mask": MASK.astype(float)}))["out"] == 2

    def test_refuses(self):
        x = np.zeros((4, 3))
        self.refuses("one shape", {"x": x, "mask": MASK[:3]})
        self.refuses("more than x", {"x": x, "mask": MASK[:, :, None]})
        self.refuses("floating dtype", {"x": MASK, "mask": MASK})


class TestSequenceMean(OpTest):
    type = "sequence_mean"
    grad = ("x",)

    def cases(self, rng):
        for per in ("row", "sequence", "balanced"):
            for levels in BATCHES:
                if levels is EMPTY and per == "row":
                    continue  # the mean of nothing, as of `mean`
                yield Case({"x": values(rng, levels)}, {"per": per}, offsets={"x": levels})
            yield Case({"x": values(rng, RAGGED, 1)}, {"per": per}, offsets={"x": RAGGED})

    def reference(self, inputs, attrs):
        x, pieces = inputs["x"], parts(inputs["x"], attrs["offsets"]["x"])
        found = {
            "row": lambda: x.mean(),
            "sequence": lambda: np.mean([part.sum(0) for part in pieces]),
            "balanced": lambda: np.mean([part.mean() if len(part) else 0 for part in pieces]),
        }
        return {"out": np.asarray(found[attrs["per"]]())}


class TestSequenceError(OpTest):
    type = "sequence_error"

    def cases(self, rng):
        for levels in BATCHES:
            rows = int(levels[-1][-1])
            x = rng.normal(size=(rows, 3))
            for _ in range(4):
                label = np.where(rng.random(rows) < 0.8, x.argmax(axis=1), rng.integers(0, 3, rows))
                label[rng.random(rows) < 0.2] = -100
                yield Case({"x": x, "label": label}, offsets={"x": levels}, outputs=("wrong",))
        yield Case({"x": x, "label": label[:, None].astype(np.int32)}, offsets={"x": levels})

    def reference(self, inputs, attrs):
        x, label = inputs["x"], inputs["label"].reshape(-1)
        bad = (x.argmax(axis=1) != label) & (label != attrs["ignore_index"])
        failed = [part.any() for part in parts(bad, attrs["offsets"]["x"])]
        return {
            "out": np.asarray(np.mean(failed, dtype=np.float32)),
            "wrong": np.asarray(np.sum(failed)),
        }

    def test_nan_is_wrong(self):
        x = np.full((8, 3), [1.0, 0, 0])
        x[7, 2] = np.nan
        case = Case({"x": x, "label": np.zeros(8, int)}, offsets={"x": RAGGED})
        assert self.output(case)["out"] == 0.25

    def test_refuses(self):
        x, label = np.zeros((8, 3)), np.zeros(8, int)
        self.refuses("x 'x' carries no sequences", {"x": x, "label": label})
        offsets = {"x": RAGGED}
        self.refuses("one shape", {"x": x, "label": label[:7]}, offsets=offsets)
        self.refuses("no classes", {"x": x[:, :0], "label": label}, offsets=offsets)

    def test_refuses_labels_out_of_range(self):
        case = Case({"x": np.zeros((8, 3)), "label": np.full(8, 3)}, offsets={"x": RAGGED})
        with pytest.raises(RunError, match="'label' holds 3 at sample 0"):
            self.output(case)
