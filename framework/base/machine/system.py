"""What the system grants to a process: in WebAssembly one thread, no other process, no users."""

from __future__ import annotations

import os
import sys
import time

try:
    import fcntl
except ImportError:  # Windows locks in another way; where a process is alone there are no locks
    fcntl = None

_ALONE = sys.platform in ("emscripten", "wasi")
HAS_THREADS = HAS_PROCESSES = not _ALONE
HAS_USERS = hasattr(os, "getuid") and not _ALONE
"""Whether files belong to users, of whom others may write there."""

thread_time = getattr(time, "thread_time", time.perf_counter)
"""Seconds of processor time of the calling thread; of the clock where there is no other thread."""
