"""Steps of a loop as they are bound: once for batches of all lengths."""

from __future__ import annotations

from collections.abc import Sequence

from ...fusion.team import TaskTable, in_a_row, task_of
from ...ir.kernel_args import Call

LONG = 32
"""Steps from which a list of their own is worth it: shorter ones become part of what is around."""


class StepCalls:
    """The calls of steps that have one number of rows, by step.

    Args:
        most: steps of the longest batch. reverse: whether later steps run first.
    """

    def __init__(self, most: int, reverse: bool) -> None:
        self._most = most
        self._reverse = reverse
        self._calls: dict[int, list[Call]] = {}
        self._count = 0
        self._known = 0  # steps from the first one on that are bound
        self._table: TaskTable | None = None  # where a list of their own is asked for
        self._in_table: set[int] = set()
        self._tabled = 0  # steps from the first one on that it has
        self._is_table = True  # whether each step is one task, and all of them have as many items

    def __len__(self) -> int:
        """How many operators are bound."""
        return self._count

    def missing(self, span: range) -> list[int]:
        """The steps of a span that are not bound yet."""
        if span.stop <= self._known:
            return []
        return [step for step in span if step not in self._calls]

    def put(self, step: int, calls: Sequence[Call]) -> None:
        """Keep the calls of a step."""
        self._count += len(calls)
        self._calls[step] = _in_few(calls)
        while self._known in self._calls:
            self._known += 1

    def over(self, span: range) -> list[Call]:
        """The calls of neighboring steps, in the order in which they run."""
        steps = span[::-1] if self._reverse else span
        table = self._filled(span) if len(span) >= LONG else None
        if table is not None:
            first = self._place(steps[0])
            return [table.call(first, first + len(span))]
        return [call for step in steps for call in self._calls[step]]

    def _filled(self, span: range) -> TaskTable | None:
        """The table, with the steps of a span; None where they do not suit it."""
        for step in () if span.stop <= self._tabled else set(span) - self._in_table:
            calls = self._calls[step]
            task = task_of(calls[0]) if len(calls) == 1 else None
            if not self._is_table or task is None or task.check or task.rows:
                self._is_table = False
                break
            if self._table is None:
                self._table = TaskTable(self._most, len(task.items))
            self._is_table = self._table.put(self._place(step), task)
            self._in_table.add(step)
        while self._tabled in self._in_table:
            self._tabled += 1
        return self._table if self._is_table else None

    def _place(self, step: int) -> int:
        """Where a step is in the table, in the order in which steps run."""
        return self._most - 1 - step if self._reverse else step


def _in_few(calls: Sequence[Call]) -> list[Call]:
    """The calls of a step, which many lists have, as one where they can be."""
    tasks = [task for call in calls if (task := task_of(call)) and task.check is None]
    # Those that all go by rows may become blocks of rows with what is around them.
    plain = any([task.rows is None for task in tasks])
    return [in_a_row(tasks)] if plain and len(tasks) == len(calls) > 1 else list(calls)
