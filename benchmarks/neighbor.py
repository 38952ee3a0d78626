"""Default settings beside other processes: how much longer do they take than one thread?

    python benchmarks/neighbor.py [--rounds 3] [--json neighbor.json]

Each measurement is a fresh process that trains a net: with default settings and with one thread,
alone and beside one process that takes a tenth of a core, half of one, or one. They take turns; the
median over rounds counts. The first epoch, in which kernels are compiled, is shown beside the
others.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from side_by_side.neighbors import NEIGHBORS, neighbor

HERE = pathlib.Path(__file__).resolve().parent
EPOCHS = 5
WHERE = ("alone", *NEIGHBORS)
NETS = {
    "conv": ("conv net 1x28x28, 16 and 32 filters 5x5, batch 64, 22 steps", 22, "conv-step"),
    "mlp": ("MLP 784-512-512-10, batch 256, 60 steps", 60, "mlp-step"),
    "lstm": ("LSTM T=40, batch 64, 128 -> 256, 10 steps", 10, "lstm-step"),
}
TARGET = 1.3


def step_of(net: str) -> object:
    """A function that trains a net by one minibatch."""
    sys.path.insert(0, str(HERE))
    from workloads import ALL
    from workloads.workload import OURS

    return ALL[NETS[net][2]].sides[OURS](0)  # as many threads as the environment says


def child(net: str) -> None:
    """Print the seconds of each epoch."""
    step = step_of(net)
    steps = NETS[net][1]
    seconds = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds))


def measured(net: str, threads: str) -> list[float]:
    """Seconds of the epochs in a fresh process; `threads` is "" for the default."""
    env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    command = [sys.executable, __file__, "--child", net]
    done = subprocess.run(
        command, env=env | {"OPSCOPE_THREADS": threads}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(NETS), help="nets, separated by commas")
    parser.add_argument("--json", default=str(HERE / "neighbor.json"), help="file for the numbers")
    parser.add_argument("--child", choices=NETS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    results: dict[str, dict[str, float]] = {}
    for net in args.only.split(","):
        times: dict[str, list[list[float]]] = {}
        for _ in range(args.rounds):
            for where in WHERE:
                with neighbor(where):
                    for threads in ("", "1"):
                        key = f"{where}, {threads or 'default'}"
                        times.setdefault(key, []).append(measured(net, threads))
        print(NETS[net][0])
        found = results[net] = {}
        for key, rounds in times.items():
            found[key] = statistics.median(second for one in rounds for second in one[1:])
            first = statistics.median(one[0] for one in rounds)
            print(f"  {key:16} epoch {found[key]:7.3f} s   (the first {first:7.3f} s)")
        for where in WHERE:
            ratio = found[f"{where}, default"] / found[f"{where}, 1"]
            found[f"{where}, ratio"] = ratio
            mark = "  above the target" if where != "alone" and ratio > TARGET else ""
            print(f"  {where}: default / one thread {ratio:.2f}{mark}")
    pathlib.Path(args.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
