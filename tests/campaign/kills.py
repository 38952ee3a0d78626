"""Kills at random moments: what was being written is whole, and a training goes on bit for bit."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import FormatError
from opscope.framework.base.files import leftovers
from opscope.framework.files.checkpoint import read_checkpoint, write_checkpoint
from opscope.framework.files.saved import persistent_values
from opscope.kaldi.tables.tables import TableWriter, read_table
from training_runs import same

from .trainings import Training


@dataclass
class Kills:
    """What came of the kills of one kind of work.

    Attributes:
        killed: how many there were. broken: files that could not be read, or not the right ones.
        leftovers: temporary files that were there behind the next write.
    """

    name: str
    killed: int = 0
    broken: int = 0
    leftovers: int = 0


@dataclass(frozen=True)
class Writer:
    """Something that is written again and again.

    Attributes:
        write: writes the n-th contents. whole: raises where what lies there is not whole.
    """

    name: str
    write: Callable[[int], None]
    whole: Callable[[], None]


# Writers


def _net(value: int) -> tuple[NetBuilder, Scope]:
    b, scope = NetBuilder("n"), Scope()
    b.mul(b.input("x", [-1, 500]), b.parameter("w", [500], "zeros"), name="y")
    b.initialize(scope)
    scope.var("w").bind(np.full(500, value, np.float32))
    return b, scope


def _save(value: int) -> None:
    opscope.save(*_net(value), "net")


def _saved_whole() -> None:
    if not Path("net.pb").exists():
        return
    found = opscope.load("net").scope.numpy("w")
    assert (found == found[0]).all()


def _write_checkpoint(value: int) -> None:
    b, scope = _net(value)
    write_checkpoint("run", b.op_list, persistent_values(b.op_list, scope), {"epoch": value})


def _checkpoint_whole() -> None:
    if Path("run.checkpoint").exists():
        found = read_checkpoint("run")
        assert (found.values["w"] == found.state["epoch"]).all()


def _write_table(value: int) -> None:
    with TableWriter("ark,scp:t.ark,t.scp", "matrix") as table:
        for key in ("a", "b"):
            table.write(key, np.full((value % 7 + 1 + (key == "b"), 9), value, np.float32))


def _table_whole() -> None:
    if not Path("t.ark").exists():
        return
    archive = dict(read_table("ark:t.ark", "matrix"))
    assert len({float(value) for found in archive.values() for value in np.unique(found)}) == 1
    try:
        script = dict(read_table("scp:t.scp", "matrix"))
    except FormatError as error:
        assert "No such file" in str(error)
    else:
        assert all(np.array_equal(script[key], archive[key]) for key in archive)


WRITERS = (
    Writer("save", _save, _saved_whole),
    Writer("checkpoint", _write_checkpoint, _checkpoint_whole),
    Writer("archive and script", _write_table, _table_whole),
)

# The kills


def kill(work: Callable[[], None], seconds: float) -> bool:
    """Do some work in a child, and kill it some time after it begins; false where it ended before.

    Raises:
        ChildProcessError: the work failed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number in (1, 2):
                os.dup2(nowhere, number)
            os.close(writing)
            work()
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    os.read(reading, 1)  # the child closes the last other end: on a busy machine it begins late
    os.close(reading)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if status:
                raise ChildProcessError(f"the work ended with status {status}")
            return False
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def hidden() -> list[Path]:
    """Temporary files in the current folder and below."""
    return [path for path in Path().rglob(".*") if path.is_file()]


def kill_writer(writer: Writer, count: int, rng: random.Random) -> Kills:
    """Kill a writer so often, in the current folder."""
    found = Kills(writer.name)

    def write_on() -> None:
        for value in range(1, 1_000_000):
            writer.write(value)

    while found.killed < count:
        found.killed += kill(write_on, rng.random() * 0.05)
        try:
            writer.whole()
        except Exception as error:
            found.broken += 1
            _tell(writer.name, error)
        leftovers._searched.clear()
        writer.write(0)
        writer.whole()
        found.leftovers += len(hidden())
    return found


def kill_training(training: Training, count: int, rng: random.Random, folder: Path) -> Kills:
    """Kill trainings so often; each goes on until it is over, which must be as if it never died."""
    found, number = Kills(training.name), 0
    with contextlib.chdir(_made(folder / "whole")):
        training.prepare()
        begin = time.monotonic()
        kill(training.work, float("inf"))
        seconds = time.monotonic() - begin
        wanted = training.result()
    while found.killed < count:
        number += 1
        with contextlib.chdir(_made(folder / str(number))):
            training.prepare()
            try:
                while kill(training.work, rng.uniform(0.05, 0.5) * seconds):
                    found.killed += 1
                found.broken += not _equal(training.result(), wanted)
                found.leftovers += len(hidden())
            except Exception as error:
                found.broken += 1
                _tell(training.name, error)
    return found


def _tell(name: str, error: Exception) -> None:
    print(f"{name}: broken: {type(error).__name__}: {error}", flush=True)


def _equal(one: Any, other: Any) -> bool:
    return same(one, other) if isinstance(one, dict) else one == other


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
