"""The campaign's readers take whole files, and damaged ones without a surprise: a short run."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

pytest.importorskip("resource")

from campaign import sharing
from campaign.__main__ import TARGETS, table
from campaign.kills import WRITERS, Writer, kill_training, kill_writer
from campaign.limits import Target, campaign, examine
from campaign.mutate import damaged
from campaign.ranks import kill_ranks
from campaign.trainings import TRAININGS
from mpi_runs import mpiexec

DAMAGED = 40


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    seeds = list(target.seeds(tmp_path))
    path = tmp_path / f"{name}-last{target.suffix}"
    for seed in seeds:
        path.write_bytes(seed)
        target.read(path)
    rng = random.Random(name)
    refused = 0
    for _ in range(DAMAGED):
        path.write_bytes(damaged(rng.choice(seeds), rng, seeds, target.kinds))
        outcome = examine(target.read, path)
        assert outcome in ("read", "refused"), path.read_bytes()[:2000]
        refused += outcome == "refused"
    assert refused


def _finds(path: Path) -> None:
    """A reader with every fault there is."""
    data = path.read_bytes()
    if data.startswith(b"a"):
        return
    if data.startswith(b"m"):
        raise MemoryError
    if data.startswith(b"k"):
        import os
        import signal

        os.kill(os.getpid(), signal.SIGSEGV)
    raise ValueError("a foreign error")


def _letters(data: bytes, rng: random.Random, others: object) -> bytes:
    return rng.choice((b"a", b"m", b"x", b"k" if rng.random() < 0.02 else b"a"))


def test_finds_are_counted_and_kept(tmp_path: Path) -> None:
    target = Target("faulty", ".txt", lambda _: [b"a"], _finds, (_letters,))
    found = campaign(target, 2.0, 1, tmp_path)
    assert found.inputs > 10
    assert found.counts["foreign"] and found.counts["memory"] and found.counts["crash"]
    assert found.finds["crash: SIGSEGV"] == b"k"
    assert any(what.startswith("foreign: ValueError") for what in found.finds)
    assert f"| faulty | {found.inputs:,} |" in table([found])


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_a_writer_that_is_killed(writer: Writer, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        found = kill_writer(writer, 5, random.Random(0))
    assert (found.killed, found.broken, found.leftovers) == (5, 0, 0)


def test_a_training_that_is_killed(tmp_path: Path) -> None:
    (training,) = (each for each in TRAININGS if each.name == "train")
    found = kill_training(training, 3, random.Random(0), tmp_path)
    assert found.killed >= 3 and (found.broken, found.leftovers) == (0, 0)


def test_ranks_that_are_killed(tmp_path: Path) -> None:
    mpiexec()  # or skip
    found = kill_ranks("block momentum", 1, random.Random(0), tmp_path)
    assert found.killed >= 1 and (found.broken, found.leftovers) == (0, 0)


def test_a_writer_that_leaves_half_a_file_is_found(tmp_path: Path) -> None:
    def write(value: int) -> None:
        with open("half", "w") as file:
            for _ in range(100):
                file.write(f"{value}\n" * 100)

    def whole() -> None:
        if Path("half").exists():
            assert len(Path("half").read_text().splitlines()) == 10000

    with contextlib.chdir(tmp_path):
        found = kill_writer(Writer("half", write, whole), 10, random.Random(0))
    assert found.broken


def test_many_threads_share_nets() -> None:
    assert sharing.main(20) == 0
