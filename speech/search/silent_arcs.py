"""Epsilons of a frame in NumPy: tokens follow them in Kaldi's order, where order counts.

Costs do not depend on the order, so all tokens are followed at once until none changes. Arcs that
helped are then gone through one by one: which token is made first, and which of equally good arcs
a token keeps, is decided by that.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from ...framework.base.sequence import bincount, repeated
from ...kaldi.fst.arcs import runs
from ...native.constants import MANY_TOKENS, NEGATIVE_LOOP
from .arc_table import ArcTable, first_ones
from .frames import LINK, TOKEN

_FLOAT = struct.Struct("f")
_INFINITY = np.float32(np.inf)
_NOTHING = np.empty(0, LINK)


class SilentArcs:
    """Passes the tokens of a frame along epsilons.

    Args:
        table: of the graph. most: tokens of a frame.
    """

    def __init__(self, table: ArcTable, most: int) -> None:
        self._table = table
        self._most = most
        self._token = np.empty(0, np.int32)  # of each row, -1: there is none
        self._cost = np.empty(0, np.float32)

    def follow(
        self, rows: np.ndarray, tokens: np.ndarray, listed: np.ndarray, cutoff: np.float32
    ) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        """Follow epsilons.

        Args:
            rows: of the tokens; their arcs are made. tokens: `TOKEN`. listed: tokens in the order
                in which they are put into Kaldi's queue. cutoff: costs are below it.

        Returns:
            0 or what went wrong; rows and tokens; epsilon links among them.
        """
        if not (self._table.arcs.epsilons[rows] > 0).any():
            return 0, rows, tokens, _NOTHING
        self._widen()
        self._token[rows] = np.arange(len(rows))
        self._cost[rows] = tokens["cost"]
        status, all_rows = self._reach(rows, cutoff)
        if status:
            links = _NOTHING
        else:
            rows, tokens, links = self._in_order(all_rows, tokens, listed, cutoff)
        self._token[all_rows] = -1
        self._cost[all_rows] = _INFINITY
        return status, rows, tokens, links

    def _widen(self) -> None:
        more = self._table.arcs.rows - len(self._token)
        if more > 0:
            self._token = np.concatenate([self._token, np.full(more, -1, np.int32)])
            self._cost = np.concatenate([self._cost, np.full(more, _INFINITY)])

    def _arcs_of(
        self, rows: np.ndarray, cutoff: np.float32
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The epsilons of rows that cost less than the cutoff: how many of each row there are in
        all, which of these they are, where they lie, the cost."""
        arcs = self._table.arcs
        counts = arcs.epsilons[rows]
        place = runs(arcs.begin[rows] + arcs.emitting[rows], counts)
        cost = repeated(self._cost[rows], counts)
        cost += arcs.weight[place]
        good = np.flatnonzero(cost < cutoff)
        return counts, good, place[good], cost[good]

    def _reach(self, rows: np.ndarray, cutoff: np.float32) -> tuple[int, np.ndarray]:
        """Lower costs until none changes.

        Returns:
            0 or what went wrong; all rows with a token, new ones after.
        """
        arcs = self._table.arcs
        front = rows
        rounds = 0
        while True:
            follow = (arcs.epsilons[front] > 0) & (self._cost[front] < cutoff)
            _, _, place, cost = self._arcs_of(front[np.flatnonzero(follow)], cutoff)
            target = arcs.target[place].astype(np.int64)
            better = np.flatnonzero(cost < self._cost[target])
            if not len(better):
                return 0, rows
            target, cost = target[better], cost[better]
            np.minimum.at(self._cost, target, cost)
            front = first_ones(target, self._table.scratch)
            new = front[np.flatnonzero(self._token[front] < 0)]
            rounds += 1
            if len(new):
                self._token[new] = np.arange(len(rows), len(rows) + len(new))
                rows = np.concatenate([rows, new])
                self._table.make(new)
                self._widen()
            if len(rows) > self._most:
                return MANY_TOKENS, rows
            if rounds > len(rows) + 1:
                return NEGATIVE_LOOP, rows

    def _in_order(
        self, rows: np.ndarray, tokens: np.ndarray, listed: np.ndarray, cutoff: np.float32
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, tokens and links, once costs are known, in the order in which Kaldi makes them."""
        arcs = self._table.arcs
        known = len(tokens)
        last_cost = self._cost[rows]
        alive = np.flatnonzero((arcs.epsilons[rows] > 0) & (last_cost < cutoff))
        counts, which, place, cost = self._arcs_of(rows[alive], cutoff)
        source = repeated(alive, counts)[which]
        target = self._token[arcs.target[place]].astype(np.int64)
        weight = arcs.weight[place]
        first_cost = np.full(len(rows), _INFINITY)
        first_cost[:known] = tokens["cost"]
        useful = np.flatnonzero(cost < first_cost[target])
        entered, changed, came = _queued(
            (source[useful], target[useful], weight[useful], cost[useful]),
            first_cost,
            last_cost,
            listed,
            cutoff,
        )
        self._table.visit(rows[entered])
        number = np.arange(len(rows))
        number[entered] = np.arange(known, len(rows))
        links = np.zeros(len(place), LINK)
        links["from"], links["to"] = number[source], number[target]
        links["olabel"], links["graph"] = arcs.olabel[place], weight
        best = links[useful[came]]
        fresh = np.zeros(len(came), TOKEN)
        fresh["cost"] = last_cost[changed]
        fresh["back"], fresh["olabel"], fresh["graph"] = best["from"], best["olabel"], best["graph"]
        if len(entered):
            links = links[np.argsort(links["from"], kind="stable")]
            rows = np.concatenate([rows[:known], rows[entered]])
            tokens = np.concatenate([tokens, np.empty(len(entered), TOKEN)])
        tokens[number[changed]] = fresh
        return rows, tokens, links


def _queued(
    arcs: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    first_cost: np.ndarray,
    last_cost: np.ndarray,
    listed: np.ndarray,
    cutoff: np.float32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Go through arcs by Kaldi's queue, the newest token first.

    Args:
        arcs: source, target, weight, and what the target costs once the source's cost is the last
            one; sorted by source. first_cost: of tokens; infinity: it is still to be made.
        last_cost: of tokens. listed: tokens that are in the queue at first.

    Returns:
        Tokens in the order in which they are made; those that changed, and the arcs they came by.
    """
    # Most tokens have to do with no arc: only the others are gone through, as plain numbers.
    taking = np.zeros(len(first_cost), bool)
    taking[arcs[0]] = taking[arcs[1]] = True
    tokens = np.flatnonzero(taking)
    number = np.cumsum(taking) - 1
    counts = bincount(number[arcs[0]], minlength=len(tokens))
    leaves = (counts > 0).tolist()
    upto = [0, *np.cumsum(counts).tolist()]
    waiting = number[listed[np.flatnonzero(taking[listed])]].tolist()
    targets = number[arcs[1]].tolist()
    weights = arcs[2].tolist()
    totals = arcs[3].tolist()
    costs = first_cost[tokens].tolist()
    last = last_cost[tokens].tolist()
    most = float(cutoff)
    infinity = math.inf
    pack = _FLOAT.pack
    unpack = _FLOAT.unpack
    entered: list[int] = []
    came = [-1] * len(tokens)
    while waiting:
        at = waiting.pop()
        cost = costs[at]
        if not cost < most:
            continue
        over = cost == last[at]
        for arc in range(upto[at], upto[at + 1]):
            if over:
                total = totals[arc]
            else:
                total = cost + weights[arc]
                if not total < most:
                    continue
                (total,) = unpack(pack(total))
            token = targets[arc]
            known = costs[token]
            if total < known and total < most:
                if known == infinity:
                    entered.append(token)
                costs[token] = total
                came[token] = arc
                if leaves[token]:
                    waiting.append(token)
    by = np.array(came, np.int64)
    changed = np.flatnonzero(by >= 0)
    return tokens[entered], tokens[changed], by[changed]
