"""Small models and corpora to score, and runs that are killed at random times."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import opscope
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.network.nnet import Nnet

DIM = 6
CONFIG = """
input-node name=input dim=6
component name=a type=NaturalGradientAffineComponent input-dim=18 output-dim=24
component-node name=a component=a input=Append(Offset(input,-2),input,Offset(input,2))
component name=r type=RectifiedLinearComponent dim=24
component-node name=r component=r input=a
component name=b type=NaturalGradientAffineComponent input-dim=24 output-dim=5
component-node name=b component=b input=r
component name=s type=LogSoftmaxComponent dim=5
component-node name=s component=s input=b
output-node name=output input=s
"""


def write_nnet3(path: Path, seed: int = 1) -> str:
    """An nnet3 network of 6 inputs and 5 outputs with context."""
    Nnet.from_config_text(CONFIG, seed).write(path)
    return str(path)


def features(count: int, seed: int = 0, dim: int = DIM) -> dict[str, np.ndarray]:
    """Utterances of different lengths."""
    rng = np.random.default_rng(seed)
    return {
        f"utt{number:02d}": rng.standard_normal((int(rng.integers(100, 400)), dim), np.float32)
        for number in range(count)
    }


def write_table(wspecifier: str, values: dict[str, np.ndarray], kind: str = "matrix") -> None:
    """A table of values."""
    with TableWriter(wspecifier, kind) as writer:
        for key, value in values.items():
            writer.write(key, value)


def environment() -> dict[str, str]:
    """Of processes that import opscope from this tree, wherever they run."""
    home = str(Path(opscope.__file__).resolve().parent.parent)
    return os.environ | {"PYTHONPATH": home, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start `opscope score` in a folder."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "opscope", "score", *words],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *words: str) -> tuple[int, str]:
    """Run `opscope score`; returns its exit status and what it told."""
    process = start(folder, *words)
    told = process.communicate(timeout=250)[1]
    return process.returncode, told


def workers(work: Path) -> list[int]:
    """The processes that compute shards of a folder now."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"--work={work}".encode() in words and any(w.startswith(b"--worker=") for w in words):
            found.append(int(name))
    return found


def killed_runs(
    folder: Path, words: tuple[str, ...], work: Path, kills: int, seed: int, within: float
) -> dict:
    """Run a scoring to its end although its main program or one of its workers is killed again and
    again, `within` so many seconds; returns how many were killed of which, and the starts."""
    rng = random.Random(seed)
    counts = {"main": 0, "worker": 0, "starts": 0}
    while True:
        counts["starts"] += 1
        process = start(folder, *words)
        while counts["main"] + counts["worker"] < kills and process.poll() is None:
            of_worker = rng.random() < 0.6
            time.sleep(rng.uniform(0.02, within))
            while of_worker and process.poll() is None and not workers(work):
                time.sleep(0.02)
            if process.poll() is not None:
                break
            if of_worker and (found := workers(work)):
                time.sleep(rng.uniform(0, within / 3))
                counts["worker"] += _kill(rng.choice(found))
            else:
                counts["main"] += _kill(process.pid)
                break
        told = process.communicate(timeout=250)[1]
        if process.returncode == 0:
            return counts
        if process.returncode != -signal.SIGKILL and "attempt" not in told:
            raise AssertionError(f"ended with {process.returncode}: {told}")


def _kill(number: int) -> bool:
    """Kill a process; False where it is no more."""
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
