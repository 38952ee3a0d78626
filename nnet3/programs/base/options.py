"""Options that Kaldi's programs for nnet3 share: where to compute, and passes of the compiler."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, TypeVar

from ....framework.base.backend import GPUPlace, Place, gpu_present
from ....framework.base.errors import FormatError, OpscopeError
from ...chain.fst import Fst
from ...chain.fst_io import read_fst
from ...optimize import OptimizeOptions
from ...tables.streams import open_reader
from .program import Option

Entry = TypeVar("Entry")

GPU = Option(
    "use-gpu",
    "no",
    "yes|no|optional|wait: whether to compute on the GPU; optional: if there is one",
)
BINARY = Option("binary", True, "Write output in binary mode")
COMPRESS = Option("compress", True, "Compress features that are not compressed yet")
SRAND = Option("srand", 0, "Seed for random number generator")
UNUSED = "Taken for compatibility; without effect"
DEBUG = (
    Option("debug-computation", False, UNUSED),
    Option(
        "computation.debug", False, "Log every command that is computed; --verbose=5 does so, too"
    ),
)
ALLOCATOR = (
    Option("cuda-cache-memory", True, UNUSED),
    Option("cuda-memory-proportion", 0.5, UNUSED),
)
_LAST = (1 << 31) - 1
_OPTIMIZATION = {
    "optimize": True,
    "consolidate-model-update": True,
    "propagate-in-place": True,
    "backprop-in-place": True,
    "extend-matrices": True,
    "optimize-row-ops": True,
    "split-row-ops": True,
    "convert-addition": True,
    "remove-assignments": True,
    "allow-left-merge": True,
    "allow-right-merge": True,
    "initialize-undefined": True,
    "move-sizing-commands": True,
    "allocate-from-other": True,
    "min-deriv-time": -_LAST - 1,
    "max-deriv-time": _LAST,
    "max-deriv-time-relative": _LAST,
    "snip-row-ops": True,
    "memory-compression-level": 1,
}
_PASSES = {field.name for field in fields(OptimizeOptions)}


def optimization_options() -> Iterator[Option]:
    """Kaldi's switches of passes; switches of passes that opscope lacks have no effect."""
    for name, default in _OPTIMIZATION.items():
        known = name == "optimize" or name.replace("-", "_") in _PASSES
        about = "Whether to optimize computations at all" if name == "optimize" else "As in Kaldi"
        yield Option(f"optimization.{name}", default, about if known else UNUSED)


def chosen_passes(options: SimpleNamespace) -> bool | OptimizeOptions:
    """The passes that the command line asks for, as `compile_request` takes them."""
    if not options.optimization_optimize:
        return False
    values = vars(options)
    switches: dict[str, Any] = {
        name: values[f"optimization_{name}"] for name in _PASSES if f"optimization_{name}" in values
    }
    return OptimizeOptions(**switches)


def chosen_place(use_gpu: str) -> Place | None:
    """The place to compute on by `--use-gpu`; None: the CPU.

    Raises:
        FormatError: it is no such word.
    """
    if use_gpu not in ("yes", "no", "optional", "wait"):
        raise FormatError(f"--use-gpu={use_gpu} is none of yes, no, optional, wait")
    if use_gpu == "no" or (use_gpu == "optional" and not gpu_present()):
        return None
    return GPUPlace()


@contextlib.contextmanager
def errors_tell(place: str) -> Iterator[None]:
    """Errors raised in the block begin with `place`, such as the key of an example."""
    try:
        yield
    except OpscopeError as error:
        told = type(error)(f"{place}: {error}")
        vars(told).update(vars(error))  # such as an explanation
        raise told from error


def open_fst(name: str) -> Fst:
    """The FST in a file, binary or text.

    Raises:
        FormatError: it is none.
    """
    reader = open_reader(name)
    reader.offset, reader.binary = 0, False
    return read_fst(reader)


def shown(entries: Iterable[Entry], what: str, unit: str) -> Iterable[Entry]:
    """The entries of a table, with a count of those done on stderr where that is a terminal."""
    from tqdm import tqdm

    hidden = not sys.stderr.isatty()
    return tqdm(entries, what, unit=f" {unit}", leave=False, dynamic_ncols=True, disable=hidden)
