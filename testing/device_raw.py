"""Runs kernels written in CUDA on NumPy memory, compiled as C, for the stand-in of CuPy.

Blocks run one after the other. A block has one thread, or within `lanes(n)` n of them, which meet
where the kernel says SYNC.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..framework.base.errors import DeviceError
from ..framework.base.options import settings
from ..framework.base.python.cached import new_lock
from ..framework.fusion.compiled import libraries
from ..framework.fusion.cuda.device_kernels import cuda_text
from .device_array import launches, memory_of, ndarray
from .device_graphs import recorded

_NAMES = """\
#include <pthread.h>
#include <stdint.h>
#include <tgmath.h>
#define EXPORT __attribute__((visibility("default")))
typedef int64_t int64;
typedef int32_t int32;
typedef int16_t int16;
typedef int8_t int8;
typedef uint8_t uint8;
typedef uint16_t uint16;
typedef uint32_t uint32;
typedef uint64_t uint64;
static int64 block_count;
static _Thread_local int64 block_index, lane;
static pthread_barrier_t barrier;
#define KERNEL static void
#define DEVICE static
#define SHARED static
#define LANE lane
#define LANE_COUNT ((int64)BLOCK)
#define BLOCK_INDEX block_index
#define BLOCK_COUNT block_count
#define SYNC (BLOCK == 1 ? 0 : pthread_barrier_wait(&barrier))
#define INFINITE ((double)INFINITY)
#define FIRST_TO_MARK(flag) __sync_bool_compare_and_swap(flag, 0, 1)
#define TICKET(counter) __sync_fetch_and_add(counter, 1)
"""
_LANES = """
static int64 *words_of_run;
static void (*kernel_of_run)(int64 *);
static void *run_lane(void *number) {
  lane = (int64)(intptr_t)number;
  for (block_index = 0; block_index < block_count; block_index++) {
    kernel_of_run(words_of_run);
    SYNC;
  }
  return 0;
}
static void run(void (*kernel)(int64 *), int64 *words) {
  pthread_t lanes[BLOCK];
  kernel_of_run = kernel;
  words_of_run = words;
  block_count = words[0];
  pthread_barrier_init(&barrier, 0, BLOCK);
  for (intptr_t n = 1; n < BLOCK; n++) pthread_create(&lanes[n], 0, run_lane, (void *)n);
  run_lane(0);
  for (int n = 1; n < BLOCK; n++) pthread_join(lanes[n], 0);
  pthread_barrier_destroy(&barrier);
}
"""
_RUN = """
static void call_{name}(int64 *words) {{ {name}({arguments}); }}
EXPORT void run_{name}(int64 *words) {{ run(call_{name}, words); }}
"""
_KERNEL = re.compile(r"^KERNEL (\w+)\(([^)]*)\)", re.MULTILINE)
_FLAGS = ("-O1", "-pthread", "-std=gnu11", "-shared", "-fPIC", "-ffp-contract=off")
# Under Linux the process has the rest of the C library: to link it takes as long as to compile.
_LINKED = ("-nostdlib", "-lm", "-lgcc") if sys.platform == "linux" else ("-lm",)


texts: dict[str, set[str]] = {}
"""The CUDA of all kernels that were made, by their names."""
_running = new_lock()  # one kernel at a time: its number of blocks is the library's
_lanes = [1]


@contextlib.contextmanager
def lanes(count: int) -> Iterator[None]:
    """Within it blocks have so many threads, a power of two."""
    _lanes.append(count)
    try:
        yield
    finally:
        _lanes.pop()


class RawKernel:
    """`cupy.RawKernel`, of texts that begin with the package's prelude.

    Attributes:
        code: the CUDA. name: of the kernel in it. real: the dtype of its elements.
    """

    def __init__(self, code: str, name: str) -> None:
        if cuda_text("names") not in code:
            raise ValueError(f"{name}: not a kernel of the package")
        texts.setdefault(name, set()).add(code)
        self.code, self.name = code, name
        self.real = "float32" if code.startswith("typedef float ") else "float64"
        self._source, kernels = _in_c(code)
        if name not in kernels:
            raise ValueError(f"the text has no kernel {name}")
        self._types = kernels[name]
        self._runs: dict[int, Any] = {}

    @recorded
    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], **rest: Any
    ) -> None:
        if len(args) != len(self._types):
            raise TypeError(f"{self.name}: {len(args)} arguments for {len(self._types)}")
        if not (len(grid) == len(block) == 1 and grid[0] > 0 and block[0] > 0) or rest:
            raise ValueError(f"{self.name}: grid {grid}, block {block}, {rest}")
        if _lanes[-1] not in self._runs:  # as CuPy, which compiles when a kernel is first called
            source = f"#define BLOCK {_lanes[-1]}\n{self._source}"
            run = f"run_{self.name}"
            self._runs[_lanes[-1]] = _compiled(source, run).function(run)
        launches.append(self.name)
        held = [self._word(kind, arg) for kind, arg in zip(self._types, args, strict=True)]
        words = (ctypes.c_int64 * (len(args) + 1))(grid[0], *(word for word, _ in held))
        with _running:
            self._runs[_lanes[-1]](words)

    def _word(self, kind: str, arg: Any) -> tuple[int, Any]:
        """An argument as the word that `run` takes, and what must live until then."""
        if type(arg) is ndarray:
            memory = memory_of(arg)
            if not kind.endswith("*") or not self._fits(kind, memory.dtype):
                raise TypeError(f"{self.name}: an array of {memory.dtype} for {kind}")
            if not memory.flags.c_contiguous:
                raise ValueError(f"{self.name}: an array in pieces for {kind}")
            return memory.ctypes.data, memory
        if not isinstance(arg, np.generic):
            raise TypeError(f"{self.name}: {type(arg)} for {kind}: its size depends on CuPy")
        value = np.array(arg)
        return (int(arg) if kind.endswith("*") else value.ctypes.data), value

    def _fits(self, kind: str, dtype: np.dtype) -> bool:
        """Whether a C type of elements belongs to a dtype."""
        named = kind.removeprefix("const ").removesuffix("*").strip()
        known = {"real": self.real, "float": "float32", "double": "float64", "uint8": "bool"}
        return dtype.name in (named, known.get(named))


RawKernel.__module__ = "cupy"


class NoCompilerError(DeviceError):
    """The machine has nothing that compiles a kernel for the stand-in."""


@functools.cache
def _in_c(code: str) -> tuple[str, dict[str, list[str]]]:
    """A text as C with a function `run_NAME` for each kernel, and the kernels' parameter types.

    All kernels of a text are compiled at once: to start a compiler takes longer than they do.
    """
    parts, types = [code.replace(cuda_text("names"), _NAMES), _LANES], {}
    for name, parameters in _KERNEL.findall(code):
        kinds = [" ".join(one.split()[:-1]) for one in parameters.replace("*", "* ").split(",")]
        arguments = ", ".join(
            f"({kind})words[{place}]" if kind.endswith("*") else f"*({kind} *)words[{place}]"
            for place, kind in enumerate(kinds, 1)
        )
        types[name] = kinds
        parts.append(_RUN.format(name=name, arguments=arguments))
    return "".join(parts), types


def _compiled(source: str, run: str) -> libraries.Library:
    compiler = libraries.find_compiler(settings.switch("OPSCOPE_CC"))
    if compiler is None:
        raise NoCompilerError("the stand-in of CuPy wants a C compiler for a kernel in CUDA")

    def build(target: Path) -> None:
        libraries.run(compiler, [*_FLAGS, "-x", "c", "-", "-o", str(target), *_LINKED], source)

    return libraries.from_cache(
        (libraries.state(compiler), source, _FLAGS, _LINKED),
        build,
        lambda path: libraries.Library(path, [run]),
    )
