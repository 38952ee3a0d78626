"""Which loops are compiled, and when: those that took the interpreter long, in the background.

Compiling a loop costs some 0.2 s of a core, and it is then up to half as fast again. Nothing waits
for it: a program goes over from one to the other between two calls. Both give the same bits, so no
result depends on when that is.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Sequence

from ...base.machine.system import HAS_THREADS
from .. import chains
from . import libraries

_NEVER = (1 << 63) - 1


class _Background:
    """The thread that compiles."""

    thread: threading.Thread | None = None


background = _Background()


def look() -> None:
    """Have hot loops compiled; runs call it where `chains.HOT` says that there are some."""
    if background.thread is not None and background.thread.is_alive():
        return
    chains.HOT.value = 0
    hot = [one for one in chains.programs() if one.is_hot and not one.is_compiled]
    for program in hot:
        program.set_hot_work(_NEVER)  # it does not ask again, whatever comes of it
    if not HAS_THREADS:
        return
    background.thread = threading.Thread(target=_compile, args=(hot,), daemon=True)
    background.thread.start()


def _compile(hot: Sequence[chains.Program]) -> None:
    from . import compiler  # seldom needed

    if compiler.available():
        for program in hot:
            compiler.compile_loop(program)


@atexit.register
def _end() -> None:
    """The process ends at once, and leaves neither a compiler nor files of it."""
    libraries.end_compilers()
    if background.thread is not None:
        background.thread.join(5)


def _in_child() -> None:
    """The thread is not there in the child of a fork; what it was to compile may be hot again."""
    background.thread = None
    for program in chains.programs():
        if not program.is_compiled:
            program.set_hot_work(chains.HOT_WORK)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
