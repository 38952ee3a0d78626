"""Components whose rows are computed from the same row of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ....nnet3.components.batch_norm import batch_norm_transform
from ....nnet3.components.nonlinear import SOFTMAX_FLOOR
from ....nnet3.components.normalize import SQUARED_NORM_FLOOR
from ....nnet3.components.scale_offset import SCALE_EPSILON
from .emit import F32, Emitter, Value

Parts = Sequence[Value]


def diagonal(component: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Scale and offset of every column of a component that is no more than these; else None."""
    kind, dim = component.type, component.output_dim
    one, zero = np.ones(1), np.zeros(1)
    found: tuple[Any, Any] | None = None
    if kind == "BatchNormComponent" and component.test_mode:
        found = batch_norm_transform(component)
    elif kind in _SCALES:
        found = component.scales, zero
    elif kind == "FixedBiasComponent":
        found = one, component.bias
    elif kind == "PerElementOffsetComponent":
        found = one, component.offsets
    elif kind == "ScaleAndOffsetComponent":
        found = _away_from_zero(component.scales), component.offsets
    elif kind == "DropoutComponent" and component.test_mode:
        found = np.array([1.0 - component.dropout_proportion], F32), zero
    elif kind == "BackpropTruncationComponent":
        found = np.array([component.scale], F32), zero
    elif kind in _IDENTITIES or (kind in _RANDOM and component.test_mode):
        found = one, zero
    if found is None:
        return None
    scale, offset = (np.asarray(each, np.float64).reshape(-1) for each in found)
    return np.resize(scale, dim), np.resize(offset, dim)


_SCALES: Final = (
    "PerElementScaleComponent",
    "NaturalGradientPerElementScaleComponent",
    "FixedScaleComponent",
)
_IDENTITIES: Final = ("NoOpComponent", "ClipGradientComponent")
_RANDOM: Final = ("GeneralDropoutComponent", "SpecAugmentTimeMaskComponent")


def _away_from_zero(scales: np.ndarray) -> np.ndarray:
    bound = np.where(scales >= 0, F32(SCALE_EPSILON), F32(-SCALE_EPSILON))
    return np.where(np.abs(scales) < SCALE_EPSILON, bound, scales)


def _simple(op_type: str, **attributes: Any) -> Callable[..., Value]:
    def emit(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
        return e.unary(op_type, e.join(parts, name), name, **attributes)

    return emit


def _softmax(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    value = e.unary("Softmax", e.join(parts, name), name, axis=1)
    made = e.op("Max", value.name, e.number(SOFTMAX_FLOOR), name=f"{name}.floored")
    return Value(made, value.dim, value.still)


def _normalize(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    value = e.plain(e.join(parts, name))
    blocked = c.block_dim != c.input_dim
    x = e.blocks(value, c.input_dim // c.block_dim, c.block_dim) if blocked else value.name
    axes = [2] if blocked else [1]
    squares = e.reduced("ReduceMean", e.op("Mul", x, x), axes[0], True, f"{name}.power")
    if c.target_rms != 1:
        squares = e.op("Mul", squares, e.number(1 / c.target_rms**2))
    floored = e.op("Max", squares, e.number(SQUARED_NORM_FLOOR))
    rms = e.op("Sqrt", floored, name=f"{name}.rms")
    y = e.op("Div", x, rms, name=name)
    if c.add_log_stddev:
        spread = e.op("Mul", rms, e.number(c.target_rms)) if c.target_rms != 1 else rms
        y = e.op("Concat", y, e.op("Log", spread), axis=axes[0], name=f"{name}.with_log")
    if not blocked:
        return Value(y, c.output_dim, value.still)
    return e.flat(y, c.output_dim, value.still)


def _product(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    sizes = [c.output_dim] * (c.input_dim // c.output_dim)
    first, *others = e.split(parts, sizes, name)
    for other in others:
        first = e.binary("Mul", first, other, name)
    return first


def _sum_block(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    sizes = [c.output_dim] * (c.input_dim // c.output_dim)
    first, *others = e.split(parts, sizes, name)
    for other in others:
        first = e.add(first, other, name)
    return first.times(c.scale)


def _sum_group(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    value = e.join(parts, name)
    size = c.sizes[0]
    if all(each == size for each in c.sizes):
        blocks = e.blocks(value, len(c.sizes), size)
        made = e.op("ReduceSum", blocks, e.graph.ints(2), keepdims=0, name=name)
        return Value(made, len(c.sizes), value.still)
    weights = np.repeat(np.eye(len(c.sizes), dtype=F32), c.sizes, axis=1)
    return matrix(e, value, weights, None, name)


def matrix(e: Emitter, value: Value, w: np.ndarray, b: Any, name: str) -> Value:
    """w [out, in] times every row, plus b [out] where there is one."""
    w = np.asarray(w, np.float64)
    bias = np.zeros(len(w)) if b is None else np.asarray(b, np.float64)
    if value.offset is not None:
        bias, b = bias + w @ value.offset, bias
    if value.scale is not None:
        w = w * value.scale
    if e.rank == 3:
        weights = e.graph.constant(w[:, :, None].astype(e.dtype), f"{name}.weight")
        given = None if b is None else e.graph.constant(bias.astype(e.dtype), f"{name}.bias")
        made = e.op("Conv", value.name, weights, given, name=name)
        return Value(made, len(w), value.still)
    weights = e.graph.constant(np.ascontiguousarray(w.T, e.dtype), f"{name}.weight")
    given = None if b is None else e.graph.constant(bias.astype(e.dtype), f"{name}.bias")
    return Value(e.op("Gemm", value.name, weights, given, name=name), len(w), value.still)


def _permute(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    value = e.join(parts, name)
    order = np.array(c.column_map, np.int64)
    made = e.op("Gather", value.name, e.graph.constant(order), axis=1, name=name)
    scale = None if value.scale is None else value.scale[order]
    offset = None if value.offset is None else value.offset[order]
    return Value(made, value.dim, value.still, scale, offset)


def _pnorm(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    value = e.join(parts, name)
    blocks = e.blocks(value, c.output_dim, c.input_dim // c.output_dim)
    made = e.reduced("ReduceL2", blocks, 2, False, name)
    return Value(made, c.output_dim, value.still)


def _blocks_of_affine(e: Emitter, value: Value, w: Any, b: Any, groups: int, name: str) -> Value:
    rows, width = w.shape[0] // groups, w.shape[1]
    if e.rank == 2:
        dense = np.zeros((w.shape[0], width * groups))
        for i in range(groups):
            cut = slice(i * rows, (i + 1) * rows)
            dense[cut, i * width : (i + 1) * width] = w[cut]
        return matrix(e, value, dense, b, name)
    weights = e.graph.constant(np.asarray(w[:, :, None], F32), f"{name}.weight")
    bias = e.graph.constant(np.asarray(b, F32), f"{name}.bias")
    made = e.op("Conv", e.name(value), weights, bias, group=groups, name=name)
    return Value(made, w.shape[0], value.still)


def _block_affine(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    value, blocks = e.join(parts, name), c.num_blocks
    return _blocks_of_affine(e, value, c.linear_params, c.bias_params, blocks, name)


def _repeated_affine(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    count = c.num_repeats
    w, b = np.tile(c.linear_params, (count, 1)), np.tile(c.bias_params, count)
    return _blocks_of_affine(e, e.join(parts, name), w, b, count, name)


def _lstm(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    cells = c.cell_dim
    sizes = [cells] * 5 + ([1, 1, 1] if c.use_dropout else [])
    i, f, g, o, before, *masks = e.split(parts, sizes, name)
    peep = [e.vector(row) for row in c.params]

    def gate(x: Value, weight: str, cell: str) -> str:
        total = e.op("Add", e.name(x), e.op("Mul", cell, weight))
        return e.op("Sigmoid", total, name=f"{name}.gate")

    old = e.name(before)
    gates = [gate(i, peep[0], old), gate(f, peep[1], old)]
    if masks:
        gates = [e.op("Mul", a, e.name(b)) for a, b in zip(gates, masks[:2], strict=True)]
    new = e.op("Mul", gates[0], e.op("Tanh", e.name(g)))
    cell = e.op("Add", e.op("Mul", gates[1], old), new, name=f"{name}.c")
    out = gate(o, peep[2], cell)
    if masks:
        out = e.op("Mul", out, e.name(masks[2]))
    m = e.op("Mul", out, e.op("Tanh", cell), name=f"{name}.m")
    return e.join([Value(cell, cells), Value(m, cells)], name)


def _mix(e: Emitter, z: Value, h: str, before: Value, name: str) -> str:
    rest = e.op("Mul", e.name(z), e.op("Sub", e.name(before), h))
    return e.op("Add", h, rest, name=f"{name}.c")


def _gru(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    cells, recurrent = c.cell_dim, c.recurrent_dim
    sizes = [cells, recurrent, cells, cells] + ([recurrent] if recurrent != cells else [])
    z, r, part, before, *state = e.split(parts, sizes, name)
    gated = Value(e.op("Mul", e.name(r), e.name(state[0] if state else before)), recurrent)
    fed = matrix(e, gated, c.w_h, None, f"{name}.w_h")
    h = e.op("Tanh", e.op("Add", e.name(part), fed.name), name=f"{name}.h")
    cell = _mix(e, z, h, before, name)
    return e.join([Value(h, cells), Value(cell, cells)], name)


def _output_gru(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    cells = c.cell_dim
    z, part, before = e.split(parts, [cells] * 3, name)
    fed = e.op("Mul", e.name(before), e.vector(c.w_h))
    h = e.op("Tanh", e.op("Add", e.name(part), fed), name=f"{name}.h")
    cell = _mix(e, z, h, before, name)
    return e.join([Value(h, cells), Value(cell, cells)], name)


def _constant_function(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    return constant(e, c.output, name)


def constant(e: Emitter, values: Any, name: str) -> Value:
    """The same row for all times."""
    array = np.asarray(values, e.dtype).reshape((1, -1, 1) if e.rank == 3 else (1, -1))
    return Value(e.graph.constant(array, name), array.shape[1], True)


def _composite(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    for number, part in enumerate(c.components):
        parts = [row_by_row(e, part, parts, f"{name}.{number}")]
    return parts[0]


def _image(e: Emitter, value: Value, c: Any, order: str) -> tuple[str, str]:
    """The images of all rows [N * times, z, x, y], and the axes before: [N, times]."""
    x, y, z = c.input_x_dim, c.input_y_dim, c.input_z_dim
    sizes = (x, y, z) if order == "zyx" else (x, z, y)
    rows = e.name(value)
    if e.rank == 3:
        rows = e.op("Transpose", rows, perm=[0, 2, 1])
    shape = e.op("Slice", e.op("Shape", rows), e.graph.ints(0), e.graph.ints(e.rank - 1))
    images = e.op("Reshape", rows, e.graph.ints(-1, *sizes))
    perm = [0, 3, 1, 2] if order == "zyx" else [0, 2, 1, 3]
    return e.op("Transpose", images, perm=perm), shape


def _rows_of(e: Emitter, images: str, shape: str, dim: int, still: bool, name: str) -> Value:
    """Back from images [N * times, z, x, y] to rows with z fastest, then y."""
    turned = e.op("Transpose", images, perm=[0, 2, 3, 1])
    whole = e.op("Concat", shape, e.graph.ints(dim), axis=0)
    rows = e.op("Reshape", turned, whole, name=name)
    if e.rank == 3:
        rows = e.op("Transpose", rows, perm=[0, 2, 1], name=name)
    return Value(rows, dim, still)


def _convolution(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    value = e.join(parts, name)
    order = ("yzx", "zyx")[c.input_vectorization]
    images, shape = _image(e, value, c, order)
    w = c.filter_params.reshape(-1, c.filt_x_dim, c.filt_y_dim, c.input_z_dim)
    weights = e.graph.constant(np.ascontiguousarray(w.transpose(0, 3, 1, 2), F32), f"{name}.weight")
    bias = e.graph.constant(np.asarray(c.bias_params, F32), f"{name}.bias")
    steps = [c.filt_x_step, c.filt_y_step]
    made = e.op("Conv", images, weights, bias, strides=steps, name=name)
    return _rows_of(e, made, shape, c.output_dim, value.still, name)


def _max_pool(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    value = e.join(parts, name)
    images, shape = _image(e, value, c, "zyx")
    volumes = e.op("Unsqueeze", images, e.graph.ints(1))  # [N * times, 1, z, x, y]
    sizes = [c.pool_z_size, c.pool_x_size, c.pool_y_size]
    steps = [c.pool_z_step, c.pool_x_step, c.pool_y_step]
    made = e.op("MaxPool", volumes, kernel_shape=sizes, strides=steps, name=name)
    flat = e.op("Squeeze", made, e.graph.ints(1))
    return _rows_of(e, flat, shape, c.output_dim, value.still, name)


def _affine(e: Emitter, c: Any, parts: Parts, name: str) -> Value:
    w, b = affine_of(c)
    return matrix(e, e.join(parts, name), w, b, name)


def affine_of(c: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """W [out, in (times offsets)] and b [out], or None, of an affine component."""
    if c.type == "LinearComponent":
        return c.params, None
    return c.linear_params, (c.bias_params if c.bias_params.size else None)


AFFINE: Final = (
    "AffineComponent",
    "NaturalGradientAffineComponent",
    "FixedAffineComponent",
    "LinearComponent",
)
_ROWS: Final[dict[str, Callable[[Emitter, Any, Parts, str], Value]]] = {
    **dict.fromkeys(AFFINE, _affine),
    "SigmoidComponent": _simple("Sigmoid"),
    "TanhComponent": _simple("Tanh"),
    "RectifiedLinearComponent": _simple("Relu"),
    "LogSoftmaxComponent": _simple("LogSoftmax", axis=1),
    "SoftmaxComponent": _softmax,
    "NormalizeComponent": _normalize,
    "ElementwiseProductComponent": _product,
    "SumBlockComponent": _sum_block,
    "SumGroupComponent": _sum_group,
    "PermuteComponent": _permute,
    "PnormComponent": _pnorm,
    "BlockAffineComponent": _block_affine,
    "RepeatedAffineComponent": _repeated_affine,
    "NaturalGradientRepeatedAffineComponent": _repeated_affine,
    "LstmNonlinearityComponent": _lstm,
    "GruNonlinearityComponent": _gru,
    "OutputGruNonlinearityComponent": _output_gru,
    "ConstantFunctionComponent": _constant_function,
    "CompositeComponent": _composite,
    "ConvolutionComponent": _convolution,
    "MaxpoolingComponent": _max_pool,
}


def why_not(component: Any) -> str:
    """Why a component is not computed row by row here; empty where it is."""
    kind = component.type
    if kind == "CompositeComponent":
        return "; ".join(filter(None, (why_not(part) for part in component.components)))
    if kind in _ROWS or diagonal(component) is not None:
        return ""
    if kind == "DistributeComponent":
        return (
            f"{kind} reads rows of another x, and an ONNX model has times alone; dim-range nodes"
            " cut columns without it"
        )
    if getattr(component, "test_mode", True) is False:
        return f"{kind} is in training mode: its result is random or follows from the batch"
    return f"{kind} has no form in ONNX here"


def row_by_row(e: Emitter, component: Any, parts: Parts, name: str) -> Value:
    """The output of a component for values side by side, its input."""
    found = diagonal(component)
    if found is not None:
        return e.join(parts, name).times(found[0]).plus(found[1])
    return _ROWS[component.type](e, component, parts, name)
