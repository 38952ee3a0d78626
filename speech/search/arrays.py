"""The inner loops of a search in NumPy, all tokens at once: what `step_source.py` does in C."""

from __future__ import annotations

import struct

import numpy as np

from ..fst.graph import Graph
from .arc_table import ArcTable
from .frames import LINK, MANY_TOKENS, NEGATIVE_LOOP, TOKEN, Frame
from .options import SearchOptions
from .step_source import BUCKETS_EACH, LEAST_BUCKETS

_INFINITY = np.float32(np.inf)
_MOST_MET = 1 << 20
_FLOAT = struct.Struct("f")
_pack, _unpack = _FLOAT.pack, _FLOAT.unpack
_NOTHING = np.empty(0, LINK)


class ArrayLoops:
    """`Loops` in NumPy; see `CompiledLoops`, whose results are the same."""

    def __init__(self, graph: Graph, pdf: np.ndarray, options: SearchOptions) -> None:
        self._table = ArcTable(graph)
        self._pdf = pdf
        self._options = options
        self._place = np.full(1 << 12, -1, np.int32)  # the token of each state
        self._buckets = LEAST_BUCKETS
        # of each state met, its epsilons: word, cost, next state
        self._empty: dict[int, list[tuple[int, float, int]]] = {}

    def start(self) -> int:
        """The start state."""
        return self._table.start()

    def finals(self, states: np.ndarray) -> np.ndarray:
        """See `Loops`."""
        return self._table.finals(states)

    def shrink(self, states: np.ndarray, most: int) -> np.ndarray:
        """See `Loops`."""
        if len(self._empty) > _MOST_MET:
            self._empty.clear()
        if self._table.used <= most:
            return states
        self._empty.clear()
        return self._table.shrink(states)

    def widen(self, state: int) -> None:
        """Make room for the place of a state."""
        if state >= len(self._place):
            more = max(state + 1, 2 * len(self._place)) - len(self._place)
            self._place = np.concatenate([self._place, np.full(more, -1, np.int32)])

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
            listed = self._listed(states)
            self._buckets = max(self._buckets, BUCKETS_EACH * len(states))
            alive = listed[costs[listed] <= keep]
            best = alive[np.argmin(costs[alive])]
            _, place = self._arcs_of(states[[best]], emitting=True)
            arcs = self._table.arcs[place]
            cost = ((arcs["weight"] + offset) - likelihood[self._pdf[arcs["ilabel"]]]) - offset
            first = (cost + adaptive).min(initial=_INFINITY)
            source, place = self._arcs_of(states[alive], emitting=True)
            source = alive[source].astype(np.int32)
            arcs = self._table.arcs[place]
            acoustic = offset - likelihood[self._pdf[arcs["ilabel"]]]
            cost = (costs[source] + acoustic) + arcs["weight"]
            # each arc lowers the bound for those behind it
            bounds = np.minimum.accumulate(np.append(first, cost + adaptive))
            cutoff = bounds[-1]
            good = cost < bounds[:-1]
            tried = _tries(source[good], arcs[good], acoustic[good], cost[good])
            emitted = found.follow(arcs["nextstate"][good], tried)
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

    def _listed(self, states: np.ndarray) -> np.ndarray:
        """Tokens in the order of Kaldi's hash: by buckets of their states, as these were filled."""
        _, first, bucket = np.unique(states % self._buckets, return_index=True, return_inverse=True)
        return np.argsort(first[bucket], kind="stable")

    def _epsilons(self, found: _Tokens, cutoff: np.float32) -> int:
        """Pass tokens along epsilons until no cost changes, the newest token first."""
        table = self._table
        listed = self._listed(found.states)
        table.make(found.states[listed])
        waiting = listed[table.epsilons[found.states[listed]] > 0].tolist()
        if not waiting:
            return 0
        self._meet(found.states[waiting])
        states, costs = found.states.tolist(), found.tokens["cost"].tolist()
        place = dict(zip(states, range(len(states)), strict=True))
        most, limit, empty = float(cutoff), self._options.frame_tokens, self._empty
        changed: dict[int, tuple[int, int, float]] = {}  # where a token came from, word and cost
        times: dict[int, int] = {}
        while waiting:
            at = waiting.pop()
            cost = costs[at]
            if not cost < most:
                continue
            for word, more, state in empty[states[at]]:
                total = _single(cost + more)
                if not total < most:
                    continue
                token = place.get(state)
                if token is None:
                    token = place[state] = len(states)
                    states.append(state)
                    costs.append(total)
                elif total < costs[token]:
                    costs[token] = total
                else:
                    continue
                changed[token] = (at, word, more)
                if state not in empty:
                    self._meet(np.array([state]))
                if empty[state]:
                    waiting.append(token)
                    times[token] = times.get(token, 0) + 1
                    if times[token] > len(states) + 1:
                        return NEGATIVE_LOOP
                if len(states) > limit:
                    return MANY_TOKENS
        found.change(states, costs, changed)
        return 0

    def _meet(self, states: np.ndarray) -> None:
        """Learn the epsilons of states, and of those that these lead to."""
        while True:
            new = [state for state in dict.fromkeys(states.tolist()) if state not in self._empty]
            if not new:
                return
            source, place = self._arcs_of(np.array(new), emitting=False)
            arcs = self._table.arcs[place]
            for state in new:
                self._empty[state] = []
            columns = (source, arcs["olabel"], arcs["weight"], arcs["nextstate"])
            for owner, *arc in zip(*(column.tolist() for column in columns), strict=True):
                self._empty[new[owner]].append((arc[0], arc[1], arc[2]))
            states = arcs["nextstate"]

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


def _single(value: float) -> float:
    """Rounded to float32."""
    return _unpack(_pack(value))[0]


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

    def follow(self, states: np.ndarray, tried: np.ndarray) -> np.ndarray:
        """Make tokens of tries, or better those that are there; of equal ones the first stays.

        Returns:
            A link for each try.
        """
        loops = self._loops
        loops.widen(int(states.max(initial=0)))
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
        order = np.lexsort((improving, tried["cost"][improving], to[improving]))
        best = improving[order]
        lead = np.ones(len(best), bool)
        lead[1:] = to[best][1:] != to[best][:-1]
        self.tokens[to[best[lead]]] = tried[best[lead]]
        return links

    def change(
        self, states: list[int], costs: list[float], changed: dict[int, tuple[int, int, float]]
    ) -> None:
        """Put the tokens in that epsilons made or made better.

        Args:
            states, costs: of all tokens. changed: of those, the token before, word and cost.
        """
        loops, known = self._loops, len(self.states)
        self.states = np.array(states, np.int32)
        loops.widen(int(self.states.max(initial=0)))
        loops._place[self.states[known:]] = np.arange(known, len(states))
        self.tokens = np.concatenate([self.tokens, np.zeros(len(states) - known, TOKEN)])
        at = np.fromiter(changed, np.int64, len(changed))
        made = np.zeros(len(changed), TOKEN)
        made["cost"] = np.array(costs, np.float32)[at]
        rows = list(changed.values())
        for column, name in enumerate(("back", "olabel", "graph")):
            made[name] = [row[column] for row in rows]
        self.tokens[at] = made
