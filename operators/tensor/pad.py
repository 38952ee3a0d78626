"""Borders around an array: of one value, or of its own entries."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.sizes.shape import Shape, ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.calls import reducing
from .fill import check_value

pad = operator(
    "pad",
    doc="x with a border. Of a, b, c two more entries at each end are, by mode: `constant` v, v and"
    " v, v (`value`); `reflect` c, b and b, a; `edge` a, a and c, c; `wrap` b, c and a, b.",
    inputs=[Slot("x", "any shape", not_in_gradient=True)],
    outputs=[Slot("out", "shape of x plus the paddings", not_in_gradient=True)],
    attrs=[
        AttrSpec("paddings", "ints", "begin and end of axis 0, of axis 1, ...", minimum=0),
        AttrSpec("value", "float", "of the border", 0.0),
        AttrSpec(
            "mode",
            "string",
            "what the border holds",
            "constant",
            choices=("constant", "reflect", "edge", "wrap"),
        ),
    ],
    source="numpy.pad; PyTorch calls `edge` replicate and `wrap` circular",
)


@pad.shape_rule
def pad_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    paddings = s.attrs["paddings"]
    mode = s.attrs["mode"]
    if len(paddings) != 2 * len(shape):
        s.fail(f"paddings {list(paddings)} need a begin and an end for each axis of x")
    if mode == "constant":
        check_value(s, s.dtype("x"))
    else:
        _check_borders(s, shape, mode)
    sums = map(sum, zip(paddings[::2], paddings[1::2], strict=True))
    out = [-1 if dim < 0 else dim + more for dim, more in zip(shape, sums, strict=True)]
    s.set("out", (out, s.dtype("x")))


def _check_borders(s: ShapeArgs, shape: Shape, mode: str) -> None:
    if s.attrs["value"]:
        s.fail(f"value {s.attrs['value']} is for mode 'constant', not for {mode!r}")
    for number, width in enumerate(s.attrs["paddings"]):
        size = shape[number // 2]
        # `reflect` does not repeat the edge itself, so it has one entry less to give.
        most = {"reflect": size - 1, "wrap": size}.get(mode, width if size else 0)
        if width > most and size >= 0:
            s.fail(
                f"axis {number // 2} of size {size} has no {width} entries for a border of mode"
                f" {mode!r}"
            )


def _inside(whole: Any, begins: tuple[int, ...], shape: Shape) -> Any:
    ranges = (slice(begin, begin + dim) for begin, dim in zip(begins, shape, strict=True))
    return whole[(*ranges, ...)]  # the ellipsis: a view even of a scalar


def _borders(k: KernelArgs, whole: Any) -> list[tuple[Any, Any]]:
    """Views of each border and of what it repeats, in an order in which they can be filled.

    The border of an axis goes along all others, so that a later axis finds the corners filled.
    """
    paddings = k.attrs["paddings"]
    mode = k.attrs["mode"]
    pairs = []
    for axis, size in enumerate(k.shape("x")):
        begin, end = paddings[2 * axis : 2 * axis + 2]
        last = begin + size - 1
        sources = {
            "edge": (slice(begin, begin + 1), slice(last, last + 1)),
            "wrap": (slice(size, size + begin), slice(begin, begin + end)),
            # A stop of -1 would mean the last place: None goes down to the first one.
            "reflect": (
                slice(2 * begin, begin, -1),
                slice(last - 1, last - 1 - end if last - 1 - end >= 0 else None, -1),
            ),
        }
        targets = slice(0, begin), slice(last + 1, None)
        front = (slice(None),) * axis
        for width, target, source in zip((begin, end), targets, sources[mode], strict=True):
            if width:
                pairs.append((whole[(*front, target)], whole[(*front, source)]))
    return pairs


@pad.kernel
def pad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    copy = partial(xp.copyto, _inside(out, k.attrs["paddings"][::2], x.shape), x)
    if k.attrs["mode"] == "constant":
        return in_order(partial(out.fill, k.attrs["value"]), copy)
    return in_order(copy, *(partial(xp.copyto, *pair) for pair in _borders(k, out)))


@pad.backward("x")
def pad_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out_grad = k["out_grad"]
    x_grad = k["x_grad"]
    begins = k.attrs["paddings"][::2]
    if k.attrs["mode"] == "constant":
        return partial(xp.copyto, x_grad, _inside(out_grad, begins, x_grad.shape))
    whole = k.scratch(out_grad.shape, out_grad.dtype)
    # In a copy: gradients of borders are added up in place, and others may read out_grad.
    calls: list[Call] = [partial(xp.copyto, whole, out_grad)]
    # Backwards: a corner repeats a border that repeats the inside.
    for border, source in reversed(_borders(k, whole)):
        part = border
        # `edge` repeats one entry, whose copies' gradients are summed first.
        if border.shape != source.shape:
            part = k.scratch(source.shape, whole.dtype)
            calls.append(reducing(xp, border, part) or nothing)
        calls.append(partial(xp.add, source, part, source))
    return in_order(*calls, partial(xp.copyto, x_grad, _inside(whole, begins, x_grad.shape)))
