"""A step of a plan, bound to what stands for its arrays: how its structs follow from sizes.

What binding a step gives are structs (framework/fusion/compiled/arguments.py). Its kernel is bound
to what stands for the arrays of the step (framework/fusion/laid.py), with `Dim`s in place of the
sizes, steps and addresses that vary. Then each field of the structs is a number, or a polynomial of
these, and what the kernel decided by them is a list of conditions.
"""

from __future__ import annotations

import ctypes
import math
import struct
from bisect import bisect_right
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from ....native.arguments import Array
from ...base.cpu.threads import most_threads
from ...base.sizes.dims import Dim, Dims, identity
from ...base.sizes.many_dims import Table
from ...fusion.compiled.arguments import (
    TRACING,
    Block,
    Layout,
    NotTracedError,
    Several,
    grid_of,
    made_grid,
)
from ...fusion.laid import Laid, LaidGrid
from ...fusion.rows.prepared import Prepared
from ...fusion.rows.row_blocks import ByRows, Span
from ...fusion.team import ParallelTask, parts_of, task_of
from ...ir.infer import InferredOpen, infer_one
from ..binding import BoundSteps
from ..plans.memory import traced_panels
from ..plans.plan import Plan, PlanStep
from .apart import Groups, numbers_of
from .operands import Operands, flags_of
from .traced_calls import binder_of, is_within, same_calls, traced_calls

_Call = Callable[[], Any]


class _Address(int):
    """The address of an array that a kernel has made: each time it has another one."""


class _Fields:
    """The fields of a struct that is traced."""

    def __init__(self, fields: Mapping[str, Any], words: list[Any]) -> None:
        vars(self).update(fields)
        vars(self)[" words"] = words


def _words_of(part: Any) -> list[Any]:
    return vars(part)[" words"]


class _TracedBlock(Block):
    """A struct whose words are numbers and `Dim`s."""

    __slots__ = ("_address", "_kind", "_trace", "words")

    def __init__(
        self, trace: Trace, layout: Layout, library: Any, given: Sequence[Any], memory: list[Any]
    ) -> None:
        self.words: list[Any] = []
        fields = dict(zip(layout.stored, given, strict=True))
        for name, value in fields.items():
            if isinstance(value, _Fields):
                self.words += _words_of(value)
            elif isinstance(value, float):
                self.words += struct.unpack("=q", struct.pack("=d", value))
            elif isinstance(value, Dim):
                self.words.append(value)
            else:
                own = isinstance(layout.struct.fields[name], Array)
                self.words.append(_Address(value) if own else int(value))
        self.struct = _Fields(fields, self.words)
        self.memory = memory
        self.name = layout.name
        self._library = library
        self._kind = layout.type
        self._trace = trace
        self._address: Any = None

    @property
    def type(self) -> Any:
        return self._kind

    @property
    def address(self) -> Any:
        if self._address is None:
            self._address = self._trace.segment(self.words)
        return self._address

    def run(self) -> None:
        raise NotTracedError("a function that runs while a step is bound")


class _TracedSeveral(Several):
    """Structs one after the other whose words are numbers and `Dim`s."""

    __slots__ = ("_count",)

    def __init__(self, name: str, address: Any, count: int, memory: list[Any]) -> None:
        self.name = name
        self.address = address
        self.memory = memory
        self._count = count

    def __len__(self) -> int:
        return self._count


class _Queries:
    """Weights that stay packed, and what was asked about them: frames that follow ask again."""

    def __init__(self, kept: Any) -> None:
        self._kept = kept
        self.asked: list[tuple[str, tuple[Any, ...], Any]] = []

    def holds(self, array: Any) -> bool:
        """See `Kept.holds`; what is traced is no weight."""
        return type(array) is not Laid and self._ask("holds", array)

    def get(self, *args: Any) -> Any:
        """See `Kept.get`."""
        return self._ask("get", *args)

    def get_of(self, *args: Any) -> Any:
        """See `Kept.get_of`."""
        return self._ask("get_of", *args)

    def _ask(self, name: str, *args: Any) -> Any:
        answer = getattr(self._kept, name)(*args)
        self.asked.append((name, args, answer))
        return answer


class _PreparedHere:
    """Weights that each run packs: for a loop in memory that all its steps have, else in memory
    that a frame has alone, which no trace knows.

    Attributes:
        in_loop: see `Prepared`.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.in_loop = prepared.in_loop
        self._prepared = prepared

    def holds(self, array: Any) -> bool:
        """See `Prepared.holds`; what is traced is no weight."""
        return type(array) is not Laid and self._prepared.holds(array)

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """See `Prepared.get`."""
        if not (self.in_loop and self._prepared.has(key)):
            raise NotTracedError("weights that each run packs")
        return self._prepared.get(key, make)

    def buffer(self, size: int) -> Any:
        """See `Prepared.buffer`."""
        raise NotTracedError("memory for weights that a product packs")


class Trace:
    """One binding of a step to what stands for its arrays.

    Args:
        sizes: of its arrays, see `Operands.sizes`. varying: places of those that are left open.
        addresses: places of those that are addresses.
        fixed: arrays that all frames have.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        varying: set[int],
        addresses: set[int],
        fixed: Iterable[Any] = (),
    ) -> None:
        self._fixed = [array for array in fixed if type(array) is np.ndarray]
        self.dims = Dims(hashes=False)
        self.sizes: list[Any] = list(sizes)
        for at in addresses:
            self.sizes[at] = self.dims.unchecked(at, sizes[at])
        for at in varying - addresses:
            self.sizes[at] = self.dims.size(at, sizes[at])
        self.later: list[tuple[Any, ...]] = []  # what gives the addresses after the sizes
        self.words: list[Any] = []
        self.begins: list[int] = []  # of the structs among them
        self.apart: list[Groups] = []
        self.own = self._later("words")

    def _later(self, *what: Any) -> Any:
        """An address that is known once what it is of is made for the sizes at hand."""
        place = len(self.sizes) + len(self.later)
        self.later.append(what)
        return self.dims.unchecked(place, place << 40)

    def segment(self, words: list[Any]) -> Any:
        """Where words of structs will be."""
        at = self.own + 8 * len(self.words)
        self.begins.append(len(self.words))
        self.words += words
        return at

    def block(self, layout: Layout, library: Any, values: Mapping[str, Any]) -> Block:
        """See `arguments.bind`."""
        for name, field in layout.struct.fields.items():
            if isinstance(field, Array) and field.written and not self._may_write(values.get(name)):
                raise NotTracedError("a function that writes to memory of the kernel's own")
        return _TracedBlock(self, layout, library, *layout.trace(library, values))

    def keep_apart(self, groups: Groups) -> None:
        """Note that memory of different groups is apart in all frames."""
        if len(groups) > 1:
            # The same array, for several loops, is there once.
            own = [{tuple(map(identity, span)): span for span in group} for group in groups]
            self.apart.append([list(group.values()) for group in own])

    def _may_write(self, array: Any) -> bool:
        """Whether an array is a frame's own, or one of all frames: what a kernel makes while it is
        traced serves all frames that follow, and threads may run several of them at once."""
        return (
            array is None
            or isinstance(array, Laid)
            or any(np.may_share_memory(array, one) for one in self._fixed)
        )

    def several(self, blocks: Sequence[Any]) -> Several:
        """See `Several.of`."""
        if not all(type(block) is _TracedBlock for block in blocks):
            raise NotTracedError("structs that were bound before")
        address = self.segment([word for block in blocks for word in block.words])
        memory = [block.memory for block in blocks]
        return _TracedSeveral(blocks[0].name, address, len(blocks), memory)

    def list_of(self, items: Sequence[tuple[int, Any]]) -> Several:
        """See `Several.items`."""
        address = self.segment([word for item in items for word in item])
        return _TracedSeveral("item", address, len(items), [])

    def grid(self, counts: Sequence[Any], steps: Sequence[Any], first: Any) -> Any:
        """See `arguments.grid`."""
        sizes = first, *counts, *steps
        if not any(isinstance(one, Dim) for one in sizes):
            return grid_of(*sizes)
        return LaidGrid(counts, steps, first, self._later("array", made_grid, sizes))

    def array(
        self,
        make: Callable[..., Any],
        dtype: Any,
        count: Any,
        sizes: Sequence[Any],
        offsets: Sequence[_Offsets],
    ) -> Any:
        """See `arguments.made_array`."""
        if offsets:
            names = tuple([one.name for one in offsets])
            address = self._later("rows", (make, names), tuple(sizes))
        elif any(isinstance(one, Dim) for one in (count, *sizes)):
            address = self._later("array", make, tuple(sizes))
        else:
            return make(*sizes)
        return Laid.side_by_side(np.dtype(dtype), (count,), address)

    def made(self, make: Callable[..., Any], names: Sequence[str], args: tuple[Any, ...]) -> Any:
        """See `arguments.made`."""
        if not any(isinstance(one, Dim) for one in args[-1]):
            return make(*args)
        return SimpleNamespace(**{name: self._later("made", (make, name), args) for name in names})

    def held(self, key: Any, make: Callable[[], Any]) -> Laid:
        """See `memory_of`: frames ask for it again."""
        try:
            hash(key)
        except TypeError:  # weights that each run packs: each of the layers has memory of its own
            raise NotTracedError("memory that goes with an address") from None
        size = make().nbytes
        return Laid.side_by_side(np.dtype(np.uint8), (size,), self._later("held", key, make))

    def panels(self, size: Any, in_turn: bool) -> Laid:
        """See `Panels.take`: each frame asks again."""
        address = self._later("panels", (size,), in_turn)
        return Laid.side_by_side(np.dtype(np.uint8), (size,), address)

    # -- as a pool of scratch memory ---------------------------------------------------------------

    def restart(self) -> None:
        """See `ScratchPool`."""

    def take(self, shape: tuple[Any, ...], dtype: np.dtype) -> Laid:
        """See `ScratchPool`."""
        size = math.prod(shape) * dtype.itemsize
        return Laid.side_by_side(dtype, shape, self._later("scratch", (size,), None))


@dataclass(frozen=True)
class _Offsets:
    """What stands for the offsets of a variable: what is made of them is made again for each frame,
    see `arguments.made_array`."""

    name: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise NotTracedError("offsets of sequences")


class _TracedSteps(BoundSteps):
    """The frame of a step that is traced."""

    def __init__(self, frame: Any, trace: Trace, step: PlanStep, arrays: dict[str, Any]) -> None:
        specs: Any = _Specs(frame.plan, step, arrays).all
        plan = copy(frame.plan)  # with what it has computed of its steps
        plan.specs = specs
        pool: Any = trace
        super().__init__(
            plan,
            frame.scope,
            frame.place,
            frame.train,
            frame.state,
            arrays,
            pool,
            _shares_nothing,
            frame._fused,
        )
        self.queries = None if frame.kept is None else _Queries(frame.kept)
        self.kept = cast(Any, self.queries)
        self.prepared = None if frame.prepared is None else _PreparedHere(frame.prepared)
        self.least_cost = frame.least_cost
        self.makes_lists = frame.makes_lists
        self.levels: dict[str, int] = {}

    def offsets(self, name: str) -> tuple[Any, ...]:
        """See `BoundSteps.offsets`."""
        self.levels[name] = len(super().offsets(name))
        if self.levels[name] > 1:
            raise NotTracedError("sequences of sequences")
        return (_Offsets(name),) * self.levels[name]


class _Specs(dict[str, Any]):
    """Shapes and dtypes of what a traced step reads and writes. What stays inside of it has no
    array: it is inferred where a kernel asks for it, most of which do not.

    Attributes:
        all: of all variables of a plan.
    """

    def __init__(self, plan: Plan, step: PlanStep, arrays: Mapping[str, Any]) -> None:
        laid = {name: array.shape for name, array in arrays.items() if type(array) is Laid}
        super().__init__({name: (shape, plan.specs[name][1]) for name, shape in laid.items()})
        self.all: Any = ChainMap(self, plan.specs)
        self._declared = plan.declared
        self._arrays = arrays
        self._operators = step.operators

    def __missing__(self, name: str) -> Any:
        operators, self._operators = self._operators, ()
        for op in operators:
            if inner := [one for one in op.output_vars() if one not in self._arrays]:
                results = infer_one(op, self.all, self._declared, {}, InferredOpen())
                self.update((one, results[one]) for one in inner)
        if name in self:
            return self[name]
        if name not in self._arrays:  # of another shape in other frames, and nothing tells of it
            raise NotTracedError("the shape of a variable without an array")
        raise KeyError(name)


def _shares_nothing(memory: Any, key: Any) -> None:
    raise NotTracedError("memory that frames share")


class Bound(NamedTuple):
    """What a frame has of a traced step.

    Attributes:
        own: where the words of its structs lie.
        places: address and bytes of the memory that it has beside its arrays.
    """

    own: int
    places: list[tuple[int, int]]


class Traced:
    """A step that was traced: what its structs are for any sizes that meet the conditions.

    Args:
        frame: where its kernel has bound it. varying: places of the sizes that are left open.

    Attributes:
        operands: its variables. flags: of their arrays.
        levels: of offsets that its kernel has asked for, by variable.
        fixed_sizes: places and values of the sizes that do not vary.
        threads: that all frames have.
        table: the conditions; values are the numbers of `later`, the words, the numbers of
            `calls`, and those of `apart`.
        apart: memory that must be apart.
        calls: what the step does. call: gives that, bound; called with where the words of its
            structs lie, the numbers of its calls, the arrays of the frame, and owners of memory,
            this trace among them.
        words: of the structs; others are computed, at the places `at`.
        memory: what it has beside its arrays, whose addresses come after that of the words; of
            each a kind, and what gives it.

    Raises:
        NotTracedError: it cannot be traced.
    """

    def __init__(self, frame: Any, step: PlanStep, operands: Operands, varying: set[int]) -> None:
        arrays = frame.arrays
        self.operands = operands
        self.flags = [flags_of(arrays[name]) for name in operands.ranks]
        self.threads = most_threads()
        sizes = operands.sizes(arrays)
        addresses = operands.addresses()
        varying = {at for at in varying if sizes[at] >= 2}
        trace = Trace(sizes, varying, addresses, operands.fixed.values())
        laid = operands.laid(arrays, trace.sizes)
        self._take(trace, *_bound_to(frame, trace, step, laid), laid)
        self.fixed_sizes = [
            (at, size) for at, size in enumerate(sizes) if at not in varying and at not in addresses
        ]

    def _take(
        self, trace: Trace, call: _Call, steps: _TracedSteps, laid: Mapping[str, Any]
    ) -> None:
        """Note what a binding gave."""
        names = {id(array): name for name, array in laid.items()}
        fixed = list(self.operands.fixed.values())
        self.calls = traced_calls(call, trace.own, names, fixed)
        self.call = binder_of(self.calls)
        dims = trace.dims
        late = range(len(trace.sizes), len(trace.sizes) + len(trace.later))
        self.apart = trace.apart
        spans = numbers_of(trace.apart)
        if dims.pinned or dims.decided_by(late, spans):
            raise NotTracedError("a decision that holds for these sizes alone")
        self.memory = trace.later[1:]
        numbers = [number for one in self.memory for number in sizes_of(*one)]
        self.at = np.array([n for n, one in enumerate(trace.words) if isinstance(one, Dim)], int)
        self.table = Table(
            dims,
            numbers,
            [trace.words[n] for n in self.at],
            [number for one in self.calls for number in one.numbers],
            spans,
        )
        self.words = np.array([0 if isinstance(o, Dim) else o for o in trace.words], np.int64)
        self._owners = [owner for leaf in parts_of(call) for owner in _owners(task_of(leaf))]
        self._asked = None if steps.queries is None else steps.queries.asked
        self.levels = steps.levels
        self._made = {n for n, word in enumerate(trace.words) if type(word) is _Address}
        self._begins = [*trace.begins, len(trace.words)]

    def of(self, operands: Operands, names: Mapping[str, str]) -> Traced | None:
        """The same for a step that differs in its variables alone; None where that cannot be.

        Args:
            operands: of that step. names: its variables, by those of this one.
        """
        if self.operands.fixed or operands.fixed or self._asked:
            return None
        if any([one.names_step for one in self.calls]):
            return None
        other = copy(self)
        other.operands = operands
        other.levels = {names[name]: levels for name, levels in self.levels.items()}
        other.memory = [
            (kind, (first[0], tuple([names[name] for name in first[1]])), second)
            if kind == "rows"
            else (kind, first, second)
            for kind, first, second in self.memory
        ]
        if any([one.reads for one in self.calls]):
            other.call = partial(_call_of, self.call, names)
        return other

    def serves(self, frame: Any) -> bool:
        """Whether it is of the parameters, packed weights and levels of sequences of a frame."""
        if any([len(frame.offsets(name)) != levels for name, levels in self.levels.items()]):
            return False
        if (self._asked is None) != (frame.kept is None):
            return False
        arrays, kept = frame.arrays, frame.kept
        return all([arrays[name] is array for name, array in self.operands.fixed.items()]) and all(
            getattr(kept, name)(*args) is answer for name, args, answer in self._asked or ()
        )

    def agrees(self, bound: Bound, call: Any, other: Any) -> bool:
        """Whether a step is bound to the same by a trace and by its kernel: `call` and `other`."""
        ours, theirs = parts_of(call), parts_of(other)
        return len(ours) == len(theirs) and all(
            self._agree(bound, *pair) for pair in zip(ours, theirs, strict=True)
        )

    def _agree(self, bound: Bound, call: Any, other: Any) -> bool:
        """As `agrees`, of one of the calls that it consists of."""
        ours, theirs = task_of(call), task_of(other)
        later = list(zip(self.memory, bound.places, strict=True))
        # Where no frame is being bound, each asks for other memory.
        own_memory = "held", "scratch", "panels"
        any_of = [place for (kind, *_), place in later if kind in own_memory]
        alike = [place for (kind, *_), place in later if kind in ("array", "rows")]
        if ours is None or theirs is None:
            return ours is theirs and same_calls(call, other, any_of, alike)
        if (ours.check is None) != (theirs.check is None):
            return False
        if [one for one, _ in ours.items] != [one for one, _ in theirs.items]:
            return False
        own, size = bound.own, 8 * self._begins[-1]
        words = ctypes.string_at(own, size)
        # Two threads that make the same at the same time have one each.
        made = {address for (kind, *_), (address, _) in later if kind == "made"}
        pairs = [(a - own, b) for (_, a), (_, b) in zip(ours.items, theirs.items, strict=True)]
        for away, address in pairs:
            begin = away // 8
            end = self._begins[bisect_right(self._begins, begin)]
            given = np.frombuffer(ctypes.string_at(address, 8 * (end - begin)), np.int64)
            mine_all = np.frombuffer(words, np.int64)[begin:end].tolist()
            for at, (mine, other_word) in enumerate(
                zip(mine_all, given.tolist(), strict=True), begin
            ):
                if mine == other_word or mine in made or at in self._made:
                    continue
                if is_within(mine, any_of):
                    continue
                if 0 <= mine - own < size:
                    pairs.append((mine - own, other_word))
                elif not any(
                    mine == begins
                    and ctypes.string_at(mine, nbytes) == ctypes.string_at(other_word, nbytes)
                    for begins, nbytes in alike
                ):
                    return False
        return bool(ours.work == theirs.work) and _same_rows(ours.rows, theirs.rows, any_of)


def _same_rows(ours: Any, theirs: Any, any_of: Sequence[tuple[int, int]]) -> bool:
    """Whether two pieces of work touch the same in blocks of rows."""
    if not isinstance(theirs, ByRows):  # of loops, which are made of the arrays
        return True
    own = ours()
    pairs = [(own.rows, theirs.rows)]
    for name in ("reads", "writes", "given", "panels"):
        spans = getattr(own, name), getattr(theirs, name)
        for one, other in zip_longest(*spans, fillvalue=Span(0, 0, 0)):
            pairs += [(one.step, other.step), (one.width, other.width)]
            if not is_within(one.start, any_of):
                pairs.append((one.start, other.start))
    return all(a == b for a, b in pairs)


def _call_of(
    call: Callable[..., _Call],
    names: Mapping[str, str],
    own: int,
    numbers: Any,
    arrays: Mapping[str, Any],
    held: Any,
) -> _Call:
    """See `Traced.call`, of a step with other variables."""
    mine = {name: arrays[other] for name, other in names.items() if other in arrays}
    return call(own, numbers, mine, held)


def sizes_of(kind: str, first: Any, second: Any) -> list[Any]:
    """The sizes of memory that a step asks for, or of what is made."""
    if kind == "held":
        return []
    if kind == "made":
        return list(second[-1])
    return list(second if kind in ("array", "rows") else first)


def _bound_to(
    frame: Any, trace: Trace, step: PlanStep, laid: dict[str, Any]
) -> tuple[_Call, _TracedSteps]:
    """The call that a step is bound to for what stands for its arrays, and what bound it.

    Raises:
        NotTracedError: it cannot be bound to that.
    """
    TRACING.trace = trace
    try:
        steps = _TracedSteps(frame, trace, step, laid)
        with traced_panels():
            call = steps._bind(step)
    except Exception as error:  # a kernel may do anything with what stands for arrays
        raise NotTracedError(f"{error!r}") from error
    finally:
        TRACING.trace = None
    return call, steps


def _owners(task: ParallelTask | None) -> list[Any]:
    """What must stay in memory as long as a task runs, without what stands for arrays."""
    found: list[Any] = []
    rest = [] if task is None else [task.memory]
    while rest:
        one = rest.pop()
        if isinstance(one, (list, tuple)):
            rest += one
        elif isinstance(one, (_TracedBlock, _TracedSeveral)):
            rest.append(one.memory)
        elif one is not None and not isinstance(one, Laid):
            found.append(one)
    return found
