"""Options that Kaldi's programs for nnet3 share: where to compute, seeds, forms of files."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from ....framework.base.backend import GPUPlace, Place, gpu_present
from ....framework.base.errors import FormatError, OpscopeError
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
        placed = type(error)(f"{place}: {error}")
        vars(placed).update(vars(error))  # such as an explanation
        raise placed from error


def shown(entries: Iterable[Entry], what: str, unit: str) -> Iterable[Entry]:
    """The entries of a table, with a count of those done on stderr where that is a terminal.

    Elsewhere there is no bar at all. Even a hidden one takes a lock that tqdm shares with all
    processes that were forked: where one of them is killed as it holds it, the others wait forever.
    """
    if not sys.stderr.isatty():
        return entries
    from tqdm import tqdm

    return tqdm(entries, what, unit=f" {unit}", leave=False, dynamic_ncols=True)
