"""Processes of a server: their tasks, their counts, and what happens where one ends."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import Future
from typing import Any

import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.speech.serving import workers as module
from opscope.speech.serving.workers import EndedError, WorkerError, Workers, process_count

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd") or not module._CAN_FORK,
    reason="forks and /proc are of Linux",
)


class Echo:
    """A worker that says what it is told; it never answers `wait`."""

    def __init__(self) -> None:
        self.calls = 0

    def open(self, number: int, kind: str, settings: dict[str, Any]) -> None:
        self.kind = kind

    def call(self, number: int, method: str, *values: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        if method == "files":
            future.set_result(sorted(map(int, os.listdir("/proc/self/fd"))))
        elif method == "refuse":
            future.set_exception(OpscopeError("no"))
        elif method == "fail":
            future.set_exception(KeyError("it"))
        elif method != "wait":
            future.set_result([os.getpid(), self.kind, *map(len, values)])
        return future

    def drop(self, number: int) -> None: ...

    def counts(self) -> dict[str, int]:
        return {"work_waiting": 1, "network_runs_total": self.calls}


def ran(test: Any, processes: int = 2, worker: Echo | None = None) -> None:
    async def run() -> None:
        workers = Workers(worker or Echo(), processes)  # type: ignore[arg-type]
        async with workers.running():
            await test(workers)

    asyncio.run(asyncio.wait_for(run(), 240))


def test_what_comes_of_calls() -> None:
    async def test(workers: Workers) -> None:
        with workers.task("a") as first, workers.task("b") as second:
            pids = [(await each.call("say", "ab", bytes(70000)))[0] for each in (first, second)]
            assert len({*pids, os.getpid()}) == 3
            assert await second.call("say", "ab", b"") == [pids[1], "b", 2, 0]
            with pytest.raises(OpscopeError, match=r"^no$"):
                await first.call("refuse")
            with pytest.raises(WorkerError, match="KeyError: 'it'"):
                await first.call("fail")
            files = await first.call("files")
            assert len([each for each in files if each > 2]) == 2  # the socket, and the list
        assert await workers.counts() == {
            "work_waiting": 2,
            "network_runs_total": 6,
            "processes_hung_total": 0,
        }

    ran(test)


def test_processes_that_end(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """A fork that fails is tried again; totals do not fall."""
    monkeypatch.setattr(module, "_AGAIN", 0.2)
    monkeypatch.setattr(module, "_SILENT", 1000)
    fork, refused, has_room = module.fork, [], asyncio.Event()

    def without_memory(worker: Any) -> Any:
        if not has_room.is_set():
            refused.append(worker)
            raise BlockingIOError(11, "no room")
        return fork(worker)

    async def test(workers: Workers) -> None:
        monkeypatch.setattr(module, "fork", without_memory)
        with workers.task("a") as first, workers.task("b") as second:
            pids = [(await each.call("say"))[0] for each in (first, second)]
            assert (await workers.counts())["network_runs_total"] == 2
            waiting = asyncio.ensure_future(first.call("wait"))
            await asyncio.sleep(0)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(EndedError):
                await waiting
            with pytest.raises(EndedError):
                await second.call("say")
            with pytest.raises(EndedError, match="no process"), workers.task("c"):
                pass
            known = {"network_runs_total": 2, "processes_hung_total": 0}
            assert await workers.counts() == known
        while len(refused) < 2:
            await asyncio.sleep(0.02)
        has_room.set()
        while len(await workers.counts()) < 3:
            await asyncio.sleep(0.02)
        with workers.task("d") as third:
            assert (await third.call("say"))[0] not in pids
        assert (await workers.counts())["network_runs_total"] == 3

    ran(test)
    assert f"ended by signal {int(signal.SIGKILL)}: its streams are lost" in caplog.text
    assert caplog.text.count("cannot begin another process: no room") == len(refused)


def test_processes_that_hang(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """One is stopped while others work, one while the server ends."""
    monkeypatch.setattr(module, "_AGAIN", 0.05)
    monkeypatch.setattr(module, "_SILENT", 60)  # in as many questions one that lives has answered
    monkeypatch.setattr(module, "_ENDING", 0.1)

    async def test(workers: Workers) -> None:
        with workers.task("a") as first, workers.task("b") as second:
            pids = [(await each.call("say"))[0] for each in (first, second)]
            await asyncio.sleep(0.2)
            assert (await workers.counts())["network_runs_total"] == 2
            os.kill(pids[0], signal.SIGSTOP)
            # Who asks meanwhile does not wait for it, and gets what it said last.
            with monkeypatch.context() as patient:
                patient.setattr(module, "_TELLING", 0.1)
                known = await asyncio.wait_for(workers.counts(), 60)
            assert known["network_runs_total"] == 2 and known["work_waiting"] == 2
            with pytest.raises(EndedError):
                await first.call("say")
            assert (await second.call("say"))[0] == pids[1]
        while len(caplog.messages) < 2:
            await asyncio.sleep(0.02)
        while not all(place.alive for place in workers._places):
            await asyncio.sleep(0.02)
        counts = await workers.counts()
        assert counts["processes_hung_total"] == 1 and counts["network_runs_total"] == 3
        with workers.task("c") as third, workers.task("d") as fourth:
            others = [(await each.call("say"))[0] for each in (third, fourth)]
        assert pids[0] not in others and pids[1] in others
        os.kill(others[0], signal.SIGSTOP)

    ran(test)
    assert caplog.messages[0].endswith("does not answer: it is killed")
    assert f"ended by signal {int(signal.SIGKILL)}: its streams are lost" in caplog.messages[1]
    assert len(caplog.messages) == 2


class Stuck(Echo):
    """A worker that answers questions, while what it began before does not end.

    Args:
        held: seconds of sound that it hears at once.
    """

    def __init__(self, held: int = 0) -> None:
        super().__init__()
        self.held = held

    def counts(self) -> dict[str, int]:
        return {"turns": self.calls, "running": min(self.calls, 1), "held": self.held}


def test_work_that_stands_still(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(module, "_AGAIN", 0.02)
    monkeypatch.setattr(module, "_SILENT", 1000)
    monkeypatch.setattr(module, "_STILL", 20)

    async def test(workers: Workers) -> None:
        with workers.task("a") as first, workers.task("b"):
            pid = (await first.call("say"))[0]
            with pytest.raises(EndedError):
                await first.call("wait")
            while len(caplog.messages) < 2:
                await asyncio.sleep(0.02)
        assert (await workers.counts())["processes_hung_total"] == 1
        assert f"process {pid} of the server does not answer" in caplog.messages[0]

    ran(test, worker=Stuck())
    assert len(caplog.messages) == 2  # the other process has nothing to do, and lives


@pytest.mark.parametrize("held", [0, 4])
def test_work_that_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: Any, held: int) -> None:
    """Questions that were answered in between do not count; sound gives as long as it lasts."""
    monkeypatch.setattr(module, "_STILL", 3)
    monkeypatch.setattr(Workers, "_watch", lambda _: asyncio.sleep(1000))  # which asks, too

    async def test(workers: Workers) -> None:
        with workers.task("a") as first:
            place = first._place
            for _ in range(10):
                assert not place.is_hung()
                await first.call("say")
                await place.counts()
            found = [await hung(place) for _ in range(held + 5)]
            assert found == [False] * (held + 3) + [True] * 2

    async def hung(place: Any) -> bool:
        found = place.is_hung()
        await place.counts()
        return found

    ran(test, worker=Stuck(held))
    assert not caplog.messages


def test_as_many_processes_as_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(worker: Any) -> Any:
        raise BlockingIOError(11, "no room")

    assert [process_count(*each) for each in ((None, 4), (2, 4), (1, 4))] == [4, 2, 1]
    monkeypatch.setattr(module, "fork", refuse)
    with pytest.raises(OpscopeError, match="cannot begin 2 processes: no room"):
        ran(None)
    monkeypatch.setattr(module, "_CAN_FORK", False)
    assert [process_count(*each) for each in ((None, 4), (1, 4))] == [1, 1]
    with pytest.raises(OpscopeError, match="--processes 2: on this system"):
        process_count(2, 4)
