"""Sequences cut, joined and turned round; padded batches and back; lengths and masks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sequence import (
    EvenOffsets,
    equal_levels,
    lengths_of,
    longest_in,
    offsets_of,
    repeated,
    runs,
)
from ...framework.base.sizes.dims import Dim
from ...framework.base.sizes.shape import Levels, ShapeArgs
from ...framework.fusion.compiled.arguments import made_array
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import EVERYWHERE, AttrSpec, Slot, operator
from ..base.calls import copying
from ..base.indexing import taker
from .sequences import (
    gather,
    gather_grad,
    levels_of,
    made_rows,
    offsets_in,
    packed,
    sequences_in,
    unpacked,
)

_X = Slot("x", "sequences [N, ...]", not_in_gradient=True)
_STEPS = AttrSpec("steps", "int", "number of steps; -1 = as many as the longest has", -1, -1)

# -- concat --------------------------------------------------------------------------------------

sequence_concat = operator(
    "sequence_concat",
    doc=(
        "Sequences joined end to end: sequence i of out is sequence i of the first x, then of the"
        " second, and so on. Each x is [N_j, ...]; out is [sum of N_j, ...]. All hold as many"
        " sequences; of two levels the innermost are joined and the outer ones must be equal. To"
        " put features side by side use `concat`."
    ),
    inputs=[Slot("x", "sequences [N_j, ...]", duplicable=True, not_in_gradient=True)],
    outputs=[Slot("out", "sequences [sum of N_j, ...]", not_in_gradient=True)],
    source="Paddle: paddle/operators/sequence_concat_op.cc",
)


@sequence_concat.shape_rule
def sequence_concat_shape(s: ShapeArgs) -> None:
    names = s.op.inputs["x"]
    shapes = s.shapes("x")
    levels = [levels_of(s, "x", number) for number in range(len(names))]
    width = s.same_shape("rows of x", *(shape[1:] for shape in shapes))
    if len({dtype for _, dtype in s.specs("x")}) > 1:
        s.fail("all x want one dtype")
    rows = [shape[0] for shape in shapes]
    s.set("out", ((-1 if -1 in rows else sum(rows), *width), s.dtype("x")))
    # Either all offsets are known (in a run) or none (while a net is built).
    known = [own for own in levels if own is not None]
    if not known:
        return
    first = known[0]
    for name, other in zip(names, known, strict=True):
        if len(other[-1]) != len(first[-1]) or not equal_levels(other[:-1], first[:-1]):
            s.fail(f"the sequences of {names[0]!r} and {name!r} differ in number")
    lengths = np.sum([lengths_of(other[-1]) for other in known], axis=0)
    s.set_offsets("out", (*first[:-1], offsets_of(lengths)))


def _places(k: KernelArgs) -> list[np.ndarray]:
    """For each x the rows of out that its rows become."""
    offsets = [offsets_in(k, "x", number) for number in range(len(k.op.inputs["x"]))]
    lengths = np.stack([lengths_of(one) for one in offsets])
    # Parts in the order of out: sequence by sequence, and in each x by x. So lengths are read
    # sequence first, and the begins turned back to a row for each x.
    begins = offsets_of(lengths.T.reshape(-1))[:-1].reshape(lengths.T.shape).T
    return [runs(*pair) for pair in zip(begins, lengths, strict=True)]


@sequence_concat.kernel
def sequence_concat_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    calls = []
    for x, place in zip(k.list("x"), _places(k), strict=True):
        if x.size:
            # No row of out is left over: the places of all x together are every row, each once.
            calls.append(partial(out.__setitem__, k.xp.asarray(place), x))
    return in_order(*calls)


@sequence_concat.backward("x")
def sequence_concat_grad_kernel(k: KernelArgs) -> Call:
    calls = []
    for x_grad, place in zip(k.list("x_grad"), _places(k), strict=True):
        if x_grad is not None:
            # Each row went to one place, so the gradient takes rows back and sums nothing.
            calls.append(gather(k, k["out_grad"], place, x_grad))
    return in_order(*calls)


# -- reverse -------------------------------------------------------------------------------------

sequence_reverse = operator(
    "sequence_reverse",
    doc=(
        "Every sequence last row first; x and out are [N, ...]. Of several levels the innermost is"
        " reversed."
    ),
    inputs=[_X],
    outputs=[Slot("out", "sequences [N, ...]", not_in_gradient=True)],
    source="Paddle: paddle/fluid/operators/sequence_ops/sequence_reverse_op.cc",
    takes_halves=EVERYWHERE,
)


@sequence_reverse.shape_rule
def sequence_reverse_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "x")
    s.set("out", (s["x"], s.dtype("x")))
    s.set_offsets("out", levels)


def _reversed(offsets: np.ndarray) -> np.ndarray:
    # Row r of the sequence [a, b) becomes row a + b - 1 - r.
    ends = repeated(offsets[:-1] + offsets[1:] - 1, lengths_of(offsets))
    return ends - np.arange(len(ends))


@sequence_reverse.kernel
def sequence_reverse_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    return gather(k, x, made_rows(k, _reversed, x.shape[0], "x"), k["out"])


@sequence_reverse.backward("x")
def sequence_reverse_grad_kernel(k: KernelArgs) -> Call:
    grad = k["out_grad"]
    # It is its own inverse.
    return gather(k, grad, made_rows(k, _reversed, grad.shape[0], "x"), k["x_grad"])


# -- slice ---------------------------------------------------------------------------------------

sequence_slice = operator(
    "sequence_slice",
    doc=(
        "A part of every sequence of x [N, ...]. With attributes alone it is a Python"
        " slice, x[start : start + length], and may be shorter or empty where the sequence is. With"
        " `offset` [S] it begins at row offset[i] of sequence i, has `length` rows or, where `like`"
        " is given, as many as sequence i of like, and must lie within the sequence. (Lengths are"
        " offsets, known before a run; where a part begins may be data.)"
    ),
    inputs=[
        _X,
        Slot("offset", "first row in each sequence, integers [S]", optional=True),
        Slot(
            "like",
            "sequences of the lengths of the parts",
            optional=True,
            not_in_gradient=True,
            shape_only=True,
        ),
    ],
    outputs=[Slot("out", "sequences [M, ...]", not_in_gradient=True)],
    attrs=[
        AttrSpec("start", "int", "first row; below 0 counted from the end", 0),
        AttrSpec("length", "int", "number of rows; -1 = all that follow", -1, -1),
    ],
    source="Paddle: paddle/operators/sequence_slice_op.cc",
)


@sequence_slice.shape_rule
def sequence_slice_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "x")
    # Offsets of a result must be known before a run, so that memory can be laid out. Therefore
    # lengths come from attributes or from the offsets of `like`, never from data.
    has_offset, like = s.has("offset"), s.has("like")
    if like and not has_offset:
        s.fail("like wants offset beside it")
    if has_offset:
        _check_offset_rule(s, levels, like)
    if levels is None:
        rows = s["like"][0] if like else -1
        s.set("out", ((rows, *s["x"][1:]), s.dtype("x")))
        return
    like_levels = levels_of(s, "like") if like else None
    if like_levels is not None:
        lengths = lengths_of(like_levels[-1])
    else:
        lengths = _parts(levels[-1], s.attrs, has_offset)[1]
    offsets = offsets_of(lengths)
    s.set("out", ((int(offsets[-1]), *s["x"][1:]), s.dtype("x")))
    s.set_offsets("out", (*levels[:-1], offsets))


def _check_offset_rule(s: ShapeArgs, levels: Levels | None, like: bool) -> None:
    s.integers("offset")
    wanted = [s.rank("offset", 1)[0], sequences_in(levels)]
    if like:
        wanted.append(sequences_in(levels_of(s, "like")))
    elif s.attrs["length"] < 0:
        s.fail("offset wants the attribute length or the input like beside it")
    if s.attrs["start"]:
        s.fail("give either start or offset")
    s.same("offset, the sequences of x and the sequences of like", *wanted)


def _parts(offsets: np.ndarray, attrs: Any, has_offset: bool) -> tuple[np.ndarray, np.ndarray]:
    """First row within its sequence and number of rows of each part, by the attributes."""
    have = lengths_of(offsets)
    start = attrs["start"]
    length = attrs["length"]
    if has_offset:  # where they begin is data
        return np.zeros_like(have), np.full_like(have, length)
    # As Python slices do: a start outside of the sequence moves to its end, and leaves less or
    # nothing.
    begins = np.clip(start if start >= 0 else have + start, 0, have)
    left = have - begins
    return begins, left if length < 0 else np.minimum(left, length)


def _fixed_rows(k: KernelArgs) -> np.ndarray:
    """Rows of the parts, where attributes say them all."""
    offsets = offsets_in(k, "x")
    begins, lengths = _parts(offsets, k.attrs, False)
    return runs(offsets[:-1] + begins, lengths)


def _moving_rows(k: KernelArgs) -> tuple[Any, Call]:
    """Memory for the rows of parts that begin where `offset` says, and the call that fills it.

    The call raises RunError where a part does not lie within its sequence.
    """
    xp = k.xp
    begins = k["offset"]
    offsets = offsets_in(k, "x")
    if "like" in k.op.inputs:
        lengths = lengths_of(offsets_in(k, "like"))
    else:
        lengths = _parts(offsets, k.attrs, True)[1]
    # A sequence that is shorter than its part has a room below 0, so no begin fits it.
    room = xp.asarray(lengths_of(offsets) - lengths)
    base = xp.asarray(runs(offsets[:-1], lengths))
    number = xp.asarray(repeated(np.arange(len(lengths)), lengths))
    # Filled by each run, as begins are data; all else about the rows is known now.
    rows = k.scratch(base.shape, np.int64)

    def load() -> None:
        bad = (begins < 0) | (begins > room)
        if bad.any():
            at = int(bad.argmax())
            have = int(lengths_of(offsets)[at])
            wanted = int(lengths[at])
            name = k.op.inputs["offset"][0]
            raise RunError(
                k.describe(
                    f"offset {name!r} holds {int(begins[at])} for sequence {at}, which has {have}"
                    f" rows: a part of {wanted} does not lie within it"
                )
            )
        # int64 whatever the dtype of begins: row numbers of a large batch overflow narrow integers.
        rows[...] = begins[number]
        xp.add(rows, base, rows)

    return rows, load


@sequence_slice.kernel
def sequence_slice_kernel(k: KernelArgs) -> Call:
    if "offset" not in k.op.inputs:
        return gather(k, k["x"], _fixed_rows(k), k["out"])
    rows, load = _moving_rows(k)
    # Parts of no rows, or of width 0: begins are checked all the same.
    if not k["out"].size:
        return load
    x, pack = packed(k, k["x"])
    return in_order(load, pack, taker(k, x, rows, 0, k["out"]))


@sequence_slice.backward("x")
def sequence_slice_grad_kernel(k: KernelArgs) -> Call:
    grad, x_grad = k["out_grad"], k["x_grad"]
    if "offset" not in k.op.inputs:
        return gather_grad(k, grad, _fixed_rows(k), x_grad)
    rows, load = _moving_rows(k)

    def run() -> None:
        load()
        # Rows outside of the parts have no gradient.
        x_grad.fill(0)
        x_grad[rows] = grad  # a row belongs to one sequence, and to its part at most once

    return run


# -- padded batches ------------------------------------------------------------------------------

sequence_pad = operator(
    "sequence_pad",
    doc=(
        "S sequences x [N, ...] as a padded batch out [S, T, ...]. T is `steps`, or the length of"
        " the longest. Of several levels the innermost is padded, and out carries the others. Their"
        " lengths and mask come from `sequence_length` and `sequence_mask`."
    ),
    inputs=[_X],
    outputs=[Slot("out", "[S, T, ...]", not_in_gradient=True)],
    attrs=[_STEPS, AttrSpec("value", "float", "value of the gaps", 0.0)],
    source="Paddle: paddle/fluid/operators/sequence_ops/sequence_pad_op.cc",
)


def _steps(s: ShapeArgs, levels: Levels | None) -> Any:
    """Number of steps of a padded batch; -1 while that is unknown."""
    steps = s.attrs["steps"]
    if levels is None:
        return steps
    longest = longest_in(levels[-1])
    # A width that is fixed refuses longer sequences: to cut them would drop data silently.
    if 0 <= steps < longest:
        name = s.op.inputs["x"][0]
        s.fail(f"a sequence of {name!r} has {longest} rows, more than the {steps} steps")
    return longest if steps < 0 else steps


@sequence_pad.shape_rule
def sequence_pad_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "x")
    s.set("out", ((sequences_in(levels), _steps(s, levels), *s["x"][1:]), s.dtype("x")))
    s.set_offsets("out", None if levels is None else levels[:-1])


def _cells(offsets: np.ndarray, steps: int) -> np.ndarray:
    """For each row its place in the padded batch [S * steps]."""
    return runs(np.arange(len(offsets) - 1) * steps, lengths_of(offsets))


def _rows_of_cells(offsets: np.ndarray, steps: int) -> np.ndarray:
    """For each place in the padded batch its row; -1 for gaps."""
    rows = np.full((len(offsets) - 1) * steps, -1)
    rows[_cells(offsets, steps)] = np.arange(offsets[-1])
    return rows


@sequence_pad.kernel
def sequence_pad_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    if not out.size:
        return nothing
    batch, store = unpacked(k, out)
    count, steps = out.shape[:2]
    rows = made_rows(k, _rows_of_cells, count * steps, "x", steps)
    flat = batch.reshape(count * steps, *out.shape[2:])
    return in_order(gather(k, k["x"], rows, flat, k.attrs["value"]), store)


@sequence_pad.backward("x")
def sequence_pad_grad_kernel(k: KernelArgs) -> Call:
    grad, x_grad = k["out_grad"], k["x_grad"]
    if not x_grad.size:
        return nothing
    grad, load = packed(k, grad)
    # Gaps hold a constant, so their gradients are dropped: only the cells of rows are taken.
    count, steps = grad.shape[:2]
    cells = made_rows(k, _cells, x_grad.shape[0], "x", steps)
    return in_order(load, gather(k, grad.reshape(count * steps, *grad.shape[2:]), cells, x_grad))


sequence_unpad = operator(
    "sequence_unpad",
    doc=(
        "The rows of a padded batch x [S, T, ...] without its gaps: out [N, ...] with the offsets"
        " of `like` [N, ...], whose sequences are at most T long."
    ),
    inputs=[
        Slot("x", "[S, T, ...]", not_in_gradient=True),
        Slot("like", "sequences [N, ...]", not_in_gradient=True, shape_only=True),
    ],
    outputs=[Slot("out", "sequences [N, ...]", not_in_gradient=True)],
    source="Paddle: paddle/fluid/operators/sequence_ops/sequence_unpad_op.cc",
)


@sequence_unpad.shape_rule
def sequence_unpad_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "like")
    shape = s["x"]
    if len(shape) < 2:
        s.fail("x wants 2 dimensions or more: sequences and steps")
    if levels is not None:
        s.same("rows of x and sequences of like", shape[0], sequences_in(levels))
        longest = longest_in(levels[-1])
        if 0 <= shape[1] < longest:
            s.fail(f"a sequence of like has {longest} rows; x has {shape[1]} steps")
    s.set("out", ((s["like"][0], *shape[2:]), s.dtype("x")))
    s.set_offsets("out", levels)


@sequence_unpad.kernel
def sequence_unpad_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    if not out.size:
        return nothing
    x, load = packed(k, k["x"])
    count, steps = x.shape[:2]
    cells = made_rows(k, _cells, out.shape[0], "like", steps)
    return in_order(load, gather(k, x.reshape(count * steps, *x.shape[2:]), cells, out))


@sequence_unpad.backward("x")
def sequence_unpad_grad_kernel(k: KernelArgs) -> Call:
    x_grad = k["x_grad"]
    if not x_grad.size:
        return nothing
    batch, store = unpacked(k, x_grad)
    # Cells that are gaps are -1 and get zeros: x has no influence there.
    count, steps = x_grad.shape[:2]
    rows = made_rows(k, _rows_of_cells, count * steps, "like", steps)
    flat = batch.reshape(count * steps, *x_grad.shape[2:])
    return in_order(gather(k, k["out_grad"], rows, flat), store)


sequence_rows = operator(
    "sequence_rows",
    doc="The rows of a batch x [S, T, ...] whose S sequences are all T long: out [S T, ...].",
    inputs=[Slot("x", "[S, T, ...]", not_in_gradient=True)],
    outputs=[Slot("out", "sequences [S T, ...]", not_in_gradient=True, inplace="x")],
    takes_halves=EVERYWHERE,
)


@sequence_rows.shape_rule
def sequence_rows_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    if len(shape) < 2:
        s.fail("x wants 2 dimensions or more: sequences and steps")
    count, steps = shape[:2]
    rows = -1 if -1 in (count, steps) else count * steps
    s.set("out", ((rows, *shape[2:]), s.dtype("x")))
    if s.is_whole():
        make: Any = EvenOffsets if isinstance(rows, Dim) else EvenOffsets.of
        s.set_offsets("out", (make(count, steps),))


@sequence_rows.kernel
def sequence_rows_kernel(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    return copying(k.xp, x, out.reshape(x.shape)) or nothing


@sequence_rows.backward("x")
def sequence_rows_grad_kernel(k: KernelArgs) -> Call:
    grad, x_grad = k["out_grad"], k["x_grad"]
    return copying(k.xp, grad.reshape(x_grad.shape), x_grad) or nothing


# -- lengths and masks ---------------------------------------------------------------------------

sequence_mask = operator(
    "sequence_mask",
    doc=(
        "Where a padded batch of the sequences x [N, ...] holds rows: out [S, T] is 1 there and 0"
        " in the gaps. T is `steps`, or the length of the longest."
    ),
    inputs=[Slot("x", "sequences [N, ...]", shape_only=True)],
    outputs=[Slot("out", "[S, T]")],
    attrs=[_STEPS, AttrSpec("dtype", "dtype", "of out", np.dtype("float32"))],
    source="Paddle: paddle/fluid/operators/sequence_ops/sequence_mask_op.cc",
    no_gradient="it depends on lengths alone",
)


@sequence_mask.shape_rule
def sequence_mask_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "x")
    s.set("out", ((sequences_in(levels), _steps(s, levels)), s.attrs["dtype"]))
    s.set_offsets("out", None if levels is None else levels[:-1])


@sequence_mask.kernel
def sequence_mask_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    # Computed when the kernel is bound: offsets are fixed for a plan, and a run only copies.
    offsets = (offsets_in(k, "x"),)
    mask = made_array(_mask, bool, out.size, out.shape[1], offsets=offsets).reshape(out.shape)
    return partial(k.xp.copyto, out, mask if k.xp is np else k.xp.asarray(mask))


def _mask(offsets: np.ndarray, steps: int) -> np.ndarray:
    return (np.arange(steps) < lengths_of(offsets)[:, None]).reshape(-1)


sequence_length = operator(
    "sequence_length",
    doc="Number of rows of each of the S sequences x [N, ...]: out [S], int64.",
    inputs=[Slot("x", "sequences [N, ...]", shape_only=True)],
    outputs=[Slot("out", "int64 [S]")],
    no_gradient="it depends on lengths alone",
)


@sequence_length.shape_rule
def sequence_length_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "x")
    s.set("out", ((sequences_in(levels),), np.int64))
    s.set_offsets("out", None if levels is None else levels[:-1])


@sequence_length.kernel
def sequence_length_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    lengths = made_rows(k, lengths_of, out.size, "x")
    return partial(k.xp.copyto, out, lengths if k.xp is np else k.xp.asarray(lengths))
