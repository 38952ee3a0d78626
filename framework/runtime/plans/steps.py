"""The steps of a plan, and the chains of operators that they are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.python.cached import cached_property
from ...ir.desc import FORWARD
from ...ir.operation import Operator, roots_of


@dataclass(frozen=True)
class Epilogue:
    """A loop that the kernel of an earlier operator computes (see tails.py).

    Attributes:
        bound: the loop and its variables. count: of its operators, the last ones of their step.
        made, out: the variables that it reads from the kernel, and writes.
    """

    bound: Any
    count: int
    made: str
    out: str


class Chain(list[Operator]):
    """Operators that run as one step, and the loops that they fuse into.

    Attributes:
        loops: the fused loops, for fuse.py; empty where the operators do not fuse.
        epilogue: the loop at the end of a tail, if there is one.
    """

    epilogue: Epilogue | None = None

    def __init__(self, operators: Iterable[Operator], loops: Sequence[Sequence[Any]] = ()) -> None:
        super().__init__(operators)
        self.loops = loops


class Units:
    """Which operators may become one step: those of one unit. Without numbers, all may.

    Args:
        numbers: the unit of each operator, by its index.
        with_tails: the units in which a kernel may compute what follows it.
    """

    def __init__(self, numbers: Sequence[int] = (), with_tails: Collection[int] = ()) -> None:
        self._numbers = numbers
        self._with_tails = with_tails

    def are_one(self, one: Operator, other: Operator) -> bool:
        """Whether two operators are of one unit."""
        return not self._numbers or self._numbers[one.index] == self._numbers[other.index]

    def may_end(self, one: Operator, other: Operator) -> bool:
        """Whether the second may be computed along with the kernel of the first."""
        return not self._numbers or (
            self._numbers[one.index] == self._numbers[other.index] in self._with_tails
        )


@dataclass(eq=False, slots=True)
class PlanStep:
    """One callable of the loop: a single operator, or several that are fused into one kernel.

    `reads` and `writes` leave out what stays inside a fused chain; `loops` and `epilogue` are those
    of the chain.
    """

    operators: tuple[Operator, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    loops: Sequence[Sequence[Any]] = ()
    epilogue: Epilogue | None = None

    @property
    def has_tail(self) -> bool:
        """Whether a kernel still reads its inputs when what follows in its call begins to write."""
        return len(self.operators) > 1 and not self.loops


class Steps(list[PlanStep]):
    """The steps of a plan in order, which plans for other shapes share."""

    def __init__(self) -> None:
        super().__init__()
        self._facts: dict[str, Any] = {}

    def fact(self, name: str, find: Callable[[], Any]) -> Any:
        """What holds for all plans of the steps, whatever the shapes are: found once."""
        if name not in self._facts:
            self._facts[name] = find()
        return self._facts[name]

    @cached_property
    def read(self) -> frozenset[str]:
        """Variables that some step reads."""
        return frozenset(name for step in self for name in step.reads)

    @cached_property
    def written(self) -> frozenset[str]:
        """Variables that some operator writes."""
        operators = [op for step in self for op in step.operators]
        return frozenset(name for op in operators for name in op.output_vars())

    @cached_property
    def factors(self) -> Counter[str]:
        """Variables that may be packed before a loop, and how many operators read them."""
        operators = [op for step in self for op in step.operators]
        entries = {op.entry for op in operators}
        packing = {one for one in entries if any(kernel.in_loops for kernel in one.kernels)}
        own = [op for op in operators if op.entry in packing]
        # A set: a product that reads one factor twice packs it once.
        return Counter([name for op in own for name in set(op.value_reads())])

    @cached_property
    def are_forward(self) -> bool:
        """Whether there are neither gradients nor updates among them."""
        return all(op.role == FORWARD for step in self for op in step.operators)


def steps_of(groups: Sequence[Chain], live_out: set[str], views: Mapping[str, str]) -> Steps:
    """The steps of chains of operators, without those that compute what nothing reads.

    Args:
        live_out: what must be in memory after the run. views: view variable -> its base.
    """
    # The first and the last group that reads a variable or any view of it: enough to tell whether
    # another one does, however many they are.
    first_reader: dict[str, int] = {}
    last_reader: dict[str, int] = {}
    inside = [name for ops in groups if len(ops) > 1 for op in ops for name in op.output_vars()]
    asked = set(roots_of(inside, views))
    for number, ops in enumerate(groups) if asked else ():
        for op in ops:
            for root in asked.intersection(roots_of(op.value_reads(), views)):
                first_reader.setdefault(root, number)
                last_reader[root] = number
    steps = Steps()
    for number, ops in enumerate(groups):
        if len(ops) == 1:
            reads, writes = ops[0].value_reads(), ops[0].output_vars()
        else:
            writes = [name for op in ops for name in op.output_vars()]
            reads = []
            written = set()
            for op in ops:
                reads += [name for name in op.value_reads() if name not in written]
                written.update(op.output_vars())
            reads = list(dict.fromkeys(reads))
            writes = list(dict.fromkeys(writes))
            writes = [
                name
                for name, root in zip(writes, roots_of(writes, views), strict=True)
                if root in live_out
                or first_reader.get(root, number) != number
                or last_reader.get(root, number) != number
            ]
            if not writes:
                continue  # nothing reads what the chain computes
        steps.append(PlanStep(tuple(ops), tuple(reads), tuple(writes), ops.loops, ops.epilogue))
    return steps
