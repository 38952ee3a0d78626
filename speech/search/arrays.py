"""The inner loops of a search in NumPy, all tokens at once: what C does in `token_passing.h`."""

from __future__ import annotations

import numpy as np

from ...framework.base.sequence import repeated
from ...kaldi.fst.arcs import runs
from ...native.constants import BUCKETS_EACH, LEAST_BUCKETS
from ..fst.grammar_graph import SearchGraph
from .arc_table import ArcTable, first_ones
from .frames import LINK, TOKEN, Frame
from .options import SearchOptions
from .silent_arcs import SilentArcs

_INFINITY = np.float32(np.inf)
_NOTHING = np.empty(0, LINK)


class ArrayLoops:
    """The inner loops of a search over one graph.

    States of tokens are rows of an `ArcTable`.
    """

    def __init__(self, graph: SearchGraph, pdf: np.ndarray, options: SearchOptions) -> None:
        self._table = ArcTable(graph, options.graph_arcs)
        self._silent = SilentArcs(self._table, options.frame_tokens)
        self._pdf = pdf.astype(np.int64)
        self._options = options
        self._buckets = LEAST_BUCKETS
        self._firsts = np.empty(LEAST_BUCKETS, np.int64)  # for `_listed`

    def start(self) -> int:
        """The start state."""
        return self._table.start()

    def finals(self, states: np.ndarray) -> np.ndarray:
        """Costs of ending in states, float32."""
        return self._table.arcs.finals(states)

    def shrink(self, states: np.ndarray, most: int) -> np.ndarray:
        """Forget other states' arcs if there are more than `most`; the states' new numbers."""
        return self._table.shrink(states, most)

    def step(
        self, states: np.ndarray, tokens: np.ndarray, likelihood: np.ndarray | None
    ) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        """One frame: tokens passed along arcs with labels, then along epsilons.

        Args:
            states: of the tokens, int32. tokens: `TOKEN`. likelihood: float32, [pdfs]; None at the
                start, where only epsilons are followed.

        Returns:
            0 or what went wrong; states and tokens of the frame; links to them; epsilon links among
            them; the offset of the acoustic costs.
        """
        if likelihood is None:
            cutoff = np.float32(self._options.beam)
            offset = np.float32(0)
            emitted = _NOTHING
            rows = states.astype(np.int64)
            reached = np.zeros(1, TOKEN)
            reached["back"] = -1
        else:
            rows = states.astype(np.int64)
            rows, reached, emitted, cutoff, offset = self._emit(rows, tokens, likelihood)
        listed = self._listed(rows)
        self._table.visit(rows[listed])
        status, rows, reached, links = self._silent.follow(rows, reached, listed, cutoff)
        return status, rows.astype(np.int32), reached, emitted, links, float(offset)

    def _emit(
        self, states: np.ndarray, tokens: np.ndarray, likelihood: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.float32, np.float32]:
        """Pass tokens along arcs with labels.

        Returns:
            States and tokens that are reached, links to them, the cost up to which tokens count,
            the offset of acoustic costs.
        """
        table = self._table
        arcs = self._table.arcs
        costs = tokens["cost"].copy()
        keep, adaptive = self._cutoff(costs)
        offset = -costs.min()
        listed = self._listed(states)
        self._widen(len(states))
        alive = listed[np.flatnonzero(costs[listed] <= keep)]
        best = alive[[np.argmin(costs[alive])]]
        table.visit(states[best])
        table.visit(states[alive])
        acoustic = (offset - likelihood)[self._pdf]
        _, place = self._arcs_of(states[best])
        label = arcs.ilabel[place]
        cost = ((arcs.weight[place] + offset) - likelihood[self._pdf[label]]) - offset
        first = (cost + adaptive).min(initial=_INFINITY)
        counts, place = self._arcs_of(states[alive])
        label, weight = arcs.ilabel[place], arcs.weight[place]
        cost = repeated(costs[alive], counts)
        cost += acoustic.take(label, mode="clip")  # faster than [] for an index of int32
        cost += weight
        # each arc lowers the bound for those after it; those above the first one change nothing
        near = np.flatnonzero(cost < first)
        cost = cost[near]
        bounds = np.minimum.accumulate(np.append(first, cost + adaptive))
        good = np.flatnonzero(cost < bounds[:-1])
        near, cost = near[good], cost[good]
        place, label = place[near], label[near]
        target = arcs.target[place].astype(np.int64)
        rows = first_ones(target, table.scratch)
        table.scratch[rows] = np.arange(len(rows))
        links = np.empty(len(near), LINK)
        links["from"] = repeated(alive, counts)[near]
        links["to"] = table.scratch[target]
        links["ilabel"] = label
        links["olabel"] = arcs.olabel[place]
        links["graph"] = weight[near]
        links["acoustic"] = acoustic[label]
        return rows, _best_of(links, cost, len(rows)), links, bounds[-1], offset

    def _cutoff(self, costs: np.ndarray) -> tuple[np.float32, np.float32]:
        """The cost up to which tokens are followed, and the beam for the next ones."""
        options = self._options
        beam, delta = np.float32(options.beam), np.float32(options.beam_delta)
        best = costs.min()
        keep = best + beam
        tight = _INFINITY
        loose = _INFINITY
        if len(costs) > options.max_active:
            tight = np.partition(costs, options.max_active)[options.max_active]
        if tight < keep:
            return tight, tight - best + delta
        if len(costs) > options.min_active:
            loose = np.partition(costs, options.min_active)[options.min_active]
        return (loose, loose - best + delta) if loose > keep else (keep, beam)

    def _arcs_of(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many arcs with a label leave each of `states`, and where they lie."""
        arcs = self._table.arcs
        counts = arcs.emitting[states]
        return counts, runs(arcs.begin[states], counts)

    def _widen(self, tokens: int) -> None:
        """Have as many buckets as Kaldi's hash has after a frame with so many tokens."""
        if BUCKETS_EACH * tokens > self._buckets:
            self._buckets = BUCKETS_EACH * tokens
            self._firsts = np.empty(self._buckets, np.int64)

    def _listed(self, states: np.ndarray) -> np.ndarray:
        """Tokens in the order of Kaldi's hash: by buckets of their states, as these were filled."""
        bucket = self._table.numbers[states] % self._buckets
        places = np.arange(len(bucket))
        self._firsts[bucket[::-1]] = places[::-1]
        return np.argsort(self._firsts[bucket], kind="stable")

    def prune(
        self, frame: Frame, base: np.ndarray, after: np.ndarray, beam: float, delta: float
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Set the extra costs of a frame's tokens.

        Args:
            base: extra cost of ending in each token, float32; infinity: no path ends there.
            after: the tokens of the next frame. delta: how much costs may change unseen.

        Returns:
            Links onward and epsilon links within the beam; whether a cost changed.
        """
        most = np.float32(beam)
        tokens, onward, links = frame.tokens, frame.onward, frame.links
        fresh = np.where(base <= most, base, _INFINITY)
        source, target = onward["from"], onward["to"]
        gap = _gap(tokens["cost"][source], after["cost"][target], onward)
        extra = np.maximum(after["extra"][target] + gap, np.float32(0))
        kept = extra <= most
        if not kept.all():
            good = np.flatnonzero(kept)
            onward, source, extra = onward[good], source[good], extra[good]
        np.minimum.at(fresh, source, extra)
        if len(links):
            source, target = links["from"].astype(np.int64), links["to"].astype(np.int64)
            gap = _gap(tokens["cost"][source], tokens["cost"][target], links)
            while True:
                extra = np.maximum(fresh[target] + gap, np.float32(0))
                kept = extra <= most
                better = np.flatnonzero(kept & (extra < fresh[source]))
                if not len(better):
                    break
                np.minimum.at(fresh, source[better], extra[better])
            links = links if kept.all() else links[np.flatnonzero(kept)]
        with np.errstate(invalid="ignore"):
            changed = bool((np.abs(fresh - tokens["extra"]) > np.float32(delta)).any())
        tokens["extra"] = fresh
        return onward, links, changed


def _gap(cost: np.ndarray, after: np.ndarray, links: np.ndarray) -> np.ndarray:
    """What the way along each link costs more than the best one to the token that it leads to."""
    return ((cost + links["acoustic"]) + links["graph"]) - after


def _best_of(links: np.ndarray, cost: np.ndarray, count: int) -> np.ndarray:
    """Tokens by the best link to each; of equal ones the first counts."""
    tokens = np.zeros(count, TOKEN)
    to = links["to"]
    best = np.full(count, _INFINITY)
    np.minimum.at(best, to, cost)
    winners = np.flatnonzero(cost == best[to])[::-1]
    first = np.empty(count, np.int64)
    first[to[winners]] = winners
    chosen = links[first]
    tokens["cost"], tokens["back"] = best, chosen["from"]
    for name in ("ilabel", "olabel", "graph", "acoustic"):
        tokens[name] = chosen[name]
    return tokens
