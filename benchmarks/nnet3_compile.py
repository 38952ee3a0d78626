"""How long compiling an nnet3 request takes, in a process of its own.

    python benchmarks/nnet3_compile.py [--kaldi FOLDER] [--json FILE]

Compiling uses one thread and little memory, so what else the machine does shows: the time is the
least of many, of the processor. Kaldi runs the commands that it compiles; ours are lowered to
operators, which is told apart and has no counterpart there. Kaldi's times in the table are those of
another machine. On one where a program around Kaldi 5.5's `CachingOptimizingCompiler` takes 2.5 ms
(TDNN) and 8.8 ms (LSTMP) with shortcut, its checks of the result included, opscope takes 1.7 and
8.8 ms, and 1.4 and 4.5 ms more for lowering.

`--kaldi` names a folder with Kaldi's binaries; its `nnet3-train` and opscope then compile the same
requests in turn, which differ in their number of frames.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from workloads.nnet3_nets import NETS, network

KALDI_MS = {"tdnn": (63, 1.8), "tdnnf": (380, 17), "lstmp": (58, 11)}
"""What Kaldi 5.5 takes to compile them on one of two cores, without and with shortcut."""
_REPEATS = 25
_ROUNDS = 5
_AROUND = range(-4, 5)  # how far the requests of the comparison differ in output frames


def milliseconds(call: Callable[[], object]) -> float:
    """The least time of a call, of the processor."""
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def compile_times() -> dict[str, dict[str, float]]:
    """Prints and returns the time to optimized commands, beside Kaldi's, and to the op list."""
    from opscope import nnet3
    from opscope.framework.base.python.gc_disabled import gc_disabled
    from opscope.nnet3.network.for_inference import for_request
    from opscope.nnet3.optimize import OptimizeOptions, compile_optimized

    options = OptimizeOptions()

    @gc_disabled()
    def commands(nnet: Any, request: Any, shortcut: bool) -> None:
        compile_optimized(for_request(nnet, request).topology(), request, options, shortcut)

    results: dict[str, dict[str, float]] = {}
    for name, given in KALDI_MS.items():
        nnet, request = network(name)
        for shortcut, kaldi in zip((False, True), given, strict=True):
            ours = milliseconds(partial(commands, nnet, request, shortcut))
            whole = partial(nnet3.compile_request, nnet, request, shortcut=shortcut)
            lowering = milliseconds(whole) - ours
            key = f"{name}{'_shortcut' if shortcut else ''}"
            results[key] = {"ours_ms": ours, "lowering_ms": lowering, "kaldi_ms": kaldi}
            how = "with shortcut" if shortcut else "without shortcut"
            told = f"ours {ours:7.1f} ms  Kaldi {kaldi:6.1f} ms  ratio {kaldi / ours:5.2f}"
            print(f"compile {name:5} {how:16} {told}  lowering {lowering:4.1f} ms")
    return results


def requests(name: str) -> tuple[Any, list[Any]]:
    """A network, and requests like its own with some frames less and more."""
    from opscope import nnet3

    nnet, own = network(name)
    _, frames, sequences, step, left = NETS[name]
    made = []
    for more in _AROUND:
        request = nnet3.simple_request(
            nnet, frames + more, sequences, subsampling=step, left_context=left, derivatives=True
        )
        for io in request.inputs:
            io.has_deriv = own.inputs[0].has_deriv
        made.append(request)
    return nnet, made


def write_examples(path: pathlib.Path, made: list[Any]) -> None:
    """Training examples for which Kaldi makes these requests, in this order."""
    from opscope.kaldi.files.sparse import SparseMatrix
    from opscope.kaldi.tables.tables import TableWriter
    from opscope.nnet3.files.examples import NnetExample, NnetIo

    rng = np.random.default_rng(0)
    with TableWriter(f"ark:{path}", "example") as writer:
        for number, request in enumerate(made):
            given, asked = request.inputs[0].indexes, request.outputs[0].indexes
            labels = np.zeros((len(asked), 1000), np.float32)
            labels[:, 0] = 1
            inputs = rng.standard_normal((len(given), 40), np.float32)
            ios = [
                NnetIo("input", given, inputs),
                NnetIo("output", asked, SparseMatrix.from_dense(labels)),
            ]
            writer.write(f"example{number}", NnetExample(ios))


def beside_kaldi(folder: pathlib.Path) -> dict[str, dict[str, float]]:
    """Prints and returns the least times of both sides, in turn, for the same requests."""
    from opscope import nnet3

    results = {}
    with tempfile.TemporaryDirectory() as passing:
        here = pathlib.Path(passing)
        for name in NETS:
            nnet, made = requests(name)
            nnet.write(here / "net.raw")
            write_examples(here / "examples.ark", made)
            command = [folder / "nnet3-train", "--max-param-change=2.0", here / "net.raw"]
            command += [f"ark:{here / 'examples.ark'}", here / "trained.raw"]
            ours, kaldi = [], []
            for _ in range(_ROUNDS):
                kaldi.append(_kaldi_milliseconds(command) / len(made))
                start = time.perf_counter()
                for request in made:
                    nnet3.compile_request(nnet, request)
                ours.append(1e3 * (time.perf_counter() - start) / len(made))
            results[name] = {"ours_ms": min(ours), "kaldi_ms": min(kaldi)}
            told = f"ours {min(ours):7.1f} ms  Kaldi {min(kaldi):6.1f} ms"
            print(f"compile {name:5} same requests    {told}  ratio {min(kaldi) / min(ours):5.2f}")
    return results


def _kaldi_milliseconds(command: list[Any]) -> float:
    """What Kaldi's log says that it compiled, without its checks of the result."""
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    number = r"([\d.e-]+)"
    found = re.search(f"{number} seconds taken in nnet3 compilation.* {number} checking", log)
    if found is None:
        raise RuntimeError("Kaldi's log does not say how long it compiled")
    total, checking = map(float, found.groups())
    return 1e3 * (total - checking)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kaldi", type=pathlib.Path, help="folder with Kaldi's binaries")
    parser.add_argument("--json", help="file for the numbers")
    args = parser.parse_args()
    results = {"given": compile_times()}
    if args.kaldi:
        results["in_turn"] = beside_kaldi(args.kaldi)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
