"""The inner loops of a search in NumPy, all tokens at once: what `step_source.py` does in C."""

from __future__ import annotations

import numpy as np

from ..fst.graph import Graph
from .arc_table import ArcTable
from .frames import LINK, MANY_TOKENS, NEGATIVE_LOOP, TOKEN, Frame
from .options import SearchOptions

_INFINITY = np.float32(np.inf)
_NOTHING = np.empty(0, LINK)


class ArrayLoops:
    """`Loops` in NumPy; see `CompiledLoops`, whose results are the same."""

    def __init__(self, graph: Graph, pdf: np.ndarray, options: SearchOptions) -> None:
        self._table = ArcTable(graph)
        self._pdf = pdf
        self._options = options
        self._place = np.full(1 << 12, -1, np.int32)  # the token of each state

    def start(self) -> int:
        """The start state."""
        return self._table.start()

    def finals(self, states: np.ndarray) -> np.ndarray:
        """See `Loops`."""
        return self._table.finals(states)

    def shrink(self, states: np.ndarray, most: int) -> np.ndarray:
        """See `Loops`."""
        return self._table.shrink(states) if self._table.used > most else states

    def step(
        self, states: np.ndarray, tokens: np.ndarray, likelihood: np.ndarray | None
    ) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        """See `Loops`."""
        found = _Tokens(self)
        offset = np.float32(0)
        emitted = _NOTHING
        if likelihood is None:
            cutoff = np.float32(self._options.beam)
            found.add(states, np.zeros(1, TOKEN), -1)
        else:
            costs = tokens["cost"]
            keep, adaptive = self._cutoff(costs)
            offset = -costs.min()
            alive = np.flatnonzero(costs <= keep)
            source, place = self._arcs_of(states[alive], emitting=True)
            source = alive[source].astype(np.int32)
            arcs = self._table.arcs[place]
            acoustic = offset - likelihood[self._pdf[arcs["ilabel"]]]
            cost = (costs[source] + acoustic) + arcs["weight"]
            cutoff = cost.min(initial=_INFINITY) + adaptive
            good = cost < cutoff
            tried = _tries(source[good], arcs[good], acoustic[good], cost[good])
            emitted = found.follow(arcs["nextstate"][good], tried)[0]
        status = self._epsilons(found, cutoff)
        links = self._epsilon_links(found, cutoff) if not status else _NOTHING
        self._place[found.states] = -1
        return status, found.states, found.tokens, emitted, links, float(offset)

    def _cutoff(self, costs: np.ndarray) -> tuple[np.float32, np.float32]:
        """The cost up to which tokens are followed, and the beam for the next ones."""
        options = self._options
        beam, delta = np.float32(options.beam), np.float32(options.beam_delta)
        best = costs.min()
        keep, tight, loose = best + beam, _INFINITY, _INFINITY
        if len(costs) > options.max_active:
            tight = np.partition(costs, options.max_active)[options.max_active]
        if tight < keep:
            return tight, tight - best + delta
        if len(costs) > options.min_active:
            loose = np.partition(costs, options.min_active)[options.min_active]
        return (loose, loose - best + delta) if loose > keep else (keep, beam)

    def _arcs_of(self, states: np.ndarray, *, emitting: bool) -> tuple[np.ndarray, np.ndarray]:
        """Which of `states` each arc leaves, and where it lies."""
        table = self._table
        table.make(states)
        begin = table.begin[states]
        counts = table.emitting[states] if emitting else table.epsilons[states]
        if not emitting:
            begin = begin + table.emitting[states]
        source = np.repeat(np.arange(len(states)), counts)
        first = np.cumsum(counts) - counts
        return source, np.arange(len(source)) + (begin - first)[source]

    def _epsilons(self, found: _Tokens, cutoff: np.float32) -> int:
        """Pass tokens along epsilons until no cost changes."""
        queue = np.arange(len(found.states))
        turn = 0
        while len(queue):
            turn += 1
            if turn > len(found.states) + 1:
                return NEGATIVE_LOOP
            if len(found.states) > self._options.frame_tokens:
                return MANY_TOKENS
            queue = queue[found.tokens["cost"][queue] < cutoff]
            source, place = self._arcs_of(found.states[queue], emitting=False)
            arcs = self._table.arcs[place]
            source = queue[source].astype(np.int32)
            cost = found.tokens["cost"][source] + arcs["weight"]
            good = cost < cutoff
            nothing = np.zeros(int(good.sum()), np.float32)
            tried = _tries(source[good], arcs[good], nothing, cost[good])
            _, queue = found.follow(arcs["nextstate"][good], tried)
        return 0

    def _epsilon_links(self, found: _Tokens, cutoff: np.float32) -> np.ndarray:
        alive = np.flatnonzero(found.tokens["cost"] < cutoff)
        source, place = self._arcs_of(found.states[alive], emitting=False)
        arcs = self._table.arcs[place]
        source = alive[source].astype(np.int32)
        good = found.tokens["cost"][source] + arcs["weight"] < cutoff
        links = np.zeros(int(good.sum()), LINK)
        links["from"], links["to"] = source[good], self._place[arcs["nextstate"][good]]
        links["olabel"], links["graph"] = arcs["olabel"][good], arcs["weight"][good]
        return links

    def prune(
        self, frame: Frame, base: np.ndarray, after: np.ndarray, beam: float, delta: float
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """See `Loops`."""
        most = np.float32(beam)
        tokens = frame.tokens
        fresh = np.where(base <= most, base, _INFINITY)
        onward, links = frame.onward, frame.links
        extra = _extra(tokens["cost"][onward["from"]], after[onward["to"]], onward)
        kept = extra <= most
        onward = onward[kept]
        np.minimum.at(fresh, onward["from"], extra[kept])
        cost = tokens["cost"][links["from"]]
        targets = tokens[links["to"]]
        while True:
            targets["extra"] = fresh[links["to"]]
            extra = _extra(cost, targets, links)
            better = (extra <= most) & (extra < fresh[links["from"]])
            if not better.any():
                break
            np.minimum.at(fresh, links["from"][better], extra[better])
        with np.errstate(invalid="ignore"):
            changed = bool((np.abs(fresh - tokens["extra"]) > np.float32(delta)).any())
        tokens["extra"] = fresh
        return onward, links[extra <= most], changed


def _extra(cost: np.ndarray, after: np.ndarray, links: np.ndarray) -> np.ndarray:
    """What the best path along each link costs more than the best path."""
    along = (cost + links["acoustic"]) + links["graph"]
    return np.maximum(after["extra"] + (along - after["cost"]), np.float32(0))


def _tries(
    source: np.ndarray, arcs: np.ndarray, acoustic: np.ndarray, cost: np.ndarray
) -> np.ndarray:
    """Tokens that arcs would make."""
    tried = np.zeros(len(arcs), TOKEN)
    tried["cost"], tried["back"], tried["acoustic"] = cost, source, acoustic
    for name, column in (("ilabel", "ilabel"), ("olabel", "olabel"), ("graph", "weight")):
        tried[name] = arcs[column]
    return tried


class _Tokens:
    """The tokens of a frame that is being made."""

    def __init__(self, loops: ArrayLoops) -> None:
        self._loops = loops
        self.states = np.empty(0, np.int32)
        self.tokens = np.empty(0, TOKEN)

    def add(self, states: np.ndarray, tokens: np.ndarray, back: int) -> None:
        """Put the first tokens in."""
        tokens["back"] = back
        self.follow(states, tokens)

    def follow(self, states: np.ndarray, tried: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Make tokens of tries, or better those that are there; of equal ones the first stays.

        Returns:
            A link for each try; the tokens that are new or better, in the order in which they
            became so.
        """
        loops = self._loops
        top = int(states.max(initial=0))
        if top >= len(loops._place):
            more = np.full(max(top + 1, 2 * len(loops._place)) - len(loops._place), -1, np.int32)
            loops._place = np.concatenate([loops._place, more])
        unknown = loops._place[states] < 0
        if unknown.any():
            new, first = np.unique(states[unknown], return_index=True)
            new = new[np.argsort(first)]
            count = len(self.states)
            loops._place[new] = np.arange(count, count + len(new))
            self.states = np.concatenate([self.states, new.astype(np.int32)])
            empty = np.zeros(len(new), TOKEN)
            empty["cost"] = _INFINITY
            self.tokens = np.concatenate([self.tokens, empty])
        to = loops._place[states]
        links = np.zeros(len(tried), LINK)
        links["from"], links["to"] = tried["back"], to
        for name in ("ilabel", "olabel", "graph", "acoustic"):
            links[name] = tried[name]
        improving = np.flatnonzero(tried["cost"] < self.tokens["cost"][to])
        # The order of becoming better is that of each token's first better try.
        reached, first = np.unique(to[improving], return_index=True)
        reached = reached[np.argsort(first)]
        order = np.lexsort((improving, tried["cost"][improving], to[improving]))
        best = improving[order]
        lead = np.ones(len(best), bool)
        lead[1:] = to[best][1:] != to[best][:-1]
        self.tokens[to[best[lead]]] = tried[best[lead]]
        return links, reached
