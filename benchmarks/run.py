"""Benchmarks beside PyTorch (CPU), both in one run with the same number of threads.

    python benchmarks/run.py [--threads 2] [--only a,b] [--json results.json]

Each line is a ratio, peer time / our time: above 1 we are faster. Both sides run in turn, round by
round; the ratio is the median over rounds, so that a drifting machine does not decide it.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 9
ROUND_SECONDS = 0.4
TARGETS = {
    "a": ("MLP 784-512-512-10, batch 256, Adam step", 1.0),
    "b": ("MLP 64-32-10, batch 32, SGD step", 3.0),
    "c1": ("MLP 784-512-512-10, batch 256, forward", 1.0),
    "c2": ("MLP 64-32-10, batch 32, forward", 3.0),
    "r1": ("LSTM T=40, batch 64, 128 -> 256, forward", 1.0),
    "r2": ("LSTM T=40, batch 64, 128 -> 256, SGD step", 1.0),
    "r3": ("ATIS tagger, 1,600 sentences of their real lengths, SGD", 1.0),
    "r4": ("step net of small operators T=40, batch 64, SGD step", 2.0),
    "n1": ("nnet3 TDNN, 128 x 8 frames, gradient; peer: its products", 0.8),
    "n2": ("nnet3 TDNN-F, 32 x 150 frames, gradient; peer: its products", 0.8),
    "n3": ("nnet3 LSTMP, 32 x 20 frames, gradient; peer: its products", 0.8),
    "d": ("conv net 1x28x28, 16 and 32 filters 5x5, batch 64, SGD step", 0.5),
}


def seconds_per_call(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def calibrate(call: Callable[[], object]) -> int:
    """How many calls fill one round, after a warm-up."""
    for _ in range(5):
        call()
    return max(3, int(ROUND_SECONDS / max(seconds_per_call(call, 5), 1e-7)))


def compare(ours: Callable[[], object], peer: Callable[[], object]) -> dict[str, float]:
    """Times of both sides in turn and the median of the rounds' ratios."""
    repeats = calibrate(ours), calibrate(peer)
    times = [(seconds_per_call(ours, repeats[0]), seconds_per_call(peer, repeats[1]))]
    times += [
        (seconds_per_call(ours, repeats[0]), seconds_per_call(peer, repeats[1]))
        for _ in range(ROUNDS - 1)
    ]
    return {
        "ours_us": statistics.median(t[0] for t in times) * 1e6,
        "peer_us": statistics.median(t[1] for t in times) * 1e6,
        "ratio": statistics.median(t[1] / t[0] for t in times),
    }


def run_cases(chosen: list[str], threads: int) -> dict[str, dict[str, float]]:
    try:
        import torch
    except ImportError:
        sys.exit("the benchmarks compare with PyTorch: python build.py bench installs it")
    from workloads import dense as cases
    from workloads import nnet3_nets as nnet3_cases
    from workloads import recurrent as recurrent_cases

    makers = cases.CASES | recurrent_cases.CASES | nnet3_cases.CASES
    torch.set_num_threads(threads)
    results = {}
    for key in chosen:
        title, target = TARGETS[key]
        if key == "r3" and recurrent_cases.atis() is None:
            print(f"{key:3} {title:62} left out: no folder OPSCOPE_CNTK_DATA with the ATIS files")
            continue
        ours, peer = makers[key]()
        measured = compare(ours, peer)
        measured["target"] = target
        results[key] = measured
        mark = "" if measured["ratio"] >= target else "  below target"
        print(
            f"{key:3} {title:62} ours {measured['ours_us']:9.1f} us  "
            f"peer {measured['peer_us']:9.1f} us  ratio {measured['ratio']:5.2f}"
            f"  (target {target:g}){mark}",
            flush=True,
        )
    return results


def child(code: str, threads: int) -> str:
    """Output of a fresh process that runs `code`."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, env=env, capture_output=True, text=True, check=True
    )
    return out.stdout.strip().splitlines()[-1]


def import_milliseconds() -> float:
    """Median time of `import opscope` in a fresh process."""
    code = "import time; t = time.perf_counter(); import opscope; print(time.perf_counter() - t)"
    return 1e3 * statistics.median(float(child(code, 1)) for _ in range(7))


def compile_times() -> dict[str, dict[str, float]]:
    """What benchmarks/nnet3_compile.py measures in a fresh process."""
    with tempfile.TemporaryDirectory() as passing:
        path = pathlib.Path(passing, "times.json")
        subprocess.run([sys.executable, HERE / "nnet3_compile.py", "--json", path], check=True)
        return json.loads(path.read_text())["given"]


def peak_megabytes(side: str, threads: int) -> float:
    """Peak resident memory of a fresh process that trains case (a) for 30 steps on one side."""
    code = (
        f"from workloads import dense as cases; import resource; step = cases.mlp_step_{side}();\n"
        "for _ in range(30): step()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    return int(child(code, threads)) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default=",".join(TARGETS), help="cases, separated by commas")
    parser.add_argument("--json", default=str(HERE / "results.json"), help="file for the numbers")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)  # before any of the libraries loads
    # Both sides may use one GNU thread pool here. Threads that spin after a call, as they do by
    # default, would take the cores of the side that runs next.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    sys.path.insert(0, str(HERE))
    results = {
        "machine": {"processor": platform.machine(), "threads": args.threads},
        "import_ms": import_milliseconds(),
        # Before this process loads the peer: Linux hands the peak of the parent on to the child.
        "peak_mb": {side: peak_megabytes(side, args.threads) for side in ("ours", "peer")},
        "cases": run_cases(args.only.split(","), args.threads),
    }
    from workloads import nnet3_nets as nnet3_cases

    if set(args.only.split(",")) & set(nnet3_cases.CASES):
        results["nnet3_compile"] = compile_times()
    print(f"import opscope: {results['import_ms']:.1f} ms (target under 50)")
    ours, peer = results["peak_mb"]["ours"], results["peak_mb"]["peer"]
    print(
        f"peak memory of (a): ours {ours:.0f} MB, peer {peer:.0f} MB (target: at most the peer's)"
    )
    pathlib.Path(args.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
