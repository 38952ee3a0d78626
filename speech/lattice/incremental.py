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
from ...framework.base.sequence import repeated
from ...kaldi.lattices.determinize import DeterminiseOptions
from ...kaldi.lattices.lattice import CompactLattice
from ...kaldi.lattices.phone_determinize import determinized
from ...kaldi.lattices.plain import LatticeColumns
from ..search.decoder import Decoder
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
        begun = np.asarray(starts, np.int32)

        # No method: the decoder's memory would wait for the collector of garbage.
        def made(chunk: LatticeColumns) -> CompactLattice:
            return determinized(chunk, beam, begun, options, warn).lattice

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
        names = self._decoder.frames_between(decoded, decoded + 1).names.tolist()
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
        chunk, entered = self._appended.begin_chunk()
        block = self._decoder.frames_between(self.frames, last + 1)
        tokens, links, onward, _ = block.sizes.T
        begins = np.concatenate(([0], np.cumsum(tokens)))
        # The start is the first token's, or tokens have their states.
        known = {name: entered.get(label) for name, label in self._labels.items()}
        known = known if self.frames else {0: 0}
        states = np.empty(begins[-1], np.int32)
        for place, name in enumerate(block.names[: tokens[0]].tolist()):
            state = known.get(name)
            states[place] = chunk.add_states() if state is None else state
        more = len(states) - tokens[0]
        states[tokens[0] :] = chunk.add_states(more) + np.arange(more)
        here = repeated(begins[:-1], links)
        _add_links(chunk, block.links, states, here, here, np.float32(0))
        kept = onward[:-1]  # links from the last frame belong to the next chunk
        _add_links(
            chunk,
            block.onward[: kept.sum()],
            states,
            repeated(begins[:-2], kept),
            repeated(begins[1:-1], kept),
            repeated(block.offsets[:-1], kept),
        )
        newest = slice(begins[-2], begins[-1])
        end_costs = self._guides(block.tokens[newest])
        ending = np.flatnonzero(np.isfinite(end_costs))
        costs = end_costs[ending].astype(np.float64)
        labels = TOKEN_LABEL + self._labeled + np.arange(len(ending))
        ends = (chunk.add_states(len(ending)) + np.arange(len(ending))).astype(np.int32)
        chunk.add_arcs(states[newest][ending], ends, labels, -1, 0.0, 0.0)
        chunk.end_in(ends, costs)
        self._appended.accept(chunk, dict(zip(labels.tolist(), costs.tolist(), strict=True)))
        self.frames = last
        self._labels = dict(zip(block.names[newest][ending].tolist(), labels.tolist(), strict=True))
        self._labeled += len(ending)

    def _guides(self, tokens: np.ndarray) -> np.ndarray:
        """Costs that guide pruning: of ending, or as the best paths imply them."""
        if self._decoder.finalized:
            return self._decoder.end_costs()
        return tokens["extra"] - tokens["cost"]


def _add_links(
    chunk: Chunk,
    links: np.ndarray,
    states: np.ndarray,
    sources: np.ndarray,
    targets: np.ndarray,
    offsets: np.ndarray | np.float32,
) -> None:
    """Add links between tokens.

    Args:
        states: of all tokens. sources, targets: where in these the frames begin that links leave
            and lead to, [links]. offsets: of the acoustic costs, float32.
    """
    graph = links["graph"].astype(np.float64)
    numbers = np.where(links["ilabel"], links["ilabel"], -1)
    chunk.add_arcs(
        states[sources + links["from"]],
        states[targets + links["to"]],
        links["olabel"],
        numbers,
        graph + (links["acoustic"] - offsets),
        graph,
    )
