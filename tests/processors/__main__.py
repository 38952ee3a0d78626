"""Tests of native functions on every kind of processor that can be had here.

`python build.py processors` runs them on each of

- none, where NumPy serves in place of the native library, and the kinds that this processor is,
  from sse4 on;
- `sanitized`: compiled with AddressSanitizer and UndefinedBehaviorSanitizer of gcc; works of the
  campaign call what the tests do not;
- `aarch64`: cross-compiled, by an aarch64 Python under qemu;
- `wasm`: by Pyodide under Node, with the library where emscripten is.

Each also runs two nets, whose outputs must be those of this Python.

Names choose some of these, `here` the first ones, `older` those but for the newest, which all other
tests run on; what else is given goes to pytest: `avx2 aarch64 --quick`.
What lacks its tools is left out with a line that says what they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from itertools import chain

from campaign.threads.sanitized import SANITIZERS, library_path
from opscope.framework.fusion.compiled import native

from . import aarch64, outputs, wasm
from .machine import ROOT, Lacking, Machine

TESTS = (
    "tests/cntk/network/test_network_edit.py",
    *("tests/cntk/operators/test_batch_norm_kernels.py", "tests/cntk/operators/test_sampling.py"),
    "tests/cntk/readers/test_plain_labels.py",
    *("tests/framework/fusion/test_arguments.py", "tests/framework/fusion/test_chains.py"),
    "tests/framework/test_image_nets.py",
    "tests/native",
    "tests/nnet3/components/test_batch_norm_sums.py",
    "tests/nnet3/operators/test_compression_operators.py",
    *("tests/operators/attention", "tests/operators/backends", "tests/operators/base"),
    *("tests/operators/direct", "tests/operators/linear/test_integer_matmul.py"),
    *("tests/operators/conv/test_integer_conv.py", "tests/operators/math/test_quantize.py"),
    "tests/operators/linear/test_matmul_nbits.py",
    "tests/operators/sequence/test_segments.py",
    "tests/speech/search/test_search.py",
)
"""These together call most native functions."""

_ALL_CALLED = "campaign.threads.families"
"""The module that runs works until they have called all of them."""

_CACHE = ROOT / "build" / "sanitized"


def of_kind(name: str) -> Machine:
    """A kind that this processor is."""
    return Machine([sys.executable], {"OPSCOPE_CPU": name})


def sanitized() -> Machine:
    """This processor, with native functions that a wrapper of gcc compiles one by one.

    Raises:
        Lacking: there is no gcc.
    """
    chosen = SANITIZERS[0]
    try:
        preloaded = " ".join(map(library_path, chosen.libraries))
    except (OSError, subprocess.SubprocessError) as error:
        raise Lacking(f"gcc with its sanitizers: {error}") from error
    # Full optimization takes minutes for a file with so many checks; steps of chains stay jumps.
    flags = f"-O1 -foptimize-sibling-calls -g1 {chosen.flags}"
    script = f'#!/bin/sh\nexec gcc "$@" {flags}\n'
    compiler = _CACHE / "cc"
    if not compiler.exists() or compiler.read_text(encoding="utf-8") != script:
        _CACHE.mkdir(parents=True, exist_ok=True)
        compiler.write_text(script, encoding="utf-8")
        compiler.chmod(0o755)
    variables = {
        "LD_PRELOAD": preloaded,
        chosen.variable: "detect_leaks=0",
        "PYTHONMALLOC": "malloc",  # each array has memory of its own, whose ends are watched
        "OPSCOPE_CC": str(compiler),
        "OPSCOPE_CACHE": str(_CACHE / "cache"),
    }
    # What a sanitizer says is on the process's own stderr, not on that of Python. Sums far
    # from 0 are held to what vectors give, and nothing is a vector among so many checks.
    case = (
        "tests/operators/backends/test_native.py::test_equal_to_the_plain_kernels[layer_norm, far-"
    )
    left_out = [f"--deselect={case}{train}-float32]" for train in (True, False)]
    return Machine([sys.executable], variables, ["--capture=sys", *left_out])


def main(arguments: list[str]) -> int:
    """Run the tests on the machines that are named, or on all; returns the exit code."""
    kinds = ["none", *(one.name for one in native.kinds_here())]
    here = {name: partial(of_kind, name) for name in kinds}
    known = {**here, "sanitized": sanitized, "aarch64": aarch64.prepared, "wasm": wasm.prepared}
    groups = {"here": kinds, "older": kinds[:-1], **{name: [name] for name in known}}
    chosen = [groups[word] for word in arguments if word in groups] or [[*known]]
    rest = [word for word in arguments if word not in groups]
    failed = []
    for name in chain.from_iterable(chosen):
        start = time.monotonic()
        try:
            machine = known[name]()
        except Lacking as error:
            print(f"{name} is left out, it wants {error}", flush=True)
            continue
        print(f"{name}: the tests of native functions", flush=True)
        failed += [f"{name} ({net})" for net in outputs.wrong(machine)]
        command = [*machine.python, "-P", "-m", "pytest", "-q", "-n", "0", *machine.options]
        if machine.library is not None:
            command += ["--native-library", str(machine.library)]
        variables = os.environ | machine.variables
        if name == "sanitized":
            works = [*machine.python, "-P", "-m", _ALL_CALLED]
            if subprocess.run(works, cwd=ROOT, env=variables).returncode:
                failed.append(f"{name} ({_ALL_CALLED})")
        done = subprocess.run([*command, *TESTS, *rest], cwd=ROOT, env=variables)
        print(f"{name} took {time.monotonic() - start:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
