"""Steps of a plan for other shapes, without their kernels: the fields that vary are computed.

What binding a step gives are structs (framework/fusion/arguments.py). Where a step comes with other
shapes, its kernel is bound once more to what stands for its arrays (framework/fusion/laid.py), with
`Dim`s in place of the sizes, steps and addresses that were others. Then each field of its structs
is a number, or a polynomial of these, and what the kernel decided by them is a list of conditions.
From then on shapes that meet the conditions take one evaluation of all polynomials, whose values
are written over a copy of the structs. Other shapes, and kernels that need more of an array than
how it lies, are bound again.
"""

from __future__ import annotations

import ctypes
import logging
import struct
from bisect import bisect_right
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import compress
from typing import Any, cast

import numpy as np

from ...native.arguments import ALIGNED, WRITEABLE, Array
from ..base.cpu.threads import most_threads
from ..base.dims import Dim, Dims
from ..base.errors import RunError
from ..fusion.arguments import TRACING, Block, Layout, NotTracedError, Several, grid_of
from ..fusion.laid import Laid, LaidGrid
from ..fusion.team import ParallelTask, run_together, task_of
from ..ir.desc import INPUT
from ..ir.infer import infer_one
from .binding import BoundSteps
from .plans.memory import memory_of, no_panels
from .plans.plan import Plan, PlanStep

_log = logging.getLogger(__name__)

_MOST_TRACES = 3
"""Of a step: for sizes that lead its kernel to other decisions."""
_FLAGS = ALIGNED | WRITEABLE
"""Those that the fields of a step depend on, as well as on sizes."""


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

    def _ask(self, name: str, *args: Any) -> Any:
        answer = getattr(self._kept, name)(*args)
        self.asked.append((name, args, answer))
        return answer


class Trace:
    """One binding of a step to what stands for its arrays.

    Args:
        sizes: of its arrays, see `_Operands.sizes`. varying: places of those that are left open.
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

    def grid(self, counts: Sequence[Any], steps: Sequence[Any]) -> Any:
        """See `arguments.grid`."""
        if not any(isinstance(one, Dim) for one in (*counts, *steps)):
            return grid_of(counts, steps)
        return LaidGrid(counts, steps, self._later("grid", tuple(counts), tuple(steps)))

    def held(self, key: Any, make: Callable[[], Any]) -> Laid:
        """See `memory_of`: frames ask for it again."""
        size = make().nbytes
        return Laid.side_by_side(np.dtype(np.uint8), (size,), self._later("held", key, make))

    # -- as a pool of scratch memory ---------------------------------------------------------------

    def restart(self) -> None:
        """See `ScratchPool`."""

    def take(self, shape: tuple[Any, ...], dtype: np.dtype) -> Laid:
        """See `ScratchPool`."""
        return Laid.side_by_side(dtype, shape, self._later("scratch", shape, dtype))


class _TracedSteps(BoundSteps):
    """The frame of a step that is traced."""

    def __init__(self, frame: Any, trace: Trace, step: PlanStep, arrays: dict[str, Any]) -> None:
        shapes = {name: array.shape for name, array in arrays.items() if type(array) is Laid}
        own = {name: (shape, frame.plan.specs[name][1]) for name, shape in shapes.items()}
        specs: Any = ChainMap(own, frame.plan.specs)
        for op in step.operators:  # what stays inside of it has no array
            if inner := [name for name in op.output_vars() if name not in arrays]:
                results = infer_one(op, specs, frame.plan.declared, {}, remember=False)
                own.update((name, results[name]) for name in inner)
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
        self.least_cost = frame.least_cost


def _shares_nothing(memory: Any, key: Any) -> None:
    raise NotTracedError("memory that frames share")


def _variables(step: PlanStep) -> list[str]:
    names = [name for op in step.operators for name in (*op.input_vars(), *op.output_vars())]
    return list(dict.fromkeys(names))


class _Operands:
    """The variables of a step: those that its kernel may know, and those that differ from frame to
    frame.

    Attributes:
        fixed: parameters and constants, which are arrays of all frames. names: all others.
    """

    def __init__(self, plan: Plan, step: PlanStep, arrays: Mapping[str, Any]) -> None:
        self.fixed: dict[str, Any] = {}
        self.names: list[str] = []
        externals = set(plan.externals)
        for name in _variables(step):
            if name not in arrays:
                continue
            declared = plan.declared.get(name)
            if name in externals and declared is not None and declared.kind != INPUT:
                self.fixed[name] = arrays[name]
            else:
                self.names.append(name)

    def sizes(self, arrays: Mapping[str, Any]) -> list[int]:
        """Of all arrays in a row: sizes, steps in elements, address."""
        sizes: list[int] = []
        for name in self.names:
            array = arrays[name]
            itemsize = array.itemsize
            sizes += array.shape
            sizes += [step // itemsize for step in array.strides]
            sizes.append(array.ctypes.data)
        return sizes

    def suits(self, arrays: Mapping[str, Any]) -> bool:
        """Whether all arrays are of NumPy, and lie so that elements may be counted."""
        return all(
            type(array) is np.ndarray
            and array.flags.aligned
            and not any([step % array.itemsize for step in array.strides])
            for array in (arrays[name] for name in self.names)
        )

    def laid(self, arrays: Mapping[str, Any], sizes: Sequence[Any]) -> dict[str, Any]:
        """What stands for the arrays, of such sizes."""
        result = dict(self.fixed)
        at = 0
        for name in self.names:
            array = arrays[name]
            rank = array.ndim
            shape, steps = sizes[at : at + rank], sizes[at + rank : at + 2 * rank]
            strides = [step * array.itemsize for step in steps]
            address = sizes[at + 2 * rank]
            result[name] = Laid(array.dtype, shape, strides, address, array.flags.writeable)
            at += 2 * rank + 1
        return result

    def addresses(self, arrays: Mapping[str, Any]) -> set[int]:
        """Places of the addresses among the sizes."""
        ends = np.cumsum([2 * arrays[name].ndim + 1 for name in self.names])
        return {int(end) - 1 for end in ends}


class _Traced:
    """A step that was traced: what its structs are for any sizes that meet the conditions."""

    def __init__(self, frame: Any, step: PlanStep, operands: _Operands, varying: set[int]) -> None:
        arrays = frame.arrays
        self._operands = operands
        self._flags = [arrays[name].flags.num & _FLAGS for name in operands.names]
        self._threads = most_threads()
        sizes = operands.sizes(arrays)
        addresses = operands.addresses(arrays)
        varying = {at for at in varying if sizes[at] >= 2}
        trace = Trace(sizes, varying, addresses, operands.fixed.values())
        laid = operands.laid(arrays, trace.sizes)
        self._take(trace, *_bound_to(frame, trace, step, laid), laid)
        self._is_fixed = [at not in varying and at not in addresses for at in range(len(sizes))]
        self._fixed_sizes = list(compress(sizes, self._is_fixed))

    def _take(
        self,
        trace: Trace,
        task: ParallelTask | None,
        asked: list[Any] | None,
        laid: Mapping[str, Any],
    ) -> None:
        """Note what a binding gave."""
        if task is None or task.check is not None:
            raise NotTracedError("no plain list of native functions")
        self._rows = _rows_of(task, {id(array): name for name, array in laid.items()})
        dims = trace.dims
        self._items = []
        for function, address in task.items:
            away = address - trace.own
            if not isinstance(address, Dim) or isinstance(away, Dim):
                raise NotTracedError("an argument that was bound before")
            self._items.append((function, away))
        late = range(len(trace.sizes), len(trace.sizes) + len(trace.later))
        if dims.pinned or dims.decided_by(late):
            raise NotTracedError("a decision that holds for these sizes alone")
        self._later = trace.later[1:]
        numbers = [task.work]
        for kind, *given in self._later:
            numbers += given[0] if kind != "held" else ()
            numbers += given[1] if kind == "grid" else ()
        self._numbers = dims.where_met(numbers)
        self._room = [2] * len(trace.later)
        self._at = np.array([n for n, one in enumerate(trace.words) if isinstance(one, Dim)])
        self._values = dims.values_of([trace.words[n] for n in self._at])
        self._words = np.array([0 if isinstance(o, Dim) else o for o in trace.words], np.int64)
        self._memory = _owners(task.memory)
        self._asked = asked
        self._made = {n for n, word in enumerate(trace.words) if type(word) is _Address}
        self._begins = [*trace.begins, len(trace.words)]

    def bound(self, frame: Any) -> Callable[[], Any] | None:
        """The step of a frame; None where its kernel is to bind it."""
        arrays = frame.arrays
        operands = self._operands
        if (self._asked is None) != (frame.kept is None) or self._threads != most_threads():
            return None
        for name, array in operands.fixed.items():
            if arrays[name] is not array:
                return None
        if not operands.suits(arrays):
            return None
        sizes = operands.sizes(arrays)
        flags = [arrays[name].flags.num & _FLAGS for name in operands.names]
        if list(compress(sizes, self._is_fixed)) != self._fixed_sizes or flags != self._flags:
            return None
        numbers = self._numbers([*sizes, *self._room])
        if not numbers:
            return None
        for name, args, answer in self._asked or ():
            given = getattr(frame.kept, name)(*args)
            if given is not answer:
                return None
        words = self._words.copy()
        memory: list[Any] = [words]
        rest = iter(numbers)
        work = next(rest)
        for kind, first, second in self._later:
            if kind == "held":
                memory.append(memory_of(first, second))
                continue
            shape = tuple([next(rest) for _ in first])
            if kind == "grid":
                memory.append(grid_of(shape, [next(rest) for _ in second]))
            else:
                memory.append(frame.scratch(shape, second))
        sizes += [one.ctypes.data for one in memory]
        if len(self._at):
            words[self._at] = self._values(sizes)
        own = words.ctypes.data
        items = tuple([(function, own + away) for function, away in self._items])
        used = [arrays[name] for name in operands.names]
        rows = None
        if self._rows is not None:
            make, bound, names = self._rows
            rows = partial(make, bound, [arrays[name] for name in names])
        return run_together([ParallelTask(items, work, (memory, used, self._memory), rows)])

    def agrees(self, call: Any, other: Any) -> bool:
        """Whether a step is bound to the same by a trace and by its kernel: `call` and `other`."""
        ours, theirs = call.task, task_of(other)
        if theirs is None or [one for one, _ in ours.items] != [one for one, _ in theirs.items]:
            return False
        words, *later = ours.memory[0][0]
        own = words.ctypes.data
        # Where no frame is being bound, each asks for another one.
        held = [one for one, (kind, *_) in zip(later, self._later, strict=True) if kind == "held"]
        pairs = [(a - own, b) for (_, a), (_, b) in zip(ours.items, theirs.items, strict=True)]
        for away, address in pairs:
            begin = away // 8
            end = self._begins[bisect_right(self._begins, begin)]
            given = np.frombuffer(ctypes.string_at(address, 8 * (end - begin)), np.int64)
            for at, other_word in enumerate(given.tolist(), begin):
                mine = int(words[at])
                if mine == other_word or at in self._made:
                    continue
                if any(0 <= mine - one.ctypes.data < one.nbytes for one in held):
                    continue
                if 0 <= mine - own < words.nbytes:
                    pairs.append((mine - own, other_word))
                elif not any(
                    mine == one.ctypes.data
                    and one.tobytes() == ctypes.string_at(other_word, one.nbytes)
                    for one in later
                ):
                    return False
        return bool(ours.work == theirs.work)


def _bound_to(
    frame: Any, trace: Trace, step: PlanStep, laid: dict[str, Any]
) -> tuple[ParallelTask | None, list[Any] | None]:
    """The task that a step is bound to for what stands for its arrays, and what was asked about
    weights that stay packed.

    Raises:
        NotTracedError: it cannot be bound to that.
    """
    TRACING.trace = trace
    try:
        steps = _TracedSteps(frame, trace, step, laid)
        with no_panels():
            task = task_of(steps._bind(step))
    except Exception as error:  # a kernel may do anything with what stands for arrays
        raise NotTracedError(f"{error!r}") from error
    finally:
        TRACING.trace = None
    return task, None if steps.queries is None else steps.queries.asked


def _owners(memory: Any) -> list[Any]:
    """What must stay in memory as long as a task runs, without what stands for arrays."""
    found: list[Any] = []
    rest = [memory]
    while rest:
        one = rest.pop()
        if isinstance(one, (list, tuple)):
            rest += one
        elif isinstance(one, (_TracedBlock, _TracedSeveral)):
            rest.append(one.memory)
        elif one is not None and not isinstance(one, Laid):
            found.append(one)
    return found


def _rows_of(task: ParallelTask, names: Mapping[int, str]) -> tuple[Any, Any, list[str]] | None:
    """What finds a loop in blocks of rows: a function, the loop, its variables; None without it."""
    if task.rows is None:
        return None
    if not isinstance(task.rows, partial):
        raise NotTracedError("blocks of rows")
    bound, arrays = task.rows.args
    if arrays[bound.loop.stores[0][0]].ndim != 2:
        return None  # no matrices: nothing that `by_rows` finds
    return task.rows.func, bound, [names[id(array)] for array in arrays]


def note(frame: Any, step: PlanStep, call: Callable[[], Any]) -> None:
    """Note how a step was bound to a frame by its kernel, for shapes that follow."""
    traces = frame.traces.get(id(step))
    if traces is None:
        # What holds nets, or runs in Python, may keep what stands for arrays.
        plain = all(op.signature() is not None for op in step.operators)
        operands = _Operands(frame.plan, step, frame.arrays)
        if plain and task_of(call) is not None and operands.suits(frame.arrays):
            frame.traces[id(step)] = StepTraces(frame, step, operands)
    else:
        traces.add(frame, call)


class StepTraces:
    """The traces of one step of a form.

    Args:
        frame: where the step was bound first. operands: its variables there.
    """

    def __init__(self, frame: Any, step: PlanStep, operands: _Operands) -> None:
        self._step = step
        self._traced: list[_Traced] = []
        self._varying: set[int] = set()
        self._failed = False
        self._names = operands.names
        self._first = operands.sizes(frame.arrays)

    def bound(self, frame: Any) -> Callable[[], Any] | None:
        """The step of a frame whose shapes a trace serves; else None."""
        for traced in self._traced:
            call = traced.bound(frame)
            if call is not None:
                if frame.plan.options.verify:
                    self._check(traced, frame, call)
                return call
        return None

    def _check(self, traced: _Traced, frame: Any, call: Callable[[], Any]) -> None:
        """Compare what a step is bound to with what its kernel binds it to."""
        if not traced.agrees(call, BoundSteps._bind(frame, self._step)):
            raise RunError(self._disagreement(frame))

    def _disagreement(self, frame: Any) -> str:
        op = self._step.operators[0]
        return op.describe("its kernel binds it to other fields", frame.plan.specs)

    def add(self, frame: Any, call: Callable[[], Any]) -> None:
        """Trace the step for the shapes of a frame, where that may serve others.

        Args:
            call: the step as its kernel has bound it to the frame.

        Raises:
            RunError: with OPSCOPE_VERIFY=1, where the trace disagrees with the kernel.
        """
        if self._failed or len(self._traced) >= _MOST_TRACES:
            return
        operands = _Operands(frame.plan, self._step, frame.arrays)
        if operands.names != self._names or not operands.suits(frame.arrays):
            self._failed = True
            return
        sizes = operands.sizes(frame.arrays)
        addresses = operands.addresses(frame.arrays)
        try:
            pairs = enumerate(zip(sizes, self._first, strict=True))
            self._varying |= {at for at, (a, b) in pairs if a != b and at not in addresses}
            traced = _Traced(frame, self._step, operands, self._varying)
        except NotTracedError as error:
            _log.debug("%s is bound again for each shape: %s", self._step.operators[0], error)
            self._failed = True
            return
        frame._pool.restart()
        again = traced.bound(frame)
        if again is not None and traced.agrees(again, call):
            self._traced.append(traced)
            return
        self._failed = True
        if frame.plan.options.verify:
            raise RunError(self._disagreement(frame))
        _log.warning("bound again for each shape: %s", self._disagreement(frame))
