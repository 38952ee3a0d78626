"""The campaign's readers take whole files, and damaged ones without a surprise: a short run."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tqdm

pytest.importorskip("resource")

from campaign import child, limits, switches
from campaign.__main__ import CORPUS, GENERATORS, TARGETS, adopt, outcome_of, read_all, target_of
from campaign.faults import fail, kill_work, run
from campaign.generators.seeded import chosen
from campaign.inputs import Depth, Generator, Target, WrongError, input_of
from campaign.kills import WRITERS, Writer, kill_training, kill_writer
from campaign.limits import Until, campaign, examine, finds
from campaign.programs import PROGRAMS, Program, kill_program
from campaign.progress import Progress, table
from campaign.shrinking import shrunk
from campaign.switched import KINDS, Kind, Run
from campaign.switches import compare
from campaign.threads import repeats, sharing
from campaign.trainings import TRAININGS
from campaign.works import WORKS, Work, files
from mpi_runs import mpiexec

DAMAGED = 15
"""Of the campaign itself, which is a check of its own, this is a sample."""
MADE = 10
FAULTS = {"save": 12, "archive and script": 12, "checkpoint": 8, "nnet3-copy": 5}
FAULTS |= {"cntk write": 5, "kernel cache": 4}


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader(name: str, tmp_path: Path) -> None:
    found = finds(TARGETS[name], DAMAGED, tmp_path, seed=2)
    assert not found.finds, {what: data[:2000] for what, data in found.finds.items()}
    assert found.refused


_NUMBER = re.compile(rb"(?<![\w.])\d+(?![\w.])")
_MOST_NUMBERS = 60  # of one file
_ASKS_FOR_WORK = (b"--epochs\n", b"--lattice-beam=")
"""What a user wants so long: more epochs; a beam, which Kaldi's `max_mem` bounds."""


@pytest.mark.parametrize("name", TARGETS)
def test_no_number_of_a_text_costs_more_than_the_text(name: str, tmp_path: Path) -> None:
    """Each number of the whole files in turn becomes a billion: it is refused, or costs nothing."""
    target = TARGETS[name]
    path = target.last(tmp_path)
    for whole in dict.fromkeys(target.seeds(tmp_path)):
        if b"\0" in whole or not whole.isascii():
            continue
        for number in list(_NUMBER.finditer(whole))[:_MOST_NUMBERS]:
            before = whole[: number.start()]
            if before.endswith(_ASKS_FOR_WORK):
                continue
            path.write_bytes(before + b"1000000000" + whole[number.end() :])
            outcome = examine(target.read, path)
            assert isinstance(outcome, Depth), (outcome, path.read_bytes()[:2000])


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator(name: str, tmp_path: Path) -> None:
    made = MADE if GENERATORS[name].share <= 1 else 2 * MADE  # those with a share are cheap
    found = finds(GENERATORS[name], made, tmp_path)
    assert not found.finds, {what: data[:2000] for what, data in found.finds.items()}
    assert found.ran >= made // 5


def test_one_more_name_moves_no_draw_to_another_old_one() -> None:
    names = [f"op{number}" for number in range(50)]
    before = [chosen(random.Random(seed), names) for seed in range(500)]
    after = [chosen(random.Random(seed), [*names, "new"]) for seed in range(500)]
    moved = [now for was, now in zip(before, after, strict=True) if was != now]
    assert set(moved) == {"new"} and len(moved) < 25
    assert set(before) == set(names)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generated_text_is_made_again_by_another_process(name: str) -> None:
    """Texts begin with their seed: an address in one would keep it from being run again."""
    text = GENERATORS[name].make(random.Random(0))
    assert not re.search(r"0x[0-9a-f]{6}", text)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: path.name)
def test_what_campaigns_found(path: Path, tmp_path: Path) -> None:
    outcome = outcome_of(target_of(path), path.read_bytes(), tmp_path)
    assert isinstance(outcome, Depth), path


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


FAULTY = Target("faulty", ".txt", lambda _: [b"a"], _finds, (_letters,))


def test_finds_are_counted_and_kept(tmp_path: Path) -> None:
    found = campaign(FAULTY, Until(inputs=40), 20, tmp_path)  # the fifth kills
    assert found.inputs > 10
    assert found.counts["foreign"] and found.counts["memory"] and found.counts["crash"]
    assert found.finds["crash: SIGSEGV"] == b"k"
    assert any(what.startswith("foreign: ValueError") for what in found.finds)
    assert f"| faulty | {found.inputs:,} |" in table([found])


def _make(rng: random.Random) -> str:
    return f"{rng.randrange(1000)}\nmore {rng.randrange(1000)}\n"


def _halves(text: str) -> Depth:
    if "7" in text:
        raise WrongError("a seven", text)
    return Depth.RAN if "1" in text else Depth.READ


HALVES = Generator("halves", _make, _halves)


def test_depths_of_a_generator_are_counted(tmp_path: Path) -> None:
    found = campaign(HALVES, Until(inputs=200), 1, tmp_path)
    texts = [input_of(HALVES, 1, index, ()).decode() for index in range(found.inputs)]
    wrong = [text for text in texts if "7" in text]
    assert found.counts["wrong"] == len(wrong)
    assert found.accepted == found.inputs - len(wrong)
    assert found.ran == sum("1" in text and "7" not in text for text in texts)
    assert found.finds["wrong: a seven"].decode() in wrong
    assert f"| {found.inputs:,} |" in (told := table([found]))
    assert f"| 0 | {found.accepted:,} | {found.ran:,} | 0 | {len(wrong):,} |" in told
    assert shrunk(b"12\nmore 57 here\n", lambda data: b"7" in data) == b" 57"


def test_generators_share_a_total(tmp_path: Path) -> None:
    few = Generator("few", _make, lambda _: Depth.RAN, share=0.25)
    many = Generator("many", _make, lambda _: Depth.RAN, share=0.75)
    found = read_all([few, many], Until(total=400), 1, Progress(tmp_path), 2)
    assert [each.inputs for each in found] == [100, 300]
    assert [each.ran for each in found] == [100, 300]


def test_a_reader_that_sleeps_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_LOOK", 0.1)
    found = limits.examine(lambda _: time.sleep(60), tmp_path)
    assert found == ("slow", "no place of the package")


_WAKES = """
import os, signal, sys, time
while True:
    time.sleep(0.05)
    for process in os.listdir(sys.argv[1]):
        try:
            with open(f"/proc/{process}/stat") as file:
                is_stopped = file.read().rpartition(")")[2].split()[0] == "T"
        except OSError:  # it has ended
            continue
        if is_stopped:
            time.sleep(1)
            os.kill(int(process), signal.SIGCONT)
"""


def test_a_reader_that_is_stopped_is_no_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a process is stopped it uses no processor, as one that sleeps."""
    monkeypatch.setattr(limits, "_LOOK", 0.5)
    monkeypatch.setattr(limits, "_TURN", 0.1)
    monkeypatch.setattr(limits, "_HANGS", 0.3)
    (tmp_path / "stopped").mkdir()

    def stops(path: Path) -> None:
        (tmp_path / "stopped" / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGSTOP)

    stopped = Target("stops", ".txt", lambda _: [b"a"], stops, (_letters,))
    with subprocess.Popen([sys.executable, "-S", "-c", _WAKES, str(tmp_path / "stopped")]) as wakes:
        try:
            found = campaign(stopped, Until(inputs=1), 1, tmp_path)
        finally:
            wakes.kill()
    assert found.inputs and not found.finds


@pytest.mark.parametrize(
    ("used", "runnable", "late"),
    [
        (0.0, False, "asleep for 60 s"),
        (1.0, False, "over 60 s of processor time"),
        (0, True, "starved"),
    ],
)
def test_why_a_reader_is_late(
    used: float, runnable: bool, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()
    monkeypatch.setattr(limits, "_STARVED", 50.0)
    monkeypatch.setattr(limits, "sample", lambda _: child.Sample(next(looks) * used, runnable))
    watch = limits._Watch(0)
    for _ in range(60):
        watch.waited()
    assert not watch.late
    watch.told()
    for _ in range(122):
        watch.waited()
    assert watch.late == late


def test_each_reader_gets_its_inputs(tmp_path: Path) -> None:
    fails = Target("fails", ".txt", lambda _: [], _finds, ())
    good = Target("good", ".txt", lambda _: [b"a"], _finds, (lambda *_: b"a",))
    progress = Progress(tmp_path)
    until = Until(inputs=40)  # the reader that fails takes a process for each
    results = read_all([fails, FAULTY, good], until, 1, progress, 2)
    assert [found.inputs >= 40 for found in results[1:]] == [True, True]
    assert results[0].counts["crash"] and not any(results[2].counts.values())
    assert "--read" in "".join(progress.lines(1, "faulty"))


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    first = read_all([FAULTY], Until(inputs=100), 1, Progress(tmp_path), 1)[0]
    until = Until(inputs=first.inputs + 50)
    until.stopped.set()
    assert read_all([FAULTY], until, 1, Progress(tmp_path), 1)[0] == first
    second = read_all([FAULTY], Until(inputs=first.inputs + 50), 1, Progress(tmp_path), 1)[0]
    assert second.inputs >= first.inputs + 50 and second.rounds > first.rounds
    assert set(first.finds) <= set(second.finds)
    read_all([FAULTY], Until(inputs=10), 2, Progress(tmp_path), 1)
    (joined,) = Progress(tmp_path).joined()
    assert joined.inputs >= second.inputs + 10
    progress = Progress(tmp_path)
    progress.forget(1, ["faulty"])
    assert progress.found(1, "faulty").inputs == 0


def test_a_find_is_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaign.__main__.CORPUS", tmp_path / "corpus")
    path = tmp_path / "nnet3-pb" / "x.pb"
    path.parent.mkdir()
    path.write_bytes(b"x")
    assert adopt(path) == 0
    assert (tmp_path / "corpus" / "nnet3-pb" / "x.pb").read_bytes() == b"x"
    with pytest.raises(ValueError, match="no reader"):
        adopt(tmp_path / "x.pb")


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_a_writer_that_is_killed(writer: Writer, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        found = kill_writer(writer, 5, random.Random(0))
    assert (found.killed, found.broken, found.leftovers) == (5, 0, 0)


def test_a_training_that_is_killed(tmp_path: Path) -> None:
    (training,) = (each for each in TRAININGS if each.name == "train")
    found = kill_training(training, 3, random.Random(0), tmp_path)
    assert found.killed >= 3 and (found.broken, found.leftovers) == (0, 0)


@pytest.mark.parametrize("name", FAULTS)
def test_work_under_faults(name: str, tmp_path: Path) -> None:
    (work,) = (work for work in WORKS if work.name == name)
    found = fail(work, FAULTS[name], random.Random(0), tmp_path)
    assert found.faults >= FAULTS[name] and found.problems == []


def test_work_that_is_killed(tmp_path: Path) -> None:
    (work,) = (work for work in WORKS if work.name == "nnet3-am-copy")
    found = kill_work(work, 8, random.Random(0), tmp_path)
    assert (found.killed, found.broken, found.leftovers) == (8, 0, 0)


def test_work_that_writes_over_its_file_is_found(tmp_path: Path) -> None:
    def write() -> None:
        Path("new").write_text("".join(str(number) for number in range(5000)))

    careless = Work("careless", lambda value: None, write, files("new"))
    found = fail(careless, 40, random.Random(0), tmp_path)
    assert any("foreign" in line for line in found.problems)


def _under_no_fault(do: Callable[[], object]) -> child.Ending:
    return run(Work("late", lambda _: None, do, files("new")), None)


def _sleep() -> None:
    print("asleep", file=sys.stderr)
    time.sleep(1e6)


def _work_on() -> None:
    while True:
        pass


def test_a_child_that_sleeps_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LONGEST", 0.3)
    monkeypatch.setattr(child, "_ASLEEP", 0.2)
    monkeypatch.setattr(child, "_STARVED", 1000)
    ending = _under_no_fault(_sleep)
    assert ending.code is None and ending.late.startswith("hung (asleep for ")
    assert "asleep" in ending.told and "in _sleep" in ending.told  # where it was
    assert "hung (asleep" in str(ending) and "processor time; it told: asleep" in str(ending)


def test_a_child_that_works_for_too_long_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LONGEST", 0.3)
    monkeypatch.setattr(child, "_STARVED", 1000)
    ending = _under_no_fault(_work_on)
    assert ending.late == "too slow" and ending.processor >= 0.3
    assert "in _work_on" in ending.told


def test_a_child_that_may_not_run_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine that lets a child wait for it is made: it always wants to run."""
    monkeypatch.setattr(child, "LONGEST", 0.1)
    monkeypatch.setattr(child, "_ASLEEP", 0.05)
    monkeypatch.setattr(child, "_STARVED", 4)
    monkeypatch.setattr(child, "sample", lambda _: child.Sample(0.0, runnable=True))
    with pytest.raises(child.StarvedError, match=r"starved: 0.0 s of .* in .* told: asleep"):
        _under_no_fault(_sleep)
    found = fail(Work("late", lambda _: None, _sleep, files("new")), 3, random.Random(0), tmp_path)
    assert found.faults == 0 and found.problems == []
    assert "late: without a fault: starved" in found.starved[0]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux tells of processes")
def test_a_sample_counts_what_a_process_began() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass\ntime.sleep(1000)"
    outer = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])"
    with subprocess.Popen([sys.executable, "-c", outer]) as process:
        found = child.sample(process.pid)
        until = time.monotonic() + 240
        while found.used < 0.2 and time.monotonic() < until:
            time.sleep(0.02)
            found = child.sample(process.pid)
        (inner,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(inner), 9)
    assert found.used >= 0.2
    assert child.sample(process.pid) == (0.0, False)


def test_a_killed_process_keeps_no_lock_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that processes share stays locked where the one that holds it is killed."""
    (work,) = (work for work in WORKS if work.name == "nnet3-acc-lda-stats")
    monkeypatch.setattr(tqdm.tqdm, "_lock", multiprocessing.RLock(), raising=False)
    if not os.fork():
        tqdm.tqdm.get_lock().acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
    monkeypatch.setattr(child, "LONGEST", 5.0)
    with contextlib.chdir(tmp_path):
        work.prepare(1)
        assert run(work, None).code == 0


def test_how_a_run_ended_is_told() -> None:
    assert str(child.Ending(3, "", 1, 0.5)) == (
        "exit code 3 after 1.0 s, 0.5 s of processor time; it told: nothing"
    )
    assert "ended by signal 9 (SIGKILL) after" in str(child.Ending(-9, "x", 1, 0.5))
    assert _under_no_fault(lambda: sys.exit("gone")).code == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_switches_change_no_number(kind: Kind) -> None:
    found = compare(kind, 1, 4, singly=False)
    assert found.nets == 1 and found.problems == []
    assert found.largest.keys() == {"all on", "random sets"}


def test_a_switch_that_changes_a_number_is_found() -> None:
    def make(seed: int) -> Run:
        return lambda on: {"y": np.array([1.0, 1e-6 * ("guilty" in on)])}

    found = compare(Kind("wrong", make, ("guilty", "innocent"), 1e-9), 1, 0)
    assert found.largest["guilty"] == 0 and found.largest["innocent"] == 1e-6
    assert "wrong, seed 0, on: guilty, innocent: y differs by 1e-06" in found.problems
    assert "| wrong | innocent | 1 | 1.0e-06 | 1e-09 |" in switches.table([found])


@pytest.mark.parametrize(
    "program",
    [one for one in PROGRAMS if "launch" in one.name or "Block" in one.name],
    ids=lambda one: one.name,
)
def test_a_program_of_several_processes_that_is_killed(program: Program, tmp_path: Path) -> None:
    if program.ranks:
        mpiexec()  # or skip
    found = kill_program(program, 1, random.Random(0), tmp_path)
    assert found.killed >= 1 and (found.broken, found.leftovers) == (0, 0)


def test_a_writer_that_leaves_half_a_file_is_found(tmp_path: Path) -> None:
    def write(value: int) -> None:
        with open("half", "w") as file:
            for _ in range(100):
                file.write(f"{value}\n" * 100)
            if value:
                time.sleep(0.01)  # in which most kills come

    def whole() -> None:
        if Path("half").exists():
            assert len(Path("half").read_text().splitlines()) == 10000

    with contextlib.chdir(tmp_path):
        found = kill_writer(Writer("half", write, whole), 10, random.Random(0))
    assert found.broken


SHARED = (
    "dense",
    "rows and heads",
    "filled",
    "team prediction",
    "copies",
    "random integers",
    "chunks",
    "looped",
)
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
        [sys.executable, "-P", "-m", "campaign.threads.families"],
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
        assert repeats.run_all(50, works, neighbors=("dense",)) == 0
        drawn = np.random.default_rng()
        odd = {"odd": lambda: lambda: {"drawn": drawn.normal(size=1)}}
        assert repeats.run_all(150, odd, neighbors=("dense",)) == 3
    finally:
        sys.setswitchinterval(before)
    told = capsys.readouterr().out
    assert "| looped | 5 | 0 |" in told and "| odd | 3 | 3 |" in told
