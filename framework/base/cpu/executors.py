"""Threads that calls are handed to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from ..machine.system import HAS_THREADS


def executor(threads: int | None, name: str) -> Executor:
    """An executor of so many threads; where the system has none, calls are done at once.

    Args:
        threads: None: as `ThreadPoolExecutor` chooses. name: of the threads.
    """
    return ThreadPoolExecutor(threads, name) if HAS_THREADS else _AtOnce()


class _AtOnce(Executor):
    """Does what is handed to it before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            done.set_exception(error)
        return done
