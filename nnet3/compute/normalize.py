"""Normalising components: rows to a target RMS, batch normalisation, softmax with a floor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.shape import ShapeArgs
from ...framework.fusion.array_calls import PieceScratch
from ...framework.ir.desc import OpDesc
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.passes.backward import GradientArgs
from ...operators.base.calls import in_order
from .elementwise import blocks_of, keep_statistics
from .fused import called, fused
from .lowering import OUT, Recipe, X, lowers

_SOURCE = "Kaldi: nnet3/nnet-normalize-component.cc"
SQUARED_NORM_FLOOR = 2.0**-66
"""Least value of the scaled squared norm of a row."""
SOFTMAX_FLOOR = 1e-20
_PIECE = 1 << 16  # elements


@lowers("NormalizeComponent")
def lower_normalize_component(component: Any, recipe: Recipe) -> None:
    attrs = {
        "block": int(component.block_dim),
        "target_rms": float(component.target_rms),
        "add_log_stddev": bool(component.add_log_stddev),
    }
    recipe.op("nnet3.normalize", OUT, attrs=attrs, x=X)


@lowers("SoftmaxComponent")
def lower_softmax_component(component: Any, recipe: Recipe) -> None:
    recipe.op("nnet3.softmax", OUT, x=X)
    keep_statistics(component, recipe)


@lowers("BatchNormComponent")
def lower_batch_norm_component(component: Any, recipe: Recipe) -> None:
    if component.test_mode:
        scale, offset = batch_norm_transform(component)
        inputs = {
            "scale": recipe.parameter("scale", scale, trainable=False),
            "offset": recipe.parameter("offset", offset, trainable=False),
        }
        recipe.op("nnet3.scale_offset", OUT, x=X, **inputs)
        return
    attrs = {
        "block": int(component.block_dim),
        "epsilon": float(component.epsilon),
        "target_rms": float(component.target_rms),
    }
    outputs = {"out": OUT, "mean": recipe.temp(), "uvar": recipe.temp(), "scale": recipe.temp()}
    recipe.op("nnet3.batch_norm", outputs, attrs=attrs, x=X)
    if not recipe.statistics:
        return
    width = (component.block_dim,)
    totals = {
        "sum": recipe.state("stats_sum", component.stats_sum, width),
        "sumsq": recipe.state("stats_sumsq", component.stats_sumsq, width),
        "count": recipe.state("count", component.count),
    }
    memo = {slot: outputs[slot] for slot in ("mean", "uvar")}
    recipe.keep("nnet3.batch_norm_statistics", x=OUT, **memo, **totals)


def batch_norm_transform(component: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scale and offset of a batch normalisation in test mode, from its statistics.

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


normalize = operator(
    "nnet3.normalize",
    doc=(
        "Scales every block of `block` columns in every row to the root mean square `target_rms`:"
        " p = max(mean(x^2) / target_rms^2, 2^-66), out = x / sqrt(p). With `add_log_stddev` each"
        " block of out has one column more, log(sqrt(p) * target_rms). x [N, B*block] ->"
        " out [N, B*block] or [N, B*(block+1)]."
    ),
    inputs=[Slot("x", "[N, B*block]")],
    outputs=[Slot("out", "[N, B*block] or [N, B*(block+1)]", inplace="x", not_in_gradient=True)],
    attrs=[
        AttrSpec("block", "int", "columns that are scaled together", minimum=1),
        AttrSpec("target_rms", "float", "root mean square of the result", 1.0),
        AttrSpec("add_log_stddev", "bool", "append the logarithm of the standard deviation", False),
    ],
    source=_SOURCE + ", cudamatrix/cu-math.cc",
)


def _whole_blocks(s: ShapeArgs) -> int:
    cols, block = s.rank("x", 2)[1], s.attrs["block"]
    if cols >= 0 and cols % block:
        s.fail(f"the {cols} columns of x are no multiple of block={block}")
    return cols // block if cols >= 0 else -1


@normalize.shape_rule
def normalize_shape(s: ShapeArgs) -> None:
    blocks, block = _whole_blocks(s), s.attrs["block"] + int(s.attrs["add_log_stddev"])
    s.set("out", ((s["x"][0], blocks * block if blocks >= 0 else -1), s.floats("x")))


def _inverse_rms(k: KernelArgs, x: Any, squares: Any, scale: Any) -> list[Call]:
    """Calls: scale = max(sum(x^2) / (D target_rms^2), floor) ** -0.5 for every row and block."""
    xp, real = k.xp, x.dtype.type
    factor = 1.0 / (x.shape[2] * k.attrs["target_rms"] ** 2)
    return [
        partial(xp.multiply, x, x, squares),
        partial(xp.sum, squares, axis=2, out=scale),
        partial(xp.multiply, scale, real(factor), scale),
        partial(xp.maximum, scale, real(SQUARED_NORM_FLOOR), out=scale),
        partial(xp.sqrt, scale, out=scale),
        partial(xp.divide, real(1), scale, scale),
    ]


@normalize.kernel
def normalize_kernel(k: KernelArgs) -> Call:
    xp, block = k.xp, k.attrs["block"]
    x = blocks_of(k["x"], block)
    out = blocks_of(k["out"], block + int(k.attrs["add_log_stddev"]))
    scale = k.scratch(x.shape[:2], x.dtype)
    squares = k.scratch(x.shape, x.dtype)
    calls = _inverse_rms(k, x, squares, scale)
    calls.append(partial(xp.multiply, x, scale[..., None], out[..., :block]))
    if k.attrs["add_log_stddev"]:
        last = out[..., block]
        log_rms = x.dtype.type(math.log(k.attrs["target_rms"]))
        calls += [partial(xp.log, scale, out=last), partial(xp.subtract, log_rms, last, last)]
    return in_order(*calls)


@normalize.backward("x", inplace={"x_grad": "out_grad"})
def normalize_grad_kernel(k: KernelArgs) -> Call:
    xp, block, log = k.xp, k.attrs["block"], int(k.attrs["add_log_stddev"])
    x, grad = blocks_of(k["x"], block), blocks_of(k["out_grad"], block + log)
    target, real = blocks_of(k["x_grad"], block), x.dtype.type
    work, scale = k.scratch(x.shape, x.dtype), k.scratch(x.shape[:2], x.dtype)
    dot, floored = k.scratch(x.shape[:2], x.dtype), k.scratch(x.shape[:2], bool)
    top = real(1 / math.sqrt(SQUARED_NORM_FLOOR))
    factor = real(-1.0 / (block * k.attrs["target_rms"] ** 2))

    def through_scale() -> None:
        # d scale / d x = -scale^3 x / (D target_rms^2), nothing where the floor holds
        xp.multiply(grad[..., :block], x, work)
        xp.sum(work, axis=2, out=dot)
        xp.multiply(dot, scale, dot)
        if log:  # the last column is minus the logarithm of the scale
            xp.subtract(dot, grad[..., block], dot)
        xp.multiply(dot, scale, dot)
        xp.multiply(dot, scale, dot)
        xp.multiply(dot, factor, dot)
        xp.greater_equal(scale, top, out=floored)
        xp.copyto(dot, real(0), where=floored)
        xp.multiply(x, dot[..., None], work)
        xp.multiply(grad[..., :block], scale[..., None], target)
        xp.add(target, work, target)

    return in_order(*_inverse_rms(k, x, work, scale), through_scale)


softmax = operator(
    "nnet3.softmax",
    doc=(
        "Softmax of each row with the result floored at 1e-20: out = max(softmax(x), 1e-20);"
        " x [N, D] -> out [N, D]. The gradient is that of softmax at out."
    ),
    inputs=[Slot("x", "[N, D]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, D]", inplace="x")],
    source="Kaldi: nnet3/nnet-simple-component.cc",
)


@softmax.shape_rule
def softmax_shape(s: ShapeArgs) -> None:
    rows, cols = s.rank("x", 2)
    if cols == 0:
        s.fail("x has no columns")
    s.set("out", ((rows, cols), s.floats("x")))


@softmax.kernel
def softmax_kernel(k: KernelArgs) -> Call:
    xp, x, out = k.xp, k["x"], k["out"]
    edge = k.scratch((x.shape[0], 1), x.dtype)
    return in_order(
        partial(xp.max, x, axis=1, keepdims=True, out=edge),
        partial(xp.subtract, x, edge, out),
        partial(xp.exp, out, out=out),
        partial(xp.sum, out, axis=1, keepdims=True, out=edge),
        partial(xp.divide, out, edge, out),
        partial(xp.maximum, out, out.dtype.type(SOFTMAX_FLOOR), out=out),
    )


@softmax.gradient_maker
def softmax_gradient(g: GradientArgs) -> list[OpDesc]:
    reads = {"x": g.inputs("x"), "out": g.outputs("out"), "out_grad": g.output_grads("out")}
    return [g.op("softmax_grad", reads, {"x_grad": g.input_grads("x")}, {"axis": -1})]


batch_norm = operator(
    "nnet3.batch_norm",
    doc=(
        "Batch normalisation of every column over all rows (and, where `block` is less than the"
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
    _whole_blocks(s)
    s.set("out", (s["x"], dtype))
    for slot in ("mean", "uvar", "scale"):
        s.set(slot, ((s.attrs["block"],), dtype))


def _pieces(k: KernelArgs, array: Any) -> list[slice]:
    """Ranges of rows that stay in the cache together; for a GPU all rows at once."""
    rows, each = len(array), max(array.size // max(len(array), 1), 1)
    size = max(1, _PIECE // each) if k.xp is np else max(rows, 1)
    return [slice(begin, min(begin + size, rows)) for begin in range(0, rows, size)]


def _elementwise(k: KernelArgs, arrays: Mapping[str, Any], formula: str, target: Any) -> Call:
    """A call for target = formula, over blocks of columns [N, B, width] and rows [width]."""
    return _compiled(k, arrays, formula, target) or _by_pieces(k, arrays, formula, target)


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


def _by_pieces(k: KernelArgs, arrays: Mapping[str, Any], formula: str, target: Any) -> Call:
    """`_elementwise` as calls of NumPy or CuPy, for pieces that stay in the cache."""
    scratch, calls = PieceScratch(k), []
    for piece in _pieces(k, target):
        scratch.begin()
        given = {name: a[piece] if a.ndim == 3 else a for name, a in arrays.items()}
        calls += called(scratch, given, {"value": formula}, {"value": target[piece]})
    return in_order(*calls)


@batch_norm.kernel
def batch_norm_kernel(k: KernelArgs) -> Call:
    xp, width = k.xp, k.attrs["block"]
    x, out = blocks_of(k["x"], width), blocks_of(k["out"], width)
    real, count = x.dtype.type, x.shape[0] * x.shape[1]
    memo = [k.get(slot) for slot in ("mean", "uvar", "scale")]
    mean, uvar, scale = (k.scratch((width,), x.dtype) if a is None else a for a in memo)
    pieces = _pieces(k, x)
    squares = k.scratch(x[pieces[0]].shape if pieces else x.shape, x.dtype)
    share, part = k.scratch((width,), x.dtype), real(1 / max(count, 1))
    epsilon, rms = real(k.attrs["epsilon"]), real(k.attrs["target_rms"])
    parts = [(x[piece], squares[: piece.stop - piece.start]) for piece in pieces]

    def statistics() -> None:
        mean.fill(0)
        uvar.fill(0)
        for values, held in parts:
            xp.sum(values, axis=(0, 1), out=share)
            xp.add(mean, share, mean)
            xp.multiply(values, values, held)
            xp.sum(held, axis=(0, 1), out=share)
            xp.add(uvar, share, uvar)
        xp.multiply(mean, part, mean)
        xp.multiply(uvar, part, uvar)
        xp.multiply(mean, mean, scale)
        xp.subtract(uvar, scale, scale)
        xp.maximum(scale, real(0), out=scale)
        xp.add(scale, epsilon, scale)
        xp.sqrt(scale, out=scale)
        xp.divide(rms, scale, scale)

    given = {"x": x, "mean": mean, "scale": scale}
    return in_order(statistics, _elementwise(k, given, "(x - mean) * scale", out))


@batch_norm.backward("x", inplace={"x_grad": "out_grad"})
def batch_norm_grad_kernel(k: KernelArgs) -> Call:
    xp, width, scale = k.xp, k.attrs["block"], k["scale"]
    out, grad = blocks_of(k["out"], width), blocks_of(k["out_grad"], width)
    target, real = blocks_of(k["x_grad"], width), out.dtype.type
    count = max(out.shape[0] * out.shape[1], 1)
    pieces = _pieces(k, out)
    work = k.scratch(out[pieces[0]].shape if pieces else out.shape, out.dtype)
    mean, slope, share = (k.scratch((width,), out.dtype) for _ in range(3))
    factor = real(1 / (k.attrs["target_rms"] ** 2 * count))
    parts = [(out[piece], grad[piece], work[: piece.stop - piece.start]) for piece in pieces]

    def sums() -> None:
        slope.fill(0)
        mean.fill(0)
        for values, slopes, held in parts:
            xp.multiply(values, slopes, held)
            xp.sum(held, axis=(0, 1), out=share)
            xp.add(slope, share, slope)
            xp.sum(slopes, axis=(0, 1), out=share)
            xp.add(mean, share, mean)
        xp.multiply(slope, factor, slope)
        xp.multiply(mean, real(1 / count), mean)

    given = {"y": out, "g": grad, "slope": slope, "mean": mean, "scale": scale}
    return in_order(sums, _elementwise(k, given, "(g - mean - y * slope) * scale", target))
