"""ONNX files of others beside ONNX Runtime: what is computed, and the CPU time of one thread.

    OPSCOPE_THREADS=1 python benchmarks/onnx_files.py FOLDER [WORD ...]

All files NAME.onnx below FOLDER (site-packages, say) whose path holds one of the words are run on
random inputs, in which sizes that may vary are 24 (`--size`). A row tells the largest error,
relative to the largest value, both times in ms (the least of several, sides in turn), and how many
times as fast opscope is; or what either side refuses. The time of the first run comes last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import opscope

TYPES = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_,
    "int64": np.int64, "int32": np.int32, "int16": np.int16, "int8": np.int8, "uint8": np.uint8,
}  # fmt: skip
FIXED = {"sr": np.array(16000)}
"""Inputs that mean a number, by name."""
RUNS, TURNS = 5, 2


def session_of(path: Path) -> Any:
    """The session of ONNX Runtime, on one thread."""
    import onnxruntime  # not in a process whose memory is measured

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(str(path), options, providers=providers)


def feed_for(session: Any, size: int) -> dict[str, np.ndarray]:
    """Random inputs; whole numbers are small, masks are true, lengths are the size."""
    rng = np.random.default_rng(0)
    feed: dict[str, np.ndarray] = {}
    for info in session.get_inputs():
        open_size = [1, *[size] * len(info.shape)]
        shape = [
            dim if isinstance(dim, int) and dim > 0 else other
            for dim, other in zip(info.shape, open_size, strict=False)
        ]
        dtype = np.dtype(TYPES[info.type.removeprefix("tensor(").removesuffix(")")])
        if info.name in FIXED:
            feed[info.name] = FIXED[info.name]
        elif dtype.kind == "f":
            feed[info.name] = rng.uniform(-1, 1, shape).astype(dtype)
        elif dtype.kind == "b":
            feed[info.name] = np.ones(shape, bool)
        else:
            feed[info.name] = rng.integers(1, 20, shape).astype(dtype)
    return feed


def cpu_ms(step: Callable[[], Any], runs: int) -> float:
    """The least CPU time of some runs."""
    times = []
    for _ in range(runs):
        begin = time.process_time()
        step()
        times.append(time.process_time() - begin)
    return min(times) * 1e3


def error_of(found: Mapping[str, Any], wanted: list[Any]) -> float:
    errors = [0.0]
    for one, other in zip(found.values(), wanted, strict=True):
        if isinstance(other, np.ndarray) and other.size and other.dtype.kind in "fiub":
            scale = max(1.0, float(np.abs(other.astype(float)).max()))
            errors.append(float(np.abs(one.astype(float) - other.astype(float)).max()) / scale)
    return max(errors)


def row(path: Path, size: int) -> str:
    try:
        session = session_of(path)
        feed = feed_for(session, size)
        wanted = session.run(None, feed)
    except Exception as error:  # whatever the runtime raises
        return f"ONNX Runtime: {str(error).splitlines()[0][:90]}"
    try:
        model = opscope.from_onnx(path)
        begin = time.process_time()
        error = error_of(model.run(feed), wanted)
    except opscope.OpscopeError as refused:
        return f"opscope: {str(refused).splitlines()[0][-90:]}"
    first = time.process_time() - begin
    ours = theirs = float("inf")
    for _ in range(TURNS):
        ours = min(ours, cpu_ms(lambda: model.run(feed), RUNS))
        theirs = min(theirs, cpu_ms(lambda: session.run(None, feed), RUNS))
    return f"{error:8.1e} {ours:9.2f} {theirs:9.2f} {theirs / ours:6.2f} {first * 1e3:8.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--size", type=int, default=24)
    given = parser.parse_args()
    print(f"{'file':60} {'error':>8} {'opscope':>9} {'runtime':>9} {'times':>6} {'first':>8}")
    for path in sorted(given.folder.rglob("*.onnx")):
        name = str(path.relative_to(given.folder))
        if not given.words or any(word in name for word in given.words):
            print(f"{name[-60:]:60} {row(path, given.size)}", flush=True)


if __name__ == "__main__":
    main()
