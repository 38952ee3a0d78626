"""Runs single operators for the harness, op by op and without plans, with every courtesy withdrawn.

Outputs and scratch memory start out poisoned (NaN, or a huge integer) and are poisoned again before
a second run of the same callable; values that a slot flag says are not read are taken away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..framework.base.backend import Place, array_module, on_device, to_host, to_place
from ..framework.base.context import OpContext
from ..framework.base.dtypes import is_float
from ..framework.base.errors import RunError
from ..framework.base.scope import Scope
from ..framework.ir.infer import infer_one
from ..framework.ir.kernel_args import RunState
from ..framework.ir.op_list import OpNode
from ..framework.ir.operation import Operator
from ..framework.runtime.binding import bind_operator


@dataclass
class Ran:
    """What a run left: host arrays by variable, and the `inplace` flags it made use of."""

    arrays: dict[str, np.ndarray]
    proved: set[tuple[str, str]]


class Bench:
    """Stands in for a frame while a kernel is bound."""

    def __init__(self, place: Place, train: bool, offsets: Mapping[str, Any]) -> None:
        self.place = place
        self.xp = place.xp
        self.train = train
        self.state = RunState(place)
        self.scope = Scope(place)
        self.taken: list[Any] = []
        self._offsets = offsets

    def start(self) -> None:
        """A fresh random state, the same every time."""
        self.state.context = OpContext(self.place, train=self.train, seed=0)

    def look(self) -> None:
        """Raise what a kernel on a GPU has noted of the data."""
        checks = self.scope.root.checks
        if checks is not None:
            checks.stale = True
            checks.look()

    def scratch(self, shape: Sequence[int], dtype: Any) -> Any:
        array = poisoned(self.xp, tuple(shape), np.dtype(dtype))
        self.taken.append(array)
        return array

    def offsets(self, name: str) -> Any:
        return self._offsets.get(name, ())


class Missing(dict):
    """Arrays by name; asking for one that was taken away is the kernel's mistake."""

    def __init__(self, arrays: Mapping[str, Any], op: Operator) -> None:
        super().__init__(arrays)
        self._op = op

    def __missing__(self, name: str) -> Any:
        raise AssertionError(
            f"{self._op.title()} reads the value of {name!r}, which a flag (not_in_gradient,"
            " shape_only) says it does not"
        )


def poisoned(xp: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    array = xp.empty(shape, dtype)
    poison(array)
    return array


def poison(array: Any) -> None:
    dtype = array.dtype
    array[...] = np.nan if is_float(dtype) else True if dtype == bool else np.iinfo(dtype).max // 2


def execute(
    descs: Sequence[OpNode],
    arrays: Mapping[str, np.ndarray],
    specs: Mapping[str, Any],
    place: Place,
    *,
    title: object = "",
    train: bool = True,
    offsets: Mapping[str, Any] | None = None,
    inplace: bool = False,
    layout: str = "",
    strided_outputs: bool = False,
    libraries: tuple[str, ...] = ("xp",),
    withhold: bool = False,
    twice: bool = True,
) -> Ran:
    """Run OpDescs one after the other.

    Args:
        title: what is run, for messages.
        train: the phase.
        offsets: of the variables that hold sequences.
        inplace: let every output that may share an input's memory do so.
        layout: of the given arrays, see `_laid_out`.
        strided_outputs: give matrices to write as column ranges.
        withhold: take away the inputs that a `shape_only` flag says are not read.
        twice: call each callable again, after poisoning its outputs and scratch memory.
    """
    offsets = offsets or {}
    if place.kind != "cpu":
        libraries = ("cuda", *libraries)
    with on_device(place):
        held = {
            name: _laid_out(to_place(a, place, copy=True), layout) for name, a in arrays.items()
        }
        shapes = dict(specs)
        proved: set[tuple[str, str]] = set()
        for index, desc in enumerate(descs):
            op = Operator(desc, index)
            shapes.update(infer_one(op, shapes, {}, dict(offsets)))
            fresh = set()
            for name in op.output_vars():
                if name not in held:
                    held[name] = _output(place.xp, shapes[name], strided_outputs)
                    fresh.add(name)
            local = Missing(held, op)
            if withhold:
                for name in set(op.input_vars()) - set(op.value_reads()):
                    local.pop(name, None)
            if inplace:
                fresh -= _share(op, local, fresh, shapes, proved)
            bench = Bench(place, train, offsets)
            _call(op, local, shapes, bench, title, libraries, fresh if twice else frozenset())
            held.update({name: local[name] for name in op.output_vars()})
        return Ran({name: to_host(array) for name, array in held.items()}, proved)


def _call(
    op: Operator,
    arrays: Missing,
    specs: dict[str, Any],
    bench: Bench,
    title: object,
    libraries: tuple[str, ...],
    fresh: Collection[str],
) -> None:
    """Bind a kernel and call it: twice, if all that it writes is in `fresh`."""
    with np.errstate(all="ignore"):
        try:
            call = bind_operator(op, arrays, specs, bench, libraries)
        except RunError as error:  # the kernel's own error says more
            raise (error.__cause__ or error) from None
        bench.start()
        call()
        bench.look()
        written = op.output_vars()
        if any(name not in fresh for name in written):
            return
        first = {name: arrays[name].copy() for name in written}
        for array in (*bench.taken, *(arrays[name] for name in written)):
            poison(array)
        bench.start()
        call()
    for name, array in first.items():
        assert np.array_equal(to_host(array), to_host(arrays[name]), equal_nan=True), (
            f"{title}: a second call of {op.type} gives another {name!r}: its kernel keeps"
            " something in scratch memory or in its outputs"
        )


def _share(
    op: Operator,
    arrays: Missing,
    fresh: set[str],
    specs: Mapping[str, Any],
    proved: set[tuple[str, str]],
) -> set[str]:
    """Put outputs into (copies of) the inputs whose memory they may take, as plans do."""
    shared = set()
    reads = op.value_reads()
    taken = set()
    for slot, names in op.outputs.items():
        source = op.entry.output_slots[slot].inplace
        if not source or len(names) != 1 or names[0] not in fresh:
            continue
        for candidate in op.inputs.get(source, ())[:1]:
            (shape, dtype), (from_shape, from_dtype) = specs[names[0]], specs[candidate]
            count = int(np.prod(shape))
            fits = dtype == from_dtype and count == int(np.prod(from_shape))
            if reads.count(candidate) != 1 or candidate in taken or not fits:
                continue
            memory = arrays[candidate].copy(order="C")
            arrays[candidate] = memory
            arrays[names[0]] = memory.reshape(shape)
            taken.add(candidate)
            shared.add(names[0])
            if count > 1:
                proved.add((op.type, slot))
    return shared


def _output(xp: Any, spec: Any, strided: bool) -> Any:
    shape, dtype = spec
    if strided and len(shape) == 2:
        return poisoned(xp, (shape[0], shape[1] + 3), dtype)[:, 2:-1]
    return poisoned(xp, shape, dtype)


def _laid_out(array: Any, layout: str) -> Any:
    """The same values in other memory: a column range of a wider array, or another axis order."""
    xp = array_module(array)
    if not layout or array.ndim == 0:
        return array
    if layout == "transposed" and array.ndim > 1:
        return xp.ascontiguousarray(array.T).T
    wide = poisoned(xp, (*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    view = wide[..., 1 : 1 + array.shape[-1]] if layout == "columns" else wide[..., :-1:2]
    view[...] = array
    return view
