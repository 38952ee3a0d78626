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
from time import monotonic

from . import chains, libraries

HOT_WORK = 40_000_000_000
"""Work that was interpreted from which a loop is compiled, in the units of native/constants.py: a
second of a core, some times what the compiler takes."""
_INTERVAL = 0.5  # seconds from one look at all programs to the next


class _Watch:
    """When to look again; the thread that compiles, and the loops that it was given."""

    def __init__(self) -> None:
        self.next = monotonic() + _INTERVAL
        self.thread: threading.Thread | None = None
        self.given: set[chains.Program] = set()


watch = _Watch()


def look() -> None:
    """Have loops compiled that have become hot; runs call it from the time `watch.next` on."""
    watch.next = monotonic() + _INTERVAL
    if watch.thread is not None and watch.thread.is_alive():
        return
    programs = chains.programs()
    hot = [one for one in programs if one.work >= HOT_WORK and not one.is_compiled]
    if not watch.given.issuperset(hot):
        watch.given.update(hot)
        watch.thread = threading.Thread(target=_compile, args=(hot,), daemon=True)
        watch.thread.start()


def _compile(hot: Sequence[chains.Program]) -> None:
    from . import compiler  # seldom needed

    if compiler.available():
        for program in hot:
            compiler.compile_loop(program)


@atexit.register
def _end() -> None:
    """The process ends at once, and leaves neither a compiler nor files of it."""
    libraries.end_compilers()
    if watch.thread is not None:
        watch.thread.join(5)


if hasattr(os, "register_at_fork"):
    # The thread is not there in the child of a fork, and what it was to compile is not compiled.
    os.register_at_fork(after_in_child=watch.__init__)
