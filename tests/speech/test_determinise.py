"""Determinised lattices against all paths of small random ones, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError, ShapeError
from opscope.nnet3.lattices.lattice import ONE, Arc, CompactLattice, Weight
from opscope.speech.lattice.determinise import DeterminiseOptions
from opscope.speech.lattice.minimise import minimised, weights_pushed
from opscope.speech.lattice.phone_determinise import determinised
from opscope.speech.lattice.strings_pushed import strings_pushed
from opscope.speech.search.raw_lattice import RawLattice

# Transition-ids 1 to 12: phone p begins with 2 * p - 1, and goes on with 2 * p.
STARTS = [0, *(number // 2 + 1 if number % 2 else 0 for number in range(1, 13))]
WORDS_ONLY = DeterminiseOptions(phone_determinize=False)
PHONES_TOO = DeterminiseOptions()
SMALLER = DeterminiseOptions(minimize=True)


def random_raw(seed: int, frames: int = 6, width: int = 3, words: int = 3) -> RawLattice:
    """Tokens of some frames, with arcs of all kinds between them."""
    rng = np.random.default_rng(seed)
    counts = [1, *rng.integers(1, width + 1, frames).tolist()]
    first = np.concatenate([[0], np.cumsum(counts)])
    arcs: list[tuple[int, int, int, int]] = []
    for frame in range(frames + 1):
        here = range(first[frame], first[frame + 1])
        for source in here:
            label = int(rng.integers(1, words + 1)) if rng.random() < 0.4 else 0
            if frame < frames:
                for target in range(first[frame + 1], first[frame + 2]):
                    if rng.random() < 0.8:
                        arcs.append((source, target, int(rng.integers(1, 13)), label))
            if source + 1 in here and rng.random() < 0.4:
                arcs.append((source, source + 1, 0, int(rng.integers(0, words + 1))))
    table = np.array(sorted(arcs), np.int32).reshape(-1, 4)
    # costs in steps that single precision holds, so that sums are exact in any order
    costs = rng.integers(0, 4096, (2, len(arcs))).astype(np.float32) / 256
    final = np.full(first[-1], np.inf, np.float32)
    final[first[-2] :] = rng.integers(0, 512, counts[-1]) / 256
    frame_of = np.repeat(np.arange(frames + 1), counts).astype(np.int32)
    columns = (table[:, 0], table[:, 1], table[:, 2], table[:, 3])
    return RawLattice(frame_of, *columns, costs[0], costs[1], final)


def all_paths(raw: RawLattice) -> dict[tuple[int, ...], tuple[float, float, tuple[int, ...]]]:
    """Of each sequence of words the whole and graph cost of its best path, and its ids."""
    out: dict[int, list[int]] = {}
    for arc, source in enumerate(raw.source.tolist()):
        out.setdefault(source, []).append(arc)
    found: dict[tuple[int, ...], tuple[float, float, tuple[int, ...]]] = {}

    def walk(state: int, words: tuple[int, ...], ids: tuple[int, ...], g: float, a: float) -> None:
        end = float(raw.final[state])
        if end < math.inf:
            new = (g + end + a, g + end, tuple(-i for i in ids))
            found[words] = min(found.get(words, new), new)
        for arc in out.get(state, ()):
            word, number = int(raw.olabel[arc]), int(raw.ilabel[arc])
            walk(
                int(raw.target[arc]),
                (*words, word) if word else words,
                (*ids, number) if number else ids,
                g + float(raw.graph[arc]),
                a + float(raw.acoustic[arc]),
            )

    walk(0, (), (), 0.0, 0.0)
    return {w: (c, g, tuple(-i for i in ids)) for w, (c, g, ids) in found.items()}


def lattice_paths(
    lattice: CompactLattice,
) -> dict[tuple[int, ...], tuple[float, float, tuple[int, ...]]]:
    """The same of a compact lattice, which has each sequence of words once."""
    found: dict[tuple[int, ...], tuple[float, float, tuple[int, ...]]] = {}

    def walk(state: int, words: tuple[int, ...], weight: Weight) -> None:
        end = lattice.final[state]
        if end is not None:
            whole = weight.times(end)
            assert words not in found
            found[words] = (whole.cost, whole.graph, whole.ids)
        for label, more, target in lattice.arcs[state]:
            walk(target, (*words, label), weight.times(more))

    if lattice.start >= 0:
        walk(lattice.start, (), ONE)
    return found


def has_paths(raw: RawLattice) -> bool:
    return bool(all_paths(raw))


@pytest.mark.parametrize("options", [WORDS_ONLY, PHONES_TOO, SMALLER], ids=str)
@pytest.mark.parametrize("beam", [math.inf, 12.0])
def test_best_path_of_each_sequence(options: DeterminiseOptions, beam: float) -> None:
    compared = 0
    for seed in range(60):
        raw = random_raw(seed)
        wanted = all_paths(raw)
        if not wanted:
            continue
        found = determinised(raw, beam, STARTS, options)
        assert found.complete and found.beam == beam
        got = lattice_paths(found.lattice)
        best = min(cost for cost, _, _ in wanted.values())
        within = {w: row for w, row in wanted.items() if row[0] <= best + beam}
        assert within.keys() <= got.keys() <= wanted.keys()
        for words, row in within.items():
            assert got[words] == row, (seed, words)
        compared += len(within)
    assert compared > 100


def test_few_paths_beyond_the_beam() -> None:
    """Arcs are kept for the best path through them, so that some paths cost more."""
    beyond = total = 0
    for seed in range(60):
        raw = random_raw(seed)
        wanted = all_paths(raw)
        if wanted:
            got = lattice_paths(determinised(raw, 4.0, STARTS).lattice)
            best = min(cost for cost, _, _ in wanted.values())
            beyond += sum(wanted[words][0] > best + 4 for words in got)
            total += len(wanted) - len(got)
    assert total > 10 * beyond
