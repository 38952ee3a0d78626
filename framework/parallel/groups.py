"""Some of the ranks of a program, which exchange values among themselves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.backend import array_module
from ..base.communicator import Communicator, Request, check_root, sum_in_order
from ..base.errors import RanksError


class Group(Communicator):
    """Ranks of `world` that form sums without the others; every member makes the same group.

    Its exchanges are made of `send` and `receive` of the world: a sum is formed in pieces, each
    rank adding one in the order of the members.

    Attributes:
        waited: seconds that this rank has waited for what others send.

    Args:
        members: numbers of its ranks in the world, this rank's among them.
        peers: ranks of the world that `send` and `receive` mean by their places in this list;
            by default the members.
    """

    kind = "group"

    def __init__(
        self, world: Communicator, members: Sequence[int], peers: Sequence[int] | None = None
    ) -> None:
        super().__init__(members.index(world.rank), len(members))
        self._world = world
        self._members = list(members)
        self._peers = self._members if peers is None else list(peers)
        self.waited = 0.0

    def _at_work(self) -> Communicator:
        self._world.operator = self.operator
        return self._world

    def _swap(self, given: Sequence[Any], received: Sequence[Any]) -> None:
        """Give each member its array, and receive one of each; the own ones stay."""
        world = self._at_work()
        others = [(place, rank) for place, rank in enumerate(self._members) if place != self.rank]
        for place, rank in others:
            world.send(given[place], rank)
        for place, rank in others:
            self._take(received[place], rank)

    def start_all_reduce(self, array: Any) -> Request:
        if not array.flags.c_contiguous:
            raise RanksError(f"a sum wants a contiguous array, not one of strides {array.strides}")
        if self.size > 1:
            flat = array.reshape(-1)
            bounds = [flat.size * rank // self.size for rank in range(self.size + 1)]
            pieces = [flat[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
            self._sum_pieces(pieces, pieces[self.rank])
            self._swap([pieces[self.rank]] * self.size, pieces)
        return Request()

    def start_reduce_scatter(self, array: Any, out: Any) -> Request:
        self._sum_pieces(list(array), out)
        return Request()

    def _sum_pieces(self, pieces: Sequence[Any], out: Any) -> None:
        """out = the sum of what the members have for this one, in their order."""
        own = pieces[self.rank]
        parts = [array_module(own).empty_like(own) for _ in self._members]
        parts[self.rank][...] = own
        self._swap(pieces, parts)
        sum_in_order(parts, out)

    def all_gather(self, array: Any, out: Any) -> None:
        out[self.rank] = array
        self._swap([array] * self.size, out)

    def broadcast(self, array: Any, root: int = 0) -> None:
        check_root(root, self)
        world = self._at_work()
        if self.rank != root:
            self._take(array, self._members[root])
            return
        for rank in self._members:
            if rank != world.rank:
                world.send(array, rank)

    def exchange(self, data: bytes) -> list[bytes]:
        own = np.frombuffer(data, np.uint8)
        lengths = [np.zeros(1, np.int64) for _ in self._members]
        lengths[self.rank][0] = len(own)
        self._swap([lengths[self.rank]] * self.size, lengths)
        parts = [np.empty(int(length[0]), np.uint8) for length in lengths]
        parts[self.rank] = own
        self._swap([own] * self.size, parts)
        return [part.tobytes() for part in parts]

    def send(self, array: Any, to: int) -> None:
        self._at_work().send(array, self._peers[to])

    def receive(self, out: Any, source: int) -> None:
        self._take(out, self._peers[source])

    def _take(self, out: Any, source: int) -> None:
        began = time.perf_counter()
        self._at_work().receive(out, source)
        self.waited += time.perf_counter() - began

    def check(self) -> None:
        self._world.check()

    def fail(self, error: BaseException) -> None:
        self._world.fail(error)

    def close(self) -> None:
        self._world.close()
