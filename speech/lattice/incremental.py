"""The lattice of a search that continues, determinized in chunks of frames on the way.

Vosk's recognizer works so. It spreads the work. The result differs a little from a lattice that
is determinized at once: what was pruned by a chunk's end and what was not stays so.

Source: `LatticeIncrementalDecoderTpl` in Kaldi's `decoder/lattice-incremental-decoder.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.options.option_fields import option
from ...kaldi.lattices.determinize import DeterminiseOptions
from ...kaldi.lattices.lattice import CompactLattice
from ...kaldi.lattices.phone_determinize import determinized
from ...kaldi.lattices.plain import PlainLattice
from ..search.decoder import Decoder
from ..search.frames import Frame
from .appended import TOKEN_LABEL, AppendedLattice, Chunk


@dataclass(frozen=True)
class ChunkOptions:
    """When a chunk is determinized, with Kaldi's names and defaults.

    Raises:
        OpscopeError: values that do not go together.
    """

    determinize_max_delay: int = option(60, "Frames that may wait to be determinized")
    determinize_min_chunk_size: int = option(20, "Least frames of a chunk")
    determinize_max_active: int = option(
        200, "A chunk ends at a frame with no more tokens than these"
    )

    def __post_init__(self) -> None:
        least = self.determinize_min_chunk_size
        if least < 1 or self.determinize_max_active < 0 or self.determinize_max_delay <= least:
            raise OpscopeError(
                f"determinize_max_delay={self.determinize_max_delay},"
                f" determinize_min_chunk_size={least},"
                f" determinize_max_active={self.determinize_max_active}: chunks of 1 frame,"
                " a longer delay, and no number below zero at least are wanted"
            )


class IncrementalLattice:
    """The lattice of a decoder's utterance, so far as it is determinized.

    Args:
        decoder: `update` is to be called after each block that it was given.
        starts: from `phone_starts`. options: of determinization. chunks: when.
        warn: called when a limit left less of a chunk than was asked for.
    """

    def __init__(
        self,
        decoder: Decoder,
        starts: Sequence[int],
        options: DeterminiseOptions,
        chunks: ChunkOptions,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._decoder = decoder
        self._chunks = chunks
        beam = decoder.options.lattice_beam

        # No method: the decoder's memory would wait for the collector of garbage.
        def made(chunk: PlainLattice) -> CompactLattice:
            return determinized(chunk, beam, starts, options, warn).lattice

        self._appended = AppendedLattice(made)
        self.reset()

    def reset(self) -> None:
        """The decoder begins a new utterance."""
        self._appended.clear()
        self.frames = 0
        self._labels: dict[int, int] = {}  # of the tokens of the newest frame, by their names
        self._labeled = 0

    def update(self) -> None:
        """Determinize a chunk if enough frames wait for it, up to that with the fewest tokens."""
        decoded = self._decoder.frames_decoded
        chunks = self._chunks
        if decoded - self.frames < chunks.determinize_max_delay:
            return
        self._decoder.prune()
        first = self.frames + chunks.determinize_min_chunk_size
        counts = self._decoder.token_counts(first)
        fewest = min(counts)
        if fewest <= chunks.determinize_max_active:
            last = len(counts) - 1 - counts[::-1].index(fewest)
            self._append(first + last)

    def partial(self) -> CompactLattice | None:
        """The lattice of the frames that were determinized; None: there are none yet."""
        return self._appended.ended(None) if self.frames else None

    def finished(self) -> CompactLattice | None:
        """The lattice of the utterance, whose decoder is finalized; None: no path was left."""
        decoded = self._decoder.frames_decoded
        if not decoded:
            return None
        if decoded > self.frames:
            self._append(decoded)
        (last,) = self._decoder.frames_between(decoded, decoded + 1)
        names = last.names.tolist()
        costs = {
            self._labels[name]: cost
            for name, cost in zip(names, self._decoder.end_costs().tolist(), strict=True)
            if cost < math.inf and name in self._labels
        }
        lattice = self._appended.ended(costs)
        return lattice if lattice.states else None

    # Inside

    def _append(self, last: int) -> None:
        """Append the frames up to `last`."""
        if self.frames and not self._appended.states:
            self.frames = last  # a chunk was empty, and nothing can follow it
            return
        if not self._appended.can_grow:
            self._appended.clear()
            self.frames = 0
        decoder, first = self._decoder, self.frames
        chunk, entered = self._appended.begin_chunk()
        frames = decoder.frames_between(first, last + 1)
        end_costs = self._guides(frames[-1])
        labels = self._new_labels(frames[-1], end_costs)
        states: list[list[int]] = []
        for place, frame in enumerate(frames):
            known: dict[int, int | None] = {}
            if not place:  # the start is the first token's, or tokens have their states
                known = {name: entered.get(label) for name, label in self._labels.items()}
                known = known if first else {0: 0}
            states.append(_states(chunk, frame, known))
        for place, frame in enumerate(frames):
            _add_links(chunk, frame.links, states[place], states[place], 0.0)
            if place + 1 < len(frames):
                _add_links(chunk, frame.onward, states[place], states[place + 1], frame.offset)
        costs: dict[int, float] = {}
        for state, name, cost in zip(
            states[-1], frames[-1].names.tolist(), end_costs.tolist(), strict=True
        ):
            if cost < math.inf:
                end = chunk.add_state()
                label = labels[name]
                chunk.arcs[state].append((label, end, (), 0.0, 0.0))
                chunk.final[end] = costs[label] = cost
        self._appended.accept(chunk, costs)
        self.frames = last
        self._labels = labels

    def _guides(self, frame: Frame) -> np.ndarray:
        """Costs that guide pruning: of ending, or as the best paths imply them."""
        if self._decoder.finalized:
            return self._decoder.end_costs()
        return frame.tokens["extra"] - frame.tokens["cost"]

    def _new_labels(self, frame: Frame, costs: np.ndarray) -> dict[int, int]:
        names = frame.names[np.isfinite(costs)].tolist()
        first = TOKEN_LABEL + self._labeled
        self._labeled += len(names)
        return dict(zip(names, range(first, first + len(names)), strict=True))


def _states(chunk: Chunk, frame: Frame, known: dict[int, int | None]) -> list[int]:
    """The states of a frame's tokens, new ones where they have none yet."""
    states: list[int] = []
    for name in frame.names.tolist():
        state = known.get(name)
        states.append(chunk.add_state() if state is None else state)
    return states


def _add_links(
    chunk: Chunk, links: np.ndarray, sources: list[int], targets: list[int], offset: float
) -> None:
    """Add the links between the tokens of one frame, or from one frame to the next."""
    graph = links["graph"].astype(np.float64)
    whole = graph + (links["acoustic"] - np.float32(offset))
    columns = (links["from"], links["to"], links["olabel"], links["ilabel"], whole, graph)
    for source, target, label, number, cost, part in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        ids = (number,) if number else ()
        chunk.arcs[sources[source]].append((label, targets[target], ids, cost, part))
