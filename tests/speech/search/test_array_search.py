"""The search in NumPy beside that in C, on graphs of thousands of states; what decoders share."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from opscope.speech.fst import look_ahead
from opscope.speech.fst.graph import LookaheadGraph
from opscope.speech.fst.key_table import KeyTable
from opscope.speech.fst.look_ahead import LabelSets
from opscope.speech.search import compiled
from opscope.speech.search.composed_arcs import ComposedArcs
from opscope.speech.search.decoder import Decoder
from opscope.speech.search.options import SearchOptions
from opscope.speech.search.raw_lattice import raw_lattice
from speech_data import korean_model, reference
from speech_graphs import lookahead_file, random_first, random_grammar

WORDS, LABELS = 150, 20
PDFS = np.array([0, *(label % 11 for label in range(LABELS))], np.int32)
needs_c = pytest.mark.skipif(not compiled.available(), reason="no compiler")


def large_graph(seed: int, words: int = WORDS) -> LookaheadGraph:
    """A graph whose composed states are more than the buckets of Kaldi's hash of tokens."""
    random = np.random.default_rng(seed)
    first, second = random_first(random, words, LABELS), random_grammar(random, words)
    return LookaheadGraph.of(lookahead_file(first, second.states + 3), second)


def loglikes(seed: int, frames: int = 24) -> np.ndarray:
    return np.random.default_rng(seed).normal(-2, 2, (frames, 11)).astype(np.float32)


def parts(decoder: Decoder) -> list[tuple[object, ...]]:
    return [
        (*(each.tobytes() for each in (frame.tokens, frame.links, frame.onward)), frame.offset)
        for frame in decoder.frames
    ]


def assert_same_search(one: Decoder, other: Decoder, blocks: Sequence[np.ndarray]) -> None:
    for block in blocks:
        one.accept(block)
        other.accept(block)
        assert parts(one) == parts(other)
    one.finalize()
    other.finalize()
    assert parts(one) == parts(other)
    lattices = raw_lattice(one), raw_lattice(other)
    for name in ("frame", "source", "target", "ilabel", "olabel", "graph", "acoustic", "final"):
        mine, wanted = (getattr(lattice, name) for lattice in lattices)
        assert np.array_equal(mine, wanted), name


@needs_c
@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(beam=16.0, lattice_beam=6.0, max_active=250),
        SearchOptions(beam=14.0, lattice_beam=4.0, max_active=300, min_active=50, prune_interval=5),
        SearchOptions(beam=15.0, lattice_beam=3.0, max_active=60, min_active=9, graph_arcs=9000),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_c_and_numpy_agree_where_states_share_buckets(seed: int, options: SearchOptions) -> None:
    graph, likes = large_graph(seed), loglikes(seed)
    in_c, in_numpy = (Decoder(graph, PDFS, options, compiled_loops=each) for each in (True, False))
    assert_same_search(in_numpy, in_c, np.split(likes, [5, 6, 17]))
    loops = in_numpy._tokens._loops
    assert loops._table.numbers.max() > loops._buckets


@needs_c
@pytest.mark.parametrize(("many", "room"), [(0, 64 << 20), (0, 40), (2, 64 << 20)])
@pytest.mark.parametrize("seed", range(3))
def test_labels_are_looked_up_as_they_are_searched(
    seed: int, many: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever sets have bits, and however many."""
    monkeypatch.setattr(look_ahead, "_MANY", many)
    monkeypatch.setattr(look_ahead, "_BIT_BYTES", room)
    graph = large_graph(seed, 30)
    sets = LabelSets(graph)
    every = np.arange(len(graph.interval_begin) - 1)
    having = np.flatnonzero(sets.have_bits(every))
    assert 0 < len(having) <= room / 5
    labels = np.tile(np.arange(graph.final_label + 40), len(having))
    owner = np.repeat(having, graph.final_label + 40)
    looked = sets.looked_up(owner, labels)
    assert looked.any() and not looked.all()
    assert np.array_equal(looked, sets.searched(owner, labels))
    options = SearchOptions(beam=15.0, lattice_beam=5.0)
    both = (Decoder(graph, PDFS, options, compiled_loops=each) for each in (False, True))
    assert_same_search(*both, np.split(loglikes(seed), [9]))


@needs_c
def test_numpy_searches_vosks_graph_as_c_does() -> None:
    model = korean_model()
    with np.load(reference("u1.npz")) as arrays:
        likes = arrays["weighted_loglikes"]
    both = (
        Decoder(
            *(model.graph, model.pdfs, model.config.search),
            outputs=model.network.output_dim,
            compiled_loops=in_c,
        )
        for in_c in (False, True)
    )
    assert_same_search(*both, np.split(likes, range(7, len(likes), 7)))


def composed(graph: LookaheadGraph) -> object:
    """What decoders of a graph share: in NumPy how much that is, in C which it is."""
    arcs = graph.kept.get(ComposedArcs)
    return arcs.used if arcs is not None else graph.kept[compiled._CompiledGraph].address


@pytest.mark.parametrize("compiled_loops", [False, pytest.param(True, marks=needs_c)])
def test_decoders_share_arcs_and_nothing_else(compiled_loops: bool) -> None:
    options = SearchOptions(beam=10.0, lattice_beam=5.0)

    def searched(graph: LookaheadGraph, seed: int) -> list[tuple[object, ...]]:
        decoder = Decoder(graph, PDFS, options, compiled_loops=compiled_loops)
        for block in np.split(loglikes(seed), [4, 9, 15]):
            decoder.accept(block)
        decoder.finalize()
        return parts(decoder)

    wanted = [searched(large_graph(1), seed) for seed in range(6)]
    graph = large_graph(1)
    assert [searched(graph, seed) for seed in (5, 0)] == [wanted[5], wanted[0]]
    used = composed(graph)
    assert searched(graph, 5) == wanted[5] and composed(graph) == used
    graph = large_graph(1)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda seed: searched(graph, seed), range(6))) == wanted


def test_shared_arcs_are_bounded_and_go_with_their_graph() -> None:
    graph = large_graph(2)
    options = SearchOptions(beam=10.0, lattice_beam=5.0, graph_arcs=2000)
    decoder = Decoder(graph, PDFS, options, compiled_loops=False)
    decoder.accept(loglikes(2))
    first = graph.kept[ComposedArcs]
    most = []
    for seed in range(4):
        decoder = Decoder(graph, PDFS, options, compiled_loops=False)
        most.append(graph.kept[ComposedArcs].used)
        decoder.accept(loglikes(seed))
    assert graph.kept[ComposedArcs] is not first and max(most) <= options.graph_arcs
    gone = weakref.ref(graph)
    del graph, decoder, first
    gc.collect()
    assert gone() is None


@needs_c
def test_searches_in_c_share_arcs_within_their_bound() -> None:
    """Each moves to a fresh graph when it has met too many arcs, while others go on in the old."""
    options = SearchOptions(beam=10.0, lattice_beam=5.0, graph_arcs=2000)
    seeds = range(4)
    alone = []
    for seed in seeds:
        decoder = Decoder(large_graph(2), PDFS, options)
        decoder.accept(loglikes(seed))
        alone.append(parts(decoder))
    graph = large_graph(2)
    decoders = [Decoder(graph, PDFS, options) for _ in seeds]
    for frame in range(24):
        for seed, decoder in zip(seeds, decoders, strict=True):
            decoder.accept(loglikes(seed)[frame : frame + 1])
    assert [parts(decoder) for decoder in decoders] == alone
    gone = weakref.ref(graph)
    del graph, decoder, decoders
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("parts", [1, 2])
def test_keys_are_numbered_as_in_a_dictionary(parts: int) -> None:
    random = np.random.default_rng(0)
    table, wanted = KeyTable(parts), {}
    for count in (1, 0, 10, 5000, 3, 20000, 70000):
        first = random.integers(-3, 90, count) << 32 | random.integers(0, 90, count)
        keys = (first, random.integers(-2, 2, count) << 40)[:parts]
        before = table.count
        found = table.numbers(*keys)
        for known, key in zip(table.keys, keys, strict=True):
            assert np.array_equal(known[found], key)
        for number, key in zip(found.tolist(), zip(*keys, strict=True), strict=True):
            assert wanted.setdefault(key, number) == number
        assert table.count == len(wanted)
        assert set(wanted.values()) >= set(range(before, table.count))
