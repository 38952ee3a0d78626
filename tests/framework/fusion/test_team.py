"""Lists of C functions that a team of threads runs: tasks, merging, copies."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import weakref
from dataclasses import replace

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.fusion import chains, team
from opscope.framework.fusion.rows.prepared import Prepared
from opscope.framework.runtime.plain_net import PlainNet

pytestmark = pytest.mark.skipif(team.library() is None, reason="there is no native library")


def run(task: team.ParallelTask) -> None:
    task()


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_])
def test_copies_of_rows(dtype: type) -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(0, 2, (6, 3, 2)).astype(dtype)
    rows = np.array([5, 0, 0, 3, 1])
    target = np.zeros((5, 3, 2), dtype)
    task = team.copy_task(target, source, source_rows=rows)
    assert task is not None
    run(task)
    np.testing.assert_array_equal(target, source[rows])
    wide = np.zeros((9, 3, 2), dtype)
    run(team.copy_task(wide[::2], target))
    run(team.copy_task(wide[1::2], source, np.array([3, 1]), np.array([0, 5])))
    np.testing.assert_array_equal(wide[::2], target)
    np.testing.assert_array_equal(wide[[7, 3]], source[[0, 5]])
    assert not wide[[1, 5]].any()


@pytest.mark.parametrize("checked", [False, True])
def test_memory_of_a_task_is_freed_with_it(checked: bool) -> None:
    class Memory:
        pass

    memory = Memory()
    task = team.fill_task(np.zeros(3), 1.0)
    task = replace(task, memory=(task.memory, memory), check=int if checked else None)
    gone = weakref.ref(memory)
    gc.disable()
    try:
        task()
        del task, memory
        assert gone() is None
    finally:
        gc.enable()


def test_filling() -> None:
    target = np.zeros((4, 3), np.float32)
    run(team.fill_task(target[1:3], 0.5))
    assert target.sum(axis=1).tolist() == [0, 1.5, 1.5, 0]


def test_arrays_that_do_not_suit() -> None:
    wide = np.zeros((4, 6))
    for target, source in (
        (wide, np.zeros((4, 6), np.float32)),
        (wide, np.zeros((4, 5))),
        (wide[:, ::2], np.zeros((4, 3))),
        (np.zeros(()), np.zeros(())),
    ):
        assert team.copy_task(target, source) is None
    assert team.copy_task(np.zeros((0, 3)), np.zeros((0, 3))) is not None


def test_rows_without_elements_are_left_out() -> None:
    """No loop could visit so many, and no memory holds their places."""
    target = np.zeros((sys.maxsize // 64, 0), np.float32)
    for task in (team.copy_task(target, target), team.fill_task(target, 1.0)):
        assert task is not None and task.work == 0
        run(task)


def chain(size: int) -> tuple[list, np.ndarray]:
    """Calls of a net with two loops and, between them, a kernel that no team runs; its result."""
    net, scope = PlainNet(), Scope()
    net.add_op("tanh", {"x": ["x"]}, {"out": ["a"]})
    net.add_op("exp", {"x": ["a"]}, {"out": ["b"]})
    net.add_op("hardmax", {"x": ["b"]}, {"out": ["c"]})
    net.add_op("sigmoid", {"x": ["c"]}, {"out": ["y"]})
    scope.feed({"x": np.random.default_rng(1).normal(size=(size, 5)).astype(np.float32)})
    frame = net.frame(scope, OpContext(live_out=["y"]))
    return frame.calls, frame.arrays["y"]


@pytest.mark.skipif(not chains.available(), reason="its loops are native")
def test_neighbors_become_one_call() -> None:
    calls, _ = chain(7)
    assert [team.task_of(call) is not None for call in calls] == [True, False, True]
    first, kernel, last = calls
    merged = team.merge([first, last, kernel, first, last, last])
    assert [team.task_of(call) is not None for call in merged] == [True, False, True]
    assert merged[1] is kernel and len(team.task_of(merged[2]).items) == 3
    assert team.merge([]) == []


@pytest.mark.parametrize("size", [1, 3, 100_000])
def test_a_team_computes_the_same(size: int) -> None:
    calls, result = chain(size)
    for call in calls:
        call()
    wanted = result.copy()
    result.fill(0)
    for call in team.merge(calls):
        call()
    np.testing.assert_array_equal(result, wanted)


def test_prepared_arrays_are_told_by_their_memory() -> None:
    prepared, held = Prepared(), np.zeros((4, 3))
    prepared.declare([held, np.zeros(0)])
    assert prepared.holds(held) and prepared.holds(held.T) and prepared.holds(held[:, :2])
    assert not prepared.holds(held[1:]) and not prepared.holds(held.copy())
    made = prepared.get("key", lambda: (held, team.fill_task(held, 2.0)))
    assert prepared.get("key", None) is made
    for call in prepared.calls():
        call()
    assert (held == 2).all()


def test_a_fork_forgets_lists_of_other_threads() -> None:
    state = team.library().words("opscope_lists", 2)
    before = tuple(state)
    state[:] = 1, 3  # as if another thread was counting
    child = os.fork()
    if child == 0:
        code = 1
        try:
            target = np.zeros((4, 3))
            run(team.fill_task(target, 2.0))
            code = 0 if (target == 2.0).all() and tuple(state) == (0, 0) else 1
        finally:
            os._exit(code)
    state[:] = before
    assert os.waitpid(child, 0)[1] == 0


def test_a_check_ends_a_list() -> None:
    """What comes behind a check runs after it, and not at all where it raises an error."""
    target, log = np.zeros((4, 3)), []

    def check() -> None:
        log.append(float(target.sum()))
        if len(log) > 2:
            raise ValueError("refused")

    fills = [team.fill_task(target, value) for value in (1.0, 2.0, 3.0)]
    task = replace(team.task_of(fills[1]), check=check)
    calls = [fills[0], task, fills[2]]
    for merge in (team.merge, lambda calls: team.in_blocks(calls)[0]):
        merged = merge(calls)
        assert [len(team.task_of(call).items) for call in merged] == [2, 1]
        for call in merged:
            call()
        assert (target == 3).all()
    together = team.in_order(*calls)
    assert team.task_of(together) is None and log == [24.0, 24.0]
    with pytest.raises(ValueError, match="refused"):
        together()
    assert (target == 2).all()


def test_a_list_is_made_once_however_long(monkeypatch) -> None:
    lengths = []

    def counted(tasks):
        lengths.append(len(tasks))
        return run_together(tasks)

    run_together = team.run_together
    targets = np.zeros((100, 3))
    fills = [team.fill_task(row, 1.0) for row in targets]
    monkeypatch.setattr(team, "run_together", counted)
    calls, firsts = team.in_blocks([*fills[:40], print, *fills[40:]])
    assert (lengths, firsts) == ([40, 60], [0, 40, 41]) and calls[1] is print
    for call in (calls[0], calls[2]):
        call()
    assert (targets == 1).all()


@pytest.mark.parametrize("count, lengths", [(1, [3, 1, 1]), (2, [1, 1, 1, 1, 1])])
def test_on_one_thread_all_neighbors_are_a_list(monkeypatch, count, lengths) -> None:
    """But for those that may be joined row by row."""
    monkeypatch.setattr(team.threads, "most_threads", lambda: count)
    copy = team.copy_task(np.zeros((4, 8)), np.ones((4, 8)))
    tasks = [team.ParallelTask(copy.items, 2 * team._TOGETHER, copy) for _ in range(3)]
    rows = [team.ParallelTask(copy.items, 2 * team._TOGETHER, copy, lambda: None) for _ in range(2)]
    merged, _ = team.in_blocks([*tasks, *rows])
    assert [len(team.task_of(call).items) for call in merged] == lengths


def test_short_items_keep_no_list_from_threads() -> None:
    copy = team.copy_task(np.zeros((4, 8)), np.ones((4, 8)))
    items, work = 4 * copy.items, 2 * team.ITEM_WORK
    functions = team.library().addresses
    for short, name in ((0, "alone"), (1, "alone"), (2, "team"), (4, "team")):
        task = team.ParallelTask(items, work, copy, short=short)
        (call,) = team.merge([task])
        address = ctypes.cast(call.func, ctypes.c_void_p).value
        assert address == functions[f"opscope_{name}"]
        both = team.run_together([task, team.ParallelTask(items, work, copy, short=4)])
        assert both.task.short == short + 4
        call()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_table_does_any_of_its_tasks(monkeypatch, threads) -> None:
    monkeypatch.setattr(team.threads, "most_threads", lambda: threads)
    target = np.zeros((10, 2000))
    table = team.TaskTable(10, 1)
    for at, row in enumerate(target):
        assert table.put(at, team.copy_task(row[None], np.full((1, 2000), at + 1.0)))
    two = team.in_a_row([team.copy_task(target[:1], target[1:2])] * 2)
    assert not table.put(3, two)
    for begin, end in (4, 7), (0, 1), (9, 10), (0, 10):
        target[...] = 0
        call = table.call(begin, end)
        gc.collect()
        call()
        wanted = np.where((np.arange(10) >= begin) & (np.arange(10) < end), np.arange(10) + 1.0, 0)
        assert (target == wanted[:, None]).all()
