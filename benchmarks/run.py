"""Benchmarks beside PyTorch and ONNX Runtime (CPU), sides in turn in one run.

    python benchmarks/run.py [--only mlp-step,lstm] [--threads 1,2]
                             [--where apart,together,light,half,busy]
                             [--without amx,avx512,mkl,compiler,avx512+both]
                             [--against COMMIT] [--board] [--keep FOLDER] [--minutes N]
                             [--json FILE] [--markdown FILE] [--png FILE] [--again FILE ...]

Each line is a ratio, time of the fastest peer / our time: above 1 we are faster. Rounds of all
sides alternate, and the ratio is the median over rounds, so that a drifting machine does not decide
it. `apart` gives each side a process of its own, `together` one process that has loaded the peers
first, `light`, `half` and `busy` are `apart` beside a process that takes a tenth of a core, half of
one, or one. `--against` compares with another commit of ours instead of the peers. `--without`
measures our side as if each of what it names were not there, and the peers with all of it;
`mkl+compiler` is without both, `all` with everything; with `+both` peers are held to the same
processor, where they have a switch for it. `--board` takes the nets of torchvision, timm
and transformers instead of ours; `--keep` keeps the files that their sides make, so that the next
run begins sooner, and `--minutes` leaves out what would begin later. The JSON is written after each
row, so a run that ends early loses none. `--again` makes table and picture of the JSON of earlier
runs on one machine; of a row that several of them have, the last counts. `--list` shows the
workloads.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import pathlib
import platform
import statistics
import sys
import time
from typing import Any

from side_by_side.commits import checked_out
from side_by_side.neighbors import NEIGHBORS
from side_by_side.report import Row, board_table, markdown, picture
from side_by_side.rounds import Condition, Times, ceiling, measure, program
from side_by_side.without import LACKING, held, unknown
from workloads import ALL, BOARD
from workloads.nnet3_nets import PRODUCTS
from workloads.workload import KEEP, OURS, Absent, Workload

HERE = pathlib.Path(__file__).resolve().parent
WHERE = ("apart", "together", *NEIGHBORS)
_WORKLOADS = ALL | BOARD
_ALL = "all"
LIMIT = "limit"
"""The side that programs without a peer stand beside: the CPU seconds that they may take."""


def processor() -> str:
    """The name of the CPU, for the table."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int | None:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


class Run:
    """What is measured, and what was found so far."""

    def __init__(self, args: argparse.Namespace, against: str) -> None:
        self.rounds = args.rounds
        self.seconds = args.seconds
        self.warm = args.warm
        self.compile = args.compile
        self.against = against
        self.commit = args.against
        self.file = pathlib.Path(args.json)
        today = datetime.date.today().isoformat()
        self.machine = {"processor": processor(), "cores": cores(), "date": today}
        self.machine["python"] = sys.version
        self.rows: list[Row] = []
        self.ceilings: dict[tuple[int, str], float] = {}

    def save(self) -> None:
        """Writes what was found so far; the file is whole at any time."""
        results = {
            "machine": self.machine,
            "product_ceiling_gflops": {
                f"{count} {without}".strip(): flops / 1e9
                for (count, without), flops in self.ceilings.items()
            },
            "rows": [row.json() for row in self.rows],
        }
        unfinished = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        unfinished.replace(self.file)

    def workload(self, key: str, condition: Condition) -> None:
        """Measures one workload under one condition and tells of it."""
        workload = _WORKLOADS[key]
        if workload.processes:
            self._programs(key, workload, condition)
            return
        sides = self._sides(workload)
        paths = {self.commit: self.against} if self.against else {}
        found, absent = measure(key, sides, condition, self.rounds, self.seconds, self.warm, paths)
        for side, why in absent.items():
            print(f"{key:16} {side} left out: {why}", flush=True)
        peers = [side for side in found if side not in (OURS, PRODUCTS)]
        if OURS in found and peers:
            self._told(key, found, peers, condition, absent)

    def _sides(self, workload: Workload) -> dict[str, str]:
        if self.against:
            return {OURS: OURS, self.commit: OURS}
        chosen = [side for side in workload.sides if self.compile or ".compile" not in side]
        return {side: side for side in chosen}

    def _told(
        self,
        key: str,
        found: dict[str, Times],
        peers: list[str],
        condition: Condition,
        absent: dict[str, str],
    ) -> None:
        workload, ours = _WORKLOADS[key], found[OURS]
        peer = min(peers, key=lambda side: found[side].median)
        achieved = None
        if workload.operations:
            machine = condition.threads, condition.without
            if machine not in self.ceilings:
                self.ceilings[machine] = ceiling(*machine)
            achieved = workload.operations() / ours.median / self.ceilings[machine]
        pairs = zip(found[peer].wall, ours.wall, strict=True)
        row = Row(
            workload=key,
            title=workload.title,
            threads=condition.threads,
            where=condition.where,
            target=0.97 if self.against else 1.0 if peer == LIMIT else workload.target,
            ours_ms=1e3 * ours.median,
            peer=peer,
            peer_ms=1e3 * found[peer].median,
            ratio=statistics.median(theirs / own for theirs, own in pairs),
            spread=ours.spread,
            achieved=achieved,
            products=found[PRODUCTS].median / ours.median if PRODUCTS in found else None,
            first_s=(ours.first, found[peer].first),
            peak_mb=(ours.peak_mb, found[peer].peak_mb),
            without=condition.without,
            all_ms={side: 1e3 * times.median for side, times in found.items()},
            cpu_ms={side: 1e3 * min(times.cpu) for side, times in found.items()},
            absent=absent,
        )
        self.rows.append(row)
        self.save()
        print(row.line(), flush=True)

    def _programs(self, key: str, workload: Workload, condition: Condition) -> None:
        """Whole programs, in turn, by their CPU time; those without a peer are held to a limit."""
        assert workload.processes
        if condition.where != "apart":
            return
        try:
            commands = dict(workload.processes())
        except Absent as absent:
            print(f"{key:16} left out: {absent}", flush=True)
            return
        if self.against:
            commands = {OURS: commands[OURS], self.commit: commands[OURS]}
        found = {side: Times() for side in commands}
        for _ in range(max(3, self.rounds // 2)):
            for side, command in commands.items():
                path = self.against if side == self.commit else ""
                ours = side in (OURS, self.commit)
                without = condition.without if ours else held(condition.without)
                wall, cpu = program(command, condition.threads, path, without)
                found[side].wall.append(cpu)  # CPU time is what counts here
                found[side].cpu.append(cpu)
                found[side].first = wall
        if len(found) == 1:
            rounds = len(found[OURS].wall)
            found[LIMIT] = Times([workload.target] * rounds, [workload.target] * rounds)
        self._told(key, found, [side for side in found if side != OURS], condition, {})


def count(text: str) -> int:
    """A whole number from 1 on.

    Raises:
        ValueError: another one.
    """
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def counts(text: str) -> list[int]:
    """Whole numbers from 1 on, separated by commas."""
    return [count(each) for each in text.split(",")]


def earlier(path: str) -> tuple[list[Row], dict[str, Any]]:
    """The rows and the machine of the JSON of an earlier run.

    Raises:
        ArgumentTypeError: the file is none.
    """
    try:
        kept = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        return [Row(**row) for row in kept["rows"]], kept["machine"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise argparse.ArgumentTypeError(f"{path}: no numbers of a run: {error}") from error


def joined(runs: list[tuple[list[Row], dict[str, Any]]]) -> tuple[list[Row], dict[str, Any]]:
    """The rows of several runs, in the order of the workloads, and their machine with all dates.

    Raises:
        ValueError: the runs are of several machines.
    """
    machines = [machine for _, machine in runs]
    kinds = {f"{machine['processor']}, {machine['cores']} cores" for machine in machines}
    if len(kinds) > 1:
        raise ValueError(f"runs of several machines: {'; '.join(sorted(kinds))}")
    by_condition = {(row.workload, row.condition): row for rows, _ in runs for row in rows}
    places = {key: place for place, key in enumerate(_WORKLOADS)}
    # Names that no workload has any more come last.
    rows = sorted(by_condition.values(), key=lambda row: places.get(row.workload, len(places)))
    dates = sorted({machine["date"] for machine in machines})
    return rows, machines[-1] | {"date": ", ".join(dates)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="workloads, separated by commas")
    parser.add_argument("--board", action="store_true", help="nets that others chose")
    both = "1,2" if (cores() or 1) > 1 else "1"
    parser.add_argument("--threads", type=counts, default=both, help="numbers, as 1,2")
    parser.add_argument("--where", default="apart,together", help=f"of {', '.join(WHERE)}")
    lacking = f"of {', '.join(LACKING)}, or {_ALL}; not together"
    parser.add_argument("--without", default=_ALL, help=lacking)
    parser.add_argument("--rounds", type=count, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="of one round of one side")
    warm = "of calls of a side before its first round"
    parser.add_argument("--warm", type=float, default=2.0, metavar="SECONDS", help=warm)
    parser.add_argument("--keep", default="", metavar="FOLDER", help="keep files that sides make")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after them")
    parser.add_argument("--no-compile", dest="compile", action="store_false",
                        help="leave torch.compile out")  # fmt: skip
    parser.add_argument("--against", default="", metavar="COMMIT", help="a commit of ours as peer")
    parser.add_argument("--json", default=str(HERE / "results.json"), help="file for the numbers")
    parser.add_argument("--markdown", default="", help="file for the table")
    parser.add_argument("--png", default="", help="file for the picture")
    again = "table of earlier --json"
    parser.add_argument("--again", type=earlier, nargs="+", metavar="FILE", help=again)
    parser.add_argument("--list", action="store_true", help="show the workloads")
    args = parser.parse_args()
    chosen = BOARD if args.board else ALL
    if args.again:
        try:
            rows, machine = joined(args.again)
        except ValueError as error:
            parser.error(f"--again: {error}")
        write(rows, machine, args)
        return
    if args.list:
        for key, workload in chosen.items():
            print(f"{key:16} {workload.title}")
        return
    keys, where = args.only.split(",") if args.only else list(chosen), args.where.split(",")
    wrong = [key for key in keys if key not in _WORKLOADS] + [
        each for each in where if each not in WHERE
    ]
    if wrong:
        parser.error(f"unknown: {', '.join(wrong)}; there are {', '.join((*_WORKLOADS, *WHERE))}")
    without = ["" if one == _ALL else one for one in args.without.split(",")]
    wrong = [part for one in without for part in unknown(one)]
    if wrong:
        parser.error(f"unknown: {', '.join(wrong)}; there are {', '.join((_ALL, *LACKING))}")
    if any(without) and "together" in where:
        parser.error("--without: our side needs a process of its own; add --where apart")
    conditions = [
        Condition(number, each, one) for each in where for number in args.threads for one in without
    ]
    if args.keep:
        keep_files(pathlib.Path(args.keep).resolve())
    begun = time.monotonic()
    with checked_out(args.against) if args.against else contextlib.nullcontext("") as against:
        run = Run(args, against)
        for key in keys:
            for condition in conditions:
                if time.monotonic() - begun < 60 * args.minutes:
                    run.workload(key, condition)
                else:
                    print(f"{key:16} {condition.told} left out: {args.minutes:g} minutes are over")
    run.save()
    write(run.rows, run.machine, args)


def write(rows: list[Row], machine: dict[str, Any], args: argparse.Namespace) -> None:
    """The table and the picture, where they are asked for."""
    if args.markdown:
        about = f"{machine['processor']}, {machine['cores']} cores, {machine['date']}\n\n"
        table = board_table if all(row.workload in BOARD for row in rows) else markdown
        pathlib.Path(args.markdown).write_text(about + table(rows), encoding="utf-8")
    if args.png and rows:
        picture(rows, pathlib.Path(args.png))


def keep_files(folder: pathlib.Path) -> None:
    """Lets all sides keep there what they export, write and compile."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[KEEP] = str(folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torch")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "jax")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


if __name__ == "__main__":
    main()
