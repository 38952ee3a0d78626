"""Epsilons of a frame in NumPy: tokens follow them in Kaldi's order, where order tells.

Costs do not hang on the order, so all tokens are followed at once until none changes. Arcs that
helped are then gone through one by one: which token is made first, and which of equally good arcs
a token keeps, is told by that.
"""

from __future__ import annotations

import struct

import numpy as np

from ..fst.arcs import spread
from .arc_table import ArcTable, first_ones
from .frames import LINK, MANY_TOKENS, NEGATIVE_LOOP, TOKEN

_INFINITY = np.float32(np.inf)
_FLOAT = struct.Struct("f")
_NOTHING = np.empty(0, LINK)


class SilentArcs:
    """Passes the tokens of a frame along epsilons.

    Args:
        table: of the graph. most: tokens of a frame.
    """

    def __init__(self, table: ArcTable, most: int) -> None:
        self._table, self._most = table, most
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
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The epsilons of rows that cost less than the cutoff: whose, where they lie, the cost."""
        arcs = self._table.arcs
        which, place = spread(arcs.begin[rows] + arcs.emitting[rows], arcs.epsilons[rows])
        cost = self._cost[rows][which] + arcs.weight[place]
        good = np.flatnonzero(cost < cutoff)
        return which[good], place[good], cost[good]

    def _reach(self, rows: np.ndarray, cutoff: np.float32) -> tuple[int, np.ndarray]:
        """Lower costs until none changes.

        Returns:
            0 or what went wrong; all rows with a token, new ones behind.
        """
        arcs, front, rounds = self._table.arcs, rows, 0
        while True:
            front = front[(arcs.epsilons[front] > 0) & (self._cost[front] < cutoff)]
            _, place, cost = self._arcs_of(front, cutoff)
            target = arcs.target[place]
            better = cost < self._cost[target]
            target, cost = target[better], cost[better]
            if not len(target):
                return 0, rows
            np.minimum.at(self._cost, target, cost)
            new = first_ones(target[self._token[target] < 0], self._token)
            self._token[new] = np.arange(len(rows), len(rows) + len(new))
            rows = np.concatenate([rows, new])
            if len(rows) > self._most:
                return MANY_TOKENS, rows
            rounds += 1
            if rounds > len(rows) + 1:
                return NEGATIVE_LOOP, rows
            self._table.make(new)
            self._widen()
            front = np.unique(target)

    def _in_order(
        self, rows: np.ndarray, tokens: np.ndarray, listed: np.ndarray, cutoff: np.float32
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, tokens and links, once costs are known, in the order in which Kaldi makes them."""
        arcs, known = self._table.arcs, len(tokens)
        alive = np.flatnonzero(self._cost[rows] < cutoff)
        which, place, cost = self._arcs_of(rows[alive], cutoff)
        source, target = alive[which], self._token[arcs.target[place]].astype(np.int64)
        first_cost = np.full(len(rows), _INFINITY)
        first_cost[:known] = tokens["cost"]
        useful = np.flatnonzero(cost < first_cost[target])
        made, came = _queued(
            (source[useful], target[useful], arcs.weight[place[useful]], cost[useful]),
            *(first_cost, self._cost[rows], listed, cutoff),
        )
        self._table.visit(rows[known:][np.array(made, np.int64) - known])
        number = np.arange(len(rows))
        number[made] = np.arange(known, len(rows))
        links = np.zeros(len(place), LINK)
        links["from"], links["to"] = number[source], number[target]
        links["olabel"], links["graph"] = arcs.olabel[place], arcs.weight[place]
        changed = np.fromiter(came, np.int64, len(came))
        best = links[useful[np.fromiter(came.values(), np.int64, len(came))]]
        fresh = np.zeros(len(came), TOKEN)
        fresh["cost"] = self._cost[rows[changed]]
        fresh["back"], fresh["olabel"], fresh["graph"] = best["from"], best["olabel"], best["graph"]
        if made:
            links = links[np.argsort(links["from"], kind="stable")]
            rows = np.concatenate([rows[:known], rows[made]])
            tokens = np.concatenate([tokens, np.empty(len(made), TOKEN)])
        tokens[number[changed]] = fresh
        return rows, tokens, links


def _queued(
    arcs: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    first_cost: np.ndarray,
    last_cost: np.ndarray,
    listed: np.ndarray,
    cutoff: np.float32,
) -> tuple[list[int], dict[int, int]]:
    """Go through arcs by Kaldi's queue, the newest token first.

    Args:
        arcs: source, target, weight, and what the target costs once the source's cost is the last
            one; sorted by source. first_cost: of tokens; infinity: it is still to be made.
        last_cost: of tokens. listed: tokens that are in the queue at first.

    Returns:
        Tokens in the order in which they are made; of those that changed, the arc they came by.
    """
    counts = np.bincount(arcs[0], minlength=len(first_cost))
    waiting = listed[counts[listed] > 0].tolist()
    upto = np.cumsum(counts)
    begins, ends = (upto - counts).tolist(), upto.tolist()
    targets, weights, totals = (each.tolist() for each in arcs[1:])
    costs, last = first_cost.tolist(), last_cost.tolist()
    most, known = float(cutoff), len(listed)
    pack, unpack = _FLOAT.pack, _FLOAT.unpack
    made: list[int] = []
    came: dict[int, int] = {}
    while waiting:
        at = waiting.pop()
        cost = costs[at]
        if not cost < most:
            continue
        over = cost == last[at]
        for arc in range(begins[at], ends[at]):
            token = targets[arc]
            if over:
                total = totals[arc]
            else:
                total = cost + weights[arc]
                if not total < most:
                    continue
                (total,) = unpack(pack(total))
            if total < most and total < costs[token]:
                if token >= known and token not in came:
                    made.append(token)
                costs[token] = total
                came[token] = arc
                if begins[token] < ends[token]:
                    waiting.append(token)
    return made, came
