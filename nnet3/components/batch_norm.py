"""BatchNormComponent: columns normalized over the rows of a batch, or by collected statistics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.scalars.array_calls import ChunkScratch
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, lookup, operator
from ...operators.backends import rows
from ...operators.base.blocks import blocks_across, blocks_of, whole_blocks
from ...operators.base.calls import lies_in_rows
from ...operators.base.fused import called, fused
from .base.checks import check_block
from .base.component import Component, KeepsDim, Properties
from .base.fields import BOOL, DOUBLE, DOUBLE_VECTOR, FLOAT, INT, Averaged, Field
from .base.keys import Computed, key, optional
from .base.lowering import OUT, Recipe, X
from .base.statistics import NO_GRADIENT, keep_totals, totals_slots
from .base.summary import flag, number, summarize_vector

_P = Properties
_BLOCKS = _P.INPUT_CONTIGUOUS | _P.OUTPUT_CONTIGUOUS
_IN_PLACE = _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE
_BATCH_NORM = _P.SIMPLE | _P.BACKPROP_NEEDS_OUTPUT | _IN_PLACE
_BATCH_NORM_TRAINED = _BATCH_NORM | _P.USES_MEMO | _P.STORES_STATS
_SOURCE = "Kaldi: nnet3/nnet-normalize-component.cc"
_CHUNK = 1 << 16  # elements


def _variance(component: Any, total: np.ndarray, count: float) -> np.ndarray:
    variance = total.astype(np.float32)
    if count != 0:
        mean = type(component).stats_mean.compute(component)
        variance = variance * np.float32(1.0 / count) - mean * mean
    return variance


def _sum_of_squares(component: Any, variance: np.ndarray, count: float) -> np.ndarray:
    mean = component.stats_sum / (count or 1.0)
    return (variance + mean * mean) * count


class BatchNormComponent(KeepsDim, Component):
    """Each column minus its mean, scaled to the deviation `target_rms`, over the rows of the batch;
    in test mode by the statistics `stats_sum` and `stats_sumsq` (float64) over `count` rows."""

    block_dim: int
    epsilon: float
    target_rms: float
    test_mode: bool
    count: float

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<BlockDim>", INT, "block_dim"),
        Field("<Epsilon>", FLOAT, "epsilon"),
        Field("<TargetRms>", FLOAT, "target_rms"),
        Field("<TestMode>", BOOL, "test_mode"),
        Field("<Count>", DOUBLE, "count"),
        Field("<StatsMean>", DOUBLE_VECTOR, "stats_mean"),
        Field("<StatsVar>", DOUBLE_VECTOR, "stats_var"),
    )
    keys = (
        key("dim", int),
        key("block-dim", int, Computed("dim")),
        *optional(float, epsilon=1e-3, target_rms=1.0),
        *optional(bool, test_mode=False),
    )

    stats_mean = Averaged("stats_sum")
    stats_var = Averaged("stats_sumsq", lambda c: c.count, _variance, _sum_of_squares)

    @property
    def properties(self) -> Properties:
        flags = _BATCH_NORM if self.test_mode else _BATCH_NORM_TRAINED
        return flags | _BLOCKS if self.block_dim < self.dim else flags

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.epsilon = float(np.float32(o.epsilon))
        self.block_dim = o.dim if o.block_dim in (None, -1) else o.block_dim
        check_block(self.dim, self.block_dim)
        self._forget()

    def zero_stats(self) -> None:
        """Forget all statistics, except in test mode, in which they are the transform."""
        if not self.test_mode:
            self._forget()

    def _forget(self) -> None:
        self.count = 0.0
        self.stats_sum = np.zeros(self.block_dim)
        self.stats_sumsq = np.zeros(self.block_dim)

    def check(self) -> None:
        check_block(self.dim, self.block_dim)
        self.demand(self.epsilon > 0 and self.target_rms > 0, "epsilon, target-rms must be > 0")
        for name in ("stats_sum", "stats_sumsq"):
            size = getattr(self, name).size
            self.demand(size == self.block_dim, f"{name} has {size}, not {self.block_dim} values")

    def info(self) -> str:
        text = (
            f"{self.type}, dim={self.dim}, block-dim={self.block_dim}"
            f", epsilon={number(self.epsilon)}, target-rms={number(self.target_rms)}"
            f", count={number(self.count)}, test-mode={flag(self.test_mode)}"
        )
        if self.count > 0:
            scale = np.float32(1.0 / self.count)
            mean = self.stats_sum.astype(np.float32) * scale
            variance = self.stats_sumsq.astype(np.float32) * scale - mean * mean
            text += f", data-mean={summarize_vector(mean)}"
            text += f", data-stddev={summarize_vector(np.sqrt(np.maximum(variance, 0)))}"
        return text

    def lower(self, recipe: Recipe) -> None:
        if self.test_mode:
            scale, offset = batch_norm_transform(self)
            inputs = {
                "scale": recipe.parameter("scale", scale, trainable=False),
                "offset": recipe.parameter("offset", offset, trainable=False),
            }
            recipe.op("nnet3.scale_offset", OUT, x=X, **inputs)
            return
        attrs = {
            "block": int(self.block_dim),
            "epsilon": float(self.epsilon),
            "target_rms": float(self.target_rms),
        }
        outputs = {"out": OUT, "mean": recipe.temp(), "uvar": recipe.temp(), "scale": recipe.temp()}
        recipe.op("nnet3.batch_norm", outputs, attrs=attrs, x=X)
        if not recipe.statistics:
            return
        width = (self.block_dim,)
        totals = {
            "sum": recipe.state("stats_sum", self.stats_sum, width),
            "sumsq": recipe.state("stats_sumsq", self.stats_sumsq, width),
            "count": recipe.state("count", self.count),
        }
        memo = {slot: outputs[slot] for slot in ("mean", "uvar")}
        recipe.collect("nnet3.batch_norm_statistics", when="forward", x=OUT, **memo, **totals)


def batch_norm_transform(component: BatchNormComponent) -> tuple[np.ndarray, np.ndarray]:
    """Scale and offset of a batch normalization in test mode, from its statistics.

    Raises:
        RunError: it has no statistics.
    """
    count = component.count
    if count == 0:
        raise RunError("a BatchNormComponent is in test mode and has no statistics")
    mean = np.asarray(component.stats_sum, np.float64) / count
    variance = np.asarray(component.stats_sumsq, np.float64) / count - mean * mean
    variance = np.maximum(variance, 0) + component.epsilon
    scale = component.target_rms / np.sqrt(variance)
    return scale.astype(np.float32), (-mean * scale).astype(np.float32)


batch_norm = operator(
    "nnet3.batch_norm",
    doc=(
        "Batch normalization of every column over all rows (and, where `block` is less than the"
        " columns, over blocks): out = (x - mean) * scale, scale = target_rms *"
        " (max(uvar - mean^2, 0) + epsilon) ** -0.5, uvar = mean(x^2). x [N, B*block] ->"
        " out [N, B*block]; mean, uvar, scale [block] are the memo for gradient and statistics."
        " The gradient reads out, not x."
    ),
    inputs=[Slot("x", "[N, B*block]", not_in_gradient=True)],
    outputs=[
        Slot("out", "[N, B*block]", inplace="x"),
        Slot("mean", "[block]", intermediate=True, not_in_gradient=True),
        Slot("uvar", "[block]", intermediate=True, not_in_gradient=True),
        Slot("scale", "[block]", intermediate=True),
    ],
    attrs=[
        AttrSpec("block", "int", "columns that have statistics of their own", minimum=1),
        AttrSpec("epsilon", "float", "added to the variance", 1e-3, minimum=0.0),
        AttrSpec("target_rms", "float", "root mean square of the result", 1.0),
    ],
    source=_SOURCE,
)


@batch_norm.shape_rule
def batch_norm_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x")
    whole_blocks(s)
    s.set("out", (s["x"], dtype))
    for slot in ("mean", "uvar", "scale"):
        s.set(slot, ((s.attrs["block"],), dtype))


def _row_chunks(k: KernelArgs, array: Any) -> list[slice]:
    """Ranges of rows that stay in the cache together; for a GPU all rows at once."""
    rows = len(array)
    each = max(array.size // max(len(array), 1), 1)
    size = max(1, _CHUNK // each) if k.xp is np else max(rows, 1)
    return [slice(begin, min(begin + size, rows)) for begin in range(0, rows, size)]


def _elementwise(k: KernelArgs, arrays: Mapping[str, Any], formula: str, target: Any) -> Call:
    """A call for target = formula, over blocks of columns [N, B, width] and rows [width]."""
    return _compiled(k, arrays, formula, target) or _in_chunks(k, arrays, formula, target)


def _compiled(k: KernelArgs, arrays: Mapping[str, Any], formula: str, target: Any) -> Call | None:
    """`_elementwise` as a compiled loop; None where there can be none."""
    if k.xp is not np:
        return None
    flat = {}
    for name, array in {**arrays, "": target}.items():
        flat[name] = array.reshape(-1, target.shape[2]) if array.ndim == 3 else array
        if not np.may_share_memory(flat[name], array):  # a copy: not every row is a row of blocks
            return None
    out = flat.pop("")
    return fused(k, flat, {"value": formula}, {"value": out})


def _in_chunks(k: KernelArgs, arrays: Mapping[str, Any], formula: str, target: Any) -> Call:
    """`_elementwise` as calls of NumPy or CuPy, for chunks of rows that stay in the cache."""
    scratch = ChunkScratch(k)
    calls = []
    for chunk in _row_chunks(k, target):
        scratch.begin()
        views = {name: a[chunk] if a.ndim == 3 else a for name, a in arrays.items()}
        calls += called(scratch, views, {"value": formula}, {"value": target[chunk]})
    return in_order(*calls)


def _summing(k: KernelArgs, blocks: Any, target: Any) -> Call:
    """A call that sums blocks [N, B, width] over N and B.

    Where they lie row after row, it is a product with a vector of ones: BLAS takes a third of the
    time of a reduction.
    """
    plain = blocks.flags.c_contiguous and blocks.size and blocks.dtype.itemsize >= 4
    if k.xp is np and plain:
        rows = blocks.reshape(-1, blocks.shape[2])
        return partial(np.dot, np.ones(len(rows), rows.dtype), rows, target)
    return partial(k.xp.sum, blocks, axis=(0, 1), out=target)


def _memo(k: KernelArgs) -> list[Any]:
    """Mean, uncentered variance and scale of every column of a block."""
    memo = [k.get(slot) for slot in ("mean", "uvar", "scale")]
    return [k.scratch((k.attrs["block"],), k["x"].dtype) if a is None else a for a in memo]


def _scaling(k: KernelArgs, mean: Any, uvar: Any, scale: Any) -> Call:
    """A call for scale = target_rms * (max(uvar - mean^2, 0) + epsilon) ** -0.5."""
    xp = k.xp
    real = scale.dtype.type
    epsilon, rms = real(k.attrs["epsilon"]), real(k.attrs["target_rms"])

    def run() -> None:
        xp.multiply(mean, mean, scale)
        xp.subtract(uvar, scale, scale)
        xp.maximum(scale, real(0), out=scale)
        xp.add(scale, epsilon, scale)
        xp.sqrt(scale, out=scale)
        xp.divide(rms, scale, scale)

    return run


def _normalizing(k: KernelArgs, mean: Any, scale: Any) -> Call:
    x, out = (blocks_of(k[slot], k.attrs["block"]) for slot in ("x", "out"))
    return _elementwise(k, {"x": x, "mean": mean, "scale": scale}, "(x - mean) * scale", out)


@batch_norm.kernel
def batch_norm_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    width = k.attrs["block"]
    x = blocks_of(k["x"], width)
    real = x.dtype.type
    count = x.shape[0] * x.shape[1]
    mean, uvar, scale = _memo(k)
    chunks = _row_chunks(k, x)
    squares = k.scratch(x[chunks[0]].shape if chunks else x.shape, x.dtype)
    share = k.scratch((width,), x.dtype)
    part = real(1 / max(count, 1))
    chunked = [
        (values, products, _summing(k, values, share), _summing(k, products, share))
        for values, products in ((x[c], squares[: c.stop - c.start]) for c in chunks)
    ]

    def statistics() -> None:
        mean.fill(0)
        uvar.fill(0)
        for values, products, sum_values, sum_products in chunked:
            sum_values()
            xp.add(mean, share, mean)
            xp.multiply(values, values, products)
            sum_products()
            xp.add(uvar, share, uvar)
        xp.multiply(mean, part, mean)
        xp.multiply(uvar, part, uvar)

    return in_order(statistics, _scaling(k, mean, uvar, scale), _normalizing(k, mean, scale))


@batch_norm.kernel(device="cpu", dtypes=(np.float32, np.float64), library="native")
def native_batch_norm(k: KernelArgs) -> Call | None:
    """With the sums of columns in C, which threads share."""
    x = k["x"]
    (mean, uvar, scale) = _memo(k)
    if rows.library() is None or not x.size or not rows.suits(x.dtype, mean, uvar, scale):
        return None
    if not lies_in_rows(x):
        return None
    share = k.attrs["block"] / x.size
    sums = rows.call(*rows.moments(x, x, (mean, uvar), (share, share)))
    return in_order(sums, _scaling(k, mean, uvar, scale), _normalizing(k, mean, scale))


@batch_norm.backward("x", inplace={"x_grad": "out_grad"})
def batch_norm_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    width = k.attrs["block"]
    out, grad = blocks_of(k["out"], width), blocks_of(k["out_grad"], width)
    real = out.dtype.type
    count = max(out.shape[0] * out.shape[1], 1)
    chunks = _row_chunks(k, out)
    work = k.scratch(out[chunks[0]].shape if chunks else out.shape, out.dtype)
    mean, slope, share = (k.scratch((width,), out.dtype) for _ in range(3))
    factor = real(1 / (k.attrs["target_rms"] ** 2 * count))
    views = ((out[c], grad[c], work[: c.stop - c.start]) for c in chunks)
    chunked = [
        (values, slopes, products, _summing(k, products, share), _summing(k, slopes, share))
        for values, slopes, products in views
    ]

    def sums() -> None:
        slope.fill(0)
        mean.fill(0)
        for values, slopes, products, sum_products, sum_slopes in chunked:
            xp.multiply(values, slopes, products)
            sum_products()
            xp.add(slope, share, slope)
            sum_slopes()
            xp.add(mean, share, mean)
        xp.multiply(slope, factor, slope)
        xp.multiply(mean, real(1 / count), mean)

    return in_order(sums, _sloping(k, mean, slope))


def _sloping(k: KernelArgs, mean: Any, slope: Any) -> Call:
    """A call for x_grad, from the mean of out_grad and how it goes with out."""
    y, grad, target = (
        blocks_of(k[slot], k.attrs["block"]) for slot in ("out", "out_grad", "x_grad")
    )
    arrays = {"y": y, "g": grad, "slope": slope, "mean": mean, "scale": k["scale"]}
    return _elementwise(k, arrays, "(g - mean - y * slope) * scale", target)


@lookup("nnet3.batch_norm_grad").kernel(
    device="cpu", dtypes=(np.float32, np.float64), library="native"
)
def native_batch_norm_grad(k: KernelArgs) -> Call | None:
    """With the sums of columns in C, which threads share."""
    out = k["out"]
    grad = k["out_grad"]
    width = k.attrs["block"]
    if rows.library() is None or not out.size or out.dtype != grad.dtype:
        return None
    if not lies_in_rows(out) or not lies_in_rows(grad):
        return None
    mean, slope = (k.scratch((width,), out.dtype) for _ in range(2))
    share = width / out.size
    factors = share, share / k.attrs["target_rms"] ** 2
    sums = rows.call(*rows.moments(grad, out, (mean, slope), factors))
    return in_order(sums, _sloping(k, mean, slope))


_IN, _OUT = totals_slots(sum="[D]", sumsq="[D]", count="[1]: rows so far")

batch_norm_statistics = operator(
    "nnet3.batch_norm_statistics",
    doc=(
        "Adds a batch to the statistics of a batch normalization: N mean to sum [D],"
        " N uvar to sumsq [D], N to count [1]; N counts the rows of x [R, B*D], over all blocks."
    ),
    inputs=[
        Slot("x", "[R, B*D]", shape_only=True),
        Slot("mean", "[D]"),
        Slot("uvar", "[D]: mean of squares"),
        *_IN,
    ],
    outputs=_OUT,
    source="Kaldi: nnet3/nnet-normalize-component.cc",
    no_gradient=NO_GRADIENT,
)


@batch_norm_statistics.shape_rule
def batch_norm_statistics_shape(s: ShapeArgs) -> None:
    width = s.same_shape("mean and uvar", s.rank("mean", 1), s["uvar"])
    blocks_across(s, s.rank("x", 2)[1], width[0], "the length of mean")
    keep_totals(s, sum=width, sumsq=width, count=(1,))


@batch_norm_statistics.kernel
def batch_norm_statistics_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    mean = k["mean"]
    rows, cols = k.shape("x")
    count = rows * cols // mean.shape[0]
    part = k.scratch(mean.shape, k["sum"].dtype)
    real = k["sum"].dtype.type
    return in_order(
        partial(xp.multiply, mean, real(count), part),
        partial(xp.add, k["sum"], part, k["sum_out"]),
        partial(xp.multiply, k["uvar"], real(count), part),
        partial(xp.add, k["sumsq"], part, k["sumsq_out"]),
        partial(xp.add, k["count"], count, k["count_out"]),
    )
