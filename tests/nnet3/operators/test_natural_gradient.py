"""Natural gradient: the operator against the formulas of the paper, and where components use it."""

import numpy as np
import pytest

from opscope.nnet3.operators.natural_gradient import EPSILON, special_orthonormal
from opscope.testing import Case, OpTest

ALPHA = 4.0


def smoothed_inverse(w, d, rho):
    """What a batch is multiplied with, from R, D and rho alone: beta G^-1 for the smoothed G."""
    cols = w.shape[1]
    beta = rho * (1 + ALPHA) + ALPHA * d.sum() / cols
    r = w / np.sqrt(1 / (beta / d + 1))[:, None]
    assert np.allclose(r @ r.T, np.eye(len(r)), atol=1e-4), "the rows of R are orthonormal"
    fisher = r.T @ np.diag(d) @ r + rho * np.eye(cols)
    smoothed = fisher + ALPHA / cols * np.trace(fisher) * np.eye(cols)
    return beta * np.linalg.inv(smoothed), r


def moved(r, d, rho, x, eta):
    """R and the eigenvalues D + rho after one step towards the batch (Povey et al. 2015)."""
    cols = r.shape[1]
    fisher = r.T @ np.diag(d) @ r + rho * np.eye(cols)
    target = eta / len(x) * x.T @ x + (1 - eta) * fisher
    y = r @ target
    values, vectors = np.linalg.eigh(y @ y.T)
    values, vectors = values[::-1], vectors[:, ::-1]
    roots = np.sqrt(values)
    rho = (np.trace(target) - roots.sum()) / (cols - len(r))
    return (vectors / roots).T @ y, roots - rho, rho


class TestPrecondition(OpTest):
    halves = False  # the rows of R must be orthonormal
    type = "nnet3.precondition"
    tolerance = 3e-3
    tolerance64 = 1e-9

    def cases(self, rng):
        x = rng.normal(size=(40, 6)) @ np.diag([3.0, 2, 1, 1, 0.5, 0.5])
        d, rho, rank = np.array([4.0, 2.0]), 0.7, 2
        beta = rho * (1 + ALPHA) + ALPHA * d.sum() / 6
        r = np.linalg.qr(rng.normal(size=(6, rank)))[0].T
        state = {
            "w": r * np.sqrt(1 / (beta / d + 1))[:, None],
            "d": d,
            "rho": np.array([rho]),
        }
        for count, extra in ((3, {}), (11, {}), (14, {}), (3, {"frozen": np.array([1.0])})):
            inputs = {"x": x, **state, "count": np.array([count], np.int64), **extra}
            yield Case(inputs, {"update_period": 4})
        zero = {"w": np.zeros((rank, 6)), "d": np.zeros(2), "rho": np.zeros(1)}
        yield Case({"x": x, **zero, "count": np.array([0], np.int64)})
        yield Case({"x": x, **state, "count": np.array([3], np.int64)}, {"batches_history": 5.0})

    def reference(self, inputs, attrs):
        x, count, (rank, cols) = inputs["x"], int(inputs["count"][0]), inputs["w"].shape
        state = inputs["w"], inputs["d"], float(inputs["rho"][0])
        kept = {"w_out": state[0], "d_out": state[1], "rho_out": inputs["rho"]}
        if not len(x):  # nothing can be learnt of no rows
            return kept | {"out": x, "scale": np.ones(1), "count_out": inputs["count"]}
        if count == 0 and len(x) <= rank:
            # Rounding decides on the directions that these rows do not have.
            return {"count_out": np.array([1])}
        if count and rank < 2:  # cut from the estimate of `cases`, which fits no Fisher matrix
            out = x - x @ state[0].T @ state[0]
            return {"out": out, "count_out": np.array([count + 1])}
        eta = 1 - np.exp(-len(x) / attrs["samples_history"])
        if attrs["batches_history"]:
            eta = 1 / attrs["batches_history"]
        if count == 0:
            r, d, rho = special_orthonormal(rank, cols), np.full(rank, EPSILON), EPSILON
            for _ in range(3):
                r, d, rho = moved(r, d, rho, x, eta)
            beta = rho * (1 + ALPHA) + ALPHA * d.sum() / cols
            state = r * np.sqrt(1 / (beta / d + 1))[:, None], d, rho
        inverse, r = smoothed_inverse(*state)
        out = x @ inverse
        due = count <= 10 or (count - 10) % attrs["update_period"] == 0
        expected = {
            "out": out,
            "scale": np.array([np.linalg.norm(x) / np.linalg.norm(out)]),
            "count_out": np.array([count + 1]),
        }
        if due and "frozen" not in inputs:
            _, d, rho = moved(r, *state[1:], x, eta)
            return expected | {"d_out": d, "rho_out": np.array([rho])}
        return expected | kept

    def test_refuses(self):
        given = {"d": np.zeros(3), "rho": np.zeros(1), "count": np.zeros(1, np.int64)}
        given |= {"x": np.zeros((4, 3)), "w": np.zeros((3, 3))}
        self.refuses("the rank 3", given)
        given |= {"w": np.zeros((2, 3)), "d": np.zeros(2)}
        self.refuses("must be above 0", given, {"samples_history": 0.0})


class TestPreconditionRanks(TestPrecondition):
    """One rank; several are in `tests/parallel/test_nnet3_ranks.py`."""

    type = "nnet3.precondition_ranks"

    def cases(self, rng):
        for case in super().cases(rng):
            yield case
            yield Case(case.inputs, case.attrs | {"summed": True})


def test_rows_of_the_start():
    rows = special_orthonormal(3, 8)
    np.testing.assert_allclose(rows @ rows.T, np.eye(3), atol=1e-12)
    assert (np.abs(rows).sum(axis=0) > 0).all()
    assert rows[0, 0] / rows[0, 3] == pytest.approx(1.1)


class TestSpliceRows(OpTest):
    type = "nnet3.splice_rows"

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(7, 3))}, {"first": [0, 2], "stride": 2, "rows": 3})
        yield Case({"x": rng.normal(size=(4, 2))}, {"ones": True})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        parts = [x]
        if attrs["first"]:
            rows = attrs["stride"] * np.arange(attrs["rows"])
            parts = [x[at + rows] for at in attrs["first"]]
        if attrs["ones"]:
            parts.append(np.ones((len(parts[0]), 1)))
        return {"out": np.concatenate(parts, axis=1)}

    def test_refuses(self):
        self.refuses("rows 0 to 4", {"x": np.zeros((4, 2))}, {"first": [0], "rows": 5})


class TestScaledProduct(OpTest):
    type = "nnet3.scaled_product"

    def cases(self, rng):
        grad, x, two = rng.normal(size=(5, 3)), rng.normal(size=(5, 4)), np.array([2.0])
        yield Case({"grad": grad, "x": x, "scale": [two, two]})
        yield Case({"grad": grad, "scale": [two]})

    def reference(self, inputs, attrs):
        grad = inputs["grad"] * np.prod(inputs["scale"])
        if "x" not in inputs:
            return {"b_grad": grad.sum(axis=0)}
        both = grad.T @ inputs["x"]
        return {"w_grad": both[:, :-1], "b_grad": both[:, -1]}

    def test_refuses(self):
        grad = np.zeros((2, 2))
        self.refuses("the rows of grad and x", {"grad": grad, "x": np.zeros((3, 2))})
        self.refuses("no column for b_grad", {"grad": grad, "x": np.zeros((2, 0))})
        self.refuses("w_grad wants x", {"grad": grad})


class TestScaledParts(OpTest):
    type = "nnet3.scaled_parts"

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4)), "scale": [np.array([2.0]), np.array([3.0])]})
        yield Case({"x": rng.normal(size=(3, 5))}, outputs=())

    def reference(self, inputs, attrs):
        if "scale" not in inputs:
            return {"w_grad": inputs["x"]}
        x = inputs["x"] * 6
        return {"w_grad": x[:, :-1], "b_grad": x[:, -1]}


class TestScaleOffsetTerms(OpTest):
    type = "nnet3.scale_offset_terms"

    def cases(self, rng):
        arrays = {slot: rng.normal(size=(3, 4)) for slot in ("out", "grad")}
        yield Case(arrays | {"scale": np.array([2.0, -0.5]), "offset": rng.normal(size=2)})

    def reference(self, inputs, attrs):
        blocks = inputs["out"].shape[1] // len(inputs["scale"])
        scale, offset = (np.tile(inputs[slot], blocks) for slot in ("scale", "offset"))
        return {"terms": (inputs["out"] - offset) / scale * inputs["grad"]}

    def test_refuses(self):
        given = {"out": np.zeros((3, 4)), "grad": np.zeros((3, 4))}
        three = {"scale": np.zeros(3), "offset": np.zeros(3)}
        self.refuses("4 columns of out are no multiple of 3", given | three)


class TestGruFactors(OpTest):
    type = "nnet3.gru_factors"
    tolerance = 1e-4

    def cases(self, rng):
        for recurrent in (2, 3):  # with a projection, and without
            width = 3 * 3 + recurrent + (recurrent if recurrent != 3 else 0)
            yield Case(
                {
                    "x": rng.uniform(0, 1, (4, width)),
                    "w": rng.normal(size=(3, recurrent)),
                    "out": rng.uniform(-0.9, 0.9, (4, 6)),
                    "out_grad": rng.normal(size=(4, 6)),
                }
            )

    def reference(self, inputs, attrs):
        x, (cells, recurrent) = inputs["x"], inputs["w"].shape
        z, h, grad = x[:, :cells], inputs["out"][:, :cells], inputs["out_grad"]
        delta = ((1 - z) * grad[:, cells:] + grad[:, :cells]) * (1 - h * h)
        return {
            "value": x[:, cells : cells + recurrent] * x[:, x.shape[1] - recurrent :],
            "delta": delta,
        }

    def test_refuses(self):
        outs = {"out": np.zeros((4, 6)), "out_grad": np.zeros((4, 6))}
        self.refuses("13 columns", {"x": np.zeros((4, 12)), "w": np.zeros((3, 2)), **outs})
        given = {"x": np.zeros((4, 13)), "w": np.zeros((3, 2))}
        odd = {"out": np.zeros((4, 7)), "out_grad": np.zeros((4, 7))}
        self.refuses("out, out_grad and", given | odd)
        self.refuses("repair and", given | outs | {"repair": np.zeros(2)})
        self.refuses("w wants 2 dimensions", given | outs | {"w": np.zeros(3)})


class TestOutputGruFactors(OpTest):
    type = "nnet3.output_gru_factors"
    tolerance = 1e-4

    def cases(self, rng):
        yield Case(
            {
                "x": rng.uniform(0, 1, (4, 9)),
                "w": rng.normal(size=3),
                "out": rng.uniform(-0.9, 0.9, (4, 6)),
                "out_grad": rng.normal(size=(4, 6)),
            }
        )

    def reference(self, inputs, attrs):
        x, grad = inputs["x"], inputs["out_grad"]
        cells = len(inputs["w"])
        h = inputs["out"][:, :cells]
        delta = ((1 - x[:, :cells]) * grad[:, cells:] + grad[:, :cells]) * (1 - h * h)
        return {"value": x[:, 2 * cells :], "delta": delta}

    def test_refuses(self):
        outs = {"out": np.zeros((4, 6)), "out_grad": np.zeros((4, 6))}
        self.refuses("9 columns", {"x": np.zeros((4, 8)), "w": np.zeros(3), **outs})
