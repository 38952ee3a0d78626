"""Word alignment, minimum Bayes risk and best paths: against Vosk's results and all paths."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.framework.fusion.compiled import native
from opscope.kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight, single
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.speech.lattice import bayes_risk
from opscope.speech.lattice.bayes_risk import BayesRisk, minimum_bayes_risk
from opscope.speech.lattice.best_paths import n_best
from opscope.speech.lattice.times import timed_words
from opscope.speech.lattice.word_align import word_aligned
from opscope.speech.lattice.word_boundary import WordBoundaries
from speech_data import SENTENCES, reference, vosk_model
from vosk_lattices import FRAME, LM_SCALE, vosk_ids, vosk_lattice, vosk_words


def scaled_lattice(name: str) -> CompactLattice:
    """A sentence's lattice as results are taken from it."""
    return vosk_lattice(name).scaled(graph=LM_SCALE)


def vosk_boundaries() -> WordBoundaries:
    return WordBoundaries.read(vosk_model("graph", "phones", "word_boundary.int"))


def aligned(lattice: CompactLattice) -> CompactLattice:
    told: list[str] = []
    found, right = word_aligned(lattice, vosk_ids(), vosk_boundaries(), told.append)
    assert right and not told
    return found


@pytest.mark.parametrize("name", SENTENCES)
def test_words_times_and_confidences_are_vosks(name: str) -> None:
    found = minimum_bayes_risk(aligned(scaled_lattice(name))).words
    (wanted,) = json.loads(reference(f"{name}.whole.json").read_text())
    assert [vosk_words()[word.label] for word in found] == [w["word"] for w in wanted["result"]]
    rows = [(word.begin * FRAME, word.end * FRAME, word.confidence) for word in found]
    expected = [(w["start"], w["end"], w["conf"]) for w in wanted["result"]]
    np.testing.assert_allclose(rows, expected, atol=2e-6)


@pytest.mark.parametrize("name", SENTENCES)
def test_alternatives_are_vosks(name: str) -> None:
    paths = n_best(scaled_lattice(name), 3)
    wanted = json.loads(reference(f"{name}.nbest.json").read_text())["alternatives"]
    assert len(paths) == len(wanted)
    for path, alternative in zip(paths, wanted, strict=True):
        words, cost = timed_words(aligned(path))
        assert -cost == pytest.approx(alternative["confidence"], abs=1e-4)
        text = [vosk_words()[word.label] for word in words]
        assert text == [word["word"] for word in alternative["result"]]
        rows = [(word.begin * FRAME, word.end * FRAME) for word in words]
        expected = [(word["start"], word["end"]) for word in alternative["result"]]
        np.testing.assert_allclose(rows, expected, atol=1e-6)


@pytest.mark.parametrize("name", SENTENCES)
def test_arcs_are_whole_words(name: str) -> None:
    known, boundaries = vosk_ids(), vosk_boundaries()
    for label, weight, _ in itertools.chain(*aligned(scaled_lattice(name)).arcs):
        kinds = [boundaries.kind(known.phone[number]) for number in weight.ids]
        ends = [
            kind for number, kind in zip(weight.ids, kinds, strict=True) if known.is_last[number]
        ]
        if label:
            assert ends[0] == kinds[0] and ends[-1] == kinds[-1]
            assert ends == ["singleton"] or (ends[0], ends[-1]) == ("begin", "end")
            assert set(ends[1:-1]) <= {"internal"}
        else:
            assert ends in (["nonword"], [])


# A model of phones 1 to 5, one of each kind: 2 * p - 1 leaves phone p, 2 * p is its loop.
KINDS = ("", "nonword", "begin", "end", "internal", "singleton")
BOUNDARIES = WordBoundaries(KINDS, silence_label=90, partial_label=91)
IDS = TransitionIds(
    [0, *(number // 2 + 1 for number in range(10))],
    [0, *(number // 2 + 1 for number in range(10))],
    [-1, *range(10)],
    [False, *(number % 2 == 1 for number in range(10))],
    [False, *(number % 2 == 0 for number in range(10))],
    [-1, *(1 - number % 2 for number in range(10))],
)


def spoken(rng: np.random.Generator) -> list[tuple[int, tuple[int, ...]]]:
    """Words and silences with their transition-ids."""
    made: list[tuple[int, tuple[int, ...]]] = []
    for _ in range(rng.integers(1, 5)):
        kind = rng.integers(0, 3)
        phones = ([1], [5], [2, *[4] * int(rng.integers(0, 3)), 3])[kind]
        ids = [n for p in phones for n in (2 * p - 1, *[2 * p] * int(rng.integers(0, 3)))]
        made.append((int(rng.integers(1, 80)) if kind else 90, tuple(ids)))
    return made


def spread(rng: np.random.Generator, words: list[tuple[int, tuple[int, ...]]]) -> CompactLattice:
    """A lattice of one path whose labels stand somewhere else than the ids of their words."""
    ids = [number for _, each in words for number in each]
    labels = [word for word, _ in words if word != 90]
    cuts = sorted(rng.integers(0, len(ids) + 1, len(labels)).tolist())
    made = CompactLattice(0)
    made.add_state()
    for label, (begin, end) in zip(labels, itertools.pairwise([0, *cuts]), strict=True):
        target = made.add_state()
        weight = Weight(single(rng.random()), single(rng.random()), tuple(ids[begin:end]))
        made.arcs[target - 1].append(Arc(label, weight, target))
    made.final[-1] = Weight(0.5, 0.25, tuple(ids[cuts[-1] if cuts else 0 :]))
    return made


def test_words_get_their_own_ids() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        words = spoken(rng)
        lattice = spread(rng, words)
        found, right = word_aligned(lattice, IDS, BOUNDARIES, pytest.fail)
        assert right
        arcs = [arc for group in found.arcs for arc in group]
        assert [(arc.label, arc.weight.ids) for arc in arcs] == words
        before = sum(arc.weight.cost for group in lattice.arcs for arc in group) + 0.75
        ends = [end.cost for end in found.final if end is not None]
        assert sum(arc.weight.cost for arc in arcs) + sum(ends) == pytest.approx(before, abs=1e-5)


def line(*arcs: tuple[int, tuple[int, ...]]) -> CompactLattice:
    """A lattice of one path."""
    made = CompactLattice(0, [[] for _ in range(len(arcs) + 1)], [None] * len(arcs) + [ONE])
    for state, (label, ids) in enumerate(arcs):
        made.arcs[state].append(Arc(label, Weight(1.0, 0.0, ids), state + 1))
    return made


@pytest.mark.parametrize(
    ("lattice", "told", "wanted"),
    [
        (line((7, (3, 4))), "last word of the lattice is cut off", [(7, (3, 4))]),
        (line((0, (2,))), "silence at the end of the lattice is cut off", [(90, (2,))]),
        (line((0, (3, 7))), "a part of a word that is not known", [(91, (3, 7))]),
        (line((7, (9,)), (8, ())), "words without frames at the end are dropped", [(7, (9,))]),
        (line((7, (3, 1, 5))), "stands inside of a word", [(7, (3, 1, 5))]),
        (line((0, (2, 9)), (7, ())), "before it has ended", None),
    ],
)
def test_broken_lattices(lattice: CompactLattice, told: str, wanted: object) -> None:
    messages: list[str] = []
    found, right = word_aligned(lattice, IDS, BOUNDARIES, messages.append)
    assert not right and len(messages) == 1 and told in messages[0]
    if wanted is not None:
        assert [(a.label, a.weight.ids) for group in found.arcs for a in group] == wanted


@pytest.mark.parametrize(
    ("lattice", "wanted"),
    [
        (line((7, (9, 3)), (8, (7, 8))), [(7, (9,)), (91, (3, 7, 8))]),
        (line((7, (9, 10)), (0, (1, 2))), [(7, (9, 10)), (90, (1, 2))]),
        (line((7, (9,)), (8, ())), [(7, (9,))]),
        (line((7, (9, 3)), (8, (5, 6))), [(7, (9,)), (8, (3, 5, 6))]),
    ],
)
def test_words_of_an_utterance_that_goes_on(lattice: CompactLattice, wanted: object) -> None:
    found, right = word_aligned(lattice, IDS, BOUNDARIES, pytest.fail, unfinished=True)
    assert right
    assert [(a.label, a.weight.ids) for group in found.arcs for a in group] == wanted


def test_lattices_that_are_refused() -> None:
    def align(lattice: CompactLattice) -> None:
        word_aligned(lattice, IDS, BOUNDARIES, pytest.fail)

    with pytest.raises(ShapeError, match="is empty: it has no path"):
        align(CompactLattice())
    with pytest.raises(ShapeError, match="11 is no transition-id: the model has 1 to 10"):
        align(line((7, (11,))))
    with pytest.raises(ShapeError, match="phone 5 is not in the list of word boundaries"):
        word_aligned(line((7, (9,))), IDS, WordBoundaries(KINDS[:5]), pytest.fail)
    loop = line((7, (9,)))
    loop.arcs[1].append(Arc(7, ONE, 0))
    for function in (align, minimum_bayes_risk, lambda lattice: n_best(lattice, 1)):
        with pytest.raises(ShapeError, match="the lattice has a loop"):
            function(loop)
    for function in (minimum_bayes_risk, lambda lattice: n_best(lattice, 1)):
        with pytest.raises(ShapeError, match="is empty: it has no path"):
            function(CompactLattice(0, [[]], [None]))
    with pytest.raises(ShapeError, match="arc of label 7 to state 9, of 2"):
        align(CompactLattice(0, [[Arc(7, ONE, 9)], []], [None, ONE]))
    with pytest.raises(OpscopeError, match="0 best paths were asked for"):
        n_best(line((7, (9,))), 0)


def test_boundary_files(tmp_path: Path) -> None:
    path = tmp_path / "word_boundary.int"
    path.write_text("1 nonword\n2\tbegin\n4 end\n")
    assert WordBoundaries.read(path).kinds == ("", "nonword", "begin", "", "end")
    for text, told in (
        ("", "there is no phone"),
        ("1 nonword\n2 middle\n", "line 2: '2 middle': a phone and one of nonword, begin"),
        ("0 begin\n", "line 1: '0' is no whole number from 1"),
        ("1 begin\n1 end\n", "line 2: phone 1 is 'begin' in a line before"),
        ("99999999 end\n", "no whole number from 1"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=told):
            WordBoundaries.read(path)


def random_words(seed: int) -> CompactLattice:
    """A lattice of words, and of arcs without any, in steps of one frame."""
    rng = np.random.default_rng(seed)
    states = int(rng.integers(3, 7))
    made = CompactLattice(0, [[] for _ in range(states)], [None] * (states - 1) + [ONE])
    for state in range(states - 1):
        for target in range(state + 1, min(state + 3, states)):
            for label in rng.permutation(4)[: rng.integers(1, 4)].tolist():
                weight = Weight(single(3 * rng.random()), 0.0, (1,) * (target - state))
                made.arcs[state].append(Arc(label, weight, target))
    return made


def every_path(lattice: CompactLattice) -> list[tuple[float, tuple[int, ...]]]:
    """Cost and words of all paths, the best first."""
    found: list[tuple[float, tuple[int, ...]]] = []

    def walk(state: int, cost: float, words: tuple[int, ...]) -> None:
        end = lattice.final[state]
        if end is not None:
            found.append((cost + end.cost, words))
        for label, weight, target in lattice.arcs[state]:
            walk(target, cost + weight.cost, (*words, label) if label else words)

    walk(0, 0.0, ())
    return sorted(found)


def edits(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    row = list(range(len(second) + 1))
    for place, one in enumerate(first, 1):
        above, row = row, [place]
        for q, other in enumerate(second):
            row.append(min(above[q] + (one != other), above[q + 1] + 1, row[q] + 1))
    return row[-1]


def true_risk(words: tuple[int, ...], paths: list[tuple[float, tuple[int, ...]]]) -> float:
    """The expected number of errors of some words."""
    shares = [math.exp(-cost) for cost, _ in paths]
    distances = [edits(words, each) for _, each in paths]
    return float(np.average(distances, weights=shares))


def test_risk_of_the_words_that_are_chosen() -> None:
    """The algorithm averages distances on the way, which makes its risk an upper bound."""
    better = 0
    for seed in range(150):
        lattice = random_words(seed)
        paths = every_path(lattice)
        found = minimum_bayes_risk(lattice)
        words = tuple(word.label for word in found.words)
        plain = minimum_bayes_risk(lattice, decode=False)
        assert tuple(word.label for word in plain.words) == paths[0][1]
        assert true_risk(words, paths) <= found.risk + 1e-6 and found.risk <= plain.risk + 1e-9
        better += true_risk(words, paths) < true_risk(paths[0][1], paths) - 1e-6
        for each in found.bins:
            assert sum(word.confidence for word in each) == pytest.approx(1, abs=1e-5)
            assert all(word.begin <= word.end + 1e-5 for word in each)
        for one, other in itertools.pairwise(found.words):
            assert one.end <= other.begin + 1e-5
        started = minimum_bayes_risk(lattice, decode=False, words=words).risk
        assert started == pytest.approx(found.risk, abs=1e-9)
        kept = minimum_bayes_risk(lattice, keep_silence=True)
        assert len(kept.words) == len(kept.bins)
    assert better > 10


@pytest.mark.skipif(native.load("bayes_risk") is None, reason="no native library")
def test_risk_in_c_and_in_python_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    lattices = [random_words(seed) for seed in range(40)]
    lattices += [aligned(scaled_lattice(name)) for name in SENTENCES]
    lattices.append(CompactLattice(0, [[]], [ONE]))  # no words, no frames

    def found() -> list[BayesRisk]:
        return [
            minimum_bayes_risk(lattice, **options)
            for lattice in lattices
            for options in ({}, {"decode": False, "keep_silence": True, "words": [9, 1, 2]})
        ]

    in_c = found()
    monkeypatch.setattr(bayes_risk, "native", SimpleNamespace(load=lambda file: None))
    assert found() == in_c


def test_best_paths_are_all_paths_in_order() -> None:
    for seed in range(50):
        lattice = random_words(seed)
        paths = every_path(lattice)
        for count in (1, 5, len(paths) + 3):
            found = n_best(lattice, count)
            assert len(found) == min(count, len(paths))
            for path, (cost, words) in zip(found, paths, strict=False):
                ((got, said),) = every_path(path)
                assert got == pytest.approx(cost, abs=1e-5)
                assert said == words or any(abs(c - cost) < 1e-5 for c, w in paths if w == said)
