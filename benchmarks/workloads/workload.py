"""What a workload is: the same work, to be done by us and by peers."""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

Step = Callable[[], object]
"""Does the work once."""

Maker = Callable[[int], Step]
"""Makes a step that computes on so many threads."""

OURS = "opscope"


class Absent(Exception):
    """A side cannot be measured here: a package or data that it needs are not there."""


@dataclass(frozen=True)
class Workload:
    """The same work on several sides.

    Attributes:
        title: what is done, with its sizes.
        target: what peer's time / ours should be at least; of a program without a peer, what its
            CPU seconds should be at most.
        sides: what makes the steps, by name: `OURS` and the peers. Of several peers the fastest
            counts.
        operations: floating-point operations of its matrix products, both ways where it trains;
            None where products are not what it is made of.
        processes: instead of `sides`: arguments of whole programs, whose CPU time is taken.
    """

    title: str
    target: float
    sides: Mapping[str, Maker] = field(default_factory=dict)
    operations: Callable[[], float] | None = None
    processes: Callable[[], Mapping[str, list[str]]] | None = None


_folders: list[tempfile.TemporaryDirectory[str]] = []
"""They go when the process ends."""


def scratch() -> pathlib.Path:
    """A new folder for what a workload reads and writes, as long as the process lives."""
    _folders.append(tempfile.TemporaryDirectory(prefix="opscope-bench-"))
    return pathlib.Path(_folders[-1].name)


KEEP = "OPSCOPE_BENCHMARKS_KEEP"
"""The variable of the environment that names the folder of `--keep`."""


def kept(name: str, make: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """A file that `make` writes: once for all processes and runs that keep files in one folder."""
    folder = os.environ.get(KEEP)
    path = (pathlib.Path(folder) if folder else scratch()) / name
    if not path.exists():
        part = path.with_name(f"{os.getpid()}-{name}")
        make(part)
        part.replace(path)
    return path


def library(name: str) -> Any:
    """A module that a row needs. The zoo knows what torchvision wants before it is imported."""
    tests = str(pathlib.Path(__file__).resolve().parents[2] / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    try:
        if name in ("torchvision", "timm", "transformers"):
            import_module("zoo.images")
        return import_module(name)
    except ImportError as error:
        raise Absent(f"{name} is not installed") from error


def torch_threads(threads: int) -> None:
    """Sets PyTorch's threads, or tells that it is not there."""
    try:
        import torch
    except ImportError as error:
        raise Absent("torch is not installed") from error
    torch.set_num_threads(threads)


def eager(maker: Callable[[], Step]) -> Maker:
    """A step of PyTorch as it is written."""

    def make(threads: int) -> Step:
        torch_threads(threads)
        return maker()

    return make


def session(model: bytes | str, threads: int) -> object:
    """A session of ONNX Runtime on the CPU, with its own optimizations."""
    try:
        import onnxruntime
    except ImportError as error:
        raise Absent("onnxruntime is not installed") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
