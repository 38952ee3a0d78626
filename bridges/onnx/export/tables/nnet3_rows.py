"""Operators `rows.*`: times and numbers of rows, borders, rows as sequences and back."""

from __future__ import annotations

import numpy as np

from ..emission import END, Emission, emits


@emits("rows.end")
def end(e: Emission) -> None:
    frames = e.cut(e.node("Shape", e["x"]), 0, 1, 2)
    last = e.node("Sub", frames, e.ints(1))
    unit = e.attrs["unit"]
    if unit > 1:
        last = e.node("Mul", e.node("Div", last, e.ints(unit)), e.ints(unit))
    e.set("out", last)


def _count(e: Emission, more: int) -> str:
    """(end + more) // step, [1]."""
    rows = e.node("Add", e["end"], e.ints(more)) if more else e["end"]
    step = e.attrs["step"]
    return e.node("Div", rows, e.ints(step)) if step > 1 else rows


@emits("rows.times")
def times(e: Emission) -> None:
    first, step = e.attrs["first"], e.attrs["step"]
    count = _count(e, e.attrs["last"] - first + step)
    t = e.range(e.node("Squeeze", count))
    t = e.node("Mul", t, e.ints(step)) if step > 1 else t
    e.set("out", e.node("Add", t, e.ints(first)) if first else t)


@emits("rows.inside")
def inside(e: Emission) -> None:
    low = e.attrs["low"]
    high = e.attrs["high"]
    conditions = list[str]()
    if low > -np.inf:
        conditions.append(e.node("GreaterOrEqual", e["times"], e.ints(int(low))))
    if high < np.inf:
        last = e.node("Add", e["end"], e.ints(int(high))) if high else e["end"]
        conditions.append(e.node("LessOrEqual", e["times"], last))
    e.set("out", conditions[0] if len(conditions) == 1 else e.node("And", *conditions))


@emits("rows.periodic")
def periodic(e: Emission) -> None:
    values = e.attrs["values"]
    place = e.node("Mod", e["times"], e.ints(len(values)))
    e.set("out", e.node("Gather", e.graph.constant(values), place))


@emits("rows.numbers")
def numbers(e: Emission) -> None:
    first, step, most = (e.attrs[name] for name in ("first", "step", "most"))
    row_numbers = e.node("Sub", e["times"], e.ints(first)) if first else e["times"]
    if step > 1:  # times and rows lie on multiples of the step
        row_numbers = e.node("Div", row_numbers, e.ints(step))
    if e.has("end") or most >= 0:
        last = _count(e, e.attrs["more"]) if e.has("end") else e.ints(most)
        row_numbers = e.node("Min", e.node("Max", row_numbers, e.ints(0)), last)
    e.set("out", row_numbers)


@emits("rows.cut")
def cut(e: Emission) -> None:
    stop = e.node("Add", e["end"], e.ints(e.attrs["more"]))
    e.set("out", e.node("Slice", e["x"], e.ints(e.attrs["start"]), stop, e.ints(2)))


@emits("rows.border")
def border(e: Emission) -> None:
    pads = e.ints(0, 0, e.attrs["left"], 0, 0, e.attrs["right"])
    e.set("out", e.node("Pad", e["x"], pads))


@emits("rows.spread")
def spread(e: Emission) -> None:
    shape = e.node("Shape", e["like"])
    if e.has("end"):
        batch = e.cut(shape, 0, 0, 1)
        count = _count(e, e.attrs["more"])
    else:
        batch, count = (e.node("Gather", shape, e.ints(axis)) for axis in (0, 2))
    wanted = e.node("Concat", batch, e.ints(1), count, axis=0)
    e.set("out", e.node("Expand", e["x"], wanted))


def _shape(e: Emission, like: str, axis: int) -> str:
    """A dimension of the rows of a loop, [1]; the loop's way in and out share it."""
    key = like, axis
    if key not in e.values.sizes:
        if (like, -1) not in e.values.sizes:
            e.values.sizes[like, -1] = e.node("Shape", like)
        e.values.sizes[key] = e.cut(e.values.sizes[like, -1], 0, axis, axis + 1)
    return e.values.sizes[key]


def _missing(e: Emission, like: str) -> str:
    """How many rows the last block lacks, [1]."""
    key = like, -2 - e.attrs["chains"]
    if key not in e.values.sizes:
        negative = e.node("Neg", _shape(e, like, 2))
        e.values.sizes[key] = e.node("Mod", negative, e.ints(e.attrs["chains"]))
    return e.values.sizes[key]


@emits("rows.sequences")
def sequences(e: Emission) -> None:
    """[N, columns, rows] as [steps, d N, columns]."""
    chains = e.attrs["chains"]
    like = e.list("x")[0]
    outputs = list[str]()
    if chains > 1:
        many = e.node("Mul", _shape(e, like, 0), e.ints(chains))
        ends = e.ints(0, 0, 0, 0, 0)
        missing = _missing(e, like)
        sides = [missing, ends] if e.attrs["backward"] else [e.ints(0, 0, 0), missing, e.ints(0, 0)]
        pads = e.node("Concat", *sides, axis=0)
    for place, x in enumerate(e.list("x")):
        rows = e.node("Transpose", x, perm=[2, 0, 1])
        if chains > 1:
            dims = e.node("Concat", e.ints(-1), many, e.ints(e.shape("x", place)[1]), axis=0)
            rows = e.node("Reshape", e.node("Pad", rows, pads), dims)
        outputs.append(rows)
    e.set("out", *outputs)
    if chains > 1:  # where states begin with zeros
        e.values.sizes[e.values.name_of(e.op.outputs["out"][0]), 1] = many


@emits("rows.of_sequences")
def of_sequences(e: Emission) -> None:
    like = e["like"]
    chains = e.attrs["chains"]
    outputs = list[str]()
    for place, x in enumerate(e.list("x")):
        if chains == 1:
            outputs.append(e.node("Transpose", x, perm=[1, 2, 0]))
            continue
        dim = e.ints(e.shape("x", place)[1])
        dims = e.node("Concat", e.ints(-1), _shape(e, like, 0), dim, axis=0)
        rows = e.node("Transpose", e.node("Reshape", x, dims), perm=[1, 2, 0])
        ends = (e.ints(0), _shape(e, like, 2))
        if e.attrs["backward"]:
            ends = (_missing(e, like), e.ints(END))
        outputs.append(e.node("Slice", rows, *ends, e.ints(2)))
    e.set("out", *outputs)
