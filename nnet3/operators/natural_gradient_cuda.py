"""Natural gradient in CUDA: its estimate moves on the GPU, which is not asked (library "cuda").

The steps are as in natural_gradient.py; native/cuda/natural_gradient.cu has the kernels. What is
wide goes through products.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from ...framework.fusion.cuda.cublas import multiply
from ...framework.fusion.cuda.device_kernels import by_blocks, cuda_text, few_blocks, takes
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from .natural_gradient import (
    CONDITION,
    DELTA,
    EPSILON,
    ORTHOGONAL,
    after_copies,
    eta_of,
    first_rows,
    is_due,
)

_COUNTS = "counts of nnet3.precondition"
"""Where a tree of scopes keeps what the host knows of `count`: by variable, with its stamp."""

_COLUMNS = 32
"""Columns of the estimate that a block moves."""


@cache
def _text() -> str:
    bounds = {
        "COLUMNS": _COLUMNS,
        "EPSILON": EPSILON,
        "DELTA": DELTA,
        "CONDITION": CONDITION,
        "ORTHOGONAL": ORTHOGONAL,
    }
    lines = [f"#define {name} {value!r}" for name, value in bounds.items()]
    return "\n".join([*lines, cuda_text("natural_gradient")])


def precondition(k: KernelArgs) -> Call | None:
    if not len(k["x"]) or not takes(k["w_out"]):
        return None
    return after_copies(k, _Preconditioner(k))


class _Preconditioner:
    """One `nnet3.precondition` of some rows, with the calls of its parts bound.

    Attributes:
        fixed: whether it updates its estimate while a CUDA graph records it; see `Choosing`.
    """

    def __init__(self, k: KernelArgs) -> None:
        self._k = k
        xp, x = k.xp, k["x"]
        out, w, d, rho = (k[slot] for slot in ("out", "w_out", "d_out", "rho_out"))
        rows, cols = x.shape
        rank, real = len(w), x.dtype
        given, made = k.in_one_piece(x), k.in_one_piece(out)
        self._w, self._d, self._rho = w, d, rho
        square = self._square = k.scratch((1,), real)
        products, back = k.scratch((rows, rank), real), k.scratch((rows, cols), real)
        sums = k.scratch((rank, cols), real)
        inner, outer, z, vectors, a = (k.scratch((rank, rank), real) for _ in range(5))
        factors, root_e = k.scratch((rank,), real), k.scratch((rank,), np.float64)
        numbers, order = k.scratch((3,), np.float64), k.scratch((rank,), np.int64)
        turns = k.scratch((rank + 1,), np.float64)
        eta = eta_of(k.attrs, rows)
        sizes = np.int64(rank), np.int64(cols)
        weights = np.float64(eta / rows), np.float64(1.0 - eta), np.float64(k.attrs["alpha"])
        kernel = partial(by_blocks, xp, _text(), dtype=real)
        grams = products, sums, inner, outer, np.int64(rows), *sizes

        def update(frozen: Any) -> Call:
            moved = inner, outer, d, rho, frozen, numbers, square, z, vectors, turns
            made = a, factors, root_e, order, *sizes, *weights
            return in_order(
                multiply(xp, products.T, given, sums),
                kernel("gram_matrices", blocks=rank * rank, args=grams),
                kernel("move_estimate", blocks=1, args=(*moved, *made)),
                kernel("move_rows", blocks=-(-cols // _COLUMNS), args=wide),
                kernel("orthogonalize", blocks=1, args=(w, root_e, numbers, *sizes)),
            )

        wide = w, a, factors, numbers, sums, *sizes
        project = multiply(xp, given, w.T, products)
        self._project = in_order(project, multiply(xp, products, w, back))
        self._update = update(k.get("frozen"))
        self._start_once = in_order(project, update(None))
        self._starts = 1 if rows <= rank else 3
        blocks = few_blocks(given.size)
        parts, counter = k.scratch((blocks,), np.float64), xp.zeros(1, np.int64)
        results = made, parts, counter, k["scale"], k["count_out"], np.int64(given.size)
        sizes = parts, counter, square, np.int64(given.size)
        self._open = in_order(
            None if given is x else partial(xp.copyto, given, x),
            kernel("sum_of_squares", blocks=blocks, args=(given, *sizes)),
        )
        self._close = in_order(
            kernel("preconditioned", blocks=blocks, args=(given, back, square, *results)),
            None if made is out else partial(xp.copyto, out, made),
        )
        names = [k.op.inputs["count"][0], k.op.outputs["count_out"][0]]
        # Elsewhere the host does not know what the run before has counted.
        self._variable = k.scope.find(names[0]) if names[0] == names[1] else None
        self._counts: dict[Any, tuple[int, int]] = k.scope.root.bound.setdefault(_COUNTS, {})

        self.fixed: bool | None = None

    def __call__(self) -> None:
        recorded = self.fixed is not None
        count = 1 if recorded else self._count()
        self._open()
        if count == 0 and np.isfinite(float(self._square[0])):
            self._start()
        self._project()
        if self.fixed if recorded else is_due(self._k.attrs, count):
            self._update()
        self._close()
        if not recorded:
            self._counts_one(count)

    def choose(self) -> bool | None:
        """Whether the estimate is updated; None in the first run, which asks the GPU."""
        count = self._count()
        return is_due(self._k.attrs, count) if count and self._variable is not None else None

    def count(self) -> None:
        """Note that a run was replayed."""
        self._counts_one(self._count())

    def _counts_one(self, before: int) -> None:
        if self._variable is not None:
            self._counts[self._variable] = self._variable.stamp, before + 1

    def _count(self) -> int:
        """How many batches went into the estimate; the GPU is asked where the host cannot know."""
        variable = self._variable
        stamp, count = self._counts.get(variable, (-1, 0))
        if variable is None or stamp != variable.stamp:
            return int(self._k["count_out"][0])
        return count

    def _start(self) -> None:
        """A first estimate: from special orthonormal rows, improved with the batch itself."""
        rank, cols = self._w.shape
        start = first_rows(rank, cols, self._k.attrs["alpha"])
        self._w[...] = self._k.xp.asarray(start, self._w.dtype)
        self._d[...] = EPSILON
        self._rho[...] = EPSILON
        for _ in range(self._starts):
            self._start_once()
