"""Operators that put arrays together and cut them apart: concat, stack, split, slice."""

from __future__ import annotations

from builtins import slice as span
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.backend import address
from ...framework.base.sizes.dims import Dim
from ...framework.base.sizes.shape import OperatorView, ShapeArgs
from ...framework.fusion.rows.row_copies import copy_call
from ...framework.fusion.team import in_order, nothing, task_of
from ...framework.ir.gradient_args import GradientArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.names import EMPTY
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import EVERYWHERE, AttrSpec, Slot, operator
from ...framework.ir.rows import beside

_X = Slot("x", "any shape", not_in_gradient=True)
_PARTS = Slot("x", "one or more arrays of one dtype", duplicable=True, not_in_gradient=True)
# The largest int64: a slice clips it to the axis. Its negative ends a walk backwards at place 0.
_TO_END = (1 << 63) - 1


def _copies(xp: Any, targets: list[Any], sources: list[Any]) -> Any:
    """A call that copies each source to its target; targets that nothing needs are None."""
    pairs = zip(sources, targets, strict=True)
    wanted = [(part, to) for part, to in pairs if to is not None]
    if xp is not np:
        from ...framework.fusion.cuda.device_copies import copies  # without a GPU it is not needed

        together = copies(xp, wanted)
        if together is not None:
            return together
    return in_order(*(copy_call(xp, part, to) for part, to in wanted))


def _views_along(whole: Any, axis: int, sizes: list[int]) -> list[Any]:
    """Views of consecutive ranges along `axis`."""
    views = []
    begin = 0
    for size in sizes:
        views.append(whole[(span(None),) * axis + (span(begin, begin + size),)])
        begin += size
    return views


def _one_dtype(s: ShapeArgs) -> Any:
    dtypes = {dtype for _, dtype in s.specs("x")}
    if len(dtypes) > 1:
        s.fail(f"wants one dtype, has {', '.join(sorted(map(str, dtypes)))}")
    return dtypes.pop()


# -- concat ------------------------------------------------------------------------------------

concat = operator(
    "concat",
    doc="Arrays one after the other along an axis; all other dimensions agree.",
    inputs=[_PARTS],
    outputs=[Slot("out", "dimensions added up along the axis", not_in_gradient=True)],
    attrs=[AttrSpec("axis", "int", "axis to join along", 0)],
    rows=beside("axis"),
    column_views=("out", "x"),
    takes_halves=EVERYWHERE,
)


@concat.shape_rule
def concat_shape(s: ShapeArgs) -> None:
    shapes = s.shapes("x")
    if len({len(shape) for shape in shapes}) > 1:
        s.fail("wants arrays of one rank")
    axis = s.axis(s.attrs["axis"], len(shapes[0]))
    out = [
        s.same(f"dimensions {number}", *dims) if number != axis else 0
        for number, dims in enumerate(zip(*shapes, strict=True))
    ]
    joined = [shape[axis] for shape in shapes]
    out[axis] = -1 if -1 in joined else sum(joined)
    s.set("out", (out, _one_dtype(s)))


@concat.kernel(channels_last=(("x", "out"),))
def concat_kernel(k: KernelArgs) -> Call:
    parts, out, axis = k.list("x"), k["out"], k.attrs["axis"]
    places = _views_along(out, axis % out.ndim, [part.shape[axis] for part in parts])
    # The plan may have had them written into the result (see runtime/plans/parts.py).
    moved = [pair for pair in zip(places, parts, strict=True) if not _is_there(*pair)]
    copies = [copy_call(k.xp, part, place) for place, part in moved]
    if len(moved) == len(parts) and any(task_of(copy) is None for copy in copies):
        return partial(k.xp.concatenate, parts, axis, out)
    return in_order(*copies)


def _is_there(place: Any, part: Any) -> bool:
    """Whether two arrays of one shape are the same memory."""
    return address(place) == address(part) and place.strides == part.strides


@concat.backward("x")
def concat_grad_kernel(k: KernelArgs) -> Call:
    out_grad = k["out_grad"]
    shapes = k.shapes("x")
    axis = k.attrs["axis"] % out_grad.ndim
    views = _views_along(out_grad, axis, [shape[axis] for shape in shapes])
    return _copies(k.xp, k.list("x_grad"), views)


# -- stack -------------------------------------------------------------------------------------

stack = operator(
    "stack",
    doc="Arrays of one shape, side by side along a new axis.",
    inputs=[_PARTS],
    outputs=[Slot("out", "shape of x with the new axis", not_in_gradient=True)],
    attrs=[AttrSpec("axis", "int", "place of the new axis in the result", 0)],
    rows=beside("axis", added=1),
    takes_halves=EVERYWHERE,
)


@stack.shape_rule
def stack_shape(s: ShapeArgs) -> None:
    shapes = s.shapes("x")
    shape = s.same_shape("all of x", *shapes)
    axis = s.axis(s.attrs["axis"], len(shape) + 1)
    s.set("out", ((*shape[:axis], len(shapes), *shape[axis:]), _one_dtype(s)))


def _layers(whole: Any, axis: int) -> list[Any]:
    """Views of `whole` at each position of `axis`."""
    axis %= whole.ndim
    # With an ellipsis the layers of a vector are views, too, and no numbers.
    return [whole[(span(None),) * axis + (i, ...)] for i in range(whole.shape[axis])]


@stack.kernel
def stack_kernel(k: KernelArgs) -> Call:
    return _copies(k.xp, _layers(k["out"], k.attrs["axis"]), k.list("x"))


@stack.backward("x")
def stack_grad_kernel(k: KernelArgs) -> Call:
    return _copies(k.xp, k.list("x_grad"), _layers(k["out_grad"], k.attrs["axis"]))


# -- split -------------------------------------------------------------------------------------

split = operator(
    "split",
    doc="x cut along an axis into as many parts as there are outputs.",
    inputs=[_X],
    outputs=[Slot("out", "the parts, in order", duplicable=True, not_in_gradient=True)],
    attrs=[
        AttrSpec("axis", "int", "axis to cut along", 0),
        AttrSpec(
            "sections", "ints", "size of each part; one may be -1; none = equal sizes", (), -1
        ),
    ],
    rows=beside("axis"),
    column_views=("x", "out"),
    takes_halves=EVERYWHERE,
)


def _sections(sections: tuple[int, ...], parts: int, size: int) -> list[int] | None:
    """Size of each part; None where they do not make up `size`; -1 for what is not known."""
    if not sections:
        if size < 0:
            return [-1] * parts
        return [size // parts] * parts if size % parts == 0 else None
    fixed = sum(part for part in sections if part >= 0)
    rest = size - fixed if size >= 0 else -1
    if size >= 0 and (rest < 0 or (rest > 0 and -1 not in sections)):
        return None
    return [rest if part < 0 else part for part in sections]


@split.shape_rule
def split_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    outputs = s.op.outputs["out"]
    sections = s.attrs["sections"]
    axis = s.axis(s.attrs["axis"], len(shape))
    if EMPTY in outputs:
        s.fail("every part needs a variable")
    if sections.count(-1) > 1:
        s.fail(f"sections {list(sections)} leave more than one size open")
    if sections and len(sections) != len(outputs):
        s.fail(f"sections {list(sections)} need one output each, there are {len(outputs)}")
    sizes = _sections(sections, len(outputs), shape[axis])
    if sizes is None:
        how = f"into sections {list(sections)}" if sections else f"into {len(outputs)} equal parts"
        s.fail(f"axis {axis} of size {shape[axis]} cannot be cut {how}")
    s.set("out", *(((*shape[:axis], size, *shape[axis + 1 :]), s.dtype("x")) for size in sizes))


@split.kernel
def split_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    outs = k.list("out")
    axis = k.attrs["axis"] % x.ndim
    sizes = _sections(k.attrs["sections"], len(outs), x.shape[axis])
    assert sizes is not None, "the shape rule has refused such sections"
    views = _views_along(x, axis, sizes)
    return _copies(k.xp, outs, views)


@split.gradient_maker
def split_gradient(g: GradientArgs) -> list[OpNode]:
    axis = {name: value for name, value in g.attrs.items() if name == "axis"}
    # Parts without a gradient come as zeros, so the parts make up x again.
    return [g.op("concat", {"x": g.output_grads("out")}, {"out": g.input_grads("x")}, axis)]


# -- slice -------------------------------------------------------------------------------------


def _first_channel(op: OperatorView, channels: int) -> int:
    """See `OperatorDef.takes_range`."""
    attrs = op.attrs
    if tuple(attrs["axes"]) != (1,) or tuple(attrs["steps"] or (1,)) != (1,):
        return -1
    places = range(channels)[_spans(attrs, 2)[1]]
    return places.start if places else -1


slice_op = operator(
    "slice",
    doc="A range along each of some axes, as x[start:end:step] in Python, also negative steps.",
    inputs=[_X],
    outputs=[Slot("out", "shape of x, shorter along axes", not_in_gradient=True)],
    attrs=[
        AttrSpec("axes", "ints", "axes to cut"),
        AttrSpec("starts", "ints", "first position; counted from the end where negative"),
        AttrSpec("ends", "ints", "position after the last; none = to the end", ()),
        AttrSpec("steps", "ints", "distance between positions; none = 1", ()),
    ],
    rows=beside("axes"),
    takes_range=_first_channel,
    takes_halves=EVERYWHERE,
)


def _spans(attrs: dict[str, Any], rank: int) -> list[Any]:
    """A Python slice for each axis."""
    axes, starts = attrs["axes"], attrs["starts"]
    steps = attrs["steps"] or (1,) * len(axes)
    to_end = tuple(_TO_END if step > 0 else -_TO_END for step in steps)
    spans = [span(None)] * rank
    for axis, start, end, step in zip(axes, starts, attrs["ends"] or to_end, steps, strict=True):
        spans[axis] = span(start, end, step)
    return spans


@slice_op.shape_rule
def slice_op_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    attrs = s.attrs
    axes = [s.axis(axis, len(shape), "axes:") for axis in attrs["axes"]]
    if len(set(axes)) < len(axes):
        s.fail(f"axes {list(attrs['axes'])} name an axis twice")
    for name in ("starts", "ends", "steps"):
        if len(attrs[name]) != len(axes) and (attrs[name] or name == "starts"):
            s.fail(f"{name} {list(attrs[name])} need one number for each of axes {axes}")
    if 0 in attrs["steps"]:
        s.fail("a step of 0 leads nowhere")
    spans = _spans(attrs, len(shape))
    out = [_length(one, dim) for one, dim in zip(spans, shape, strict=True)]
    s.set("out", (out, s.dtype("x")))


def _length(one: span, dim: int) -> int:
    """How many elements a slice has of an axis; -1 where that is unknown."""
    if one == span(None):
        return dim
    if dim < 0:
        return -1
    if not isinstance(dim, Dim) or one.step != 1:
        return len(range(*one.indices(dim)))
    first, last = (max(place + dim, 0) if place < 0 else place for place in (one.start, one.stop))
    last = dim if last == _TO_END or last > dim else last
    return max(last - first, 0)


@slice_op.kernel(channels_last=(("x", "out"),))
def slice_op_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    part = x[(*_spans(k.attrs, x.ndim), ...)]
    # The plan may have had it read where it lies (see runtime/plans/parts.py).
    return nothing if _is_there(part, k["out"]) else copy_call(k.xp, part, k["out"])


@slice_op.backward("x")
def slice_op_grad_kernel(k: KernelArgs) -> Call:
    x_grad = k["x_grad"]
    # With an ellipsis it is a view even of a scalar, so that the copy reaches x_grad.
    part = x_grad[(*_spans(k.attrs, x_grad.ndim), ...)]
    # A slice reads no place twice, so gradients are copied and need not be added.
    return in_order(partial(x_grad.fill, 0), partial(k.xp.copyto, part, k["out_grad"]))
