"""How long the first run of a recurrent network takes on one long recording, and a later one.

    python benchmarks/nnet3_first_run.py [--frames 1000 2000 4000] [--json FILE]

Each row is a process of its own on one thread; its numbers are seconds of CPU, from the request to
the output, with what is imported on the way, and megabytes of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

import numpy as np

NETS = {
    "lstm": "lstm-layer name=lstm cell-dim=64 delay=-1",
    "lstmp": "relu-renorm-layer name=tdnn dim=32 input=Append(-1,0,1)\n"
    "lstmp-layer name=lstm cell-dim=64 recurrent-projection-dim=16 non-recurrent-projection-dim=16",
    "fast_lstmp": "fast-lstmp-layer name=lstm cell-dim=64 recurrent-projection-dim=16"
    " non-recurrent-projection-dim=16 delay=-3",
}
FRAMES = 1000, 2000, 4000, 8000, 16000, 60000
_LATER = 3
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "OPSCOPE_THREADS"), "1")


def measure(name: str, frames: int) -> dict[str, float]:
    """CPU seconds of the first and of a later run, and megabytes, in this process."""
    from opscope import nnet3

    text = f"input name=input dim=40\n{NETS[name]}\noutput-layer name=output dim=20\n"
    nnet = nnet3.Nnet.from_config_text(nnet3.xconfig_to_config(text), 0)
    random = np.random.default_rng(0)
    values = nnet.vectorize()
    nnet.unvectorize(values + random.normal(0, 0.1, values.shape))
    nnet3.prepare_for_test(nnet)
    started = time.process_time()
    request = nnet3.simple_request(nnet, frames=frames)
    rows = random.standard_normal((len(request.inputs[0].indexes), 40), np.float32)
    computer = nnet3.NnetComputer(nnet3.compile_request(nnet, request), nnet)
    later = []
    for _ in range(_LATER + 1):
        computer.accept_input("input", rows)
        computer.run()
        later.append(time.process_time() - started)
        started = time.process_time()
    assert np.isfinite(computer.get_output("output")).all()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"first_s": later[0], "later_s": min(later[1:]), "memory_mb": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, nargs="+", default=FRAMES)
    parser.add_argument("--json", help="file for the numbers")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # the network that this process measures
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, *args.frames)))
        return
    results = {}
    for name in NETS:
        for frames in args.frames:
            command = [sys.executable, __file__, "--one", name, "--frames", str(frames)]
            env = os.environ | _ONE_THREAD
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            found = results[f"{name}_{frames}"] = json.loads(done.stdout)
            told = "first {first_s:7.2f} s  later {later_s:7.4f} s  {memory_mb:6.0f} MB"
            print(f"{name:10} {frames:6} frames  {told.format(**found)}", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
