"""Operators that draw random numbers as CNTK's nodes do: on the CPU the same numbers.

A node has a generator of its own, `std::mt19937_64`, of which two variables tell the seed and how
many numbers it has drawn. Training sets both at each epoch, models hold them. A GPU draws others.
Sources: CNTK's `ComputationNetworkLib/TrainingNodes.h` and `.cpp` (DropoutNode, RandomSampleNode),
`Math/CPUMatrix.cpp` (SetUniformRandomMask); Boost's `uniform_real_distribution`.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...framework.base.backend import random_generator, to_host
from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import copying
from ..base.mersenne import Mersenne64

_SOURCE = "CNTK: Source/ComputationNetworkLib/TrainingNodes.h"
_STATE = (
    Slot("seed", "of the generator, int64 [1]"),
    Slot("drawn", "numbers drawn since it was seeded, int64 [1]"),
)
_DRAWN_OUT = Slot("drawn_out", "the variable of drawn")
_WHOLE = 2.0**64


class Stream:
    """The numbers of a generator from some position on."""

    def __init__(self, seed: int, drawn: int) -> None:
        self.seed = seed
        self.drawn = drawn
        self._random = Mersenne64(seed)
        while drawn > 0:
            drawn -= len(self._random.draw(min(drawn, 1 << 20)))

    def uniform(self, count: int, dtype: np.dtype, bound: float = 1.0) -> np.ndarray:
        """Numbers from 0 to `bound`; numbers that rounding makes `bound` are skipped."""
        self.drawn += count
        draws = self._scaled(count, dtype, bound)
        good = draws < bound
        while not good.all():
            draws = draws[good]
            draws = np.concatenate([draws, self._scaled(count - len(draws), dtype, bound)])
            good = draws < bound
        return draws

    def _scaled(self, count: int, dtype: np.dtype, bound: float) -> np.ndarray:
        draws = self._random.draw(count).astype(dtype)
        draws *= dtype.type(1 / _WHOLE)
        if bound != 1:
            draws *= dtype.type(bound)
        return draws


_STREAMS: WeakKeyDictionary[Any, dict[str, Stream]] = WeakKeyDictionary()
"""By the scope that holds the state, and its name."""


def _stream(k: KernelArgs) -> Stream:
    """The generator of an operator, at the position that its variables tell."""
    seed, drawn = int(k["seed"][0]), int(k["drawn"][0])
    name = k.op.outputs["drawn_out"][0]
    streams = _STREAMS.setdefault(k.frame.scope.get(name).scope, {})
    stream = streams.get(name)
    if stream is None or (stream.seed, stream.drawn) != (seed, drawn):
        stream = streams[name] = Stream(seed, drawn)
    return stream


# -- dropout -------------------------------------------------------------------------------------

dropout_mask = operator(
    "cntk.dropout_mask",
    doc=(
        "Factors of elements in dropout, at the rate that training schedules: 0 with this"
        " probability, 1 / (1 - rate) otherwise; ones outside of training and at rate 0. Numbers"
        " are drawn for all columns of the minibatch, gaps included; with `reverse` for the last"
        " step first."
    ),
    inputs=[
        Slot("rate", "0 <= rate < 1, float64 [1]"),
        *_STATE,
        Slot("columns", "the column of each row, int64 [N]; absent: one for all", optional=True),
        Slot("grid", "columns side by side, and steps, int64 [2]", optional=True),
    ],
    outputs=[Slot("out", "[N, *shape], or without columns [*shape]"), _DRAWN_OUT],
    attrs=[
        AttrSpec("shape", "ints", "of a row"),
        AttrSpec("dtype", "dtype", "of out", np.dtype(np.float32)),
        AttrSpec("reverse", "bool", "whether steps are drawn from the last to the first", False),
    ],
    source=_SOURCE,
    no_gradient="it draws at random",
    random=True,
)


@dropout_mask.shape_rule
def dropout_mask_shape(s: ShapeArgs) -> None:
    shape = tuple(s.attrs["shape"])
    if s.has("columns"):
        s.integers("columns")
        s.same("numbers in grid and 2", s.rank("grid", 1)[0], 2)
        shape = (s.rank("columns", 1)[0], *shape)
        s.set_offsets("out", s.offsets("columns"))
    s.set("out", (shape, s.attrs["dtype"]))
    s.set("drawn_out", ((1,), s.dtype("drawn")))


@dropout_mask.kernel
def dropout_mask_kernel(k: KernelArgs) -> Call:
    out, rate, drawn = k["out"], k["rate"], k["drawn_out"]
    load = copying(k.xp, k["drawn"], drawn)
    if not k.train:
        return in_order(load, partial(out.fill, 1))
    real = out.dtype.type
    columns = k.get("columns")

    def run() -> None:
        p = float(rate[0])
        if p <= 0:
            out.fill(1)
        elif k.xp is np:
            stream = _stream(k)
            _fill(k, stream, real(p), columns)
            drawn[0] = stream.drawn
        else:
            place = [int(k[slot][0]) % 2**64 for slot in ("seed", "drawn")]
            draws = random_generator(k.frame.place, place).random(out.shape, dtype=np.float32)
            k.xp.multiply(draws > np.float32(p), real(1 / (1 - p)), out=out)
            k.xp.add(drawn, out.size, drawn)

    return in_order(load, run)


def _fill(k: KernelArgs, stream: Stream, rate: Any, columns: Any) -> None:
    out = k["out"]
    factor = out.dtype.type(1 / (1 - float(k["rate"][0])))
    if columns is None:
        draws = stream.uniform(out.size, out.dtype).reshape(out.shape)
    else:
        slots, steps = k["grid"].tolist()
        if k.attrs["reverse"]:
            step, slot = np.divmod(columns, max(slots, 1))
            columns = (steps - 1 - step) * slots + slot
        width = out.size // max(len(out), 1)
        draws = stream.uniform(slots * steps * width, out.dtype)
        draws = draws.reshape(slots * steps, *out.shape[1:])[columns]
    np.multiply(draws > rate, factor, out=out)


# -- classes -------------------------------------------------------------------------------------

random_sample = operator(
    "cntk.random_sample",
    doc=(
        "Classes drawn with probabilities in proportion to `weights`, as sparse one-hot rows: row i"
        " is the i-th draw. Without duplicates a class that was drawn before is drawn again."
    ),
    inputs=[Slot("weights", "not negative, [C]"), *_STATE],
    outputs=[
        Slot("values", "ones, [count]"),
        Slot("indices", "the classes, int64 [count]"),
        Slot("counts", "ones, elements of each row, int64 [count]"),
        _DRAWN_OUT,
    ],
    attrs=[
        AttrSpec("count", "int", "number of draws", minimum=1),
        AttrSpec("duplicates", "bool", "whether a class may be drawn more than once", True),
    ],
    source="CNTK: RandomSampleNode, Source/ComputationNetworkLib/TrainingNodes.cpp",
    no_gradient="it draws at random",
    random=True,
)


@random_sample.shape_rule
def random_sample_shape(s: ShapeArgs) -> None:
    s.rank("weights", 1)
    shape = (s.attrs["count"],)
    s.set("values", (shape, s.floats("weights")))
    s.set("indices", (shape, np.dtype(np.int64)))
    s.set("counts", (shape, np.dtype(np.int64)))
    s.set("drawn_out", ((1,), s.dtype("drawn")))


@random_sample.kernel
def random_sample_kernel(k: KernelArgs) -> Call:
    weights = k["weights"]
    indices = k["indices"]
    drawn = k["drawn_out"]
    count = k.attrs["count"]
    ones = [partial(k[slot].fill, 1) for slot in ("values", "counts")]
    draw = _any_classes if k.attrs["duplicates"] else _different_classes

    def run() -> None:
        stream = _stream(k)
        host = to_host(weights)
        possible = int(np.count_nonzero(host))
        if possible < (1 if k.attrs["duplicates"] else count):
            raise RunError(k.describe(f"{count} of {possible} classes with a weight are wanted"))
        drawn_classes = draw(stream, np.cumsum(host, dtype=np.float64), count)
        drawn[0] = stream.drawn
        indices[...] = k.xp.asarray(drawn_classes)

    return in_order(copying(k.xp, k["drawn"], drawn), *ones, run)


_DOUBLE = np.dtype(np.float64)


def _any_classes(stream: Stream, sums: np.ndarray, count: int) -> np.ndarray:
    return np.searchsorted(sums, stream.uniform(count, _DOUBLE, float(sums[-1])))


def _different_classes(stream: Stream, sums: np.ndarray, count: int) -> np.ndarray:
    """As one draw after the other: no round can find more than are missing."""
    classes = np.empty(0, np.int64)
    while len(classes) < count:
        classes = np.append(classes, _any_classes(stream, sums, count - len(classes)))
        classes = classes[np.sort(np.unique(classes, return_index=True)[1])]
    return classes


inclusion_frequency = operator(
    "cntk.inclusion_frequency",
    doc=(
        "How often each class is expected among `count` draws of `cntk.random_sample`. With"
        " duplicates that is count * p. Without them, 1 - (1 - p)^t, where t is the number of draws"
        " that gives `count` different classes on average."
    ),
    inputs=[Slot("weights", "not negative, [C]")],
    outputs=[Slot("out", "[C]")],
    attrs=random_sample.attrs,
    source="CNTK: RandomSampleInclusionFrequencyNode, TrainingNodes.cpp (which estimates t by a"
    " draw)",
    no_gradient="weights of sampling are constants",
)


@inclusion_frequency.shape_rule
def inclusion_frequency_shape(s: ShapeArgs) -> None:
    s.set("out", (s.rank("weights", 1), s.floats("weights")))


def _draws_needed(p: np.ndarray, count: int) -> float:
    """The t with sum(1 - (1 - p)^t) = count, found by bisection."""
    logs = np.log1p(-np.minimum(p, 1 - 1e-12))
    low = 0.0
    high = float(count)
    while -np.expm1(high * logs).sum() < count and high < 1e12:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if -np.expm1(middle * logs).sum() < count:
            low = middle
        else:
            high = middle
    return high


@inclusion_frequency.kernel
def inclusion_frequency_kernel(k: KernelArgs) -> Call:
    weights = k["weights"]
    out = k["out"]
    count = k.attrs["count"]

    def run() -> None:
        host = to_host(weights).astype(np.float64)
        p = host / host.sum()
        if k.attrs["duplicates"]:
            frequency = count * p
        else:
            logs = np.log1p(-np.minimum(p, 1 - 1e-12))
            frequency = -np.expm1(_draws_needed(p, count) * logs)
        out[...] = k.xp.asarray(frequency, out.dtype)

    return run
