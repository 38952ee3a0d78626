"""Other sampling rates: against Kaldi's formulas, sample by sample."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.speech import Mfcc, Resampler, resample
from speech_data import sounds

RATES = [(8000, 16000), (16000, 8000), (44100, 16000), (22050, 16000), (16000, 11025), (7, 3)]


def by_kaldi(samples: np.ndarray, rate: int, new: int, cutoff: float) -> np.ndarray:
    """The whole signal by the formula: a sinc in a raised cosine, a sum for each new sample."""
    width = 6 / (2 * cutoff)
    count = 0
    while count * rate < len(samples) * new:
        count += 1
    made = np.zeros(count)
    for number in range(count):
        time = number / new
        first, last = math.ceil((time - width) * rate), math.floor((time + width) * rate)
        for place in range(max(first, 0), min(last + 1, len(samples))):
            away = place / rate - time
            window = 0.5 * (1 + math.cos(2 * math.pi * cutoff / 6 * away))
            sinc = math.sin(2 * math.pi * cutoff * away) / (math.pi * away) if away else 2 * cutoff
            made[number] += samples[place] * sinc * window / rate
    return made


@pytest.mark.parametrize("whole_file", [True, False])
@pytest.mark.parametrize(("rate", "new"), RATES)
def test_formula(rate, new, whole_file):
    samples = sounds(600).astype(np.float32)
    cutoff = min(rate, new) / 2 * (0.99 if whole_file else 1.0)
    made = resample(samples, rate, new, whole_file=whole_file)
    wanted = by_kaldi(samples, rate, new, cutoff)
    assert made.dtype == np.float32 and made.shape == wanted.shape
    np.testing.assert_allclose(made, wanted, atol=0.02)


@pytest.mark.parametrize(("rate", "new"), RATES)
def test_blocks_have_the_bits_of_the_whole(rate, new):
    samples = sounds(3000).astype(np.float32)
    resampler = Resampler(rate, new)
    whole = resampler.accept(samples, flush=True)
    for block in (1, 37, 500, 2999):
        made = [resampler.accept(samples[at : at + block]) for at in range(0, len(samples), block)]
        given = sum(map(len, made))
        assert given == resampler.output_count(len(samples), flush=False)
        made.append(resampler.accept(np.empty(0, np.float32), flush=True))
        assert np.array_equal(np.concatenate(made), whole)


def test_a_tone_stays():
    times = np.arange(8000) / 8000
    made = resample(1000 * np.sin(2 * np.pi * 440 * times), 8000, 44100)
    wanted = 1000 * np.sin(2 * np.pi * 440 * np.arange(len(made)) / 44100)
    assert len(made) == 44100
    assert np.abs(made - wanted)[500:-500].max() < 5


def test_rates():
    assert np.array_equal(resample(np.arange(5), 8000, 8000), np.arange(5))
    assert resample(np.empty(0), 8000, 16000).shape == (0,)
    for wrong in (0, -8000, 8000.5, 1e12, float("nan")):
        with pytest.raises(OpscopeError, match="want a whole number"):
            Resampler(wrong, 16000)
    with pytest.raises(OpscopeError, match="too little in common"):
        Resampler(9999991, 9999973)


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_features_at_other_rates(rate):
    """Features of a resampled signal, in blocks; the programs for whole files filter a little
    otherwise."""
    features = Mfcc(dither=0.0, allow_downsample=True, allow_upsample=True, use_energy=False)
    samples = sounds(rate // 2, rate)
    stream = features.stream(rate)
    made = [stream.accept(samples[at : at + 777]) for at in range(0, len(samples), 777)]
    made = np.concatenate([*made, stream.finish()])
    streamed = Mfcc(dither=0.0, use_energy=False).compute(
        resample(samples, rate, 16000, whole_file=False)
    )
    assert np.array_equal(made, streamed)
    whole = features.compute(samples, rate)
    again = Mfcc(dither=0.0, use_energy=False).compute(resample(samples, rate, 16000))
    assert np.array_equal(whole, again)
    assert len(whole) == len(made) == 48
    # The filter ends a little lower, which the highest bins tell.
    assert not np.array_equal(whole, made)
