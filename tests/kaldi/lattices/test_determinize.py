"""Determinized lattices against all paths of small random ones, one by one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError, ShapeError
from opscope.framework.fusion.compiled import native
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices import compiled
from opscope.kaldi.lattices.determinize import DeterminiseOptions, _Determinizer
from opscope.kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight
from opscope.kaldi.lattices.lattice_io import read_lattice, write_lattice
from opscope.kaldi.lattices.minimize import minimized, strings_pushed, weights_pushed
from opscope.kaldi.lattices.phone_determinize import Determinized, determinized, phone_starts
from opscope.kaldi.lattices.plain import LatticeColumns, from_raw, to_lattice
from opscope.kaldi.lattices.raw_lattice import RawLattice
from opscope.speech.lattice.bayes_risk import minimum_bayes_risk
from opscope.speech.lattice.word_align import word_aligned
from opscope.speech.lattice.word_boundary import WordBoundaries
from opscope.speech.search.decoder import Decoder
from opscope.speech.search.options import SearchOptions
from opscope.speech.search.raw_lattice import raw_lattice
from speech_data import SENTENCES, korean_model, reference, vosk_model
from vosk_lattices import FRAME, LM_SCALE, vosk_ids, vosk_lattice

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
                    if target == first[frame + 1] or rng.random() < 0.8:
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


def test_states_are_numbered_as_openfst_sorts_them() -> None:
    """What the best arc leads to has the greatest number: it is finished first."""
    raw = RawLattice(
        np.array([0, 1, 1, 1, 2], np.int32),
        np.array([0, 0, 0, 1, 2, 3], np.int32),
        np.array([1, 2, 3, 4, 4, 4], np.int32),
        np.array([1, 3, 5, 2, 4, 6], np.int32),
        np.array([7, 8, 9, 4, 5, 6], np.int32),
        np.array([2, 1, 3, 0, 0, 0], np.float32),
        np.zeros(6, np.float32),
        np.array([np.inf, np.inf, np.inf, np.inf, 0], np.float32),
    )
    for options in (WORDS_ONLY, PHONES_TOO):
        made = determinized(raw, 10.0, STARTS, options).lattice
        assert [(arc.label, arc.target) for arc in made.arcs[0]] == [(8, 3), (7, 2), (9, 1)]


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


@pytest.mark.parametrize("options", [WORDS_ONLY, PHONES_TOO, SMALLER], ids=str)
@pytest.mark.parametrize("beam", [math.inf, 12.0])
def test_best_path_of_each_sequence(options: DeterminiseOptions, beam: float) -> None:
    compared = 0
    for seed in range(60):
        raw = random_raw(seed)
        wanted = all_paths(raw)
        if not wanted:
            continue
        found = determinized(raw, beam, STARTS, options)
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
            got = lattice_paths(determinized(raw, 4.0, STARTS).lattice)
            best = min(cost for cost, _, _ in wanted.values())
            beyond += sum(wanted[words][0] > best + 4 for words in got)
            total += len(wanted) - len(got)
    assert total > 10 * beyond


def wide(frames: int = 14) -> RawLattice:
    """A lattice whose sequences of words are very many."""
    return random_raw(3, frames, 8, 3)


def test_limits_leave_the_best_part() -> None:
    raw, told = wide(), []
    whole = determinized(raw, 80.0, STARTS)
    best = min(
        cost for cost, _, _ in lattice_paths(determinized(raw, 1.0, STARTS).lattice).values()
    )
    for options in (
        DeterminiseOptions(max_arcs=60),
        DeterminiseOptions(max_mem=40_000),
        DeterminiseOptions(max_mem=40_000, retry_cutoff=0.0),
        DeterminiseOptions(max_arcs=60, phone_determinize=False),
    ):
        told.clear()
        found = determinized(raw, 80.0, STARTS, options, told.append)
        assert not found.complete and 0 < found.beam < 80
        assert len(told) == 1 and "in place of 80: more would need more than max_mem" in told[0]
        assert 0 < found.lattice.num_arcs < whole.lattice.num_arcs
        assert min(cost for cost, _, _ in lattice_paths(found.lattice).values()) == best


def test_cleaning_up_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences of ids of no use are forgotten before each arc, and their numbers used again."""
    raw = wide(9)
    passes = [DeterminiseOptions(phone_determinize=phones) for phones in (False, True)]
    wanted = [lattice_paths(determinized(raw, 60.0, STARTS, each).lattice) for each in passes]
    freed = [0]

    def clean(self: _Determinizer) -> bool:
        before = len(self._strings)
        self._strings.keep(self._needed())
        freed[0] += before - len(self._strings)
        return False

    monkeypatch.setattr(native, "load", lambda *_: None)
    monkeypatch.setattr(_Determinizer, "_is_full", clean)
    assert wanted == [lattice_paths(determinized(raw, 60.0, STARTS, p).lattice) for p in passes]
    assert freed[0] > 100


NATIVE = pytest.mark.skipif(native.load("lattices") is None, reason="no native library")
ALL_OPTIONS = [
    DeterminiseOptions(phone_determinize=phones, word_determinize=words, **limits)
    for phones in (False, True)
    for words in (False, True)
    for limits in (
        {},
        {"delta": 8.0},
        {"max_arcs": 20},
        {"max_mem": 6000},
        {"max_mem": 6000, "retry_cutoff": 0.0},
    )
]


def shuffled(columns: LatticeColumns, seed: int) -> LatticeColumns:
    """With states in any order but for the first one, two of which nothing leads to."""
    rng = np.random.default_rng(seed)
    order = np.append(0, 1 + rng.permutation(columns.states + 1)).astype(np.int32)
    moved = {name: order[getattr(columns, name)] for name in ("source", "target", "final")}
    return replace(columns, states=columns.states + 2, is_sorted=False, **moved)


@NATIVE
@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
def test_c_and_python_make_the_same(
    options: DeterminiseOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States, arcs, costs and ids, also where memory is short and sequences are forgotten."""
    lattices = [from_raw(random_raw(seed)) for seed in range(30)] + [
        from_raw(random_raw(seed, frames=12, width=5)) for seed in range(6)
    ]
    lattices += [shuffled(each, 7) for each in lattices]
    beams = (math.inf, 60.0, 5.0)
    made = [_made(each, beam, options) for each in lattices for beam in beams]
    monkeypatch.setattr(native, "load", lambda *_: None)
    wanted = [_made(each, beam, options) for each in lattices for beam in beams]
    assert made == wanted
    assert sum(isinstance(each, tuple) for each in made) > 100


def _made(lattice: LatticeColumns, beam: float, options: DeterminiseOptions) -> object:
    try:
        found: Determinized = determinized(lattice, beam, STARTS, options)
    except ShapeError as error:
        return str(error)
    compact = found.lattice
    return compact.start, compact.arcs, compact.final, found.beam, found.complete


@NATIVE
def test_what_was_made_is_freed_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    bind, room = compiled.bind, compiled._room

    def noted(library: Any, name: str, **fields: Any) -> Any:
        called.append(name)
        return bind(library, name, **fields)

    def short(states: int, count: int, ids: int) -> Any:
        if count:
            raise MemoryError
        return room(states, count, ids)

    monkeypatch.setattr(compiled, "bind", noted)
    monkeypatch.setattr(compiled, "_room", short)
    with pytest.raises(MemoryError):
        determinized(from_raw(random_raw(0)), math.inf, STARTS, WORDS_ONLY)
    assert called == ["lattice_determinized", "lattice_copy"]


@NATIVE
def test_bad_columns_are_refused() -> None:
    good = from_raw(tiny())
    far, back = np.array([1, 9], np.int32), np.array([1, 0], np.int32)
    for changes, message in (
        ({"target": far}, "arc 1 of the lattice leads from state 1 to 9, of 3, with label 0"),
        ({"target": back}, "arc 1 of the lattice leads from state 1 to 0"),
        ({"source": np.array([0, -1], np.int32)}, "arc 1 of the lattice leads from state -1 to 2"),
        ({"label": -back}, "arc 0 of the lattice leads from state 0 to 1, of 3, with label -1"),
        ({"final": np.array([3], np.int32)}, "state 3 of the lattice is final, of 3"),
        ({"id": np.array([1, 99], np.int32)}, "99 is no transition-id: the model has 1 to 12"),
        ({"target": back, "is_sorted": False}, "the lattice has a loop"),
    ):
        with pytest.raises(ShapeError, match=message):
            determinized(replace(good, **changes), 10.0, STARTS)


def test_a_pass_with_phones_only() -> None:
    """Its result has the best path of each sequence of words and phones, with the ids of each."""
    options = DeterminiseOptions(word_determinize=False)
    for seed in range(20):
        raw = random_raw(seed)
        wanted = all_paths(raw)
        if wanted:
            found = determinized(raw, math.inf, STARTS, options).lattice
            assert lattice_paths(determinized(found, math.inf, None, WORDS_ONLY).lattice) == wanted


def test_pushing_and_minimizing() -> None:
    states = 0
    for seed in range(40):
        raw = random_raw(seed)
        if not all_paths(raw):
            continue
        lattice = determinized(raw, 10.0, STARTS).lattice
        wanted = lattice_paths(lattice)
        pushed = strings_pushed(lattice)
        assert lattice_paths(pushed) == wanted
        level = weights_pushed(pushed)
        smaller = minimized(level)
        assert smaller.states <= level.states
        assert lattice_paths(level) == lattice_paths(smaller) == wanted
        assert not any(lattice_rest(level)[1:])
        states += level.states - smaller.states
    assert states > 0


def lattice_rest(lattice: CompactLattice) -> list[float]:
    """The least cost from each state to an end."""
    costs = [math.inf] * lattice.states
    for state in range(lattice.states - 1, -1, -1):
        end = lattice.final[state]
        ways = [arc.weight.cost + costs[arc.target] for arc in lattice.arcs[state]]
        costs[state] = min([*ways, end.cost if end else math.inf])
    return costs


def tiny(**changes: object) -> RawLattice:
    """Two frames, one path."""
    columns: dict[str, object] = {
        "frame": [0, 1, 2],
        "source": [0, 1],
        "target": [1, 2],
        "ilabel": [1, 2],
        "olabel": [5, 0],
        "graph": [1.0, 2.0],
        "acoustic": [0.5, 0.25],
        "final": [np.inf, np.inf, 0.0],
    }
    columns.update(changes)
    floats = ("graph", "acoustic", "final")
    kinds = {name: np.float32 if name in floats else np.int32 for name in columns}
    return RawLattice(**{name: np.array(value, kinds[name]) for name, value in columns.items()})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"target": [1, 0]}, "arc 1 of the lattice leads from state 1 to 0, of 3"),
        ({"target": [1, 3]}, "arc 1 of the lattice leads from state 1 to 3, of 3"),
        ({"source": [0, -1]}, "arc 1 of the lattice leads from state -1 to 2, of 3"),
        ({"olabel": [-5, 0]}, "a label below zero"),
        ({"graph": [np.nan, 0]}, "a cost that is NaN"),
        ({"final": [np.inf] * 3}, "is empty: it has no path"),
        ({"acoustic": [np.inf, 0]}, "is empty: it has no path"),
        ({"ilabel": [1, 13]}, "13 is no transition-id: the model has 1 to 12"),
    ],
)
def test_wrong_lattices(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ShapeError, match=told):
        determinized(tiny(**changes), 4.0, STARTS)


def test_wrong_compact_lattices() -> None:
    loop = CompactLattice(0, [[Arc(1, ONE, 1)], [Arc(1, ONE, 0)]], [None, ONE])
    with pytest.raises(ShapeError, match="has a loop"):
        determinized(loop, 4.0, STARTS)
    for empty in (CompactLattice(), CompactLattice(0, [[], []], [None, ONE])):
        with pytest.raises(ShapeError, match="is empty"):
            determinized(empty, 4.0, STARTS)


def test_wrong_options() -> None:
    with pytest.raises(OpscopeError, match=r"a beam of 0.0 for a lattice"):
        determinized(tiny(), 0.0, STARTS)
    with pytest.raises(OpscopeError, match=r"needs phone_starts\(model\)"):
        determinized(tiny(), 4.0)
    for name, value in (("delta", -1.0), ("retry_cutoff", 1.0), ("max_mem", -1), ("max_arcs", -2)):
        with pytest.raises(OpscopeError, match=name):
            DeterminiseOptions(**{name: value})


def test_lattices_of_a_search_in_kaldis_files() -> None:
    raw = random_raw(1)
    for binary in (False, True):
        writer = Writer(binary, header=False)
        write_lattice(writer, to_lattice(from_raw(raw).plain()))
        back = read_lattice(Reader(writer.getvalue(), name="lattice", binary=binary))
        got = lattice_paths(determinized(back, 9.0, STARTS).lattice)
        wanted = lattice_paths(determinized(raw, 9.0, STARTS).lattice)
        assert got.keys() == wanted.keys()
        for words, (cost, graph, ids) in wanted.items():
            assert got[words][:2] == pytest.approx((cost, graph), abs=0 if binary else 1e-3)
            assert got[words][2] == ids


def test_from_log_likelihoods_to_vosks_words() -> None:
    model = TransitionModel.read_from(Reader(str(vosk_model("am", "final.mdl"))))
    options = SearchOptions(beam=10.0, max_active=3000, min_active=200, lattice_beam=2.0)
    search = Decoder(korean_model().graph, np.array(vosk_ids().pdf), options, outputs=2616)
    boundaries = WordBoundaries.read(vosk_model("graph", "phones", "word_boundary.int"))
    for name in SENTENCES:
        search.reset()
        search.accept(np.load(reference(f"{name}.npz"))["weighted_loglikes"])
        search.finalize()
        found = determinized(raw_lattice(search), 2.0, phone_starts(model), warn=pytest.fail)
        got, wanted = lattice_paths(found.lattice), lattice_paths(vosk_lattice(name))
        assert got.keys() == wanted.keys()
        for words, (cost, _, ids) in wanted.items():
            assert got[words][2] == ids
            assert got[words][0] == pytest.approx(cost, abs=2e-3)
        scaled = found.lattice.scaled(graph=LM_SCALE)
        right, _ = word_aligned(scaled, vosk_ids(), boundaries, pytest.fail)
        (result,) = json.loads(reference(f"{name}.whole.json").read_text())
        words = minimum_bayes_risk(right).words
        assert [korean_model().words[word.label] for word in words] == [
            w["word"] for w in result["result"]
        ]
        np.testing.assert_allclose(
            [(word.begin * FRAME, word.end * FRAME, word.confidence) for word in words],
            [(w["start"], w["end"], w["conf"]) for w in result["result"]],
            atol=1e-4,
        )
