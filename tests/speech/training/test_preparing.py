"""Copies of utterances: their lengths, speeds and volumes."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import ArgumentError
from opscope.speech.audio.wav import Audio
from opscope.speech.training.checking import Recorded
from opscope.speech.training.options import RecognizerOptions
from opscope.speech.training.preparing import (
    Target,
    allowed_lengths,
    at_length,
    read_features,
    targets,
    write_cepstra,
)
from spoken_tones import RATE, spoken, write_recording

LENGTHS = np.array([90, 102, 114, 126, 141])


@pytest.mark.parametrize(
    "frames, copies, expected",
    [
        (110, 1, [(114, False)]),
        (110, 2, [(102, False), (114, False)]),
        (110, 3, [(102, False), (114, False), (114, True)]),
        (103, 3, [(102, False), (114, False), (114, True)]),
        (110, 4, [(102, False), (114, False), (126, False), (114, True)]),
        (114, 3, [(114, False), (126, False), (126, True)]),
    ],
)
def test_copies_are_faster_slower_and_extended(frames, copies, expected):
    assert targets(LENGTHS, frames, copies) == [Target(*each) for each in expected]


@pytest.mark.parametrize("frames", [[8], [100], [92, 605]])
def test_each_utterance_can_be_extended(frames):
    lengths = allowed_lengths(frames, 0.12)
    for each in frames:
        assert targets(lengths, each, 3)[-1].frames > each


@pytest.mark.parametrize("step", [0.01, 0.02, 0.05, 0.12, 0.5])
def test_short_utterances_can_be_extended_whatever_the_step(step):
    for most in range(8, 121):
        for least in {8, most // 2 + 4, most}:
            lengths = allowed_lengths([least, most], step)
            assert (np.diff(lengths) > 0).all() and (lengths % 3 == 0).all()
            extended = targets(lengths, most, 3)[-1]
            assert extended.extended and most < extended.frames <= most * (1 + step) ** 3 + 3


def test_copies_for_which_there_are_no_lengths_are_told(tmp_path):
    """Small steps round to few lengths where all utterances have one."""
    recording, samples = tmp_path / "one.wav", spoken("low high", np.random.default_rng(0))
    write_recording(recording, samples)
    seconds = len(samples) / RATE
    utterances = [Recorded(key, str(recording), "low high", seconds=seconds) for key in ("a", "b")]
    for copies, made in ((3, 3), (5, 3)):
        lines: list[str] = []
        options = RecognizerOptions(copies=copies, speed_step=0.01)
        write_cepstra(utterances, RATE, options, str(tmp_path), lines.append)
        assert len(list(read_features(str(tmp_path)))) == 2 * made
        assert len(lines) == (made < copies)
    assert lines == [
        "  3 copies of each utterance, not 5: --speed-step 0.01 leaves 2 lengths for utterances of"
        " 79 frames"
    ]


def test_an_extended_copy_has_the_same_samples():
    samples = spoken("low high", np.random.default_rng(0)).astype(np.float32)
    audio = Audio(samples[None], float(RATE))
    own = int(len(samples) / RATE * 100)
    longer = at_length(audio, Target(own + 30, True))
    np.testing.assert_array_equal(longer[: len(samples) - 200], samples[:-200])
    slower = at_length(audio, Target(own + 30, False))
    assert abs(len(slower) - len(longer)) < RATE // 100


def test_volumes():
    assert RecognizerOptions().volume_range == (0.25, 2.0)
    assert RecognizerOptions(volumes="1,1").volume_range == (1.0, 1.0)
    for wrong in ("1", "2,1", "0,1", "a,b", "1,2,3", "1,inf", "nan,1", ""):
        with pytest.raises(ArgumentError, match="volumes=.*: two positive factors"):
            RecognizerOptions(volumes=wrong)
