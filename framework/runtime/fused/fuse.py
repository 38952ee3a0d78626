"""Fusion: which neighboring elementwise operators become one compiled loop, and binding them.

Operators give scalar expressions (`registry.operator(scalar=...)`). Neighbors of one shape and
dtype become one loop, whose inner temporaries stay in registers. Loops that write only to what
outlives the run (updates of several parameters, say) share one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

from ...base.cpu.threads import most_threads
from ...base.dtypes import NAMES
from ...base.sizes.shape import ArraySpec, Shape
from ...fusion import chains
from ...fusion.scalars.codegen import FULL, MOST_ARRAYS, ONE, Loop, Operand
from ...fusion.scalars.expression import Tree, replace_names
from ...fusion.scalars.pointwise import ABSENT, Expressions, Pointwise, pointwise
from ...fusion.team import run_together
from ...ir.op_list import Checked, OpNode, Signature, View
from ...ir.operation import Operator
from ..binding import BoundSteps, CannotFuseError
from ..plans.plan import Chain, Plan, PlanStep
from ..plans.steps import Epilogue, Units
from .loop_arrays import BoundLoop, argument_of, by_rows, in_memory_order, no_overlap
from .tails import with_tails

_MAX_OPERATORS, _MAX_LOOPS = 64, 32
"""Bounds of one loop and of one call; more would only make compiling and grouping slow."""

_LARGE = 1 << 15
"""Elements from which the loop of a lone cheap operator, too, may go along with others' rows."""
_FEW = 16
"""Elements up to which it is a call less: in a list with its neighbors, if they are such calls."""
_SHARED = 1 << 16
"""Elements from which an operator that runs alone is compiled, so that threads may share it."""


class _Touched:
    """The memory that the loops of a group read and write; another loop is compared with all of it.

    Attributes:
        reads, writes: the memory: variables, or bases of views.
    """

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.writes: set[str] = set()

    def is_apart(self, reads: set[str], writes: set[str]) -> bool:
        """Whether nothing passes between the loops and what reads and writes this."""
        return (
            self.writes.isdisjoint(reads)
            and self.writes.isdisjoint(writes)
            and (self.reads.isdisjoint(writes))
        )

    def add(self, reads: set[str], writes: set[str]) -> None:
        """Note a further member."""
        self.reads |= reads
        self.writes |= writes


class _Group:
    """A group under construction.

    Attributes:
        loops: each a list of operators.
    """

    _is_new = True  # most groups have one member, of which nothing is to be known

    def __init__(
        self,
        first: Pointwise,
        specs: Mapping[str, ArraySpec],
        views: Mapping[str, View],
        live_out: set[str],
        device: str,
    ) -> None:
        self.loops = [[first]]
        self._specs = specs
        self._views = views
        self._live_out = live_out
        self._device = device

    def _begin(self) -> None:
        """Forget what is known of the last loop: the next member begins another one."""
        self._last = _Touched()
        self._names: dict[str, set[str]] = {}  # memory of views -> its names in the last loop
        self._read: set[str] = set()  # before a member of the loop writes it
        self._written: set[str] = set()
        self._partial: set[str] = set()  # memory of which a step of the loop reads another place
        self._widths: set[int] = set()

    def take(self, new: Pointwise) -> bool:
        """Make `new` part of the group if that is right."""
        if self._is_new:
            self._is_new = False
            self._before = _Touched()  # all loops but the last
            self._all_outlive = True  # of every member: it writes to what outlives the run alone
            self._begin()
            first = self.loops[0][0]
            self._note(first, self._memories(first.reads), self._memories(first.writes))
        reads, writes = self._memories(new.reads), self._memories(new.writes)
        outlives = writes <= self._live_out
        if self._joins(new, reads, writes, outlives):
            self.loops[-1].append(new)
        elif self._stands_beside(reads, writes, outlives):
            self._before.add(self._last.reads, self._last.writes)
            self._begin()
            self.loops.append([new])
        else:
            return False
        self._note(new, reads, writes)
        return True

    def _note(self, new: Pointwise, reads: set[str], writes: set[str]) -> None:
        """Note what the last member reads and writes."""
        self._last.add(reads, writes)
        self._all_outlive = self._all_outlive and writes <= self._live_out
        self._read.update(new.reads.keys() - self._written)
        self._written.update(new.writes)
        for name in (*new.reads, *new.writes) if self._views else ():
            self._names.setdefault(self._memory(name), set()).add(name)
        partial = [name for name, operand in new.reads.items() if operand.kind != FULL]
        if partial:
            self._partial |= self._memories(partial)
            self._widths.update(new.widths(self._specs))

    def _joins(self, new: Pointwise, reads: set[str], writes: set[str], outlives: bool) -> bool:
        """Whether `new` fits into the last loop: every value is read and written at one place."""
        loop = self.loops[-1]
        first = loop[0]
        if first.dtype != new.dtype or len(loop) == _MAX_OPERATORS:
            return False
        if first.shape(self._specs) != new.shape(self._specs):
            return False
        # Loops of one call run in any order, or at once on several threads.
        if len(self.loops) > 1 and not (outlives and self._before.is_apart(reads, writes)):
            return False
        if self._is_full(new):
            return False
        written = self._last.writes | writes
        own = [*new.reads, *new.writes]
        for name in own if self._views else ():
            root = self._memory(name)
            if root in written:
                used = self._names.get(root, set()).union(
                    other for other in own if self._memory(other) == root
                )
                # A view at another offset: the loop would read elements that it has overwritten, or
                # not yet written.
                if not all(other == name or self._is_apart(other, name) for other in used):
                    return False
        # The same the other way round: an earlier member still reads it elsewhere.
        if not self._partial.isdisjoint(writes):
            return False
        for name, operand in new.reads.items():
            # A broadcast value is read for every row, at whatever place the loop has come to.
            if operand.kind != FULL and self._memory(name) in written:
                return False
        return len(self._widths.union(new.widths(self._specs))) < 2

    def _memory(self, name: str) -> str:
        """The variable whose memory a variable is in: that of a view is its base's."""
        view = self._views.get(name)
        return name if view is None else view.base

    def _memories(self, names: Iterable[str]) -> set[str]:
        """As `_memory`, of several."""
        return {self._memory(name) for name in names} if self._views else set(names)

    def _is_apart(self, name: str, other: str) -> bool:
        """Whether two variables in one memory share no element."""
        a, b = self._views.get(name), self._views.get(other)
        return a is not None and b is not None and a.is_apart(b)

    def _is_full(self, new: Pointwise) -> bool:
        """Whether the last loop would have too many arrays with `new`."""
        # Each array by itself first: it is cheaper than to see which the loop has already.
        count = len(self._read) + len(self._written) + len(new.reads) + len(new.writes)
        if count <= (most := MOST_ARRAYS[self._device]):
            return False
        known = sum([name in self._read or name in self._written for name in new.reads])
        return count - known - sum([name in self._written for name in new.writes]) > most

    def _stands_beside(self, reads: set[str], writes: set[str], outlives: bool) -> bool:
        """Whether a further operator may be a loop of its own in the same call."""
        return (
            len(self.loops) < _MAX_LOOPS
            and self._all_outlive
            and outlives
            and self._before.is_apart(reads, writes)
            and self._last.is_apart(reads, writes)
        )


_Memo = dict[Operator, "Pointwise | None"]
"""Operators that were looked at already."""


def _known(
    op: Operator, specs: Mapping[str, ArraySpec], device: str, memo: _Memo
) -> Pointwise | None:
    """As `pointwise`, once for each operator."""
    if op not in memo:
        memo[op] = pointwise(op, specs, device)
    return memo[op]


def group_chains(
    operators: Sequence[Operator],
    specs: Mapping[str, ArraySpec],
    live_out: set[str],
    views: Mapping[str, View],
    device: str = "cpu",
    libraries: Sequence[str] = (),
    train: bool = True,
    units: Units | None = None,
) -> list[Chain]:
    """Cut a list of operators into groups that run as one step each.

    Args:
        specs: shape and dtype of every variable. live_out: what must be in memory after the run.
        views: of view variables, the rectangles that they are. device: "cpu" or "gpu".
        libraries: of kernels that may compute what follows them.
        train: whether the run is one of training.
        units: what stays apart; None: nothing.
    """
    if device == "cpu" and not chains.available():
        return [Chain([op]) for op in operators]
    memo: _Memo = {}
    apart = Units() if units is None else units
    operators = _with_epilogues(operators, specs, device, memo, apart)
    groups = _grouped(operators, specs, live_out, views, device, memo, apart)
    # Tails come last: they take operators that would otherwise be loops of their own.
    epilogue_of = partial(_epilogue_of, specs)
    bases = {name: view.base for name, view in views.items()}
    return with_tails(groups, live_out, bases, device, libraries, train, epilogue_of, apart)


def _with_epilogues(
    operators: Sequence[Operator],
    specs: Mapping[str, ArraySpec],
    device: str,
    memo: _Memo,
    units: Units,
) -> list[Operator]:
    """The list with the epilogues taken off operators whose result a loop reads next.

    The bias of a layer is then added in the loop of its activation, not in a pass of its own.
    """
    result: list[Operator] = []
    checked: _CheckedParts = {}
    for number, op in enumerate(operators, 1):
        split = op.entry.split_epilogue
        if split is None or number == len(operators):
            result.append(op)
            continue
        parts = split(op)
        following = operators[number]
        if not units.are_one(op, following):
            result.append(op)
            continue
        # Only where the next operator is a loop: elsewhere the product adds its bias itself, where
        # a separate bias would be a pass of its own.
        if parts and not set(op.output_vars()).isdisjoint(following.value_reads()):
            split_op = _split(op, parts, checked)
            if all(_known(one, specs, device, memo) for one in (*split_op[1:], following)):
                result += split_op
                continue
        result.append(op)
    return result


_CheckedParts = dict[object, list[tuple[Checked | None, Signature | None]]]
"""What was found of the parts of operators that are alike, by their signature: see `OpNode`."""


def _split(op: Operator, parts: Sequence[OpNode], checked: _CheckedParts) -> list[Operator]:
    """The operators that one is split into."""
    signature, source = op.signature(), op.node.source
    known = checked.get(signature)
    for number, part in enumerate(parts):  # they are new, and in no net
        part.source = source
        if known:
            part.checked, part.alike = known[number]
    made = [Operator(part, op.index) for part in parts]
    if known is None and signature is not None:
        whole = all([part.checked is not None and part.checked.is_whole for part in parts])
        checked[signature] = [(one.node.checked, one.signature()) for one in made] if whole else []
    return made


def _grouped(
    operators: Sequence[Operator],
    specs: Mapping[str, ArraySpec],
    live_out: set[str],
    views: Mapping[str, View],
    device: str,
    memo: _Memo,
    units: Units,
) -> list[Chain]:
    """Chains of operators with their loops; operators that do not fuse have none."""
    groups: list[Chain] = []
    open_group: _Group | None = None
    for op in operators:
        member = _known(op, specs, device, memo)
        if member is None:
            open_group = None
            groups.append(Chain([op]))
        elif (
            open_group is not None and units.are_one(groups[-1][-1], op) and open_group.take(member)
        ):
            groups[-1].append(op)
        else:
            open_group = _Group(member, specs, views, live_out, device)
            groups.append(Chain([op], open_group.loops))
    return groups


def build_loop(members: Sequence[Pointwise], in_memory: set[str]) -> BoundLoop:
    """The structure of a loop.

    Args:
        in_memory: variables that later steps or the caller read; others stay in registers.
    """
    operands: list[Operand] = []
    variables: dict[str, int] = {}
    names: dict[str, str] = {}  # variable -> its name in the loop, as an operand or a value
    parts: list[_Part] = []
    count = 0

    def place(name: str, operand: Operand) -> int:
        if name not in variables:
            variables[name] = len(operands)
            operands.append(operand)
        return variables[name]

    for p in members:
        known = []
        for operand, name in p.operands.items():
            if name in p.reads:
                if name not in names:
                    names[name] = f"x{place(name, p.reads[name])}"
                known.append((operand, names[name]))
        attrs = p.op.attrs.items()
        # Text, since 0.0 and -0.0 are equal as keys of the cache below, and NaN is not equal to
        # itself.
        numbers = [(key, repr(float(n))) for key, n in attrs if isinstance(n, (int, float))]
        parts.append((p.expressions, tuple(numbers), tuple(known)))
        slots = {slot: f"v{count + i}" for i, slot in enumerate(p.expressions.values)}
        count += len(slots)
        names.update((name, slots[slot]) for slot, (name, *_) in p.op.outputs.items())
    dtype = NAMES[members[0].dtype]
    written = dict.fromkeys(name for p in members for name in p.writes if name in in_memory)
    stored = {name: operand for p in members for name, operand in p.writes.items()}
    stores = tuple([(place(name, stored[name]), names[name]) for name in written])
    loop = _loop(dtype, tuple(operands), tuple(parts), stores)
    return BoundLoop(loop, tuple(variables))


_Part = tuple[Expressions, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""A member of a loop: its expressions, its numeric attributes as exact text, and the names that its
operands have in the loop."""


@lru_cache(maxsize=4096)
def _loop(
    dtype: str,
    operands: tuple[Operand, ...],
    parts: tuple[_Part, ...],
    stores: tuple[tuple[int, str], ...],
) -> Loop:
    """The loop of some members; like ones share one."""
    values: list[Tree] = []
    for expressions, numbers, known in parts:
        by: dict[str, Tree] = {name: ("num", float(text)) for name, text in numbers}
        by.update((name, ("num", value)) for name, value in ABSENT.items())
        by.update((operand, ("var", name)) for operand, name in known)
        for slot, tree in expressions.values.items():
            by[slot] = ("var", f"v{len(values)}")
            values.append(replace_names(tree, by))
    return Loop(dtype, operands, tuple(values), stores)


def _epilogue_of(
    specs: Mapping[str, ArraySpec], members: Sequence[Pointwise], own: str, made: str
) -> Epilogue | None:
    """A loop over the result `own` of a kernel, of which its tail has made `made`; None where it
    needs more than these and arrays of their shape."""
    outs = list(members[-1].writes)
    operands = [(name, one) for member in members for name, one in member.reads.items()]
    fits = specs[own] == specs[made] and all(
        one.kind in (FULL, ONE) and (name != made or one.kind == FULL) for name, one in operands
    )
    dtypes = {one.dtype for _, one in operands if one.kind == FULL}
    dtypes |= {one.dtype for member in members for one in member.writes.values()}
    if not fits or len(outs) != 1 or dtypes != {NAMES[members[0].dtype]}:
        return None
    bound = build_loop(members, set(outs))
    return Epilogue(bound, len(members), made, outs[0])


def bind_chain(frame: BoundSteps, step: PlanStep) -> Callable[[], Any] | None:
    """One callable for a step; None for a lone operator that is better off with its kernel.

    Raises:
        CannotFuseError: several operators, but compiler or arrays do not allow it.
    """
    bound = plan_loops(frame.plan, step, frame.place.kind, frame.least_cost)
    call = None
    if bound:
        call = _bind_cpu(frame, bound) if frame.place.kind == "cpu" else _bind_gpu(frame, bound)
    if call is None and len(step.operators) > 1:
        raise CannotFuseError
    return call


def plan_loops(plan: Plan, step: PlanStep, device: str, least_cost: int) -> list[BoundLoop]:
    """The loops of a step; none for a lone operator of a lower cost."""
    if len(step.operators) == 1 and step.loops and step.loops[0][0].cost() < least_cost:
        last = not plan.channels_last.isdisjoint((*step.reads, *step.writes))
        if not last and not _may_pay(step.loops[0][0].shape(plan.specs), device):
            return []
    loops = plan.loops.get(id(step))
    if loops is None:
        loops = plan.loops[id(step)] = _find_loops(step)
    return loops


def _may_pay(shape: Shape, device: str) -> bool:
    """Whether a loop of a cheap operator alone may be faster than NumPy: along with others' rows,
    where threads share it, or in a list of calls."""
    size = prod(shape)
    if device == "cpu" and (size <= _FEW or (size >= _SHARED and most_threads() > 1)):
        return True
    return len(shape) == 2 and size >= _LARGE


def _find_loops(step: PlanStep) -> list[BoundLoop]:
    in_memory = set(step.writes)
    needed = [
        members
        for members in step.loops
        if any(not in_memory.isdisjoint(member.writes) for member in members)
    ]
    return [build_loop(members, in_memory) for members in needed]


def _bind_cpu(frame: BoundSteps, bound: Sequence[BoundLoop]) -> Callable[[], Any] | None:
    arrays = [[frame.arrays[name] for name in b.variables] for b in bound]
    placed = frame.plan.placement
    written = [b.variables[store] for b in bound for store, _ in b.loop.stores]
    # A plan's own blocks are apart from all other memory, and from each other.
    own = all([name in placed and name not in frame.plan.bases for name in written])
    if not own and not no_overlap(bound, arrays):
        return None
    loops = [one for pair in zip(bound, arrays, strict=True) for one in in_memory_order(*pair)]
    tasks = []
    for b, operands in loops:
        block = argument_of(b, operands)
        if block is None:
            return None
        alone = partial(by_rows, b, operands) if len(loops) == 1 else None
        tasks.append(chains.task(b.loop, block, alone))
    return run_together(tasks)


def _bind_gpu(frame: BoundSteps, bound: Sequence[BoundLoop]) -> Callable[[], Any] | None:
    from .fused_gpu import bind_loops  # without a GPU it is not needed

    arrays = [[frame.arrays[name] for name in b.variables] for b in bound]
    return bind_loops(frame.xp, bound, arrays) if no_overlap(bound, arrays) else None
