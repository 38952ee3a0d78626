"""Runs the campaign and prints its table: `python build.py campaign --minutes N`."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import logging
import os
import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from . import cntk_targets, nnet3_targets, own_targets, sanitised
from .kills import WRITERS, Writer, kill_training, kill_writer
from .limits import Found, Target, campaign, examine, keep
from .ranks import METHODS, kill_ranks
from .trainings import TRAININGS

TARGETS = {
    target.name: target
    for target in (*own_targets.TARGETS, *nnet3_targets.TARGETS, *cntk_targets.TARGETS)
}
REPRODUCERS = Path(__file__).resolve().parents[2] / "build" / "campaign"
HEAD = ("reader", "inputs", "refused", "foreign", "over 2 s", "over 1 GiB", "crashes")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python build.py campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="of all readers together")
    parser.add_argument("--only", action="append", metavar="READER", help="these readers alone")
    parser.add_argument("--seed", type=int, help="of the damage; the date of today otherwise")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--kills", type=int, metavar="N", help="kill each writer and training N times instead"
    )
    parser.add_argument(
        "--sanitise", type=int, metavar="N", help="run nets N times in 8 threads under sanitisers"
    )
    parser.add_argument("--read", metavar="FILE", help="read one file that was kept, and stop")
    arguments = parser.parse_args()
    if arguments.read:
        return read_again(Path(arguments.read))
    if arguments.sanitise:
        return 1 if sanitised.run_all(arguments.sanitise) else 0
    if arguments.kills:
        return kill_all(arguments.kills, arguments.seed or 0)
    unknown = set(arguments.only or ()) - set(TARGETS)
    if unknown:
        parser.error(f"no reader {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    chosen = [TARGETS[name] for name in arguments.only or TARGETS]
    today = datetime.datetime.now(datetime.UTC).date()
    seed = today.toordinal() if arguments.seed is None else arguments.seed
    seconds = 60 * arguments.minutes * arguments.processes / len(chosen)
    print(f"seed {seed}, {len(chosen)} readers, {seconds:.0f} s each")
    with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as scratch:

        def run(target: Target) -> Found:
            folder = Path(scratch, target.name.replace(" ", "-"))
            folder.mkdir()
            return campaign(target, seconds, seed, folder)

        with ThreadPoolExecutor(arguments.processes) as pool:
            results = list(pool.map(run, chosen))
    print(table(results))
    lines = [
        line
        for result in results
        for line in keep(result, TARGETS[result.name], REPRODUCERS / result.name.replace(" ", "-"))
    ]
    print("\n".join(lines) if lines else "nothing was found")
    return 1 if lines else 0


def kill_all(count: int, seed: int) -> int:
    """Kill every writer and training so often, and print what came of it."""
    rng, results = random.Random(seed), []
    with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as scratch:
        for number, work in enumerate((*WRITERS, *TRAININGS)):
            folder = Path(scratch, str(number))
            folder.mkdir()
            with contextlib.chdir(folder):
                if isinstance(work, Writer):
                    results.append(kill_writer(work, count, rng))
                else:
                    results.append(kill_training(work, count, rng, folder))
        for name in METHODS if find_spec("mpi4py") else ():
            folder = Path(scratch, name)
            folder.mkdir()
            results.append(kill_ranks(name, count, rng, folder))
    print("| work | kills | broken | leftovers |\n| --- | --- | --- | --- |")
    for found in results:
        print(f"| {found.name} | {found.killed} | {found.broken} | {found.leftovers} |")
    return int(any(found.broken or found.leftovers for found in results))


def table(results: list[Found]) -> str:
    """What was found, a row for each reader, in Markdown."""
    rows = [f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD)]
    sums = Found("all", sum(r.inputs for r in results), sum(r.refused for r in results))
    for kind in sums.counts:
        sums.counts[kind] = sum(result.counts[kind] for result in results)
    for result in (*results, sums):
        counts = (f"{number:,}" for number in (result.inputs, result.refused))
        rows.append(f"| {' | '.join([result.name, *counts, *map(str, result.counts.values())])} |")
    return "\n".join(rows)


def read_again(path: Path) -> int:
    """Read a file that a campaign kept, and show what comes of it."""
    target = TARGETS[path.parent.name.replace("-", " ")]
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as scratch:
        target.seeds(Path(scratch))
        last = Path(scratch, f"{target.name}-last{target.suffix}")
        last.write_bytes(path.read_bytes())
        print(examine(target.read, last))
        target.read(last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
