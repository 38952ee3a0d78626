"""Speakers who are enrolled, verified, found, forgotten, and strangers."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.speech import Speakers, SpeakerVector
from opscope.speech.speakers.plda import Plda

DIM = 6


def voices(count: int, seed: int) -> np.ndarray:
    return 4 * np.random.default_rng(seed).normal(size=(count, DIM))


def heard(voice: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    return (voice + np.random.default_rng(seed).normal(size=(count, DIM))).astype(np.float32)


@pytest.mark.parametrize("lda_dim", [0, 5])
def test_speakers(lda_dim, tmp_path):
    known = {f"s{n}": heard(voice, 5, n) for n, voice in enumerate(voices(60, 1))}
    trained = Speakers.train(known, lda_dim=lda_dim)
    trained.save(tmp_path / "folder")
    speakers = Speakers.load(tmp_path / "folder")
    people = {f"p{n}": voice for n, voice in enumerate(voices(8, 2))}
    for name, voice in people.items():
        speakers.enroll(name, SpeakerVector(heard(voice, 1, 3)[0], 100))
        speakers.enroll(name, heard(voice, 2, 4))
        trained.enroll(name, list(heard(voice, 1, 3)) + list(heard(voice, 2, 4)))
    assert speakers.names == list(people)
    right = wrong = strangers = 0
    for name, voice in people.items():
        for vector in heard(voice, 10, 5):
            right += speakers.identify(vector) == name
            scores = speakers.scores(vector)
            wrong += sum(match.score > 0 for match in scores if match.name != name)
            both = [match.score for match in trained.scores(vector)]
            np.testing.assert_allclose([match.score for match in scores], both, atol=1e-3)
            assert speakers.verify(name, vector) == (dict(map(_pair, scores))[name] > 0)
    for voice in voices(10, 6):
        strangers += speakers.identify(heard(voice, 1)[0]) is None
    assert right >= 76 and wrong <= 8 and strangers >= 8
    speakers.forget("p0")
    assert "p0" not in speakers.names
    with pytest.raises(OpscopeError, match="p0 is not enrolled; known are p1, p2"):
        speakers.verify("p0", vector)
    with pytest.raises(ShapeError, match="vectors of 5 elements: 6 are wanted"):
        speakers.enroll("p0", np.ones(5))
    with pytest.raises(FormatError, match="no vectors to enroll p0 with"):
        speakers.enroll("p0", np.ones((0, DIM)))


def _pair(match) -> tuple[str, float]:
    return match.name, match.score


def test_parts_that_do_not_go_together(tmp_path):
    plda = Plda(np.zeros(2), np.eye(2), np.ones(2))
    with pytest.raises(ShapeError, match="LDA 3 x 4 with a mean of 4 elements and PLDA of 2"):
        Speakers(plda, np.zeros(4), np.zeros((3, 4)))
    with pytest.raises(ShapeError, match="one number of elements"):
        Speakers.train({"a": np.ones((2, 2)), "b": np.ones((2, 3))})
    with pytest.raises(FormatError, match="No such file"):
        Speakers.load(tmp_path)
    assert Speakers(plda).scores(np.ones(2)) == []
    assert Speakers(plda).identify(np.ones(2)) is None
