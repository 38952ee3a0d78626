"""Steps within a budget of memory, and how fast the memory is read by a transformer that writes.

    python benchmarks/memory.py [--writing]

The first table has what steps take, and how long, beside the step without a budget. Nets are an
MLP, a convolution net and a transformer. Budgets are shares of what the step takes without one,
down to the smallest that suffices; times are processor time, the least of several.

With --writing the table has the bytes of weights that GPT-2's size reads for a token, and how many
a second, beside the bytes that a plain copy of large arrays reads and writes a second. Both are of
the least of many times.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from workloads.writing import KINDS, Writing

import opscope
from opscope.framework.base.context import Hook
from opscope.framework.base.errors import RunError
from opscope.framework.runtime.budget import peak_bytes

_SHARES = (0.9, 0.7, 0.5)
_STEPS = 12
_COPIED, _COPIES = 1 << 28, 20
"""Bytes that each thread copies, and how often: so many that copies write around the caches, which
takes 0.6 of the time where a last cache has hundreds of megabytes."""
_TOKENS = 60
"""That are written, a time for each."""


def mlp() -> tuple[opscope.NetBuilder, tuple[int, ...]]:
    b = opscope.NetBuilder("mlp")
    h = b.input("x", [-1, 256])
    for _ in range(12):
        h = b.dropout(b.fc(h, size=256, activation="gelu"), p=0.1)
    return _ready(b, b.fc(b.layer_norm(h), size=10)), (2048, 256)


def conv() -> tuple[opscope.NetBuilder, tuple[int, ...]]:
    b = opscope.NetBuilder("conv")
    h = b.input("x", [-1, 3, 32, 32])
    for channels in (16, 16, 16, 32, 32, 32):
        h = b.relu(b.batch_norm(b.conv2d(h, channels, 3, padding=1)))
    return _ready(b, b.fc(b.reduce_mean(h, axes=[2, 3]), size=10)), (64, 3, 32, 32)


def transformer() -> tuple[opscope.NetBuilder, tuple[int, ...]]:
    b = opscope.NetBuilder("transformer")
    h = b.input("x", [-1, 64, 128])
    for _ in range(6):
        h = b.transformer_encoder_layer(h, heads=4, feedforward=512, dropout=0.1)
    return _ready(b, h), (16, 64, 128)


def _ready(b: opscope.NetBuilder, values: Any) -> opscope.NetBuilder:
    b.mean(b.square(values), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.001, "adam")
    return b


class _Steps(Hook):
    """The planned bytes of steps, and their processor times."""

    def __init__(self) -> None:
        self.peak = 0
        self.seconds: list[float] = []

    def before_run(self, frame: Any) -> None:
        self.peak = max(self.peak, peak_bytes(frame.plan))
        self._began = time.process_time()

    def after_run(self, frame: Any) -> None:
        self.seconds.append(time.process_time() - self._began)


def measure(
    made: tuple[opscope.NetBuilder, tuple[int, ...]], memory: int | None
) -> tuple[int, float]:
    """The bytes that a step takes as it is planned, and its seconds."""
    b, shape = made
    rows = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    steps = _Steps()
    data = [{"x": rows}] * _STEPS
    opscope.train(
        b,
        data,
        epochs=1,
        scope=opscope.Scope(),
        seed=1,
        progress=False,
        memory=memory,
        hooks=[steps],
    )
    return steps.peak, min(steps.seconds[2:])


def rows_of(name: str, made: tuple[opscope.NetBuilder, tuple[int, ...]]) -> Iterator[str]:
    """The lines of a net."""
    peak, seconds = measure(made, None)
    yield f"{name:12} {'none':>9} {peak / 1e6:8.1f} {seconds * 1e3:8.1f} {1:6.2f}"
    least = 0
    try:
        measure(made, 1000)
    except RunError as error:
        found = re.search(r"suffices is (\d+) bytes", str(error))
        least = int(found[1]) if found else 0
    for budget in (*(int(share * peak) for share in _SHARES), least):
        if budget < least:
            continue
        own, spent = measure(made, budget)
        ratio = spent / seconds
        yield f"{'':12} {budget / 1e6:9.1f} {own / 1e6:8.1f} {spent * 1e3:8.1f} {ratio:6.2f}"


def copied(threads: int) -> float:
    """Bytes that copies read and write a second."""
    pairs = [(np.ones(_COPIED, np.uint8), np.ones(_COPIED, np.uint8)) for _ in range(threads)]
    times = [time.perf_counter()]
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_COPIES):
            list(pool.map(lambda pair: np.copyto(pair[0], pair[1]), pairs))
            times.append(time.perf_counter())
    return 2 * threads * _COPIED / min(end - begin for begin, end in pairwise(times))


def token_seconds(generator: Any) -> float:
    """The least time between two tokens."""
    times = [time.perf_counter() for _ in generator.stream([*range(3, 35)], _TOKENS, top_k=1)]
    return min(end - begin for begin, end in pairwise(times))


def writing_rows() -> Iterator[str]:
    """A line for each kind of weights, on one thread and on two."""
    yield f"{'weights':8} {'MB':>6} {'threads':>7} {'ms':>6} {'GB/s':>6} {'copy':>6} {'share':>6}"
    for threads in (1, 2)[: os.cpu_count()]:
        opscope.set_threads(threads)
        for kind in KINDS:
            writing = Writing(1, kind)
            seconds = token_seconds(writing.generator())
            copy, read = copied(threads), writing.read()
            yield (
                f"{kind or 'float32':8} {read / 1e6:6.1f} {threads:7} {seconds * 1e3:6.2f}"
                f" {read / seconds / 1e9:6.1f} {copy / 1e9:6.1f} {read / seconds / copy:6.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--writing", action="store_true", help="how fast weights are read")
    if parser.parse_args().writing:
        for line in writing_rows():
            print(line, flush=True)
        return
    print(f"{'net':12} {'budget MB':>9} {'step MB':>8} {'ms':>8} {'ratio':>6}")
    for make in (mlp, conv, transformer):
        for line in rows_of(make.__name__, make()):
            print(line)


if __name__ == "__main__":
    main()
