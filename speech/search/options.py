"""The options of a search, with Kaldi's names, defaults and checks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...framework.base.errors import OpscopeError
from ...framework.base.options.option_fields import option

MOST_ACTIVE = (1 << 31) - 1
DECODING_SCALE = 0.1
"""Kaldi's acoustic scale where it decodes and aligns."""


@dataclass(frozen=True)
class SearchOptions:
    """How a search prunes. Source: Kaldi's `LatticeFasterDecoderConfig`.

    Attributes:
        beam: costs above the best token's up to which tokens are followed.
        max_active, min_active: of the tokens of a frame; in one with no more than `min_active`
            nothing is pruned.
        lattice_beam: costs above the best path's up to which a lattice keeps paths.
        prune_scale: part of the lattice beam by which costs may change unseen while pruning.
        acoustic_scale: factor of the log-likelihoods.
        graph_arcs: arcs of a composed graph that its searches share, 20 bytes each. With more,
            new searches begin with none; one that has met more itself forgets, after a frame, the
            arcs of states without a token.
        frame_tokens: tokens of a frame, at most, before the search gives up.
    """

    beam: float = option(16.0, "Decoding beam.  Larger->slower, more accurate")
    max_active: int = option(MOST_ACTIVE, "Most states that are active.  Larger->slower")
    min_active: int = option(200, "Least number of active states")
    lattice_beam: float = option(10.0, "Beam of lattices.  Larger->slower, and deeper lattices")
    prune_interval: int = option(25, "Frames from one pruning of tokens to the next")
    prune_scale: float = 0.1
    beam_delta: float = option(0.5, "Added to the beam where --max-active or --min-active binds")
    acoustic_scale: float = 1.0
    graph_arcs: int = 8 << 20
    frame_tokens: int = 4 << 20

    def __post_init__(self) -> None:
        for name in ("beam", "lattice_beam", "beam_delta", "acoustic_scale"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise OpscopeError(f"{name}={value}: a number above 0 is wanted")
        if not 0 < self.prune_scale < 1:
            raise OpscopeError(
                f"prune_scale={self.prune_scale}: a number between 0 and 1 is wanted"
            )
        if not 1 < self.max_active <= MOST_ACTIVE:
            raise OpscopeError(f"max_active={self.max_active}: from 2 to {MOST_ACTIVE} is wanted")
        if not 0 <= self.min_active < self.max_active:
            raise OpscopeError(
                f"min_active={self.min_active}: from 0 to less than max_active={self.max_active}"
                " is wanted"
            )
        for name in ("prune_interval", "graph_arcs", "frame_tokens"):
            if getattr(self, name) < 1:
                raise OpscopeError(f"{name}={getattr(self, name)}: a number from 1 on is wanted")
