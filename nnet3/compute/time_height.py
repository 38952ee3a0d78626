"""Components with fixed time offsets: TDNN, and convolution over time and height."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import in_order, reducing
from ...operators.linear.matmul import Product, product
from .images import chunks_of
from .lowering import OUT, Recipe, X, lowers
from .step import of_indexes

_FIRST = AttrSpec("first", "ints", "input row that the first output row reads, for each offset")
_STRIDE = AttrSpec("stride", "int", "distance of the input rows of neighbouring outputs", minimum=1)
_ROWS = AttrSpec("rows", "int", "rows of the output", minimum=0)
_NARROW = 64  # columns
OFFSETS = {name: of_indexes(name) for name in ("first", "stride", "rows")}
"""Attributes that are the fields of `OffsetRows`."""


@lowers("TdnnComponent")
def lower_tdnn_component(component: Any, recipe: Recipe) -> None:
    inputs = {"x": X, "w": recipe.parameter("linear_params", component.linear_params)}
    if len(component.bias_params):
        inputs["b"] = recipe.parameter("bias_params", component.bias_params)
    recipe.op("nnet3.tdnn", OUT, attrs=OFFSETS, **inputs)


@lowers("TimeHeightConvolutionComponent")
def lower_time_height_convolution_component(component: Any, recipe: Recipe) -> None:
    w = recipe.parameter("linear_params", component.linear_params)
    b = recipe.parameter("bias_params", component.bias_params)
    attrs = OFFSETS | {
        "height_offsets": [int(height) for _, height in component.offsets],
        "height_in": int(component.height_in),
        "height_out": int(component.height_out),
        "height_step": int(component.height_subsample_out),
    }
    recipe.op("nnet3.time_height_convolution", OUT, attrs=attrs, x=X, w=w, b=b)


def _check_rows(s: ShapeArgs) -> None:
    """Refuse offsets that lead out of x."""
    attrs, rows = s.attrs, s["x"][0]
    if rows >= 0 and attrs["rows"]:
        last = max(attrs["first"]) + attrs["stride"] * (attrs["rows"] - 1)
        if min(attrs["first"]) < 0 or last >= rows:
            s.fail(f"rows {min(attrs['first'])} to {last} are read and x has {rows}")


def _parts(k: KernelArgs, array: Any) -> list[Any]:
    """For each offset, the rows of `array` that the outputs read."""
    attrs = k.attrs
    span = attrs["stride"] * (attrs["rows"] - 1) + 1 if attrs["rows"] else 0
    return [array[at : at + span : attrs["stride"]] for at in attrs["first"]]


tdnn = operator(
    "nnet3.tdnn",
    doc=(
        "Affine map of K rows of the input for each row of the output: out[r] = b + sum over k of"
        " w[:, k*D : (k+1)*D] x[first[k] + stride * r]. x [N, D], w [M, K*D], b [M] ->"
        " out [rows, M]."
    ),
    inputs=[
        Slot("x", "[N, D]"),
        Slot("w", "[M, K*D]"),
        Slot("b", "[M]", optional=True, not_in_gradient=True),
    ],
    outputs=[Slot("out", "[rows, M]", not_in_gradient=True)],
    attrs=[_FIRST, _STRIDE, _ROWS],
    source="Kaldi: nnet3/nnet-tdnn-component.cc",
)


@tdnn.shape_rule
def tdnn_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "b") if s.has("b") else s.floats("x", "w")
    cols, (units, taps) = s.rank("x", 2)[1], s.rank("w", 2)
    if s.has("b"):
        units = s.same("the rows of w and the length of b", units, s.rank("b", 1)[0])
    wanted = cols * len(s.attrs["first"]) if cols >= 0 else -1
    s.same("the columns of w and those of x, times offsets,", taps, wanted)
    _check_rows(s)
    s.set("out", ((s.attrs["rows"], units), dtype))


def _spliced(k: KernelArgs) -> tuple[Any, list[Call]]:
    """The input rows of all offsets beside one another, and the calls that put them there."""
    parts, width = _parts(k, k["x"]), k["x"].shape[1]
    whole = k.scratch((k.attrs["rows"], width * len(parts)), k["x"].dtype)
    return whole, [
        partial(k.xp.copyto, share, part)
        for share, part in zip(_blocks(whole, width), parts, strict=True)
    ]


def _blocks(array: Any, width: int) -> list[Any]:
    """The blocks of `width` columns of a matrix: one for each offset."""
    return [array[:, begin : begin + width] for begin in range(0, array.shape[1], width)]


@tdnn.kernel
def bind_tdnn(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `nnet3.tdnn` on top of a product of two matrices.

    Products of the offsets are added up. Where x is narrow, one product of all is quicker.
    """
    w, out, width = k["w"], k["out"], k["x"].shape[1]
    parts = _parts(k, k["x"])
    if len(parts) > 1 and width < _NARROW:
        x, load = _spliced(k)
        return in_order(*load, product(k.xp, x, w.T, out, bias=k.get("b")))
    (first, *others), (w_first, *w_others) = parts, _blocks(w, width)
    calls = [product(k.xp, first, w_first.T, out, bias=k.get("b"))]
    by = k.scratch(out.shape, out.dtype) if others else None
    for part, block in zip(others, w_others, strict=True):
        calls.append(product(k.xp, part, block.T, out, by=by))
    return in_order(*calls)


@tdnn.backward("x", "w", "b")
def bind_tdnn_grad(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `nnet3.tdnn_grad` on top of a product of two matrices."""
    xp, w, grad, calls = k.xp, k["w"], k["out_grad"], []
    width, w_grad, x_grad = w.shape[1] // len(k.attrs["first"]), k.get("w_grad"), k.get("x_grad")
    if w_grad is not None and width < _NARROW:
        x, load = _spliced(k)
        calls += [*load, product(xp, grad.T, x, w_grad)]
    elif w_grad is not None:
        for part, block in zip(_parts(k, k["x"]), _blocks(w_grad, width), strict=True):
            calls.append(product(xp, grad.T, part, block))
    if k.get("b_grad") is not None:
        calls.append(reducing(xp, grad, k["b_grad"]))
    if x_grad is not None:
        calls.append(partial(x_grad.fill, 0))
        by = k.scratch((k.attrs["rows"], width), grad.dtype)
        for part, block in zip(_parts(k, x_grad), _blocks(w, width), strict=True):
            calls.append(product(xp, grad, block, part, by=by))
    return in_order(*calls)


convolution = operator(
    "nnet3.time_height_convolution",
    doc=(
        "Convolution over time and height. A row of x [N, HI*F] holds HI heights of F filters; out"
        " [rows, HO*M]. For each offset o, out[r, h] += w[:, o*F : (o+1)*F] x[first[o] +"
        " stride * r, h * height_step + height_offsets[o]], where heights outside of x count as 0;"
        " b [M] is added at every height. w [M, O*F]."
    ),
    inputs=[
        Slot("x", "[N, HI*F]"),
        Slot("w", "[M, O*F]"),
        Slot("b", "[M]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[rows, HO*M]", not_in_gradient=True)],
    attrs=[
        _FIRST,
        _STRIDE,
        _ROWS,
        AttrSpec("height_offsets", "ints", "height that each offset adds"),
        AttrSpec("height_in", "int", "HI", minimum=1),
        AttrSpec("height_out", "int", "HO", minimum=1),
        AttrSpec("height_step", "int", "heights of x to one of out", 1, minimum=1),
    ],
    source="Kaldi: nnet3/convolution.cc",
)


@convolution.shape_rule
def convolution_shape(s: ShapeArgs) -> None:
    dtype, attrs = s.floats("x", "w", "b"), s.attrs
    cols, (units, taps) = s.rank("x", 2)[1], s.rank("w", 2)
    units = s.same("the rows of w and the length of b", units, s.rank("b", 1)[0])
    if len(attrs["first"]) != len(attrs["height_offsets"]):
        s.fail("first and height_offsets want one number for each offset")
    if cols >= 0 and cols % attrs["height_in"]:
        s.fail(f"the {cols} columns of x do not fall into {attrs['height_in']} heights")
    wanted = cols // attrs["height_in"] * len(attrs["first"]) if cols >= 0 else -1
    s.same("the columns of w and the filters of x, times offsets,", taps, wanted)
    _check_rows(s)
    s.set("out", ((attrs["rows"], attrs["height_out"] * units if units >= 0 else -1), dtype))


def _places(k: KernelArgs, array: Any) -> list[tuple[slice, Any]]:
    """For each offset: the output heights whose input exists, and these inputs [rows, h, F]."""
    attrs, places = k.attrs, []
    height, step = attrs["height_in"], attrs["height_step"]
    for part, offset in zip(_parts(k, array), attrs["height_offsets"], strict=True):
        begin = max(0, -(offset // step))
        end = max(begin, min(attrs["height_out"], (height - 1 - offset) // step + 1))
        image = part.reshape(part.shape[0], height, part.shape[1] // height)
        first = begin * step + offset
        places.append((slice(begin, end), image[:, first : first + (end - begin) * step : step]))
    return places


class _Patches:
    """Scratch memory for the inputs of a range of rows [rows, HO, O, F], filled and emptied."""

    def __init__(self, k: KernelArgs, array: Any) -> None:
        attrs = k.attrs
        self.xp, self.places = k.xp, _places(k, array)
        shape = (attrs["height_out"], len(self.places), array.shape[1] // attrs["height_in"])
        cells = shape[0] * shape[1] * shape[2]
        self.chunks = chunks_of(attrs["rows"], cells * array.itemsize)
        longest = max((c.stop - c.start for c in self.chunks), default=0)
        self.memory = k.scratch((longest, *shape), array.dtype)
        self.taps = shape[1] * shape[2]

    def of(self, rows: slice) -> Any:
        """The patches as a matrix [rows * HO, O*F]."""
        part = self.memory[: rows.stop - rows.start]
        return part.reshape(part.shape[0] * part.shape[1], self.taps)

    def load(self, rows: slice) -> list[Call]:
        """Calls that fill the patches; heights outside of the input become 0."""
        part, calls = self.memory[: rows.stop - rows.start], []
        for i, (heights, values) in enumerate(self.places):
            for edge in (part[:, : heights.start, i], part[:, heights.stop :, i]):
                if edge.size:
                    calls.append(partial(edge.fill, 0))
            calls.append(partial(self.xp.copyto, part[:, heights, i], values[rows]))
        return calls

    def spread(self, rows: slice) -> list[Call]:
        """Calls that add the patches to where they come from."""
        part, calls = self.memory[: rows.stop - rows.start], []
        for i, (heights, values) in enumerate(self.places):
            target = values[rows]
            calls.append(partial(self.xp.add, target, part[:, heights, i], target))
        return calls


def _by_height(k: KernelArgs, array: Any, units: int) -> tuple[Any, list[Call]]:
    """[rows, HO*M] as [rows * HO, M], and the calls that fill it where that is a copy."""
    rows = array.shape[0] * k.attrs["height_out"]
    if array.flags.c_contiguous:
        return array.reshape(rows, units), []
    copy = k.scratch(array.shape, array.dtype)
    return copy.reshape(rows, units), [partial(k.xp.copyto, copy, array)]


@convolution.kernel
def bind_convolution(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `nnet3.time_height_convolution` on top of a product of two matrices."""
    w, b, out, height = k["w"], k["b"], k["out"], k.attrs["height_out"]
    patches, target = _Patches(k, k["x"]), out
    if not out.flags.c_contiguous:
        target = k.scratch(out.shape, out.dtype)
    flat, calls = target.reshape(out.shape[0] * height, w.shape[0]), []
    for rows in patches.chunks:
        part = flat[rows.start * height : rows.stop * height]
        calls += [*patches.load(rows), product(k.xp, patches.of(rows), w.T, part, bias=b)]
    if target is not out:
        calls.append(partial(k.xp.copyto, out, target))
    return in_order(*calls)


@convolution.backward("x", "w", "b")
def bind_convolution_grad(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of the gradient of `nnet3.time_height_convolution` on top of a product."""
    xp, w, height = k.xp, k["w"], k.attrs["height_out"]
    grad, calls = _by_height(k, k["out_grad"], w.shape[0])
    if k.get("b_grad") is not None:
        calls.append(reducing(xp, grad, k["b_grad"]))
    w_grad, x_grad = k.get("w_grad"), k.get("x_grad")
    if w_grad is not None:
        patches, share = _Patches(k, k["x"]), k.scratch(w.shape, w.dtype)
        calls.append(partial(w_grad.fill, 0))
        for rows in patches.chunks:
            part = grad[rows.start * height : rows.stop * height]
            calls += [
                *patches.load(rows),
                product(xp, part.T, patches.of(rows), share),
                partial(xp.add, w_grad, share, w_grad),
            ]
    if x_grad is not None:
        patches = _Patches(k, x_grad)
        calls.append(partial(x_grad.fill, 0))
        for rows in patches.chunks:
            part = grad[rows.start * height : rows.stop * height]
            calls += [product(xp, part, w, patches.of(rows)), *patches.spread(rows)]
    return in_order(*calls)
