"""CNTK's own end-to-end tests, run by opscope: its results beside the recorded ones.

    python benchmarks/cntk_end_to_end.py SNAPSHOT [--only NAME] [--limit SECONDS]

SNAPSHOT is a checkout of CNTK. Every test of `Tests/EndToEndTests` has a script that calls the
program and a baseline, what CNTK printed. The script runs as it is, with opscope in the place of
the program; the criteria of epochs and of tests in the two outputs are compared. Tests of several
processes run under `mpiexec`. A test whose data the snapshot lacks is listed with the reason.

A test is the same if no criterion differs by more than `_NOISE`; it is met if none differs by more
than rounding moves it: CNTK's recorded CPU outputs from one another, or ours with fused chains of
operators from ours without.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_TESTS = Path("Tests", "EndToEndTests")
_EPOCH = re.compile(r"Finished Epoch\[ *(\d+) of \d+\]: \[(Training|Validate)\] (.*)")
_FINAL = re.compile(r"Final Results: Minibatch\[[-\d]+\]: (.*)")
_CRITERION = re.compile(r"([\w.\[\]]+) = ([-+.\de]+)%? \* \d+")
_PROCESSES = re.compile(r"mpirun|MPI_BINARY|MPIMode=1|cntkmpirun|numnodes|cntkrun_mpi", re.I)
_FAILURE = re.compile(r"^error|\berror:|cannot find|No such file|external data|not available", re.I)
_NOISE = 1e-4
"""Relative difference up to which results are called the same."""
_OLDER_START = {
    "Text/SequenceClassification": "from the normal numbers that the recorded build of 2016-12-15 "
    "drew; CPUMatrix.cpp:1050 draws them by boost::random since commit e2fd7255a of 2016-12-21"
}
"""Tests whose recorded outputs began from random parameters that the snapshot's source does not
draw any more."""

Criteria = dict[str, float]
"""Values by where they stand ("epoch 1 training ce", "test ce")."""


@dataclass
class Result:
    """What came of a test.

    Attributes:
        recorded: one for each of CNTK's outputs on the same kind of device.
        reason: why there is nothing to compare; empty if there is.
        rounded: ours again, rounded in other places.
    """

    name: str
    ours: Criteria
    recorded: list[Criteria]
    reason: str = ""
    rounded: Criteria = field(default_factory=dict)

    @property
    def difference(self) -> float:
        """The largest relative difference from the first recorded output; NaN where none is."""
        return max(_gaps(self.ours, self.recorded[0]).values(), default=float("nan"))

    @property
    def spread(self) -> float:
        """The largest relative difference that rounding makes, theirs or ours."""
        first, *others = self.recorded
        pairs = [(self.rounded, self.ours), *((other, first) for other in others)]
        return max((gap for pair in pairs for gap in _gaps(*pair).values()), default=0.0)

    @property
    def verdict(self) -> str:
        """`same`, `met` or `differs`."""
        if self.difference <= _NOISE:
            return "same"
        return "met" if self.difference <= self.spread else "differs"


def _gaps(one: Criteria, other: Criteria) -> dict[str, float]:
    """Relative differences of criteria that both have."""
    return {
        key: abs(one[key] - value) / max(abs(one[key]), abs(value), 1e-6)
        for key, value in other.items()
        if key in one
    }


def criteria(text: str) -> Criteria:
    """The criteria of epochs and final results in an output, numbered where they repeat."""
    found: Criteria = {}
    for line in text.splitlines():
        epoch, final = _EPOCH.search(line), _FINAL.search(line)
        if epoch:
            place = f"epoch {epoch[1]} {epoch[2].lower()}"
            rest = epoch[3]
        elif final:
            place = "test"
            rest = final[1]
        else:
            continue
        for name, value in _CRITERION.findall(rest):
            key = f"{place} {name}"
            repeat = 1
            while key in found:
                repeat += 1
                key = f"{place} {name} ({repeat})"
            found[key] = float(value)
    return found


def recorded_outputs(folder: Path) -> list[Criteria]:
    """What CNTK printed, on the CPU if it was recorded there; Windows and debug builds last."""
    marks = ("gpu", "debug", "windows")
    paths = sorted(folder.glob("baseline*.txt"), key=lambda path: [m in path.name for m in marks])
    texts = [
        path.read_text(encoding="utf-8", errors="replace")
        for path in paths
        if ("gpu" in path.name) == ("gpu" in paths[0].name)
    ]
    return [found for found in map(criteria, texts) if found]


def run_test(folder: Path, tests: Path, limit: float, **switches: str) -> Result:
    """Run one test's script with opscope as the program.

    Args:
        folder: of the test. tests: of all tests.
        limit: seconds.
        switches: environment variables of opscope.
    """
    name = str(folder.relative_to(tests))
    recorded = recorded_outputs(folder)
    if not recorded:
        return Result(name, {}, [], "no baseline that has criteria")
    script = (folder / "run-test").read_text(encoding="utf-8", errors="replace")
    launcher = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if launcher is None and _PROCESSES.search(script):
        return Result(name, {}, recorded, "wants several processes, and there is no mpiexec")
    description = folder / "testcases.yml"
    if not description.exists():
        return Result(name, {}, recorded, "no testcases.yml")
    listed = re.search(r"^dataDir: *(\S+)", description.read_text(), re.M)
    data = folder / (listed[1] if listed else ".")
    if not data.exists():
        return Result(name, {}, recorded, f"no data: {listed[1] if listed else '.'} is absent")
    with tempfile.TemporaryDirectory() as temporary:
        program = Path(temporary, "cntk")
        opscope = f'"{__file__}" --older-start' if name in _OLDER_START else "-m opscope cntk"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {opscope} "$@"\n')
        program.chmod(0o755)
        work = Path(temporary, "run")
        work.mkdir()
        own = Path(temporary, "data")  # readers may write caches beside the data
        shutil.copytree(data, own, symlinks=True)
        environment = {
            **os.environ,
            **switches,
            "TEST_CNTK_BINARY": str(program),
            "MPI_BINARY": launcher or "mpiexec",
            "TEST_DEVICE": "cpu",
            "TEST_DIR": str(folder),
            "TEST_ROOT_DIR": str(tests),
            "TEST_DATA_DIR": str(own),
            "TEST_RUN_DIR": str(work),
        }
        try:
            done = subprocess.run(
                ["bash", str(folder / "run-test")],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit,
            )
            output = done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            parts = (error.stdout, error.stderr)
            output = "".join((p or b"").decode(errors="replace") for p in parts)
            ours = criteria(output)
            return Result(name, ours, recorded, "" if ours else f"not done in {limit:g} s")
    ours = criteria(output)
    failures = [line.strip() for line in output.splitlines() if _FAILURE.search(line)]
    reason = "" if ours else (failures[0] if failures else f"exit code {done.returncode}")
    return Result(name, ours, recorded, reason.replace(temporary, "")[:110])


def polar_normal(
    seed: int, count: int, mean: float, deviation: float, dtype: np.dtype
) -> np.ndarray:
    """Normal numbers by Marsaglia's polar method, as Microsoft's C++ library draws them from a
    `std::mt19937_64`."""
    from opscope.cntk.base.mersenne import Mersenne64

    scalar = np.dtype(dtype).type
    raw = Mersenne64(seed).draw(2 * count + 1024)  # more than enough: a fifth is refused
    points = 2.0 * (raw.astype(dtype) / scalar(2.0**64)).astype(np.float64).reshape(-1, 2) - 1.0
    square = np.sum(points * points, axis=1, keepdims=True)
    inside = square[:, 0] < 1
    points = points[inside] * np.sqrt(-2.0 * np.log(square[inside]) / square[inside])
    return points.reshape(-1)[:count].astype(dtype) * scalar(deviation) + scalar(mean)


def run_with_older_start() -> None:
    """`opscope cntk`, whose normal initial values are those of `_OLDER_START`."""
    from opscope.cntk.network import initialize
    from opscope.python_api.cli.main import main as opscope

    initialize.normal = polar_normal
    sys.argv[:2] = ["opscope", "cntk"]
    opscope()


def main() -> None:
    """Run the tests and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--only", default="", help="tests whose names hold this text")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one test")
    arguments = parser.parse_args()
    tests = (arguments.snapshot / _TESTS).resolve()
    if not tests.is_dir():
        sys.exit(f"{tests} is no folder: a checkout of CNTK was expected")
    folders = sorted(path.parent for path in tests.rglob("run-test"))
    counts: dict[str, int] = {"same": 0, "met": 0, "differs": 0}
    for folder in folders:
        if arguments.only not in str(folder.relative_to(tests)):
            continue
        result = run_test(folder, tests, arguments.limit)
        if result.reason:
            print(f"--     {result.name}: {result.reason}", flush=True)
            continue
        if result.verdict == "differs":
            again = run_test(folder, tests, arguments.limit, OPSCOPE_FUSE="0")
            result.rounded = again.ours
        counts[result.verdict] += 1
        first = result.recorded[0]
        both = len(result.ours.keys() & first.keys())
        print(
            f"{result.verdict:7}{result.name}: {both} of {len(first)} criteria, largest relative "
            f"difference {result.difference:.1e}, by rounding {result.spread:.1e}",
            flush=True,
        )
        if result.name in _OLDER_START:
            print(f"       {_OLDER_START[result.name]}")
        for key, theirs in first.items():
            ours = result.ours.get(key)
            shown = "-" if ours is None else f"{ours:.8g}"
            print(f"         {key:48} {shown:>14} {theirs:14.8g}")
    summary = ", ".join(f"{count} {word}" for word, count in counts.items())
    print(f"{sum(counts.values())} tests compared: {summary}; ours left, CNTK's right")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--older-start"]:
        run_with_older_start()
    else:
        main()
