"""The tokens of a search in NumPy: what `native/search.c` does in C."""

from __future__ import annotations

import numpy as np

from ...native.constants import NEGATIVE_LOOP, NO_PATH
from ..fst.grammar_graph import SearchGraph
from .arrays import ArrayLoops
from .frames import LINK, TOKEN, TRACED, Frame, FrameBlock
from .options import SearchOptions


class ArrayTokens:
    """`Tokens` in NumPy; see `CompiledTokens`, whose results and arguments are the same."""

    def __init__(
        self, graph: SearchGraph, pdf: np.ndarray, outputs: int, options: SearchOptions
    ) -> None:
        self._loops = ArrayLoops(graph, pdf, options)
        self._options = options
        self._frames: list[Frame] = []
        self._finals: np.ndarray | None = None

    @property
    def count(self) -> int:
        """See `Tokens`."""
        return len(self._frames)

    def start(self) -> int:
        """See `Tokens`."""
        self._states = np.array([self._loops.start()], np.int32)
        self._finals = None
        self._frames = []
        return self._advance(np.zeros(0, TOKEN), None)

    def accept(self, likelihoods: np.ndarray) -> int:
        """See `Tokens`."""
        for row in likelihoods:
            if (self.count - 1) % self._options.prune_interval == 0:
                self.prune()
            self._states = self._loops.shrink(self._states, self._options.graph_arcs)
            status = self._advance(self._frames[-1].tokens, row)
            if status:
                return status
        return 0

    def _advance(self, tokens: np.ndarray, likelihood: np.ndarray | None) -> int:
        status, states, fresh, onward, links, offset = self._loops.step(
            self._states, tokens, likelihood
        )
        if status or not len(states):
            return status or NO_PATH
        if self._frames:
            self._frames[-1].onward = onward
            self._frames[-1].offset = offset
        names = np.arange(len(fresh), dtype=np.int32)
        self._frames.append(Frame(fresh, names, links, np.empty(0, LINK)))
        self._states = states
        return 0

    def finalize(self) -> None:
        """See `Tokens`."""
        self._finals = self._loops.finals(self._states)
        ends = self._finals
        if not np.isfinite(ends).any():
            ends = np.zeros_like(ends)
        last = self._frames[-1]
        costs = last.tokens["cost"] + ends
        base = costs - costs.min()
        nothing = np.zeros(0, TOKEN)
        beam = self._options.lattice_beam
        last.onward, last.links, _ = self._loops.prune(last, base, nothing, beam, 0.0)
        for number in range(len(self._frames) - 2, -1, -1):
            self._prune_links(number, 0.0)
            self._drop_tokens(number + 1)
        self._drop_tokens(0)

    def best(self) -> int:
        """See `Tokens`."""
        return int(np.argmin(self._frames[-1].tokens["cost"]))

    def newest(self) -> tuple[np.ndarray, np.ndarray]:
        """See `Tokens`."""
        finals = self._loops.finals(self._states) if self._finals is None else self._finals
        return self._frames[-1].tokens["cost"], finals

    def traced(self, frame: int, token: int, most: int) -> tuple[int, np.ndarray, int, int]:
        """See `Tokens`."""
        found: list[tuple[float, ...]] = []
        steps = 0
        status = 0
        while token >= 0 and len(found) < most:
            here = self._frames[frame]
            steps += 1
            if steps > len(here.tokens):
                status = NEGATIVE_LOOP
                break
            _, _, back, ilabel, olabel, graph, acoustic = here.tokens[token].item()
            name = -1
            offset = 0.0
            number = frame
            if ilabel:
                frame -= 1
                steps = 0
                name = int(self._frames[frame].names[back])
                offset = self._frames[frame].offset
            found.append((number, ilabel, olabel, back, name, graph, acoustic, offset))
            token = back
        return status, np.array(found, TRACED), frame, token

    def sizes(self, begin: int, end: int) -> np.ndarray:
        """See `Tokens`."""
        rows = [
            (len(each.tokens), len(each.links), len(each.onward), each.counted)
            for each in self._frames[begin:end]
        ]
        return np.array(rows, np.int64)

    def frames(self, begin: int, end: int) -> FrameBlock:
        """See `Tokens`."""
        frames = self._frames[begin:end]
        arrays = {
            name: np.concatenate([getattr(each, name) for each in frames])
            for name in ("tokens", "names", "links", "onward")
        }
        offsets = np.array([each.offset for each in frames], np.float32)
        return FrameBlock(self.sizes(begin, end), offsets=offsets, **arrays)

    def prune(self) -> None:
        """See `Tokens`."""
        delta = self._options.lattice_beam * self._options.prune_scale
        last = len(self._frames) - 1
        newest = self._frames[last]
        newest.counted = newest.counted or len(newest.tokens)
        for number in range(last - 1, -1, -1):
            frame = self._frames[number]
            if frame.prune_links:
                if self._prune_links(number, delta) and number:
                    self._frames[number - 1].prune_links = True
                frame.prune_links = False
            if number + 1 < last and self._frames[number + 1].prune_tokens:
                self._drop_tokens(number + 1)
                self._frames[number + 1].prune_tokens = False

    def _prune_links(self, number: int, delta: float) -> bool:
        frame = self._frames[number]
        before = len(frame.onward) + len(frame.links)
        base = np.full(len(frame.tokens), np.inf, np.float32)
        frame.onward, frame.links, changed = self._loops.prune(
            frame, base, self._frames[number + 1].tokens, self._options.lattice_beam, delta
        )
        if len(frame.onward) + len(frame.links) < before:
            frame.prune_tokens = True
            frame.onward = frame.onward.copy()
            frame.links = frame.links.copy()
        return changed

    def _drop_tokens(self, number: int) -> None:
        """Take tokens that no path within the lattice beam needs out of a frame."""
        frame = self._frames[number]
        frame.counted = len(frame.tokens)
        kept = np.isfinite(frame.tokens["extra"])
        if kept.all():
            return
        places = np.cumsum(kept, dtype=np.int32) - np.int32(1)
        places[~kept] = -1
        frame.tokens = frame.tokens[kept]
        frame.names = frame.names[kept]
        inside = frame.tokens["ilabel"] == 0
        self._move_backs(frame.tokens, inside, places)
        frame.links["from"], frame.links["to"] = (
            places[frame.links["from"]],
            places[frame.links["to"]],
        )
        frame.onward["from"] = places[frame.onward["from"]]
        if number:
            before = self._frames[number - 1]
            before.onward["to"] = places[before.onward["to"]]
        if number + 1 < len(self._frames):
            tokens = self._frames[number + 1].tokens
            self._move_backs(tokens, tokens["ilabel"] != 0, places)
        else:
            self._states = self._states[kept]
            if self._finals is not None:
                self._finals = self._finals[kept]

    @staticmethod
    def _move_backs(tokens: np.ndarray, which: np.ndarray, places: np.ndarray) -> None:
        back = tokens["back"]
        which = which & (back >= 0)
        back[which] = places[back[which]]
