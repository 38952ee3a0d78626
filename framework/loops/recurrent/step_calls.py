"""Steps of a loop as they are bound: once for batches of all lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...fusion.team import TaskTable, in_a_row, task_of
from ...ir.kernel_args import Call

LONG = 32
"""Steps from which a list of their own is worth it: shorter ones become part of what is around."""
MANY, FEW = 24, 2
"""Steps to be bound from which operators are traced: that takes as long as to bind some ten; and
those from which traces that are there are used."""


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
        return [step for step in span if step not in self._calls and step not in self._in_table]

    def put(self, step: int, calls: Sequence[Call]) -> None:
        """Keep the calls of a step."""
        self._count += len(calls)
        self._calls[step] = _in_few(calls)
        self._advance()

    def put_many(
        self, steps: Sequence[int], words: np.ndarray, work: np.ndarray, short: int, memory: Any
    ) -> bool:
        """Keep the tasks of steps; False where others of their number of rows are no such tasks.

        Args:
            words, work, short, memory: see `TaskTable.put_many`.
        """
        items = words.shape[1]
        if self._table is None:
            self._table = TaskTable(self._most, items)
        places = np.array([self._place(step) for step in steps], np.intp)
        if not self._is_table or not self._table.put_many(places, words, work, short, memory):
            return False
        self._in_table.update(steps)
        self._count += len(steps) * items
        self._advance()
        return True

    def _advance(self) -> None:
        while self._known in self._calls or self._known in self._in_table:
            self._known += 1

    def over(self, span: range) -> list[Call]:
        """The calls of neighboring steps, in the order in which they run."""
        steps = span[::-1] if self._reverse else span
        wanted = len(span) >= LONG or any([step not in self._calls for step in span])
        if wanted and not self._has(span):
            self._fill(span)
        if self._table is None or not self._has(span):
            return [call for step in steps for call in self._of(step)]
        begin = self._place(steps[0])
        make = self._table.call if len(span) >= LONG else self._table.task
        return [make(begin, begin + len(span))]

    def _of(self, step: int) -> list[Call]:
        """The calls of a step."""
        if step in self._calls or self._table is None:
            return self._calls[step]
        place = self._place(step)
        return [self._table.task(place, place + 1)]

    def _fill(self, steps: Iterable[int]) -> None:
        """Put steps that were bound one by one into the table, as far as they suit it."""
        for step in steps:
            if not self._is_table:
                break
            if step in self._in_table:
                continue
            calls = self._calls[step]
            task = task_of(calls[0]) if len(calls) == 1 else None
            if task is None or task.check or task.rows:
                self._is_table = False
                break
            if self._table is None:
                self._table = TaskTable(self._most, len(task.items))
            self._is_table = self._table.put(self._place(step), task)
            if self._is_table:
                self._in_table.add(step)

    def _has(self, span: range) -> bool:
        """Whether the table has the steps of a span."""
        while self._tabled in self._in_table:
            self._tabled += 1
        return span.stop <= self._tabled or self._in_table.issuperset(span)

    def _place(self, step: int) -> int:
        """Where a step is in the table, in the order in which steps run."""
        return self._most - 1 - step if self._reverse else step


def _in_few(calls: Sequence[Call]) -> list[Call]:
    """The calls of a step, which many lists have, as one where they can be."""
    tasks = [task for call in calls if (task := task_of(call)) and task.check is None]
    # Those that all go by rows may become blocks of rows with what is around them.
    plain = any([task.rows is None for task in tasks])
    return [in_a_row(tasks)] if plain and len(tasks) == len(calls) > 1 else list(calls)
