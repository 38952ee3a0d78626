"""Items that processes of this machine share, each of which prepares once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ..errors import OpscopeError
from .system import HAS_PROCESSES

Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD = 4
"""Items for each process that are done or under way before their results are taken."""

_works: list[Callable[[Any], Any]] = []
"""What this process does, if it is a worker."""


def shared_out(
    prepare: Callable[[], Callable[[Item], Result]], items: Sequence[Item], jobs: int
) -> Iterator[Result]:
    """What is made of each item, in their order.

    Args:
        prepare: gives what each item is passed to. This process calls it, so that its errors come
            here once, and each worker. It goes to other processes, as items and results do, so all
            must be picklable.
        jobs: processes; with 1 it is this one.

    Raises:
        OpscopeError: the system has no other processes, or one ended before its items were done;
            or what `prepare` or the work raises.
    """
    work = prepare()
    count = min(jobs, len(items))
    if count <= 1:
        yield from map(work, items)
        return
    if not HAS_PROCESSES:
        raise OpscopeError("this system has no other processes: --jobs wants 1")
    # Not everywhere there, and slow to load.
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    try:
        with ProcessPoolExecutor(count, get_context("spawn"), _begin, (prepare,)) as pool:
            waiting = deque(pool.submit(_do, item) for item in items[: _AHEAD * count])
            for item in items[_AHEAD * count :]:
                yield waiting.popleft().result()
                waiting.append(pool.submit(_do, item))
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool:
        raise OpscopeError("a process ended before its items were done: out of memory?") from None


def _begin(prepare: Callable[[], Callable[[Any], Any]]) -> None:
    _works.append(prepare())


def _do(item: Any) -> Any:
    return _works[-1](item)
