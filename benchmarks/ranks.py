"""How fast ranks train together, beside the same ranks that send nothing to each other.

    opscope launch -n 2 benchmarks/ranks.py [--seconds 20] [--rows 1024]

A dense net of 2,100,000 parameters takes steps of momentum SGD, each rank with a batch of its own.
Blocks of steps with and without messages take turns in the same processes, and all ranks begin each
block together; what counts is the median of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import opscope
from opscope.framework.parallel.mpi import MpiCommunicator
from opscope.framework.passes.ranks.all_reduce import InsertAllReduce

WIDTHS = (784, 1000, 1000, 300, 10)


def network() -> opscope.NetBuilder:
    """A classifier with 2,088,310 parameters, its gradients and its updates."""
    b = opscope.NetBuilder("mlp")
    h = b.input("x", [-1, WIDTHS[0]])
    for width in WIDTHS[1:-1]:
        h = b.fc(h, size=width, activation="relu")
    scores = b.fc(h, size=WIDTHS[-1])
    b.mean(b.softmax_cross_entropy(scores, b.input("label", [-1], "int64")), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.01, "momentum")
    return b


def main() -> None:
    """Prints the table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring")
    parser.add_argument("--rows", type=int, default=1024, help="of the batch of a rank")
    arguments = parser.parse_args()
    ranks = MpiCommunicator()
    rng = np.random.default_rng(ranks.rank)
    feed = {
        "x": rng.normal(size=(arguments.rows, WIDTHS[0])).astype(np.float32),
        "label": rng.integers(0, WIDTHS[-1], arguments.rows),
    }
    sides = {}
    for name, passes in (
        ("apart", []),
        ("in turn", [InsertAllReduce(overlap=False)]),
        ("overlapped", [InsertAllReduce()]),
    ):
        b = network()
        scope = opscope.Scope()
        b.initialize(scope)
        ops = b.op_list
        for each in passes:
            ops = each.apply(ops)
        net = opscope.PlainNet(ops)
        context = opscope.OpContext(seed=1, communicator=ranks)

        def step(
            net: opscope.PlainNet = net,
            scope: opscope.Scope = scope,
            context: opscope.OpContext = context,
        ) -> None:
            scope.feed(feed)
            net.run(scope, context)

        step()
        sides[name] = step
    times: dict[str, list[float]] = {name: [] for name in sides}
    steps = 5
    end = time.perf_counter() + arguments.seconds
    while True:
        go_on = np.array([time.perf_counter() < end], np.float32)
        ranks.broadcast(go_on)
        if not go_on[0]:
            break
        for name, step in sides.items():
            ranks.barrier()
            start = time.perf_counter()
            for _ in range(steps):
                step()
            ranks.barrier()
            times[name].append((time.perf_counter() - start) / steps)
    if ranks.rank == 0:
        print(f"{ranks.size} ranks, {arguments.rows} rows each, {len(times['apart'])} rounds")
        for name, seconds in times.items():
            ratio = statistics.median(a / b for a, b in zip(times["apart"], seconds, strict=True))
            print(f"{name:12s} {1000 * statistics.median(seconds):8.2f} ms  {ratio:.3f} of apart")


if __name__ == "__main__":
    main()
