"""Components of an nnet3 network as operators, written once for all frameworks.

Values are rows [N, columns, times], or [M, columns] in a step of a recurrent layer: columns are
axis 1 in both. Parameters have the shapes that Kaldi gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ...framework.base.sizes.shape import ArraySpec
from ...framework.ir.desc import make_op
from ...framework.ir.infer import infer_specs
from ...framework.ir.op_list import OpNode
from ...framework.ir.operation import Operator
from ...framework.ir.registry import lookup
from ...nnet3.components.nonlinear import SOFTMAX_FLOOR
from ...nnet3.components.normalize import SQUARED_NORM_FLOOR

Columns = dict[str, int]
"""Variables, and how many columns each holds; they stand side by side."""


@dataclass
class ComponentNet:
    """The operators of a component.

    Args:
        title: what names of variables begin with. rank: axes of values. dtype: of values.

    Attributes:
        inputs: the component's input. outputs: its output.
        parameters: variables, and the attributes of the component that hold their arrays.
        arrays: of parameters and constants, by variable.
    """

    title: str
    rank: int
    dtype: Any = np.float32
    ops: list[OpNode] = field(default_factory=list[OpNode])
    inputs: Columns = field(default_factory=dict[str, int])
    outputs: Columns = field(default_factory=dict[str, int])
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    arrays: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])

    def checked(self, given: dict[str, ArraySpec]) -> tuple[list[Operator], dict[str, ArraySpec]]:
        """The operators, and shape and dtype of all variables.

        Args:
            given: the inputs that do not hold rows of `dtype`.
        """
        rest = (-1,) * (self.rank - 2)
        dtype = np.dtype(self.dtype)
        specs: dict[str, ArraySpec] = {
            name: ((-1, columns, *rest), dtype) for name, columns in self.inputs.items()
        }
        specs |= {name: (array.shape, array.dtype) for name, array in self.arrays.items()}
        operators = [Operator(op, number) for number, op in enumerate(self.ops)]
        return operators, infer_specs(operators, specs | given, {})

    # What a component is written with

    def __call__(self, op_type: str, *inputs: str | list[str], name: str = "", **attrs: Any) -> str:
        """Append an operator; returns its output."""
        out = f"{self.title}.{name or len(self.ops)}"
        self._append(op_type, inputs, [out], attrs)
        return out

    def _append(self, op_type: str, inputs: Sequence[Any], out: list[str], attrs: Any) -> None:
        slots = zip([slot.name for slot in lookup(op_type).inputs], inputs, strict=False)
        self.ops.append(make_op(op_type, dict(slots), {"out": out}, attrs))

    def takes(self, **sizes: int) -> list[str]:
        """The input, cut into pieces of so many columns, by their names."""
        names = [f"{self.title}.{name}" for name in sizes]
        self.inputs.update(zip(names, sizes.values(), strict=True))
        return names

    def split(self, x: str, sizes: Sequence[int], axis: int = 1) -> list[str]:
        """A value in pieces along an axis."""
        names = [f"{self.title}.{len(self.ops)}.{number}" for number in range(len(sizes))]
        self._append("split", [x], names, {"axis": axis, "sections": list(sizes)})
        return names

    def parameter(self, c: Any, attribute: str) -> str:
        """The parameter that an attribute of the component holds."""
        name = f"{self.title}.{attribute}"
        self.parameters[name] = attribute
        self.arrays[name] = np.asarray(getattr(c, attribute), self.dtype)
        return name

    def constant(self, array: Any, dtype: Any = None) -> str:
        """An array that is no parameter."""
        name = f"{self.title}.constant{len(self.arrays)}"
        self.arrays[name] = np.asarray(array, dtype or self.dtype)
        return name

    def row(self, matrix: str, number: int) -> str:
        """A row of a matrix with a number for each column, as it meets rows."""
        row = self("slice", matrix, axes=[0], starts=[number], ends=[number + 1])
        return self("unsqueeze", row, axes=[2]) if self.rank == 3 else row

    def columns_as(self, x: str, *sizes: int) -> str:
        """Rows whose columns are several axes, or are one again."""
        times = [-1] if self.rank == 3 else []
        return self("reshape", x, shape=[0, *sizes, *times])


def component_net(c: Any, title: str, rank: int, dtype: Any = np.float32) -> ComponentNet:
    """The operators of a component whose type is in `WRITTEN`."""
    net = ComponentNet(title, rank, dtype)
    net.outputs = WRITTEN[c.type](net, c)
    return net


def _lstm(n: ComponentNet, c: Any) -> Columns:
    """Peepholes of i and f see the cell before, the peephole of o sees the new one."""
    cells = c.cell_dim
    factors = {f"{gate}_mask": 1 for gate in "ifo"} if c.use_dropout else {}
    pieces = n.takes(i=cells, f=cells, g=cells, o=cells, before=cells, **factors)
    i, f, g, o, before, *masks = pieces
    weights = n.parameter(c, "params")

    def gate(x: str, cell: str, number: int) -> str:
        activation = n("sigmoid", n("add", x, n("mul", n.row(weights, number), cell)))
        return n("mul", activation, masks[number]) if masks else activation

    kept = n("mul", gate(f, before, 1), before)
    new = n("mul", gate(i, before, 0), n("tanh", g))
    cell = n("add", kept, new, name="c")
    return {cell: cells, n("mul", gate(o, cell, 2), n("tanh", cell), name="m"): cells}


def _mixed(n: ComponentNet, z: str, part: str, fed: str, before: str, cells: int) -> Columns:
    """h = tanh(part + fed), and the new cell: h where z is 0, the cell before where it is 1."""
    h = n("tanh", n("add", part, fed), name="h")
    cell = n("add", h, n("mul", z, n("sub", before, h)), name="c")
    return {h: cells, cell: cells}


def _gru(n: ComponentNet, c: Any) -> Columns:
    """The reset gate r works on the state before the weights do."""
    cells, recurrent = c.cell_dim, c.recurrent_dim
    projected = {"state": recurrent} if recurrent != cells else {}
    pieces = n.takes(z=cells, r=recurrent, part=cells, before=cells, **projected)
    z, r, part, before, *state = pieces
    gated = n("mul", r, state[0] if state else before)
    w = n.parameter(c, "w_h")
    if n.rank == 3:
        fed = n("conv1d", gated, n("unsqueeze", w, axes=[2]))
    else:
        fed = n("affine", gated, n("transpose", w, perm=[1, 0]))
    return _mixed(n, z, part, fed, before, cells)


def _output_gru(n: ComponentNet, c: Any) -> Columns:
    z, part, before = n.takes(z=c.cell_dim, part=c.cell_dim, before=c.cell_dim)
    w = n.parameter(c, "w_h")
    fed = n("mul", n("unsqueeze", w, axes=[1]) if n.rank == 3 else w, before)
    return _mixed(n, z, part, fed, before, c.cell_dim)


def _simple(op_type: str, **attrs: Any) -> Callable[[ComponentNet, Any], Columns]:
    def write(n: ComponentNet, c: Any) -> Columns:
        return {n(op_type, *n.takes(x=c.input_dim), **attrs): c.output_dim}

    return write


def _softmax(n: ComponentNet, c: Any) -> Columns:
    softmax = n("softmax", *n.takes(x=c.input_dim), axis=1)
    return {n("clip", softmax, minimum=SOFTMAX_FLOOR): c.output_dim}


def _blocks(n: ComponentNet, c: Any, op_type: str) -> str:
    """Blocks of columns, as wide as the output, joined by an operator."""
    count = c.input_dim // c.output_dim
    total, *others = n.takes(**{f"x{number}": c.output_dim for number in range(count)})
    for other in others:
        total = n(op_type, total, other)
    return total


def _product(n: ComponentNet, c: Any) -> Columns:
    return {_blocks(n, c, "mul"): c.output_dim}


def _sum_block(n: ComponentNet, c: Any) -> Columns:
    total = _blocks(n, c, "add")
    return {total if c.scale == 1 else n("scale", total, scale=float(c.scale)): c.output_dim}


def _sum_group(n: ComponentNet, c: Any) -> Columns:
    (x,) = n.takes(x=c.input_dim)
    sizes = [int(size) for size in c.sizes]
    if len(set(sizes)) == 1:
        return {n("reduce_sum", n.columns_as(x, len(sizes), sizes[0]), axes=[2]): len(sizes)}
    sums = [n("reduce_sum", part, axes=[1], keepdims=True) for part in n.split(x, sizes)]
    return {n("concat", sums, axis=1): len(sizes)}


def _block_affine(n: ComponentNet, c: Any) -> Columns:
    w, b = (n.parameter(c, name) for name in ("linear_params", "bias_params"))
    return _blockwise(n, c, w, b, int(c.num_blocks))


def _repeated_affine(n: ComponentNet, c: Any) -> Columns:
    """A block affine component whose blocks have the same parameters."""
    w, b = (n.parameter(c, name) for name in ("linear_params", "bias_params"))
    count = int(c.num_repeats)
    w = n("tile", w, repeats=[count, 1])
    b = n("tile", b, repeats=[count])
    return _blockwise(n, c, w, b, count)


def _blockwise(n: ComponentNet, c: Any, w: str, b: str, blocks: int) -> Columns:
    (x,) = n.takes(x=c.input_dim)
    if n.rank == 3:
        return {n("conv1d", x, n("unsqueeze", w, axes=[2]), b, groups=blocks): c.output_dim}
    width, rows = c.input_dim // blocks, c.output_dim // blocks
    w = n("reshape", w, shape=[blocks, rows, width])
    product = n("matmul", n("reshape", x, shape=[0, blocks, 1, width]), w, transpose_y=True)
    return {n("add", n.columns_as(product, c.output_dim), b): c.output_dim}


def _normalize(n: ComponentNet, c: Any) -> Columns:
    (x,) = n.takes(x=c.input_dim)
    blocks = c.input_dim // c.block_dim
    axis = 1
    y = x
    if blocks > 1:
        axis = 2
        y = n.columns_as(x, blocks, c.block_dim)
    power = n("reduce_mean", n("mul", y, y), axes=[axis], keepdims=True)
    if c.target_rms != 1:
        power = n("scale", power, scale=1 / float(c.target_rms) ** 2)
    rms = n("sqrt", n("clip", power, minimum=SQUARED_NORM_FLOOR), name="rms")
    y = n("div", y, rms)
    if c.add_log_stddev:
        rms = n("scale", rms, scale=float(c.target_rms)) if c.target_rms != 1 else rms
        y = n("concat", [y, n("log", rms)], axis=axis)
    return {n.columns_as(y, c.output_dim) if blocks > 1 else y: c.output_dim}


def _pnorm(n: ComponentNet, c: Any) -> Columns:
    (x,) = n.takes(x=c.input_dim)
    blocks = n.columns_as(x, c.output_dim, c.input_dim // c.output_dim)
    return {n("norm", blocks, axes=[2]): c.output_dim}


def _images(n: ComponentNet, x: str, sizes: Sequence[int], order: str) -> str:
    """Columns as images [N, z, x, y], with times last."""
    perm = [1 + order.index(axis) for axis in "zxy"]
    return n("transpose", n.columns_as(x, *sizes), perm=[0, *perm, *range(4, 2 + n.rank)])


def _of_images(n: ComponentNet, images: str, dim: int) -> Columns:
    """Back from images to columns: z is fastest, then y."""
    turned = n("transpose", images, perm=[0, 2, 3, 1, *range(4, 2 + n.rank)])
    return {n.columns_as(turned, dim): dim}


def _image_convolution(n: ComponentNet, c: Any) -> Columns:
    """Each row is an image; times are an axis over which the filter does not reach."""
    (rows,) = n.takes(x=c.input_dim)
    x, y, z = c.input_x_dim, c.input_y_dim, c.input_z_dim
    sizes, order = ((x, z, y), "xzy") if c.input_vectorization == 0 else ((x, y, z), "xyz")
    times = [1] * (n.rank - 2)
    shape = [-1, c.filt_x_dim, c.filt_y_dim, z, *times]
    filters = n("reshape", n.parameter(c, "filter_params"), shape=shape)
    filters = n("transpose", filters, perm=[0, 3, 1, 2, *range(4, 2 + n.rank)])
    images = _images(n, rows, sizes, order)
    bias = n.parameter(c, "bias_params")
    stride = [c.filt_x_step, c.filt_y_step, *times]
    return _of_images(n, n(f"conv{n.rank}d", images, filters, bias, stride=stride), c.output_dim)


def _image_pooling(n: ComponentNet, c: Any) -> Columns:
    """Maxima of blocks of each row's image; times are channels."""
    (rows,) = n.takes(x=c.input_dim)
    images = _images(n, rows, (c.input_x_dim, c.input_y_dim, c.input_z_dim), "xyz")
    sizes: dict[str, Any] = {
        "kernel": [c.pool_z_size, c.pool_x_size, c.pool_y_size],
        "stride": [c.pool_z_step, c.pool_x_step, c.pool_y_step],
    }
    if n.rank == 3:
        pooled = n("max_pool3d", n("transpose", images, perm=[0, 4, 1, 2, 3]), **sizes)
        return _of_images(n, n("transpose", pooled, perm=[0, 2, 3, 4, 1]), c.output_dim)
    pooled = n("max_pool3d", n("unsqueeze", images, axes=[1]), **sizes)
    return _of_images(n, n("squeeze", pooled, axes=[1]), c.output_dim)


def _attention(n: ComponentNet, c: Any) -> Columns:
    """A softmax over the places of a window, for each head; reads the rows of each place."""
    sizes = [c.key_dim, c.value_dim, c.key_dim, c.context_dim]
    places = {f"place{number}": c.num_heads * sum(sizes) for number in range(c.context_dim)}
    read = [n.split(n.columns_as(x, c.num_heads, sum(sizes)), sizes, 2) for x in n.takes(**places)]
    _, _, query, scores = read[c.num_left_inputs]
    query = n("scale", query, scale=float(c.key_scale), name="query")
    products = [n("reduce_sum", n("mul", query, key), axes=[2], keepdims=True) for key, *_ in read]
    joined = n("concat", products, axis=2) if len(products) > 1 else products[0]
    weights = n("softmax", n("add", joined, scores), axis=2, name="weights")
    shares = n.split(weights, [1] * c.context_dim, 2)
    mean = ""
    for share, (_, value, *_) in zip(shares, read, strict=True):
        term = n("mul", share, value)
        mean = n("add", mean, term) if mean else term
    if c.output_context:
        mean = n("concat", [mean, weights], axis=2)
    return {n.columns_as(mean, c.output_dim): c.output_dim}


def _moments(n: ComponentNet, columns: int, squares: bool) -> str:
    """Ones, rows and their squares side by side, whose sums are statistics.

    They are float64: deviations are small differences of large sums.
    """
    x = n("cast", n.takes(x=columns)[0], dtype="float64", name="wide")
    ones = n("fill_like", n("slice", x, axes=[1], starts=[0], ends=[1]), value=1.0)
    return n("concat", [ones, x, *([n("mul", x, x)] if squares else [])], axis=1)


def _sums(n: ComponentNet, x: str) -> str:
    """Sums over the rows of windows; two inputs hold the first row of each, and the one after."""
    total = n("pad", n("cumsum", x, axis=2), paddings=[0, 0, 0, 0, 1, 0], name="totals")
    last, first = (n("gather", total, f"{n.title}.{end}", axis=2) for end in ("end", "begin"))
    return n("sub", last, first, name="sums")


def _extraction(n: ComponentNet, c: Any) -> Columns:
    """Count, sums and sums of squares of windows, float64."""
    return {_sums(n, _moments(n, c.input_dim, c.include_variance)): c.output_dim}


def _pooling(n: ComponentNet, c: Any) -> Columns:
    """Means and deviations of windows, float64, of statistics."""
    return _pooled(n, c, n("cast", n.takes(x=c.input_dim)[0], dtype="float64"))


def pooled_rows(c: Any, source: Any, title: str) -> ComponentNet:
    """A StatisticsPoolingComponent that reads the rows of its extraction themselves."""
    net = ComponentNet(title, 3)
    net.outputs = _pooled(net, c, _moments(net, source.input_dim, source.include_variance))
    return net


def _pooled(n: ComponentNet, c: Any, x: str) -> Columns:
    count, sums = n.split(_sums(n, x), [1, c.input_dim - 1])
    pooled = n("div", sums, count, name="means")
    if c.output_stddevs:
        half = (c.input_dim - 1) // 2
        mean, square = n.split(pooled, [half, half])
        variance = n("sub", square, n("mul", mean, mean))
        floored = n("clip", variance, minimum=float(c.variance_floor))
        pooled = n("concat", [mean, n("sqrt", floored)], axis=1)
    if c.num_log_count_features:
        logs = [n("log", count)] * c.num_log_count_features
        pooled = n("concat", [*logs, pooled], axis=1)
    return {pooled: c.output_dim}


WRITTEN: Final[dict[str, Callable[[ComponentNet, Any], Columns]]] = {
    "LstmNonlinearityComponent": _lstm,
    "GruNonlinearityComponent": _gru,
    "OutputGruNonlinearityComponent": _output_gru,
    "SigmoidComponent": _simple("sigmoid"),
    "TanhComponent": _simple("tanh"),
    "RectifiedLinearComponent": _simple("relu"),
    "LogSoftmaxComponent": _simple("log_softmax", axis=1),
    "SoftmaxComponent": _softmax,
    "ElementwiseProductComponent": _product,
    "SumBlockComponent": _sum_block,
    "SumGroupComponent": _sum_group,
    "BlockAffineComponent": _block_affine,
    "RepeatedAffineComponent": _repeated_affine,
    "NaturalGradientRepeatedAffineComponent": _repeated_affine,
    "NormalizeComponent": _normalize,
    "PnormComponent": _pnorm,
    "ConvolutionComponent": _image_convolution,
    "MaxpoolingComponent": _image_pooling,
    "RestrictedAttentionComponent": _attention,
    "StatisticsExtractionComponent": _extraction,
    "StatisticsPoolingComponent": _pooling,
}
"""By component type: writes its operators."""
