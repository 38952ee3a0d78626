"""Runs the campaign and prints its table: `python build.py campaign --minutes N`."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import logging
import os
import pkgutil
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import faults, switches
from .inputs import Generator, Target, input_of
from .kills import WRITERS, Writer, kill_training, kill_writer
from .limits import Found, Outcome, Until, campaign, examine
from .programs import PROGRAMS, Program, kill_program
from .progress import Progress, folder_of, table
from .shrinking import shrunk
from .threads import repeats, sanitized
from .trainings import TRAININGS
from .works import CNTK_ACTIONS, NNET3_PROGRAMS, Work

HERE = Path(__file__).resolve().parent
KEPT = HERE.parents[1] / "build" / "campaign"
CORPUS = HERE / "corpus"
_TOLD = 15.0  # seconds between two lines of progress


def _listed(package: str, name: str) -> Iterator[Any]:
    """What the modules of a package list under a name."""
    for module in sorted(found.name for found in pkgutil.iter_modules([str(HERE / package)])):
        made = importlib.import_module(f"{__package__}.{package}.{module}")
        yield from getattr(made, name, ())


def _by_name(*listed: Any) -> dict[str, Any]:
    found = {each.name: each for each in listed}
    assert len(found) == len(listed), "two of one name"
    return found


TARGETS: dict[str, Target] = _by_name(*_listed("readers", "TARGETS"))
"""The readers by name."""

GENERATORS: dict[str, Generator] = _by_name(*_listed("generators", "GENERATORS"))
"""The generators by name."""

EVERY: dict[str, Target | Generator] = _by_name(*TARGETS.values(), *GENERATORS.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python build.py campaign", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, help="of all together; 2 where no number of inputs is given"
    )
    parser.add_argument(
        "--inputs", type=int, default=0, metavar="N", help="each gets N inputs at least"
    )
    parser.add_argument(
        "--generate", type=int, metavar="N", help="N inputs of grammars, by their shares, alone"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="these readers, generators or works alone"
    )
    parser.add_argument("--seed", type=int, help="of the inputs; the date of today otherwise")
    parser.add_argument(
        "--index", type=int, metavar="I", help="make one input of --only and --seed, and show it"
    )
    parser.add_argument("--afresh", action="store_true", help="forget what the seed found before")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", action="store_true", help="print what all seeds found, and stop")
    parser.add_argument(
        "--kills", type=int, metavar="N", help="kill each writer and training N times instead"
    )
    parser.add_argument(
        "--sanitize", type=int, metavar="N", help="run nets N times in 8 threads under sanitizers"
    )
    parser.add_argument(
        "--faults", type=int, metavar="N", help="let N faults come to each work instead"
    )
    parser.add_argument(
        "--switches", type=int, metavar="N", help="run N random nets with each switch instead"
    )
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="compute N looped outputs under unrest"
    )
    parser.add_argument("--read", metavar="FILE", help="read one file that was kept, and stop")
    parser.add_argument("--shrink", metavar="FILE", help="find a smaller file of the same find")
    parser.add_argument(
        "--adopt", metavar="FILE", help="make a file that was kept one of the ordinary tests"
    )
    arguments = parser.parse_args()
    if arguments.read:
        return read_again(Path(arguments.read))
    if arguments.shrink:
        return shrink(Path(arguments.shrink))
    if arguments.adopt:
        return adopt(Path(arguments.adopt))
    if arguments.sanitize:
        return 1 if sanitized.run_all(arguments.sanitize) else 0
    if arguments.faults:
        return faults.main(arguments.faults, arguments.seed or 0, arguments.only)
    if arguments.switches:
        return switches.main(arguments.switches, arguments.seed or 0, arguments.only)
    if arguments.repeats:
        return repeats.in_a_process(arguments.repeats)
    if arguments.kills:
        if unknown := set(arguments.only or ()) - set(KILLED):
            parser.error(f"no work {', '.join(sorted(unknown))}; there are {', '.join(KILLED)}")
        return kill_all(arguments.kills, arguments.seed or 0, arguments.only)
    progress = Progress(KEPT)
    if arguments.table:
        print(table(progress.joined()))
        return 0
    groups = GENERATORS if arguments.generate else EVERY
    if unknown := set(arguments.only or ()) - set(groups):
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(groups)}")
    chosen = [groups[name] for name in arguments.only or groups]
    today = datetime.datetime.now(datetime.UTC).date()
    seed = today.toordinal() if arguments.seed is None else arguments.seed
    if arguments.index is not None:
        return show(chosen, seed, arguments.index)
    if arguments.afresh:
        progress.forget(seed, (target.name for target in chosen))
    minutes, total = arguments.minutes, arguments.generate or 0
    if minutes is None:
        minutes = 0.0 if arguments.inputs or total else 2.0
    seconds = 60 * minutes * arguments.processes / len(chosen)
    until = Until(arguments.inputs, seconds, total=total)
    each = f"{arguments.inputs:,} inputs" if arguments.inputs else f"{until.seconds:.0f} s"
    what = f"{total:,} inputs in all" if total else f"{each} each"
    print(f"seed {seed}, {len(chosen)} readers and generators, {what}", flush=True)
    results = read_all(chosen, until, seed, progress, arguments.processes)
    print(table(results))
    lines = [line for result in results for line in progress.lines(seed, result.name)]
    print("\n".join(lines) if lines else "nothing was found")
    if until.stopped.is_set():
        print(f"stopped; the same command with --seed {seed} goes on")
    return 1 if lines or until.stopped.is_set() else 0


def show(chosen: Sequence[Target | Generator], seed: int, index: int) -> int:
    """Make the inputs that a seed and an index stand for again, and show what comes of them."""
    for target in chosen:
        with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as scratch:
            data = input_of(target, seed, index, list(target.seeds(Path(scratch))))
            print(data.decode("utf-8", "backslashreplace"))
            print(f"{target.name}, seed {seed}, index {index}:", flush=True)
            _show(target, data, Path(scratch))
    return 0


def read_all(
    chosen: Sequence[Target | Generator],
    until: Until,
    seed: int,
    progress: Progress,
    processes: int,
) -> list[Found]:
    """Give each its inputs, until there were enough or somebody stops it."""
    shares = sum(target.share for target in chosen if isinstance(target, Generator))
    results = {target.name: progress.found(seed, target.name) for target in chosen}
    earlier = sum(found.inputs for found in results.values())
    begin = told = time.monotonic()
    lock = threading.Lock()

    def tell(target: Target | Generator, found: Found) -> None:
        nonlocal told
        progress.take(seed, target, found)
        with lock:
            now = time.monotonic()
            if now - told < _TOLD:
                return
            told = now
            done = sum(each.inputs for each in results.values())
            most = until.inputs_of(target, shares)
            wanted = f" of {most:,}" if most else ""
            finds = sum(len(each.finds) for each in results.values())
            print(
                f"{target.name}: {found.inputs:,}{wanted}; all: {done:,},"
                f" {(done - earlier) / (now - begin):.0f} a second, {finds} finds",
                flush=True,
            )

    def run(target: Target | Generator) -> None:
        folder = Path(scratch, folder_of(target.name))
        folder.mkdir()
        found = results[target.name]
        try:
            mine = replace(until, inputs=until.inputs_of(target, shares))
            campaign(target, mine, seed, folder, found, lambda each: tell(target, each))
        except Exception as error:  # the others go on
            found.note("crash", f"the campaign itself: {type(error).__name__}: {error}", b"")
        progress.take(seed, target, found, now=True)

    with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as scratch, _stops(until):
        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(run, chosen))
    return list(results.values())


@contextlib.contextmanager
def _stops(until: Until):
    """Ctrl-C and SIGTERM end the campaign as soon as what was found is kept."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: until.stopped.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


KILLED = {
    work.name: work for work in (*WRITERS, *TRAININGS, *PROGRAMS, *NNET3_PROGRAMS, *CNTK_ACTIONS)
}
"""What can be killed, by name."""


def kill_all(count: int, seed: int, only: list[str] | None) -> int:
    """Kill every writer, training and program so often, and print what came of it."""
    rng, results = random.Random(seed), []
    with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as scratch:
        for number, name in enumerate(only or KILLED):
            work, folder = KILLED[name], Path(scratch, str(number))
            folder.mkdir()
            with contextlib.chdir(folder):
                if isinstance(work, Work):
                    results.append(faults.kill_work(work, count, rng, folder))
                elif isinstance(work, Writer):
                    results.append(kill_writer(work, count, rng))
                elif isinstance(work, Program):
                    results.append(kill_program(work, count, rng, folder))
                else:
                    results.append(kill_training(work, count, rng, folder))
    print("| work | kills | broken | leftovers |\n| --- | --- | --- | --- |")
    for found in results:
        print(f"| {found.name} | {found.killed} | {found.broken} | {found.leftovers} |")
    return int(any(found.broken or found.leftovers for found in results))


def target_of(path: Path) -> Target | Generator:
    """The reader or generator of a file that was kept: its folder has the name.

    Raises:
        ValueError: there is no such one.
    """
    for target in EVERY.values():
        if folder_of(target.name) == path.resolve().parent.name:
            return target
    raise ValueError(f"{path}: {path.resolve().parent.name} is no reader of the campaign")


def outcome_of(target: Target | Generator, data: bytes, folder: Path) -> Outcome:
    """What comes of one input."""
    target.seeds(folder)
    last = target.last(folder)
    last.write_bytes(data)
    return examine(target.read, last)


def read_again(path: Path) -> int:
    """Read a file that a campaign kept, and show what comes of it."""
    with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as scratch:
        _show(target_of(path), path.read_bytes(), Path(scratch))
    return 0


def _show(target: Target | Generator, data: bytes, folder: Path) -> None:
    logging.disable(logging.CRITICAL)
    print(outcome_of(target, data, folder), flush=True)
    target.read(target.last(folder))


def shrink(path: Path) -> int:
    """Write the smallest file that shows the same find beside a file that a campaign kept."""
    target, data = target_of(path), path.read_bytes()
    with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as scratch:
        found = outcome_of(target, data, Path(scratch))
        small = shrunk(data, lambda less: outcome_of(target, less, Path(scratch)) == found)
    made = path.with_name(f"{path.stem}-small{path.suffix}")
    made.write_bytes(small)
    print(small.decode("utf-8", "backslashreplace"))
    print(f"{made}: {found}, {len(small)} of {len(data)} bytes")
    return 0


def adopt(path: Path) -> int:
    """Copy a file that a campaign kept to the corpus, which `test_campaign.py` reads."""
    folder = CORPUS / folder_of(target_of(path).name)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, folder / path.name)
    print(f"{folder / path.name}: read by tests/test_campaign.py from now on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
