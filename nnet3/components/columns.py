"""Components without parameters that move, sum or multiply columns."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...framework.base.sequence import repeated
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...kaldi.files.kaldi_io import Reader
from ...operators.base.blocks import divided
from ...operators.base.fused import computed
from .base.checks import check_divides
from .base.component import Component, KeepsDim, Properties
from .base.fields import FLOAT, INT, INTS, Field, Kind
from .base.keys import Computed, key, optional, required
from .base.lowering import OUT, Recipe, X
from .base.summary import number

_P = Properties
DIM_FIELDS = (Field("<InputDim>", INT, "input_dim"), Field("<OutputDim>", INT, "output_dim"))
DIM_KEYS = required(int, "input-dim", "output-dim")
_SOURCE = "Kaldi: nnet3/nnet-simple-component.cc"


class PnormComponent(Component):
    """The Euclidean norm of each group of input-dim / output-dim neighboring columns."""

    fields = DIM_FIELDS
    keys = DIM_KEYS
    flags = _P.SIMPLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_NEEDS_OUTPUT

    def check(self) -> None:
        check_divides(self)

    def lower(self, recipe: Recipe) -> None:
        attrs = {"group": int(self.input_dim // self.output_dim)}
        recipe.op("nnet3.pnorm", OUT, attrs=attrs, x=X)


class ElementwiseProductComponent(Component):
    """The product of the input-dim / output-dim blocks of columns, element by element."""

    fields = DIM_FIELDS
    keys = DIM_KEYS
    flags = _P.SIMPLE | _P.BACKPROP_NEEDS_INPUT

    def check(self) -> None:
        check_divides(self)
        self.demand(self.input_dim > self.output_dim, "at least two blocks are wanted")

    def lower(self, recipe: Recipe) -> None:
        attrs = {"blocks": int(self.input_dim // self.output_dim)}
        recipe.op("nnet3.elementwise_product", OUT, attrs=attrs, x=X)


class SumBlockComponent(Component):
    """The sum of the input-dim / output-dim blocks of columns, times `scale`."""

    scale: float

    fields = (*DIM_FIELDS, Field("<Scale>", FLOAT, "scale"))
    keys = (*DIM_KEYS, *optional(float, scale=1.0))
    flags = _P.SIMPLE | _P.PROPAGATE_ADDS | _P.BACKPROP_ADDS

    def check(self) -> None:
        check_divides(self)

    def info(self) -> str:
        return f"{super().info()}, scale={number(self.scale)}"

    def lower(self, recipe: Recipe) -> None:
        attrs = {
            "blocks": int(self.input_dim // self.output_dim),
            "scale": float(self.scale),
        }
        recipe.op("nnet3.sum_block", OUT, attrs=attrs, x=X)


class SumGroupComponent(Component):
    """The sums of groups of neighboring columns; `sizes`: columns of each group."""

    sizes: list[int]

    fields = (Field("<Sizes>", INTS, "sizes"),)
    keys = (
        key("sizes", "ints", Computed("input-dim / output-dim each")),
        *optional(int, input_dim=Computed("of sizes"), output_dim=Computed("of sizes")),
    )
    flags = _P.SIMPLE

    @property
    def input_dim(self) -> int:
        return sum(self.sizes)

    @property
    def output_dim(self) -> int:
        return len(self.sizes)

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        dims = o.input_dim, o.output_dim
        if o.sizes is not None:
            self.demand(dims == (None, None), "input-dim= and output-dim= do not go with sizes=")
            self.sizes = o.sizes
        else:
            self.demand(None not in dims, "wants sizes=, or input-dim= and output-dim=")
            self.demand(
                o.output_dim > 0 and o.input_dim > 0 and o.input_dim % o.output_dim == 0,
                f"output-dim={o.output_dim} does not divide input-dim={o.input_dim}",
            )
            self.sizes = [o.input_dim // o.output_dim] * o.output_dim

    def check(self) -> None:
        self.demand(bool(self.sizes) and min(self.sizes) > 0, "sizes must be positive")

    def read_close(self, reader: Reader) -> None:
        # Kaldi also takes an opening token at the end, which early versions wrote.
        self.closing = reader.expect_token(f"</{self.type}>", f"<{self.type}>")

    def lower(self, recipe: Recipe) -> None:
        recipe.op("nnet3.sum_group", OUT, attrs={"sizes": _ints(self.sizes)}, x=X)


def _read_map(reader: Reader) -> list[int]:
    """A column map; early versions wrote it as a vector of floats, and the last one wrongly."""
    if reader.binary and reader.peek() == "F":
        values = np.floor(reader.read_vector(np.float32) + 0.5).astype(int).tolist()
        return [*values[:-1], len(values) - 1]
    return reader.read_int_vector().tolist()


class PermuteComponent(KeepsDim, Component):
    """Output column i is input column `column_map[i]`."""

    column_map: list[int]

    fields = (Field("<ColumnMap>", Kind("ints", list[int], _read_map, INTS.write), "column_map"),)
    keys = (key("column-map", "columns"),)
    flags = _P.SIMPLE

    @property
    def dim(self) -> int:
        """Columns of input and output."""
        return len(self.column_map)

    def check(self) -> None:
        super().check()
        self.demand(
            sorted(self.column_map) == list(range(self.dim)),
            f"column-map is no permutation of 0 .. {self.dim - 1}",
        )

    def info(self) -> str:
        shown = "".join(f"{i} " for i in self.column_map[:5])
        more = "... " if self.dim > 5 else ""
        return f"{self.type}, dim={self.dim} , column-map=[ {shown}{more}]"

    def lower(self, recipe: Recipe) -> None:
        recipe.op("nnet3.permute", OUT, attrs={"columns": _ints(self.column_map)}, x=X)


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values]


permute = operator(
    "nnet3.permute",
    doc="Permutation of columns: out[:, i] = x[:, columns[i]]; x [N, D] -> out [N, D].",
    inputs=[Slot("x", "[N, D]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    attrs=[AttrSpec("columns", "ints", "column of x for each column of out, each one once")],
    source=_SOURCE,
)


@permute.shape_rule
def permute_shape(s: ShapeArgs) -> None:
    columns = s.attrs["columns"]
    if sorted(columns) != list(range(len(columns))):
        s.fail("columns is no permutation of 0, 1, ...")
    rows, cols = s.rank("x", 2)
    s.same("the columns of x and the permutation", cols, len(columns))
    s.set("out", ((rows, len(columns)), s.dtype("x")))


@permute.kernel
def permute_kernel(k: KernelArgs) -> Call:
    return _gather(k, k["x"], np.asarray(k.attrs["columns"], np.intp), k["out"])


@permute.gradient_maker
def permute_gradient(g: Any) -> list[Any]:
    columns = np.argsort(np.asarray(g.attrs["columns"]))
    grads = {"out": g.input_grads("x")}
    return [g.op("nnet3.permute", {"x": g.output_grads("out")}, grads, {"columns": _ints(columns)})]


def _gather(k: KernelArgs, source: Any, columns: Any, target: Any) -> Call:
    """target[:, i] = source[:, columns[i]]; `take` writes to contiguous memory without a copy."""
    xp = k.xp
    columns = xp.asarray(columns)
    if not target.size:
        return in_order()
    options = {"mode": "clip"} if xp is np else {}
    if target.flags.c_contiguous:
        return partial(xp.take, source, columns, axis=1, out=target, **options)
    buffer = k.scratch(target.shape, target.dtype)
    return in_order(
        partial(xp.take, source, columns, axis=1, out=buffer, **options),
        partial(xp.copyto, target, buffer),
    )


sum_group = operator(
    "nnet3.sum_group",
    doc=(
        "Sums of neighboring columns: group i holds sizes[i] columns of x [N, sum(sizes)] and"
        " gives column i of out [N, len(sizes)]."
    ),
    inputs=[Slot("x", "[N, sum(sizes)]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, len(sizes)]", not_in_gradient=True)],
    attrs=[AttrSpec("sizes", "ints", "columns in each group", minimum=1)],
    source=_SOURCE,
)


@sum_group.shape_rule
def sum_group_shape(s: ShapeArgs) -> None:
    sizes = s.attrs["sizes"]
    rows, cols = s.rank("x", 2)
    s.same("the columns of x and the sum of sizes", cols, sum(sizes))
    s.set("out", ((rows, len(sizes)), s.floats("x")))


@sum_group.kernel
def sum_group_kernel(k: KernelArgs) -> Call:
    sizes = k.attrs["sizes"]
    out = k["out"]
    if len(set(sizes)) == 1:
        return partial(k.xp.sum, k["x"].reshape(*out.shape, sizes[0]), axis=2, out=out)
    if k.xp is np:
        starts = np.cumsum((0, *sizes[:-1]))
        return partial(np.add.reduceat, k["x"], starts, axis=1, out=out)
    ones = np.repeat(np.eye(len(sizes), dtype=out.dtype), sizes, axis=0)
    return partial(k.xp.matmul, k["x"], k.xp.asarray(ones), out=out)


@sum_group.backward("x")
def sum_group_grad_kernel(k: KernelArgs) -> Call:
    sizes = k.attrs["sizes"]
    return _gather(k, k["out_grad"], repeated(np.arange(len(sizes)), sizes), k["x_grad"])


sum_block = operator(
    "nnet3.sum_block",
    doc="Scaled sum over the blocks of columns: x [N, B*D] -> out [N, D], times `scale`.",
    inputs=[Slot("x", "[N, B*D]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    attrs=[
        AttrSpec("blocks", "int", "number of blocks, B", minimum=1),
        AttrSpec("scale", "float", "factor of the sum", 1.0),
    ],
    source=_SOURCE,
)


@sum_block.shape_rule
def blocks_shape(s: ShapeArgs) -> None:
    """One block of columns out of `blocks` of them."""
    divided(s, s.attrs["blocks"], f"{s.attrs['blocks']} blocks")


@sum_block.kernel
def sum_block_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    blocks = k.attrs["blocks"]
    x = k["x"].reshape(out.shape[0], blocks, out.shape[1])
    return in_order(partial(k.xp.sum, x, axis=1, out=out), _scaling(k, out))


@sum_block.backward("x")
def sum_block_grad_kernel(k: KernelArgs) -> Call:
    grad = k["out_grad"]
    blocks = k.attrs["blocks"]
    target = k["x_grad"].reshape(grad.shape[0], blocks, grad.shape[1])
    scale = grad.dtype.type(k.attrs["scale"])
    return partial(k.xp.multiply, grad[:, None], scale, target)


def _scaling(k: KernelArgs, out: Any) -> Call | None:
    scale = k.attrs["scale"]
    return None if scale == 1 else partial(k.xp.multiply, out, out.dtype.type(scale), out)


pnorm = operator(
    "nnet3.pnorm",
    doc=(
        "Euclidean norm of groups of neighboring columns:"
        " out[:, i] = sqrt(sum of x[:, i*G : (i+1)*G] squared); x [N, D*G] -> out [N, D]."
        " The gradient is 0 where the norm is."
    ),
    inputs=[Slot("x", "[N, D*G]")],
    outputs=[Slot("out", "[N, D]")],
    attrs=[AttrSpec("group", "int", "columns in a group, G", minimum=1)],
    source=_SOURCE,
)


@pnorm.shape_rule
def pnorm_shape(s: ShapeArgs) -> None:
    divided(s, s.attrs["group"], f"groups of {s.attrs['group']}")


@pnorm.kernel
def pnorm_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    x = k["x"].reshape(*out.shape, k.attrs["group"])
    squares = k.scratch(x.shape, x.dtype)
    return in_order(
        partial(xp.multiply, x, x, squares),
        partial(xp.sum, squares, axis=2, out=out),
        partial(xp.sqrt, out, out=out),
    )


@pnorm.backward("x")
def pnorm_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    grad = k["out_grad"]
    shape = (*out.shape, k.attrs["group"])
    x, target = k["x"].reshape(shape), k["x_grad"].reshape(shape)
    ratio = k.scratch(out.shape, out.dtype)
    zero = k.scratch(out.shape, bool)
    one = out.dtype.type(1)

    def scales() -> None:
        xp.equal(out, out.dtype.type(0), out=zero)
        xp.copyto(ratio, out)
        xp.copyto(ratio, one, where=zero)
        xp.divide(grad, ratio, out=ratio)
        xp.multiply(x, ratio[..., None], out=target)

    return scales


elementwise_product = operator(
    "nnet3.elementwise_product",
    doc="Product over the blocks of columns: x [N, B*D] -> out [N, D].",
    shape=blocks_shape,
    inputs=[Slot("x", "[N, B*D]")],
    outputs=[Slot("out", "[N, D]", not_in_gradient=True)],
    attrs=[AttrSpec("blocks", "int", "number of blocks, B", minimum=1)],
    source=_SOURCE,
)


@elementwise_product.kernel
def elementwise_product_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    blocks = k.attrs["blocks"]
    parts = k["x"].reshape(out.shape[0], blocks, out.shape[1])
    factors = {f"x{i}": parts[:, i] for i in range(blocks)}
    return computed(k, factors, {"out": " * ".join(factors)}, {"out": out})


@elementwise_product.backward("x")
def elementwise_product_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    blocks = k.attrs["blocks"]
    shape = (grad.shape[0], blocks, grad.shape[1])
    x = k["x"].reshape(shape)
    x_grad = k["x_grad"].reshape(shape)
    calls = []
    for i in range(blocks):
        target = x_grad[:, i]
        source = grad
        for j in range(blocks):
            if j != i:
                calls.append(partial(xp.multiply, source, x[:, j], target))
                source = target
        if blocks == 1:
            calls.append(partial(xp.copyto, target, grad))
    return in_order(*calls)
