"""The best path of a known text: the beam widens until a path reaches the end of its graph.

Source: `AlignUtteranceWrapper` in Kaldi's `decoder/decoder-wrappers.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ...framework.base.errors import RunError
from ..fst.graph import Graph
from .decoder import BestPath, Decoder
from .options import SearchOptions

ALIGNED_ACTIVE = 20
"""Least tokens that are followed, of Kaldi's FasterDecoder, which aligns there."""
_NOTHING = np.empty(0, np.int32)


def best_alignment(
    graph: Graph,
    pdfs: np.ndarray,
    loglikes: np.ndarray,
    beams: Iterable[float],
    retry: Callable[[float], None] = lambda beam: None,
    failed: Callable[[RunError], None] = lambda error: None,
) -> BestPath:
    """The best path through the graph of a text; of the last beam if none reaches the end.

    Args:
        pdfs: output of each transition-id. loglikes: of the network, float32, [frames, outputs].
        beams: tried one after the other. retry: gets each beam but the first one before its search.
        failed: gets the error of a search that has lost all paths; its path is empty.
    """
    best = BestPath(_NOTHING, _NOTHING, _NOTHING, 0.0, 0.0, final=False)
    for number, beam in enumerate(beams):
        if number:
            retry(beam)
        search = SearchOptions(beam=beam, min_active=ALIGNED_ACTIVE)
        decoder = Decoder(graph, pdfs, search, outputs=loglikes.shape[1])
        try:
            decoder.accept(loglikes)
            best = decoder.best_path()
        except RunError as error:
            failed(error)
        if best.final:
            break
    return best
