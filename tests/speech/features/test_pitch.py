"""Pitch and PLP against numbers that Kaldi's own programs gave, whole and in blocks; odd input.

`kaldi_pitch_plp.json` holds what compute-plp-feats, compute-kaldi-pitch-feats,
process-kaldi-pitch-feats and compute-and-process-kaldi-pitch-feats (built from Kaldi's sources,
with OpenBLAS) wrote of `voiced`, as WAV files, with the options of each case and --dither=0; of PLP
every tenth frame.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.speech import Pitch, PitchOptions, Plp, ProcessPitchOptions
from opscope.speech.features.pitch import PitchTracker
from opscope.speech.features.pitch_processing import PitchProcessor, whole_pitch

_KALDI = json.loads((Path(__file__).parent / "kaldi_pitch_plp.json").read_text())


def voiced(rate: float) -> np.ndarray:
    """Two seconds: a rising voice, silence, noise, a falling voice; int16."""
    time = np.arange(int(2 * rate)) / rate
    pitch = np.where(time < 1, 90 + 120 * time, 420 - 160 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = sum(np.sin(order * phase) / order for order in (1, 2, 3, 5))
    noise = np.random.default_rng(5).standard_normal(len(time))
    loud = np.where(time < 0.8, 5000, np.where(time < 1.3, 0, 3000)) * voice
    hiss = np.where((time > 1.0) & (time < 1.3), 700, np.where(time >= 1.3, 60, 8)) * noise
    return np.rint(loud + hiss).astype(np.int16)


def _kaldis(name: str, rate: float) -> np.ndarray:
    return np.array(_KALDI[f"{name} {rate:.0f}"])


_PLP = {
    "plp": {},
    "plp changed": {
        "use_energy": False,
        "lpc_order": 10,
        "num_ceps": 9,
        "cepstral_lifter": 0,
        "cepstral_scale": 10.0,
        "htk_compat": True,
        "snip_edges": False,
    },
}
_FIRST = {"frames_per_chunk": 10, "simulate_first_pass_online": True}
_TRACKS = {
    "pitch": {},
    "first pass": {**_FIRST, "max_frames_latency": 20, "recompute_frame": 100},
    "chunks": {
        "frames_per_chunk": 7,
        "recompute_frame": 100,
        "snip_edges": False,
        "preemphasis_coefficient": 0.5,
    },
    "ballast": {
        "frames_per_chunk": 7,
        "nccf_ballast_online": True,
        "min_f0": 70.0,
        "max_f0": 300.0,
        "penalty_factor": 0.3,
    },
}


@pytest.mark.parametrize("rate", [8000.0, 16000.0])
@pytest.mark.parametrize("name", _PLP)
def test_plp_is_kaldis(name, rate):
    made = Plp(dither=0.0, sample_frequency=rate, **_PLP[name]).compute(voiced(rate), rate)
    np.testing.assert_allclose(made[::10], _kaldis(name, rate), rtol=1e-4, atol=1e-4)


def test_silence_has_finite_plp():
    assert np.isfinite(Plp(dither=0.0, use_energy=False).compute(np.zeros(2000), 16000)).all()


@pytest.mark.parametrize(
    "name, rate",
    [("pitch", 8000.0), ("ballast", 8000.0), *((each, 16000.0) for each in _TRACKS)],
)
def test_pitch_is_kaldis(name, rate):
    options = PitchOptions(sample_frequency=rate, **_TRACKS[name])
    made = whole_pitch(PitchTracker(options), options, voiced(rate))
    np.testing.assert_allclose(made, _kaldis(name, rate), atol=1e-3)


def test_processing_is_kaldis():
    options = ProcessPitchOptions(
        delta_pitch_noise_stddev=0.0,
        add_raw_log_pitch=True,
        delay=3,
        normalization_left_context=40,
        normalization_right_context=20,
        delta_window=3,
        pov_offset=0.5,
    )
    raw = _kaldis("pitch", 16000).astype(np.float32)
    made = PitchProcessor(options).processed(raw, 0, 0, len(raw) + 3)
    np.testing.assert_allclose(made, _kaldis("processed", 16000), atol=1e-3)


@pytest.mark.parametrize("rate", [8000.0, 16000.0])
def test_online_features_are_kaldis(rate):
    options = PitchOptions(sample_frequency=rate, **_FIRST)
    quiet = ProcessPitchOptions(delta_pitch_noise_stddev=0.0, normalization_right_context=15)
    made = Pitch(options, quiet).compute(voiced(rate))
    np.testing.assert_allclose(made, _kaldis("both", rate), atol=1e-3)


def test_a_stream():
    """At the end it has the frames of the whole, whatever the blocks are; noise is repeated."""
    samples = voiced(8000)
    pitch = Pitch(PitchOptions(sample_frequency=8000.0), seed=3)
    stream = pitch.stream()
    counts = []
    for start in range(0, len(samples), 777):
        stream.accept(samples[start : start + 777])
        counts.append(stream.frames_ready)
        assert stream.frames(max(counts[-1] - 5, 0)).shape == (min(counts[-1], 5), 3)
    stream.finish()
    assert counts[0] == 0 < counts[-1] < stream.frames_ready == 198
    whole = pitch.compute(samples)
    assert np.array_equal(whole, pitch.compute(samples))
    assert not np.array_equal(whole, pitch.compute(samples, seed=4))
    np.testing.assert_allclose(stream.frames(), whole, atol=0.02)
    np.testing.assert_array_equal(stream.frames(50, 60), stream.frames()[50:60])
    with pytest.raises(OpscopeError, match="finished"):
        stream.accept(samples)
    with pytest.raises(OpscopeError, match="finished"):
        stream.finish()


def test_another_rate_is_resampled():
    made = Pitch().compute(voiced(8000), 8000)
    wanted = Pitch(PitchOptions(sample_frequency=8000.0)).compute(voiced(8000))
    assert np.abs(made - wanted)[:, 1].max() < 0.1


def test_short_and_silent_signals():
    assert Pitch().compute(np.zeros(100)).shape == (0, 3)
    assert Pitch().compute(np.empty(0)).shape == (0, 3)
    assert np.isfinite(Pitch().compute(np.zeros(4000))).all()
    with pytest.raises(ShapeError):
        Pitch().compute(np.zeros((2, 400)))


@pytest.mark.parametrize(
    "kind, changes, said",
    [
        (PitchOptions, {"min_f0": 500.0}, "min_f0 < max_f0"),
        (PitchOptions, {"delta_pitch": 1e-6}, "more than 4096 lags"),
        (PitchOptions, {"lowpass_cutoff": 2500.0}, "at most 2000"),
        (PitchOptions, {"max_f0": 3900.0}, "lags from -1"),
        (PitchOptions, {"min_f0": 1e-3, "delta_pitch": 0.1}, "16384 samples"),
        (PitchOptions, {"frame_shift": 0.1}, "0 apart"),
        (PitchOptions, {"recompute_frame": -1}, "recompute_frame=-1"),
        (PitchOptions, {"simulate_first_pass_online": True}, "wants frames_per_chunk"),
        (PitchOptions, {"snip_edges": 1}, "want a bool"),
        (ProcessPitchOptions, {"delay": -1}, "delay=-1"),
        (ProcessPitchOptions, {"delta_window": 0}, "delta-window=0"),
        (
            ProcessPitchOptions,
            dict.fromkeys(
                ("add_pov_feature", "add_normalized_log_pitch", "add_delta_pitch"), False
            ),
            "no feature of the pitch",
        ),
    ],
)
def test_wrong_options(kind, changes, said):
    with pytest.raises(OpscopeError, match=said):
        kind(**changes)


def test_a_config_of_both(tmp_path):
    path = tmp_path / "online_pitch.conf"
    path.write_text("--sample-frequency=8000\n--delay=2\n--add-raw-log-pitch=true\n")
    pitch = Pitch(config=path)
    assert (pitch.tracking.sample_frequency, pitch.processing.delay, pitch.dim) == (8000.0, 2, 4)
    with pytest.raises(OpscopeError, match="one of them"):
        Pitch(PitchOptions(), config=path)
    path.write_text("--dilay=2\n")
    with pytest.raises(FormatError, match=r"pitch.conf:1: invalid option --dilay.*delay"):
        Pitch(config=path)
    with pytest.raises(OpscopeError, match="whole numbers"):
        Pitch(seed=-1).stream()
