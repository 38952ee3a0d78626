"""The examples and minibatches of LF-MMI's epochs."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from opscope.kaldi.files.sparse import to_dense
from opscope.speech.training import chain
from opscope.speech.training.options import RecognizerOptions
from spoken_tones import SMALL


@pytest.fixture
def course(trained: Path, tmp_path: Path) -> chain.ChainTraining:
    """The training of the flat start, before its first epoch."""
    return of_flat_start(trained, tmp_path, RecognizerOptions(**SMALL))


def of_flat_start(trained: Path, folder: Path, options: RecognizerOptions) -> chain.ChainTraining:
    work = trained / "model.work"
    places = (str(work / name) for name in ("examples", "graphs", "network/0.raw"))
    return chain.ChainTraining(*places, str(folder), options, lambda line: None)


def begin_of(course: chain.ChainTraining, number: int, epoch: int) -> int:
    """The row of the stored features that comes first in the epoch."""
    rows = to_dense(course.examples[number].inputs[0].features)
    given = to_dense(course.example(number, epoch).inputs[0].features)
    (found,) = (at for at in range(3) if (rows[at : at + len(given)] == given).all())
    return found


def test_each_epoch_shifts_an_example_by_other_frames(course):
    """The rows that the network reads begin one earlier or later, at the same times."""
    left, right = 14, 14
    for number in range(3):
        stored = course.examples[number]
        rows = to_dense(stored.inputs[0].features)
        assert stored.inputs[0].indexes[0, 1] == -left - 1
        begins = set()
        for epoch in range(3):
            example = course.example(number, epoch)
            (given,) = example.inputs
            (output,) = example.outputs
            begin = begin_of(course, number, epoch)
            begins.add(begin)
            np.testing.assert_array_equal(output.indexes, stored.outputs[0].indexes)
            times = given.indexes[:, 1]
            np.testing.assert_array_equal(
                times, np.arange(-left, output.indexes[-1, 1] + right + 1)
            )
            np.testing.assert_array_equal(
                to_dense(given.features), rows[begin : begin + len(times)]
            )
        assert begins == {0, 1, 2}


def test_an_epoch_has_all_shifts(course):
    for epoch in range(2):
        begins = Counter(begin_of(course, at, epoch) for at in range(len(course.examples)))
        assert set(begins) == {0, 1, 2}
        assert max(begins.values()) - min(begins.values()) <= 1


@pytest.fixture
def great(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> chain.ChainTraining:
    """A training on 1,800 examples, of each of which an epoch gets its number and its shift."""
    monkeypatch.setattr(chain, "ExampleStore", lambda *_: range(1800))
    monkeypatch.setattr(chain, "shifted", lambda number, shift: (number, shift))
    monkeypatch.setattr(chain, "selected", lambda moved, *_: moved)
    return of_flat_start(trained, tmp_path, RecognizerOptions(**SMALL))


def assert_even(given: list[tuple[int, int]], kinds: int) -> None:
    """Each kind of example, every so many-th one, has each shift about as often."""
    counts = Counter((number % kinds, shift) for number, shift in given)
    expected = len(given) / (kinds * 3)
    assert len(counts) == kinds * 3
    assert max(abs(count - expected) for count in counts.values()) < 3.5 * math.sqrt(expected)


@pytest.mark.parametrize("copies", [1, 2, 3, 4, 6])
def test_copies_of_each_kind_have_all_shifts(great, copies):
    """The copies of an utterance, of which one is slower, another extended by silence, follow each
    other: the kind of an example is its number modulo their count."""
    for epoch in range(3):
        assert_even([great.example(number, epoch) for number in range(1800)], copies)


@pytest.mark.parametrize("copies", [1, 3])
def test_models_are_judged_by_examples_of_all_kinds(great, monkeypatch, copies):
    monkeypatch.setattr(chain.ChainExampleMerger, "merge", lambda _, examples: enumerate(examples))
    monkeypatch.setattr(chain, "combine", lambda models, count, examples, *_, **__: examples)
    judged = great.combined()
    assert len(judged) == len(set(judged)) == 200
    assert_even(judged, copies)
    assert great.combined() == judged


def steps_of(course: chain.ChainTraining, epoch: int) -> list[tuple[int, int, float]]:
    """Examples, frames of each, and the bound on the network's change, by minibatch."""
    found = []
    for example in course.minibatches(epoch):
        count = course.trainer.objective.count(example)
        frames = len(example.inputs[0].indexes) // count
        found.append((count, frames, course.trainer.options.max_param_change))
    return found


def test_the_first_frames_are_read_in_smaller_steps(course, monkeypatch):
    monkeypatch.setattr(chain, "_FIRST_FRAMES", 500)
    steps = steps_of(course, 0)
    small = [step for step in steps if step[2] != 2.0]
    assert {bound for *_, bound in small} == {2.0 / math.sqrt(2)}
    assert {count for count, *_ in small} == {1, 2}
    assert steps[: len(small)] == small
    longest = max(frames for _, frames, _ in steps)
    assert 500 <= sum(count * frames for count, frames, _ in small) < 500 + longest
    assert {count for count, *_ in steps[len(small) :]} >= {4}
    assert sum(count for count, *_ in steps) == len(course.examples)
    assert {bound for *_, bound in steps_of(course, 1)} == {2.0}


def test_a_model_that_is_tuned_begins_with_whole_minibatches(trained, tmp_path):
    options = RecognizerOptions(base="model", minibatch="4,2,1")
    steps = steps_of(of_flat_start(trained, tmp_path, options), 0)
    assert {bound for *_, bound in steps} == {2.0}
    assert max(count for count, *_ in steps) == 4


def test_the_learning_rate_falls_with_the_examples(course, monkeypatch):
    rates: list[float] = []
    seen = [0]
    monkeypatch.setattr(course.trainer, "set_learning_rate", rates.append)
    monkeypatch.setattr(
        course.trainer, "train", lambda each: seen.append(course.trainer.objective.count(each))
    )
    course.run()
    options = RecognizerOptions(**SMALL)
    done = np.cumsum(seen)
    assert done[-1] == options.epochs * len(course.examples)
    expected = [options.learning_rate(each / done[-1]) for each in done[:-1].tolist()]
    np.testing.assert_allclose(rates, expected)
