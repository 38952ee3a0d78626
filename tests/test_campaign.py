"""The campaign's readers take whole files, and damaged ones without a surprise: a short run."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("resource")

from campaign import repeats, sharing
from campaign.__main__ import TARGETS, table
from campaign.kills import WRITERS, Writer, kill_training, kill_writer
from campaign.limits import Target, campaign, examine
from campaign.mutate import damaged
from campaign.trainings import TRAININGS

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


SHARED = ("dense", "team prediction", "copies", "random integers", "chunks", "looped")
"""Works of few milliseconds that hold most kinds of native code."""


def test_many_threads_share_nets() -> None:
    assert sharing.main(6, {name: sharing.WORKS[name] for name in SHARED}) == 0


def test_a_result_that_differs_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    turn = itertools.count()
    makers = {"odd": lambda: lambda: {"turn": np.array(min(next(turn), 20))}}
    assert sharing.main(3, makers) > 0
    assert "odd, cold" in capsys.readouterr().out


def test_no_native_code_is_forgotten() -> None:
    """What there is: C functions of the package, kernels of the registry."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "campaign.families"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux moves threads here")
def test_repeats_under_unrest(capsys: pytest.CaptureFixture[str]) -> None:
    works = {name: sharing.WORKS[name] for name in ("looped", "team prediction", "copies")}
    before = sys.getswitchinterval()
    try:
        assert repeats.run_all(50, works, neighbours=("dense",)) == 0
        drawn = np.random.default_rng()
        odd = {"odd": lambda: lambda: {"drawn": drawn.normal(size=1)}}
        assert repeats.run_all(150, odd, neighbours=("dense",)) == 3
    finally:
        sys.setswitchinterval(before)
    told = capsys.readouterr().out
    assert "| looped | 5 | 0 |" in told and "| odd | 3 | 3 |" in told
