"""Recordings with more silence at their end."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.speech.audio.silence import with_silence

RATE = 8000


def recording(quiet: float = 30.0) -> np.ndarray:
    """A second of a loud tone between two pauses of noise, of 0.2 s each; the second is louder."""
    rng = np.random.default_rng(0)
    tone = 3000 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
    pause = RATE // 5
    parts = rng.normal(0, quiet, pause), tone, rng.normal(0, 4 * quiet, pause)
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("count", [1, 199, 200, 1000, 5000])
def test_the_end_is_the_quietest_noise(count):
    samples = recording()
    longer = with_silence(samples, RATE, count)
    assert longer.dtype == np.float32
    assert len(longer) == len(samples) + count
    half = RATE // 40
    np.testing.assert_array_equal(longer[: len(samples) - half], samples[:-half])
    added = longer[len(samples) :]
    assert np.abs(added).max() < 5 * 30
    if count >= 1000:
        assert 20 < np.sqrt(np.mean(added**2)) < 40
        # Parts fade into each other: no gap between them is nearly silent.
        energies = np.mean(added[: count // 100 * 100].reshape(-1, 100) ** 2, axis=1)
        assert energies.min() > 10**2


def test_digital_silence_is_taken_where_there_is_no_other():
    samples = np.concatenate([np.zeros(RATE, np.float32), recording()])
    assert np.abs(with_silence(samples, RATE, 800)[-400:]).max() > 0
    nothing = np.zeros(RATE, np.float32)
    np.testing.assert_array_equal(with_silence(nothing, RATE, 100), np.zeros(RATE + 100))


def test_short_recordings_and_no_silence_at_all():
    samples = np.arange(1, 4, dtype=np.float32)
    np.testing.assert_array_equal(with_silence(samples, RATE, 0), samples)
    np.testing.assert_array_equal(with_silence(samples, RATE, -2), samples)
    assert with_silence(samples, RATE, 5).shape == (8,)
    assert with_silence(samples[:1], RATE, 2).tolist() == [1, 0, 0]
    assert with_silence(samples[:0], RATE, 2).tolist() == [0, 0]
