"""Searches against Viterbi over whole compositions, in C and in NumPy; errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest

from opscope.framework.base.errors import NotFiniteError, OpscopeError, RunError, ShapeError
from opscope.kaldi.fst.arcs import ARC
from opscope.kaldi.fst.fst import Fst
from opscope.speech.fst.graph import Graph, LookaheadGraph, StaticGraph
from opscope.speech.search import compiled
from opscope.speech.search.decoder import Decoder
from opscope.speech.search.options import SearchOptions
from opscope.speech.search.raw_lattice import raw_lattice
from speech_graphs import arc_fst, lookahead_file, random_first, random_grammar

LABELS = 7
PDFS = np.array([0, *(label % 5 for label in range(LABELS))], np.int32)
WIDE = SearchOptions(beam=1000.0, lattice_beam=1000.0)
LOOPS = [
    pytest.param(True, marks=pytest.mark.skipif(not compiled.available(), reason="no compiler")),
    False,
]


def loglikes(seed: int, frames: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).normal(-2, 2, (frames, 5)).astype(np.float32)


def composed_with_kaldifst(first: Fst, second: Fst) -> Fst:
    kaldifst = pytest.importorskip("kaldifst")

    def vector(fst: Fst):
        made = kaldifst.StdVectorFst()
        for _ in range(fst.states):
            made.add_state()
        made.start = fst.start
        for state in range(fst.states):
            if np.isfinite(fst.final[state]):
                made.set_final(state, float(fst.final[state]))
            for arc in fst.arcs[fst.begin[state] : fst.begin[state + 1]].tolist():
                made.add_arc(state, kaldifst.StdArc(arc[0], arc[1], arc[2], arc[3]))
        return made

    found = kaldifst.compose(vector(first), vector(second))
    rows = [
        [
            (arc.ilabel, arc.olabel, arc.weight.value, arc.nextstate)
            for arc in kaldifst.ArcIterator(found, state)
        ]
        for state in kaldifst.StateIterator(found)
    ]
    finals = {s: found.final(s).value for s in range(len(rows))}
    return arc_fst(rows, {s: c for s, c in finals.items() if c < 1e30}, found.start)


def viterbi(fst: Fst, likes: np.ndarray) -> tuple[float, bool]:
    """The cost of the best path through all frames, by trying every arc of every state."""

    def epsilons(costs: np.ndarray) -> np.ndarray:
        for _ in range(fst.states):
            better = costs.copy()
            quiet = fst.arcs["ilabel"] == 0
            np.minimum.at(
                better,
                fst.arcs["nextstate"][quiet],
                costs[source[quiet]] + fst.arcs["weight"][quiet],
            )
            if np.array_equal(better, costs):
                break
            costs = better
        return costs

    source = fst.source()
    costs = np.full(fst.states, np.inf)
    costs[fst.start] = 0
    costs = epsilons(costs)
    loud = fst.arcs["ilabel"] != 0
    arcs = fst.arcs[loud]
    for row in likes.astype(np.float64):
        after = np.full(fst.states, np.inf)
        step = costs[source[loud]] + arcs["weight"] - row[PDFS[arcs["ilabel"]]]
        np.minimum.at(after, arcs["nextstate"], step)
        costs = epsilons(after)
    ending = (costs + fst.final).min()
    return (float(ending), True) if np.isfinite(ending) else (float(costs.min()), False)


def random_pair(seed: int) -> tuple[Fst, Fst]:
    random = np.random.default_rng(seed)
    words = int(random.integers(3, 26))
    return random_first(random, words, LABELS), random_grammar(random, words)


def random_graph(seed: int) -> LookaheadGraph:
    first, second = random_pair(seed)
    return LookaheadGraph.of(lookahead_file(first, second.states + 3), second)


@pytest.mark.parametrize("in_c", LOOPS)
@pytest.mark.parametrize("seed", range(12))
def test_composition_on_the_fly_finds_the_best_path_of_the_whole_one(seed: int, in_c: bool) -> None:
    first, second = random_pair(seed)
    whole = composed_with_kaldifst(first, second)
    likes = loglikes(seed)
    wanted, ends = viterbi(whole, likes)
    # Costs that are looked ahead are rounded to 1/1024 in the names of states, not in arcs.
    for graph, rounding in ((random_graph(seed), 0.01), (StaticGraph.of(whole), 1e-3)):
        decoder = Decoder(graph, PDFS, WIDE, compiled_loops=in_c)
        decoder.accept(likes)
        decoder.finalize()
        best = decoder.best_path()
        assert best.final == ends
        assert best.graph_cost + best.acoustic_cost == pytest.approx(wanted, abs=rounding)
        assert len(best.transition_ids) == len(likes)
        heard = -sum(row[PDFS[i]] for row, i in zip(likes, best.transition_ids, strict=True))
        assert best.acoustic_cost == pytest.approx(heard, abs=1e-3)


def states_of(decoder: Decoder) -> Iterator[tuple[object, ...]]:
    for frame in decoder.frames:
        yield (
            *(array.tobytes() for array in (frame.tokens, frame.links, frame.onward)),
            frame.offset,
        )


@pytest.mark.skipif(not compiled.available(), reason="no compiler")
@pytest.mark.parametrize(
    "options",
    [
        WIDE,
        SearchOptions(beam=4.0, lattice_beam=2.0, min_active=3, prune_interval=4),
        SearchOptions(beam=50.0, lattice_beam=3.0, max_active=6, min_active=2, prune_interval=3),
        SearchOptions(beam=3.0, lattice_beam=1.0, min_active=0, prune_interval=2),
        SearchOptions(beam=9.0, lattice_beam=4.0, graph_arcs=30, prune_interval=5),
    ],
)
@pytest.mark.parametrize("seed", range(6))
def test_c_and_numpy_give_the_same_tokens(seed: int, options: SearchOptions) -> None:
    graph = random_graph(seed)
    likes = loglikes(seed, 17)
    both = [Decoder(graph, PDFS, options, compiled_loops=in_c) for in_c in (True, False)]
    for block in np.split(likes, [3, 4, 11]):
        for decoder in both:
            decoder.accept(block)
        one, other = (list(states_of(decoder)) for decoder in both)
        assert one == other
        assert both[0].best_path(False) is not None
    for decoder in both:
        decoder.finalize()
    assert list(states_of(both[0])) == list(states_of(both[1]))
    one, other = (decoder.best_path() for decoder in both)
    assert one.transition_ids.tolist() == other.transition_ids.tolist()
    assert (one.words.tolist(), one.graph_cost) == (other.words.tolist(), other.graph_cost)


@pytest.mark.parametrize("in_c", LOOPS)
def test_blocks_give_what_the_whole_gives(in_c: bool) -> None:
    graph, likes = random_graph(3), loglikes(3, 30)
    options = SearchOptions(beam=6.0, lattice_beam=3.0, min_active=4, prune_interval=5)
    whole = Decoder(graph, PDFS, options, compiled_loops=in_c)
    whole.accept(likes)
    blocks = Decoder(graph, PDFS, options, compiled_loops=in_c)
    for row in likes:
        blocks.accept(row[None])
    assert list(states_of(whole)) == list(states_of(blocks))
    whole.reset()
    whole.accept(likes)
    assert list(states_of(whole)) == list(states_of(blocks))


@pytest.mark.parametrize("in_c", LOOPS)
def test_tokens_are_counted_before_some_go(in_c: bool) -> None:
    """As Kaldi counts them: where chunks of a lattice end hangs on these numbers."""
    options = SearchOptions(beam=50.0, lattice_beam=2.0, prune_interval=1000)
    decoder = Decoder(random_graph(3), PDFS, options, compiled_loops=in_c)
    decoder.accept(loglikes(3, 8))
    first = [len(frame.tokens) for frame in decoder.frames]
    assert not any(frame.counted for frame in decoder.frames[1:])
    decoder.prune()
    left = [len(frame.tokens) for frame in decoder.frames]
    assert left[-1] == first[-1] and left != first
    assert [frame.counted for frame in decoder.frames[1:]] == first[1:]


@pytest.mark.parametrize("in_c", LOOPS)
def test_a_raw_lattice_has_all_paths_within_the_lattice_beam(in_c: bool) -> None:
    first, second = random_pair(2)
    whole = composed_with_kaldifst(first, second)
    likes = loglikes(2, 5)
    options = SearchOptions(beam=100.0, lattice_beam=5.0)
    decoder = Decoder(StaticGraph.of(whole), PDFS, options, compiled_loops=in_c)
    decoder.accept(likes)
    decoder.finalize()
    lattice = raw_lattice(decoder)
    assert (lattice.target > lattice.source).all()
    assert (np.diff(lattice.source) >= 0).all()
    assert set(np.diff(lattice.frame[np.stack([lattice.source, lattice.target])], axis=0)[0]) <= {
        0,
        1,
    }
    best = decoder.best_path()
    bound = best.graph_cost + best.acoustic_cost + options.lattice_beam

    def every_path() -> set[tuple[float, tuple[int, ...], tuple[int, ...]]]:
        found = set()

        def walk(state: int, frame: int, cost: float, ids: tuple, words: tuple) -> None:
            if cost + rest[frame] > bound + 1e-3:
                return
            if frame == len(likes) and cost + whole.final[state] < bound - 1e-3:
                found.add((round(cost + float(whole.final[state]), 2), ids, words))
            for i, o, weight, to in whole.arcs[
                whole.begin[state] : whole.begin[state + 1]
            ].tolist():
                more = (*words, o) if o else words
                if not i:
                    walk(to, frame, cost + weight, ids, more)
                elif frame < len(likes):
                    heard = float(likes[frame, PDFS[i]])
                    walk(to, frame + 1, cost + weight - heard, (*ids, i), more)

        rest = [-likes[k:].max(axis=1).sum() for k in range(len(likes) + 1)]
        walk(whole.start, 0, 0.0, (), ())
        return found

    def lattice_paths() -> set[tuple[float, tuple[int, ...], tuple[int, ...]]]:
        found = set()

        def walk(state: int, cost: float, ids: tuple, words: tuple) -> None:
            if cost + lattice.final[state] < bound - 1e-3:
                found.add((round(cost + float(lattice.final[state]), 2), ids, words))
            for arc in np.flatnonzero(lattice.source == state):
                i, o = int(lattice.ilabel[arc]), int(lattice.olabel[arc])
                price = cost + float(lattice.graph[arc]) + float(lattice.acoustic[arc])
                walk(
                    int(lattice.target[arc]),
                    price,
                    (*ids, i) if i else ids,
                    (*words, o) if o else words,
                )

        walk(0, 0.0, (), ())
        return found

    wanted = {(ids, words) for _, ids, words in every_path()}
    assert len(wanted) > 1
    assert {(ids, words) for _, ids, words in lattice_paths()} >= wanted


@pytest.mark.parametrize("in_c", LOOPS)
def test_wrong_log_likelihoods_are_refused(in_c: bool) -> None:
    decoder = Decoder(random_graph(0), PDFS, outputs=5, compiled_loops=in_c)
    with pytest.raises(ShapeError, match=r"\(2, 4\).*\[frames, 5\]"):
        decoder.accept(np.zeros((2, 4), np.float32))
    decoder.accept(loglikes(0, 3))
    for value in (np.nan, np.inf):
        wrong = loglikes(1, 4)
        wrong[2, 3] = value
        with pytest.raises(NotFiniteError, match=f"frame 5: .* output 3 is {value}"):
            decoder.accept(wrong)
    assert decoder.frames_decoded == 3
    with pytest.raises(RunError, match="frame 3: no path is left"):
        decoder.accept(np.full((1, 5), -np.inf, np.float32))


@pytest.mark.parametrize("in_c", LOOPS)
def test_loops_of_epsilons_end_in_an_error(in_c: bool) -> None:
    rows = [[(1, 0, 0.0, 1)], [(0, 0, 0.5, 2), (2, 0, 0.0, 1)], [(0, 0, -1.0, 1)]]
    decoder = Decoder(StaticGraph.of(arc_fst(rows, {1: 0.0})), PDFS, compiled_loops=in_c)
    with pytest.raises(RunError, match="frame 0: the graph has a loop of epsilons"):
        decoder.accept(loglikes(0, 1))
    rows[2] = [(0, 0, 0.0, 1)]
    rows[1][0] = (0, 0, 0.0, 2)  # costs nothing: paths are well defined, a lattice is not
    decoder = Decoder(StaticGraph.of(arc_fst(rows, {1: 0.0})), PDFS, compiled_loops=in_c)
    decoder.accept(loglikes(0, 2))
    assert decoder.best_path().final
    with pytest.raises(RunError, match="loop of epsilons, the lattice would be cyclic"):
        raw_lattice(decoder)


@pytest.mark.parametrize("in_c", LOOPS)
def test_tokens_of_a_frame_are_bounded(in_c: bool) -> None:
    rows = [[(1, 0, 0.0, 1)], *([(0, 0, 0.0, i + 1)] for i in range(1, 50)), [(1, 0, 0.0, 0)]]
    graph = StaticGraph.of(arc_fst(rows, {1: 0.0}))
    decoder = Decoder(graph, PDFS, SearchOptions(frame_tokens=20), compiled_loops=in_c)
    with pytest.raises(RunError, match="more tokens in a frame than frame_tokens=20"):
        decoder.accept(loglikes(0, 1))


def test_labels_that_the_model_lacks_are_refused() -> None:
    graph = random_graph(0)
    with pytest.raises(OpscopeError, match=r"input label \d, the model has transition-ids up to 2"):
        Decoder(graph, PDFS[:3])
    with pytest.raises(OpscopeError, match="outputs up to 4 of 3"):
        Decoder(graph, PDFS, outputs=3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"beam": 0.0},
        {"beam": float("nan")},
        {"lattice_beam": -1.0},
        {"max_active": 1},
        {"min_active": 9, "max_active": 9},
        {"prune_interval": 0},
        {"prune_scale": 1.0},
        {"graph_arcs": 0},
    ],
)
def test_options_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(OpscopeError, match=next(iter(wrong))):
        SearchOptions(**wrong)


def test_an_utterance_that_is_over_takes_no_frames() -> None:
    decoder = Decoder(random_graph(1), PDFS)
    decoder.accept(loglikes(1, 4))
    relative = decoder.final_relative_cost()
    decoder.finalize()
    assert decoder.final_relative_cost() == pytest.approx(relative, abs=1e-4)
    with pytest.raises(RunError, match="reset the decoder"):
        decoder.accept(loglikes(1, 1))
    with pytest.raises(RunError, match="costs of ending"):
        decoder.best_path(False)
    decoder.reset()
    assert decoder.frames_decoded == 0
    with pytest.raises(RunError, match="no frame was decoded"):
        raw_lattice(decoder)


def test_without_a_compiler_numpy_searches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled, "available", lambda: False)
    with caplog.at_level(logging.WARNING):
        decoder = Decoder(random_graph(4), PDFS)
    decoder.accept(loglikes(4))
    assert decoder.best_path().transition_ids.shape == (9,)
    assert decoder.frames[0].tokens.dtype.names is not None
    assert ARC.itemsize == 16


def graph_of(fst: Fst) -> Graph:
    return StaticGraph.of(fst, disambiguation=(6,))


def test_disambiguation_labels_are_epsilons() -> None:
    rows = [[(6, 3, 1.0, 1)], [(2, 0, 0.0, 1)]]
    decoder = Decoder(graph_of(arc_fst(rows, {1: 0.0})), PDFS)
    decoder.accept(loglikes(0, 3))
    best = decoder.best_path()
    assert (best.words.tolist(), best.transition_ids.tolist()) == ([3], [2, 2, 2])
    assert (best.word_frames.tolist(), best.graph_cost) == ([0], 1.0)
