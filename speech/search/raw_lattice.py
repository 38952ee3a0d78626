"""The raw lattice of a search: every arc that it kept."""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sequence import repeated
from ...kaldi.lattices.raw_lattice import RawLattice
from .decoder import Decoder


def raw_lattice(decoder: Decoder, use_final: bool = True) -> RawLattice:
    """The lattice of all frames so far; pruned to the lattice beam once the decoder is finalized.

    Args:
        use_final: whether costs of ending count; see `Decoder.end_costs`.

    Raises:
        RunError: no frame was decoded, or the graph has a loop of epsilons.
    """
    if not decoder.frames_decoded:
        raise RunError("no frame was decoded: there is no lattice")
    frames = decoder.frames
    counts = np.array([len(frame.tokens) for frame in frames])
    first = np.concatenate([[0], np.cumsum(counts)])
    number = np.empty(int(first[-1]), np.int32)
    for at, frame in enumerate(frames):
        links = frame.links
        order = _sorted_tokens(links["from"], links["to"], len(frame.tokens), at)
        if not at:  # the start comes first: nothing leads to it
            order = np.concatenate([[0], order[order != 0]])
        number[first[at] + order] = first[at] + np.arange(len(order))
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("source", "target", "ilabel", "olabel", "graph", "acoustic")
    }
    for at, frame in enumerate(frames):
        for links, ahead in ((frame.links, 0), (frame.onward, 1)):
            columns["source"].append(number[first[at] + links["from"]])
            columns["target"].append(number[first[at + ahead] + links["to"]])
            offset = np.float32(frame.offset if ahead else 0)
            columns["acoustic"].append(links["acoustic"] - offset)
            for name in ("ilabel", "olabel", "graph"):
                columns[name].append(links[name])
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.lexsort((joined["target"], joined["source"]))
    final = np.full(len(number), np.inf, np.float32)
    final[number[first[-2] :]] = decoder.end_costs(use_final)
    frame_of = np.empty(len(number), np.int32)
    frame_of[number] = repeated(np.arange(len(frames), dtype=np.int32), counts)
    return RawLattice(frame_of, final=final, **{name: x[order] for name, x in joined.items()})


def _sorted_tokens(source: np.ndarray, target: np.ndarray, count: int, frame: int) -> np.ndarray:
    """The tokens of a frame in an order in which epsilon links lead forward only.

    Raises:
        RunError: there is none.
    """
    depth = np.zeros(count, np.int64)
    for _ in range(count + 1):
        deeper = np.zeros(count, np.int64)
        np.maximum.at(deeper, target, depth[source] + 1)
        if np.array_equal(deeper, depth):
            return np.argsort(depth, kind="stable")
        depth = deeper
    raise RunError(f"frame {frame}: the graph has a loop of epsilons, the lattice would be cyclic")
