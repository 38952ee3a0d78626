"""CNTK's own end-to-end tests, run by opscope: its results beside the recorded ones.

    python benchmarks/cntk_end_to_end.py SNAPSHOT [--only NAME] [--limit SECONDS]

SNAPSHOT is a checkout of CNTK. Every test of `Tests/EndToEndTests` has a script that calls the
program and a baseline, what CNTK printed. The script runs as it is, with opscope in the place of
the program; the criteria of epochs and of tests in the two outputs are compared. A test that wants
several processes, or data that the snapshot lacks, is listed with the reason.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_TESTS = Path("Tests", "EndToEndTests")
_BASELINES = ("baseline.cpu.txt", "baseline.linux.cpu.txt", "baseline.txt", "baseline.gpu.txt")
_EPOCH = re.compile(r"Finished Epoch\[ *(\d+) of \d+\]: \[(Training|Validate)\] (.*)")
_FINAL = re.compile(r"Final Results: Minibatch\[[-\d]+\]: (.*)")
_CRITERION = re.compile(r"([\w.\[\]]+) = ([-+.\de]+)%? \* \d+")
_PROCESSES = re.compile(r"mpirun|MPI_BINARY|MPIMode=1|cntkmpirun|numnodes|cntkrun_mpi", re.I)
_FAILURE = re.compile(r"^error|\berror:|cannot find|No such file", re.I)
_NOISE = 1e-4
"""Relative difference up to which results are called the same."""


@dataclass
class Result:
    """What came of a test.

    Attributes:
        ours, theirs: criteria by where they stand ("epoch 1 Training ce", "test ce").
        reason: why there is nothing to compare; empty if there is.
    """

    name: str
    ours: dict[str, float]
    theirs: dict[str, float]
    reason: str = ""

    @property
    def difference(self) -> float:
        """The largest relative difference of criteria that both have; NaN where there is none."""
        both = self.ours.keys() & self.theirs.keys()
        gaps = [
            abs(self.ours[key] - self.theirs[key]) / max(abs(self.theirs[key]), 1e-6)
            for key in both
        ]
        return max(gaps, default=float("nan"))


def criteria(text: str) -> dict[str, float]:
    """The criteria of epochs and final results in an output, numbered where they repeat."""
    found: dict[str, float] = {}
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


def run_test(folder: Path, tests: Path, limit: float) -> Result:
    """Run one test's script with opscope as the program."""
    name = str(folder.relative_to(tests))
    baseline = next((folder / file for file in _BASELINES if (folder / file).exists()), None)
    if baseline is None:
        return Result(name, {}, {}, "no baseline")
    theirs = criteria(baseline.read_text(encoding="utf-8", errors="replace"))
    if not theirs:
        return Result(name, {}, {}, "the baseline has no criteria")
    script = (folder / "run-test").read_text(encoding="utf-8", errors="replace")
    if _PROCESSES.search(script):
        return Result(name, {}, theirs, "wants several processes")
    listed = re.search(r"^dataDir: *(\S+)", (folder / "testcases.yml").read_text(), re.M)
    data = folder / (listed[1] if listed else ".")
    if not data.exists():
        return Result(name, {}, theirs, f"no data: {listed[1] if listed else '.'} is absent")
    with tempfile.TemporaryDirectory() as temporary:
        program = Path(temporary, "cntk")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m opscope cntk "$@"\n')
        program.chmod(0o755)
        work = Path(temporary, "run")
        work.mkdir()
        own = Path(temporary, "data")  # readers may write caches beside the data
        shutil.copytree(data, own, symlinks=True)
        environment = {
            **os.environ,
            "TEST_CNTK_BINARY": str(program),
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
            return Result(name, ours, theirs, "" if ours else f"not done in {limit:g} s")
    ours = criteria(output)
    failures = [line.strip() for line in output.splitlines() if _FAILURE.search(line)]
    reason = "" if ours else (failures[0] if failures else f"exit code {done.returncode}")
    return Result(name, ours, theirs, reason.replace(temporary, "")[:110])


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
    compared = same = 0
    for folder in folders:
        if arguments.only not in str(folder.relative_to(tests)):
            continue
        result = run_test(folder, tests, arguments.limit)
        if result.reason:
            print(f"--     {result.name}: {result.reason}", flush=True)
            continue
        compared += 1
        close = result.difference <= _NOISE
        same += close
        both = len(result.ours.keys() & result.theirs.keys())
        word = "same" if close else "differs"
        print(
            f"{word:7}{result.name}: {both} of {len(result.theirs)} criteria, largest relative "
            f"difference {result.difference:.1e}",
            flush=True,
        )
        for key, theirs in result.theirs.items():
            ours = result.ours.get(key)
            shown = "-" if ours is None else f"{ours:.8g}"
            print(f"         {key:48} {shown:>14} {theirs:14.8g}")
    print(f"{compared} tests compared, {same} the same; ours to the left, CNTK's to the right")


if __name__ == "__main__":
    main()
