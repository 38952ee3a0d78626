"""Online natural gradient: directions multiplied by the inverse of a running Fisher matrix.

The Fisher matrix of D-dimensional directions is estimated as F = R' diag(d) R + rho I with R
orthonormal rows in R [R, D]. Kept is not R but W = E^(1/2) R, for which the inverse of the smoothed
matrix, times a constant, is I - W' W: a preconditioned batch X [N, D] is X - (X W') W. The estimate
moves towards the batch's own with a weight that grows with its size.

Source: Povey et al. 2015, Parallel training of DNNs with natural gradient and parameter averaging;
Kaldi's `nnet3/natural-gradient-online.h`, whose symbols are used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.communicator import Communicator
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import copying
from ...operators.base.ranks import ranks_of
from ...operators.collective.ranks import scale

EPSILON = 1e-10
"""Least value of rho and d; also their first one."""
DELTA = 5e-4
"""Least value of rho and d, relative to the largest eigenvalue."""
FIRST_UPDATES = 10
"""Batches with which the estimate is always updated."""
LARGEST_ETA = 0.9
CONDITION = 1e6
"""Eigenvalues further apart than this may have cost W its orthogonality."""
ORTHOGONAL = 1e-3
"""How far products of its rows may be from products of orthonormal ones."""
_LARGEST_INVERSE = 100.0

_INPUTS = [
    Slot("x", "[N, D], D > R"),
    Slot("w", "[R, D]"),
    Slot("d", "[R]"),
    Slot("rho", "[1]"),
    Slot("count", "[1], int64"),
    Slot("frozen", "[1]: not 0 where the estimate must stay as it is", optional=True),
]
_OUTPUTS = [
    Slot("out", "[N, D]", inplace="x"),
    Slot("scale", "[1]"),
    Slot("w_out", "[R, D]"),
    Slot("d_out", "[R]"),
    Slot("rho_out", "[1]"),
    Slot("count_out", "[1], int64"),
]
_ATTRS = [
    AttrSpec("alpha", "float", "smoothing of the Fisher matrix with the unit matrix", 4.0, 0.0),
    AttrSpec("samples_history", "float", "rows after which weights fall to 1/e", 2000.0, 0.0),
    AttrSpec("batches_history", "float", "if above 0: the same in batches", 0.0, minimum=0.0),
    AttrSpec("update_period", "int", "batches for one update of the estimate", 1, minimum=1),
    AttrSpec(
        "summed",
        "bool",
        "x is itself a sum over samples, as a gradient is, and its rows are no samples: over"
        " ranks x is added, and not what its rows give",
        False,
    ),
]

precondition = operator(
    "nnet3.precondition",
    doc=(
        "Natural gradient: out = x - (x w') w for a batch of directions x [N, D], and `scale`, that"
        " gives it the Euclidean norm of x again. w [R, D], d [R] and rho [1] hold a smoothed"
        " estimate of the directions' Fisher matrix, w' w is subtracted by its inverse;"
        " `count` [1] says how many batches went into it. In the first 11 batches and in every"
        " `update_period`-th after these the estimate is updated with x, where `frozen` is 0. The"
        " first batch also gives the starting point."
    ),
    inputs=_INPUTS,
    outputs=_OUTPUTS,
    attrs=_ATTRS,
    source="Kaldi: nnet3/natural-gradient-online.cc",
    no_gradient="it changes gradients",
)

precondition_ranks = operator(
    "nnet3.precondition_ranks",
    doc=(
        "As `nnet3.precondition` of the rows of all ranks, of which this rank has x: each rank has"
        " the same estimate, and `out` is its part. With `summed`, x and `out` are what this rank"
        " adds to a sum."
    ),
    inputs=_INPUTS,
    outputs=_OUTPUTS,
    attrs=_ATTRS,
    source="Kaldi: nnet3/natural-gradient-online.cc, its sums over rows taken over all ranks",
    no_gradient="it changes gradients",
    world=True,
)


@precondition_ranks.shape_rule
@precondition.shape_rule
def precondition_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "d", "rho")
    rows, cols = s.rank("x", 2)
    rank, width = s.rank("w", 2)
    cols = s.same("the columns of x and w", cols, width)
    rank = s.same("the rows of w and the length of d", rank, s.rank("d", 1)[0])
    if min(cols, rank) >= 0 and not 0 < rank < cols:
        s.fail(f"the rank {rank} must be positive and less than the {cols} columns")
    for slot in ("rho", "count", *(["frozen"] if s.has("frozen") else [])):
        s.same_shape(f"{slot} and [1]", s[slot], (1,))
    s.integers("count")
    if not (s.attrs["samples_history"] or s.attrs["batches_history"]):
        s.fail("samples_history or batches_history must be above 0")
    s.set("out", ((rows, cols), dtype))
    s.set("scale", ((1,), dtype))
    for slot in ("w", "d", "rho", "count"):
        s.set(f"{slot}_out", (s[slot], s.dtype(slot)))


@precondition.kernel
def precondition_kernel(k: KernelArgs) -> Call:
    return after_copies(k, _Preconditioner(k, None).run)


@precondition_ranks.kernel
def precondition_ranks_kernel(k: KernelArgs) -> Call:
    ranks = ranks_of(k)
    x = k["x"]
    out = k["out"]
    if not k.attrs["summed"]:
        return after_copies(k, _Preconditioner(k, ranks).run)
    whole = k.scratch(x.shape, x.dtype)
    work = _Preconditioner(k, None, whole)

    def run() -> None:
        k.xp.copyto(whole, x)
        ranks().all_reduce(whole)
        work.run()
        scale(out, 1 / ranks().size)

    return after_copies(k, run)


def after_copies(k: KernelArgs, run: Call) -> Call:
    """The estimate, in variables of its own, then `run`, which moves it there."""
    states = ("w", "d", "rho", "count")
    return in_order(*(copying(k.xp, k[name], k[f"{name}_out"]) for name in states), run)


class _Preconditioner:
    """The kernel: views and scratch memory of one `nnet3.precondition`.

    Args:
        ranks: whose rows make up the batch; None: the rows of x alone do.
        x: in place of the input.
    """

    def __init__(
        self, k: KernelArgs, ranks: Callable[[], Communicator] | None, x: Any = None
    ) -> None:
        self.xp = k.xp
        self.attrs = k.attrs
        self.ranks = ranks
        self.x = k["x"] if x is None else x
        self.out = k["out"]
        self.scale = k["scale"]
        self.w = k["w_out"]
        self.d = k["d_out"]
        self.rho = k["rho_out"]
        self.count = k["count_out"]
        self.frozen = k.get("frozen")
        self.state = k.state
        rows, cols = self.x.shape
        rank = len(self.w)
        dtype = self.x.dtype
        self.rows = rows
        self.cols = cols
        self.rank = rank
        self.products = k.scratch((rows, rank), dtype)  # H
        self.back = k.scratch((rows, cols), dtype)
        self.moments = k.scratch((rank * (cols + rank),), dtype)  # one message of ranks
        self.sums = self.moments[: rank * cols].reshape(rank, cols)  # J
        self.inner = self.moments[rank * cols :].reshape(rank, rank)  # L

    def run(self) -> None:
        xp, x, out = self.xp, self.x, self.out
        before, rows = self._over_ranks(self._square(x), len(x))
        count = int(self.count[0])
        self.rows = int(rows)
        # Nothing can be learnt of no rows, nor of infinite ones, whose update is refused later.
        if not rows or not math.isfinite(before):
            xp.copyto(out, x)
            self.scale[0] = 1.0
            return
        if count == 0:
            self._start(before)
        frozen = self.frozen is not None and bool(self.state.fetched(self.frozen)[0])
        self._project()
        if not frozen and is_due(self.attrs, count):
            self._update(before)
        xp.subtract(x, self.back, out=out)
        after = self._over_ranks(self._square(out))[0] if before > 0 else 0.0
        self.scale[0] = math.sqrt(before / after) if before > 0 and after > 0 else 1.0
        self.count[0] = count + 1

    def _over_ranks(self, *own: float) -> tuple[float, ...]:
        """The sums over the ranks whose rows make up the batch."""
        if self.ranks is None:
            return own
        sums = np.array(own, np.float64)
        self.ranks().all_reduce(sums)
        return tuple(sums.tolist())

    def _square(self, x: Any) -> float:
        """The squared Euclidean norm of a matrix."""
        if x.flags.c_contiguous:
            flat = x.reshape(-1)
            return float(self.xp.dot(flat, flat))
        self.xp.multiply(x, x, out=self.back)
        return float(self.back.sum())

    def _project(self) -> None:
        """H = X W' and H W."""
        self.xp.matmul(self.x, self.w.T, out=self.products)
        self.xp.matmul(self.products, self.w, out=self.back)

    def _start(self, square: float) -> None:
        """A first estimate: from special orthonormal rows, improved with the batch itself."""
        rank = self.rank
        cols = self.cols
        start = first_rows(rank, cols, self.attrs["alpha"])
        self.w[...] = self.xp.asarray(start, self.w.dtype)
        self.d[...] = EPSILON
        self.rho[...] = EPSILON
        for _ in range(1 if self.rows <= rank else 3):
            self.xp.matmul(self.x, self.w.T, out=self.products)
            self._update(square)

    def _update(self, square: float) -> None:
        """Move the estimate towards the batch's; `products` must hold H for w as it is."""
        xp, w, sums = self.xp, self.w, self.sums
        rank = self.rank
        cols = self.cols
        alpha = self.attrs["alpha"]
        xp.matmul(self.products.T, self.x, out=sums)
        xp.matmul(self.products.T, self.products, out=self.inner)
        if self.ranks is not None:
            self.ranks().all_reduce(self.moments)
        inner = to_host(self.inner).astype(np.float64)
        outer = to_host(xp.matmul(sums, sums.T)).astype(np.float64)  # K
        d = to_host(self.d).astype(np.float64)
        rho = float(self.rho[0])
        eta = eta_of(self.attrs, self.rows)
        new = eta / max(self.rows, 1)
        old = 1.0 - eta
        root_e = _root_e(d, rho, alpha, cols)
        both = d + rho
        ratio = 1.0 / np.outer(root_e, root_e)
        z = new * new * outer * ratio + new * old * inner * ratio * (both[:, None] + both)
        z = 0.5 * (z + z.T)
        z[np.diag_indices(rank)] += (old * both) ** 2
        size = max(1.0, float(np.trace(z)))
        if not math.isfinite(size):
            return
        values, vectors = np.linalg.eigh((z / size).astype(w.dtype))
        order = np.argsort(-np.abs(values), kind="stable")
        c = values[order].astype(np.float64) * size
        u = vectors[:, order].astype(np.float64)
        floor = (rho * old) ** 2
        apart = c[0] > CONDITION * c[-1] or bool((c < floor).any())
        root_c = np.sqrt(np.maximum(c, floor))
        trace = new * square + old * (cols * rho + d.sum())
        rho1 = (trace - root_c.sum()) / (cols - rank)
        least = max(EPSILON, DELTA * root_c.max())
        d1 = np.maximum(root_c - rho1, least)
        rho1 = max(rho1, least)
        root_e1 = _root_e(d1, rho1, alpha, cols)
        # W moves to A B, where B = J + (1 - eta) / (eta / N) (D + rho I) W
        xp.multiply(w, xp.asarray(old / new * both, w.dtype)[:, None], out=w)
        xp.add(sums, w, out=sums)
        a = new * (root_e1 / root_c)[:, None] * u.T / root_e
        xp.matmul(xp.asarray(a, w.dtype), sums, out=w)
        if apart:
            self._orthogonalize(root_e1)
        self.d[...] = xp.asarray(d1, self.d.dtype)
        self.rho[0] = rho1

    def _orthogonalize(self, root_e: np.ndarray) -> None:
        """Make the rows of E^(-1/2) W orthonormal again, where rounding has spoilt this."""
        xp, w = self.xp, self.w
        gram = to_host(xp.matmul(w, w.T)).astype(np.float64) / np.outer(root_e, root_e)
        if np.abs(gram - np.eye(self.rank)).max() <= ORTHOGONAL:
            return
        try:
            inverse = np.linalg.inv(np.linalg.cholesky(gram))
            fit = inverse.max() < _LARGEST_INVERSE
        except np.linalg.LinAlgError:
            fit = False
        if fit:
            step = root_e[:, None] * inverse / root_e
            w[...] = xp.matmul(xp.asarray(step, w.dtype), w)
            return
        q, r = np.linalg.qr(to_host(w).T.astype(np.float64))
        rows = q.T * np.where(np.diag(r) < 0, -1.0, 1.0)[:, None]
        w[...] = xp.asarray(rows * root_e[:, None], w.dtype)


def is_due(attrs: Mapping[str, Any], count: int) -> bool:
    """Whether the estimate is updated with a batch that has `count` others before it."""
    late = count - FIRST_UPDATES
    return late <= 0 or late % attrs["update_period"] == 0


def eta_of(attrs: Mapping[str, Any], rows: int) -> float:
    """The weight of a batch of so many rows in the estimate."""
    if attrs["batches_history"] > 0:
        return 1.0 / attrs["batches_history"]
    return min(LARGEST_ETA, 1.0 - math.exp(-rows / attrs["samples_history"]))


def first_rows(rank: int, cols: int, alpha: float) -> np.ndarray:
    """The first W [rank, cols], before a batch has improved it."""
    return special_orthonormal(rank, cols) / math.sqrt(2.0 + (cols + rank) * alpha / cols)


def special_orthonormal(rank: int, cols: int) -> np.ndarray:
    """Orthonormal rows [rank, cols] without a zero column: row r has elements in the columns r,
    r + rank, ..., the first of them 1.1 times the others, so that no sum of rows is constant."""
    rows = np.zeros((rank, cols))
    columns = np.arange(cols)
    rows[columns % rank, columns] = 1.0
    rows[np.arange(rank), np.arange(rank)] = 1.1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _root_e(d: np.ndarray, rho: float, alpha: float, cols: int) -> np.ndarray:
    """The diagonal of E^(1/2): (beta / d + 1)^(-1/2), beta = rho (1 + alpha) + alpha mean of d."""
    beta = rho * (1.0 + alpha) + alpha * d.sum() / cols
    return np.sqrt(1.0 / (beta / d + 1.0))
