"""What collective operators share: the communicator of a run, weights of ranks, buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.backend import same_memory, to_host
from ...framework.base.communicator import Communicator
from ...framework.base.dtypes import HALVES, is_float, wide
from ...framework.base.errors import RanksError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot
from ..base.calls import copying
from ..base.ranks import ranks_of

EVERYWHERE = ("cpu", "gpu")

WEIGHT = Slot(
    "weight",
    "weight of this rank, [], a float or an integer: its number of samples, say; 0: the values of"
    " the rank do not count, even if they are NaN",
    optional=True,
    not_in_gradient=False,
)
TOTAL = Slot("total", "sum of the weights of all ranks, []; absent: it is asked for", optional=True)
MODE = AttrSpec("mode", "string", "what becomes of the sum", "sum", choices=("sum", "mean"))
STEP = Slot("step", "number of this update, counted from 1, []; absent: every run", optional=True)
PERIOD = AttrSpec("period", "int", "run where `step` is a multiple of it", 1, minimum=1)


def check_weight(s: ShapeArgs) -> None:
    """Weights are numbers, and there is no total without one."""
    for slot in ("weight", "total"):
        if s.has(slot):
            s.rank(slot, 0)
            if not (is_float(s.dtype(slot)) or s.dtype(slot).kind in "iu"):
                s.fail(f"{slot} wants a number and has {s.dtype(slot)}")
    if s.has("total") and not s.has("weight"):
        s.fail("a total without a weight")


def refuse_two_means(s: ShapeArgs) -> None:
    """A weight makes a mean already."""
    if s.has("weight") and s.attrs["mode"] == "mean":
        s.fail("with a weight the mean is a weighted one already: leave mode=mean out")


def check_step(s: ShapeArgs) -> None:
    """The step is one whole number."""
    if s.has("step"):
        s.rank("step", 0)
        s.integers("step")
    elif s.attrs["period"] > 1:
        s.fail(f"period={s.attrs['period']} wants a step")


def one_dtype(s: ShapeArgs, slot: str, *, floats: bool = False) -> np.dtype:
    """The dtype that all variables of a slot share; a number."""
    dtypes = {dtype for _, dtype in s.specs(slot)}
    if len(dtypes) != 1:
        s.fail(f"all of {slot} want one dtype and have {', '.join(sorted(map(str, dtypes)))}")
    dtype = dtypes.pop()
    if not (is_float(dtype) or (not floats and dtype.kind in "iu")):
        s.fail(f"{slot} wants {'floats' if floats else 'numbers'} and has {dtype}")
    return dtype


def share_of(k: KernelArgs) -> Callable[[Communicator], float] | None:
    """A function for this rank's weight / the sum of all; None without a weight.

    Where no rank has a weight, each has the same share.
    """
    weight, total = k.get("weight"), k.get("total")
    if weight is None:
        return None

    def find(ranks: Communicator) -> float:
        own = float(to_host(weight))
        # Written so that NaN is refused, too.
        if not 0 <= own < np.inf:
            raise RanksError(k.describe(f"the weight of rank {ranks.rank} is {own}"))
        if total is None:
            # float64: sums of sample counts stay exact.
            whole = np.array([own])
            ranks.all_reduce(whole)
        else:
            # A caller who knows the sum spares an exchange for each bucket.
            whole = to_host(total).reshape(1)
        return own / float(whole[0]) if whole[0] > 0 else 1 / ranks.size

    return find


def weighing(k: KernelArgs) -> Callable[[Any, Communicator], None]:
    """A function that multiplies an array by this rank's weight / the sum of all, where there is
    a weight; on a GPU nothing is asked for, so that nothing waits."""
    weight, total = k.get("weight"), k.get("total")
    share = share_of(k)
    if share is None:
        return lambda array, ranks: None
    if isinstance(weight, np.ndarray):
        return lambda array, ranks: scale(array, share(ranks))
    xp = k.xp
    whole, exact = k.scratch((), np.float64), k.scratch((), np.float64)
    none = k.scratch((), bool)

    def weigh(array: Any, ranks: Communicator) -> None:
        xp.copyto(whole, weight if total is None else total)
        if total is None:
            ranks.all_reduce(whole)
        xp.equal(whole, 0, none)
        xp.divide(weight, whole, exact)
        xp.copyto(exact, 1 / ranks.size, where=none)
        xp.multiply(array, exact.astype(array.dtype), array)
        # As `scale`: a rank without samples adds nothing, be it NaN.
        xp.equal(exact, 0, none)
        xp.copyto(array, 0, where=none)

    return weigh


def scale(array: Any, factor: float) -> None:
    """array *= factor; a factor of 0 also turns NaN and infinities into zeros."""
    if factor == 0:
        # Not a product, which would keep NaN: a rank without samples must not spoil the sum.
        array.fill(0)
    # A factor of 1 (one rank alone) costs no pass.
    elif factor != 1:
        array *= array.dtype.type(factor)


def is_due(k: KernelArgs) -> Callable[[], bool]:
    """A function that returns whether to act in the step of the run."""
    step = k.get("step")
    period = k.attrs["period"]
    if step is None:
        return lambda: True
    # Every rank counts the same steps, so all of them exchange or none does.
    return lambda: int(to_host(step)) % period == 0


class Bucket:
    """Some arrays as one flat one, which is sent.

    Where the arrays lie side by side and are changed in place, it is their own memory; otherwise
    they are packed into it and unpacked from it. Halves are sent as float32.

    Attributes:
        flat: the array to send. pack, unpack: the calls before and after.
    """

    def __init__(self, k: KernelArgs, source: str, target: str) -> None:
        xp = k.xp
        arrays, outs = k.list(source), k.list(target)
        # Outputs that are not wanted (None) hinder nothing.
        in_place = all(
            out is None or same_memory(array, out) for array, out in zip(arrays, outs, strict=True)
        )
        # Sums of halves over many ranks would lose digits or overflow.
        dtype = wide(arrays[0].dtype)
        half = arrays[0].dtype in HALVES
        self.flat: Any = None
        self.pack: Call = nothing
        self.unpack: Call = nothing
        if in_place and not half:
            if len(arrays) == 1 and arrays[0].flags.c_contiguous:
                self.flat = arrays[0].reshape(-1)
            else:
                self.flat = k.joined(source)
        if self.flat is None:
            # Memory of its own, not scratch: it may be on its way while other operators run.
            self.flat = xp.empty(sum(array.size for array in arrays), dtype)
            parts = split(self.flat, arrays)
            pairs = zip(parts, arrays, strict=True)
            self.pack = in_order(*(copying(xp, array, part) for part, array in pairs))
            self.unpack = unpacking(xp, self.flat, outs, arrays)


def exchanging(
    k: KernelArgs, source: str, target: str, exchange: Callable[[Any, Communicator], None]
) -> Call:
    """A call that packs a bucket, has `exchange` change its flat array, and unpacks it."""
    ranks = ranks_of(k)
    bucket = Bucket(k, source, target)

    def run() -> None:
        bucket.pack()
        exchange(bucket.flat, ranks())
        bucket.unpack()

    return run


def split(flat: Any, like: Sequence[Any]) -> list[Any]:
    """Views of a flat array in the shapes of others, one after the other."""
    views = []
    end = 0
    for array in like:
        views.append(flat[end : end + array.size].reshape(array.shape))
        end += array.size
    return views


def unpacking(xp: Any, flat: Any, outs: Sequence[Any], like: Sequence[Any]) -> Call:
    """A call that copies a flat array to the outputs that somebody needs."""
    parts = split(flat, like)
    # Back to halves where they were widened for the way, hence the unsafe cast.
    pairs = [(part, out) for part, out in zip(parts, outs, strict=True) if out is not None]
    return in_order(*(partial(xp.copyto, out, part, casting="unsafe") for part, out in pairs))
