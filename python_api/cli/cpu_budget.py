"""The processor time of a command that a file drives: the limit `cpu`.

Other limits count what a file asks for before it is done; this one ends uncounted work. The
kernel keeps the account, of all threads together, so that no place where work is done needs to.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator

from ...framework.base.errors import OpscopeError
from ...framework.base.untrusted.limits import SWITCH, limit

try:
    import resource
except ImportError:  # Windows has no such account
    resource = None  # type: ignore[assignment]


@contextlib.contextmanager
def cpu_budget(command: str) -> Iterator[None]:
    """Let what runs in the block take as much processor time as the limit allows.

    Where the block is not in the main thread, which alone hears the kernel, nothing is bounded.

    Raises:
        OpscopeError: it takes more. The kernel says so each second, so that the error comes again
            where somebody held it back.
    """
    if resource is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    seconds = limit("cpu")

    def ended(number: int, frame: object) -> None:
        raise OpscopeError(
            f"{command}: {seconds} seconds of processor time are used up, the limit of a command"
            f" that a file drives; where that is meant, set {SWITCH}=cpu=NUMBER"
        )

    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    wanted = math.ceil(time.process_time()) + seconds
    if any(most not in (-1, resource.RLIM_INFINITY) and most <= wanted for most in (soft, hard)):
        yield  # the system's own limit comes first
        return
    before = signal.signal(signal.SIGXCPU, ended)
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (wanted, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        signal.signal(signal.SIGXCPU, before)
