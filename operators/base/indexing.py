"""Helpers of operators that take row numbers: the range check, taking rows, adding to rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import OperatorView
from ...framework.fusion import team
from ...framework.fusion.compiled.arguments import Block, bind, is_host_array
from ...framework.fusion.team import in_order, nothing, of_arrays
from ...framework.ir.kernel_args import Call, KernelArgs, describe_by
from .calls import is_whole
from .row_adder import row_adder

if TYPE_CHECKING:
    from ...framework.base.device_checks import Explain

_NO_ID = -(1 << 63)
_CHUNK = 1 << 15  # elements of a chunk's index, so that it stays in the second-level cache


def id_check(k: KernelArgs, slot: str, bound: int, *, counted: Any = None) -> Callable[[], None]:
    """A callable that refuses values of the integer input `slot` outside [0, bound).

    It costs one pass over the ids: seen as unsigned numbers, negative ones are the largest.

    Args:
        counted: the same ids counted from the front, where [-bound, bound) is allowed.

    Raises:
        RunError: when called; with the operator, its variables and the first bad id.
    """
    if not k[slot].size:
        return nothing
    if k.xp is not np and bound:  # CuPy takes nothing of an empty axis
        least = 0 if counted is None else -bound
        return noted(k, slot, outside(k, slot, least, bound), least, bound)
    if counted is not None:
        return _check(k.op, slot, bound, counted, k.arrays)
    return of_arrays(partial(_check, k.op, slot, bound, None), k.arrays)


def _check(
    op: OperatorView, slot: str, bound: int, counted: Any, arrays: Mapping[str, Any]
) -> Callable[[], None]:
    """See `id_check`."""
    (name, *_) = op.inputs[slot]
    ids = arrays[name]
    checked, least = (ids, 0) if counted is None else (counted, -bound)
    bits = 8 * checked.dtype.itemsize
    # Of narrow signed ids all from half of the unsigned range on are negative ones.
    limit = min(bound, 1 << (bits - 1)) if checked.dtype.kind == "i" else bound
    greatest = checked.view(f"u{checked.dtype.itemsize}").max

    def check() -> None:
        if greatest() >= limit:
            bad = int(ids[(ids < least) | (ids >= bound)][0])
            raise RunError(describe_by(op, arrays, _outside(name, slot, least, bound, bad)))

    return check


def outside(k: KernelArgs, slot: str, least: int, bound: int) -> Explain:
    """The message about an id outside [least, bound)."""
    name, describe = k.op.inputs[slot][0], k.describe
    return lambda _, bad: describe(_outside(name, slot, least, bound, bad))


def _outside(name: str, slot: str, least: int, bound: int, bad: int) -> str:
    return f"{slot} {name!r} holds {bad}, want {least} <= {slot} < {bound}"


def _refuse(op: OperatorView, slot: str, bound: int, arrays: Mapping[str, Any]) -> None:
    """Raise the error of the first id that is out of range."""
    _check(op, slot, bound, None, arrays)()


def noted(
    k: KernelArgs, slot: str, explain: Explain, least: int, bound: int, never: int = _NO_ID
) -> Call:
    """A check of ids by a GPU, which is not asked: ids outside [least, bound), and `never`, are
    found when results are read. Until then CuPy counts them round and round."""
    # Without a GPU it is not needed.
    from ...framework.fusion.cuda.device_kernels import cuda_text, elementwise

    ids = k.in_one_piece(k[slot])
    load = [] if ids is k[slot] else [partial(k.xp.copyto, ids, k[slot])]
    numbers = (np.int64(n) for n in (ids.size, least, bound, never))
    text = cuda_text("indexes").replace("ID ", f"{ids.dtype.name} ")
    given = ids, k.note(slot, explain), *numbers
    return in_order(*load, elementwise(k.xp, text, "check_ids", np.float32, ids.size, given))


def counted_from_front(k: KernelArgs, ids: Any, bound: int) -> tuple[Any, Call]:
    """An array of int64, and the call that fills it: ids, plus `bound` where they are below 0."""
    counted = k.scratch(ids.shape, np.int64)
    below = k.scratch(ids.shape, bool)
    xp = k.xp
    zero = ids.dtype.type(0)
    size = np.int64(bound)

    def run() -> None:
        # Added up in int64: narrow ids plus `bound` could overflow.
        xp.less(ids, zero, below)
        xp.multiply(below, size, counted)
        xp.add(counted, ids, counted)

    return counted, run


def taker(k: KernelArgs, x: Any, ids: Any, axis: int, out: Any) -> Call:
    """A callable for out = take(x, ids, axis); the ids are in range already."""
    if k.xp is np:
        return partial(x.take, ids, axis, out, "clip")  # "raise" would go through a buffer
    return partial(x.take, ids, axis, out)


def checked_rows(k: KernelArgs, slot: str, x: Any, out: Any) -> Call | None:
    """A callable for out = the rows of x [N, ...] that the ids in an input count, which it checks;
    None where the arrays do not suit the native library.

    Raises:
        RunError: when called; as `id_check`. Rows of other ids are there by then.
    """
    ids = k[slot]
    if ids.ndim != 1 and ids.flags.c_contiguous:
        ids = ids.reshape(-1)
    if team.library() is None or ids.dtype != np.int64 or ids.ndim != 1 or not x.size:
        return None
    if not (is_whole(out) and is_host_array(x) and is_host_array(ids) and ids.flags.aligned):
        return None
    if not x[:1].flags.c_contiguous or x.dtype.hasobject:
        return None
    block, task = _taken(x, ids, out, gaps=False)
    complain = partial(_refuse, k.op, slot, x.shape[0])
    return replace(task, check=team.Marked(block.address_of("bad"), complain, k.arrays))


def taken_rows(x: Any, rows: Any, out: Any) -> Call | None:
    """A call for out = x[rows], and zeros where a number is -1; None where the arrays do not suit
    the native library.

    Args:
        x: [N, ...]. rows: int64 [M], less than N. out: [M, ...].
    """
    suited = is_whole(out) and is_whole(x) and x.dtype == out.dtype and rows.dtype == np.int64
    if not suited or x.dtype.hasobject or team.library() is None or not (x.size and out.size):
        return None
    return _taken(x, rows, out, gaps=True)[1]


def _taken(x: Any, ids: Any, out: Any, *, gaps: bool) -> tuple[Block, team.ParallelTask]:
    """The task of taking rows, and its argument; see `opscope_take` of native/declarations.py."""
    count = ids.size
    size = out.itemsize * (out.size // count)
    fields = {"count": count, "ids": ids, "ids_step": ids.strides[0] // ids.itemsize}
    fields |= {"rows": x.shape[0], "bytes": size, "source": x, "source_step": x.strides[0]}
    block = bind(team.library(), "opscope_take", gaps=gaps, target=out, **fields)
    return block, team.block_task(team.copy_work(count, size), block)


def scatter_adder(k: KernelArgs, out: Any, ids: Any, values: Any) -> Call:
    """A callable for out[ids] += values, right for repeated ids, which are in range already.

    Args:
        out: [rows, ...]. ids: any shape. values: shape of ids, then the shape of a row of out.
    """
    compiled = row_adder(out, ids, values) if out.ndim > 1 else None
    if compiled is not None:
        return compiled
    at = k.xp.add.at
    contiguous = all(array.flags.c_contiguous for array in (out, ids, values))
    if k.xp is not np or not contiguous or out.ndim == 1 or values.size == 0:
        return partial(at, out, ids, values)
    # ufunc.at is several times faster on one-dimensional operands than on rows.
    width = values.size // ids.size
    rows = max(1, _CHUNK // width)
    columns, stride = np.arange(width), np.int64(width)
    index = k.scratch((min(rows, ids.size), width), np.int64)
    flat_out = out.reshape(-1)
    flat_ids = ids.reshape(-1, 1)
    flat_values = values.reshape(ids.size, width)
    chunks = []
    for begin in range(0, ids.size, rows):
        part = flat_ids[begin : begin + rows]
        held = index[: len(part)]
        chunks.append((part, held, held.reshape(-1), flat_values[begin : begin + rows].reshape(-1)))

    def run() -> None:
        for part, held, flat, added in chunks:
            np.multiply(part, stride, out=held)
            np.add(held, columns, out=held)
            at(flat_out, flat, added)

    return run


def open_mesh(xp: Any, shape: Sequence[int]) -> list[Any]:
    """One index array for each axis of `shape`, which broadcast together to every position."""
    return [
        xp.arange(size).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        for axis, size in enumerate(shape)
    ]


def along_axis(xp: Any, ids: Any, axis: int) -> tuple[Any, ...]:
    """The index for which x[index] is x taken at `ids` along `axis` (as `take_along_axis`)."""
    mesh = open_mesh(xp, ids.shape)
    mesh[axis] = ids
    return tuple(mesh)
