"""What multiplies matrices on this machine, and how fast: `opscope version --kernels`.

The library that a plan takes for a shape follows from a fixed rule: were it measured, a run and its
resumption could differ in the last bits. This table shows how good the rule is here. It is measured
once for a processor and its libraries, as processor time of one thread, and kept in the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import time
from collections.abc import Iterator

import numpy as np

from ...framework.base.cpu.cores import processor_name
from ...framework.base.cpu.threads import threads_set
from ...framework.base.errors import SaveError
from ...framework.base.files.atomic import atomic_file
from ...framework.base.options.settings import options, read_options
from ...framework.base.scope import Scope
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.library_files import cache_folder, read_own
from ...native import units
from ...operators.backends.bfloat16 import bf16, bf16_gemm
from ...operators.backends.integer import integer_gemm
from ...operators.backends.products import mkl
from ..builder.net_builder import NetBuilder

_SHAPES = {
    "one row": (1, 512, 512),
    "few rows": (16, 512, 512),
    "a batch": (64, 512, 512),
    "narrow": (1024, 1024, 96),
    "many rows": (1024, 512, 512),
    "deep": (1024, 2048, 512),
}
"""Classes of products: rows, inner dimension and columns of one that stands for each."""
_OURS = "packed,direct,native"
_SECONDS = 0.02
"""Time of one measurement: a second in all, for a person who asks."""
_MOST = 1 << 16

Table = dict[str, dict[str, float]]
"""Class -> way to multiply -> Gflop/s."""


def kernel_lines() -> Iterator[str]:
    """The report, line by line."""
    names = ", ".join(one.name for one in native.kinds()) or "none"
    yield f"processor    {processor_name() or 'unknown'}"
    yield f"code for     {names}"
    yield f"bfloat16     {_without_bf16() or 'yes'}"
    yield f"8 bits       {integer_gemm.described()}"
    yield ""
    table = _kept()
    columns = list(dict.fromkeys(way for times in table.values() for way in times))
    yield f"{'Gflop/s, 1 thread':24}" + "".join(f"{way:>10}" for way in columns)
    for name, times in table.items():
        numbers = "".join(f"{times[way]:10.1f}" for way in columns)
        yield f"{name:10}{'x'.join(map(str, _SHAPES[name])):14}{numbers}"


def _without_bf16() -> str:
    """Why no product is one of bfloat16 here; "" where some are."""
    if bf16.missing():
        return f"no: wants {bf16.missing()}"
    return "" if bf16_gemm.is_faster() else "no: float32 is faster"


def _ways() -> dict[str, str]:
    """Names of ways to multiply -> the libraries, best first."""
    plan = ",".join(read_options().libraries)
    ways = {"plan": plan, "own": _OURS, "openblas": "blas"}
    if mkl.library() is not None:
        ways["mkl"] = "mkl"
    if not _without_bf16():
        ways["bf16"] = f"bf16,{plan}"
    return ways | {"8 bits": plan}


def _kept() -> Table:
    """The table of this machine, from the cache or measured now."""
    versions = [np.__version__]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions.append(importlib.metadata.version("mkl"))
    ways = _ways()
    state = processor_name(), units.digest(), native.described(), versions, ways
    key = hashlib.sha256(repr((state, _SHAPES)).encode()).hexdigest()[:32]
    folder = cache_folder()
    path = None if folder is None else folder / f"{key}.kernels.json"
    if path is not None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            stored = json.loads(read_own(path, _MOST))
            return {name: {way: float(stored[name][way]) for way in ways} for name in _SHAPES}
    table = {
        name: {way: _speed(*shape, way, libraries) for way, libraries in ways.items()}
        for name, shape in _SHAPES.items()
    }
    if path is not None:
        with contextlib.suppress(OSError, SaveError), atomic_file(path, mode=0o600) as file:
            file.write(json.dumps(table).encode())
    return table


def _speed(rows: int, depth: int, columns: int, way: str, libraries: str) -> float:
    """Gflop/s of a product with weights, as a net that predicts has it."""
    rng = np.random.default_rng(0)
    b = NetBuilder("product")
    scope = Scope()
    if way == "8 bits":
        x = rng.integers(0, 256, (rows, depth), np.uint8)
        weights = rng.integers(-127, 128, (depth, columns), np.int8)
        y = b.state("y", weights.shape, dtype="int8")
        b.integer_matmul(b.input("x", [-1, depth], "uint8"), y, name="out")
    else:
        x = rng.normal(size=(rows, depth)).astype(np.float32)
        weights = rng.normal(size=(depth, columns)).astype(np.float32)
        y = b.parameter("y", weights.shape)
        b.matmul(b.input("x", [-1, depth]), y, name="out")
    scope.var("y").set(weights)
    scope.var("x").set(x)
    with options(libraries=libraries), threads_set(1):
        b.run(scope, fetch=[], need_backward=False)  # makes the plan
        start = time.process_time()
        spent = 0.0
        runs = 0
        while spent <= _SECONDS:
            b.run(scope, fetch=[], need_backward=False)
            spent = time.process_time() - start
            runs += 1
    return 2e-9 * rows * depth * columns * runs / spent
