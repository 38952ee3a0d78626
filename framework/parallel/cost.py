"""What an exchange of p ranks costs: messages one after another, and how often its bytes travel.

Of n bytes a rank an exchange takes `messages * latency + volume * n / bandwidth` seconds over a
link: the alpha-beta model, without the time that additions take, with full-duplex links that do not
share wires.

Source: Thakur, Rabenseifner and Gropp 2005, Optimization of Collective Communication Operations in
MPICH, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..base.errors import OpscopeError, nearest


class Cost(NamedTuple):
    """The cost of an exchange.

    Attributes:
        messages: how many follow one another. volume: bytes that they carry, in units of what a
            rank puts in.
    """

    messages: int
    volume: float


def ring(ranks: int) -> Cost:
    """A sum in p pieces that go round twice: 2(p-1) messages, 2(p-1)/p of the bytes."""
    return Cost(2 * (ranks - 1), 2 * (ranks - 1) / ranks)


def tree(ranks: int) -> Cost:
    """A sum to one rank over a binomial tree, and back: 2 ceil(log2 p) messages of all bytes."""
    return Cost(2 * _levels(ranks), 2.0 * _levels(ranks))


def halving(ranks: int) -> Cost:
    """Recursive halving of the vector, then doubling: 2 log2 p messages, 2(p-1)/p of the bytes.

    Where p is no power of two, the ranks above the largest one below it, p', hand their vectors to
    others first and get the sums at the end: 2 log2 p' + 2 messages, 2(p'-1)/p' + 2 of the bytes.
    """
    core = 1 << (ranks.bit_length() - 1)
    aside = 0 if core == ranks else 2
    return Cost(2 * _levels(core) + aside, 2 * (core - 1) / core + aside)


ALGORITHMS: Mapping[str, Callable[[int], Cost]] = {"ring": ring, "tree": tree, "halving": halving}
"""Ways to form a sum that all ranks get."""


def exchange_cost(kind: str, ranks: int, algorithm: str = "ring") -> Cost:
    """The cost of one exchange.

    Args:
        kind: a `Message`'s kind. A broadcast takes a binomial tree; what is gathered, or summed and
            scattered, goes round a ring once.
        ranks: how many there are. algorithm: of an `all_reduce`, one of `ALGORITHMS`.

    Raises:
        OpscopeError: fewer ranks than one, or no such algorithm.
    """
    if ranks < 1:
        raise OpscopeError(f"there must be at least one rank, not {ranks}")
    if algorithm not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        hint = nearest(algorithm, ALGORITHMS)
        raise OpscopeError(f"no algorithm {algorithm!r} of all_reduce{hint}; there are {known}")
    if kind == "all_reduce":
        return ALGORITHMS[algorithm](ranks)
    if kind == "send":
        return Cost(1, 1.0)
    if kind == "reduce_scatter":
        return Cost(ranks - 1, (ranks - 1) / ranks)
    if kind == "broadcast":
        return Cost(_levels(ranks), float(_levels(ranks)))
    return Cost(ranks - 1, float(ranks - 1))


def _levels(ranks: int) -> int:
    """log2, rounded up."""
    return (ranks - 1).bit_length()
