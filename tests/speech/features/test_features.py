"""MFCC and filter banks: against Kaldi's own code, in blocks, with odd input."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.framework.fusion.compiled import native
from opscope.speech import Fbank, Mfcc, MfccOptions, Spectrogram, mfcc
from opscope.speech.features.mel import MelBin, WeightedRows
from opscope.speech.features.transforms import DeltaOptions, deltas
from speech_data import BLOCK, SENTENCES, sentence, sounds, vosk_model

# Our name of an option, that of kaldi-native-fbank, and where it keeps it.
_ORACLE = {
    "sample_frequency": ("frame_opts", "samp_freq"),
    "frame_length": ("frame_opts", "frame_length_ms"),
    "frame_shift": ("frame_opts", "frame_shift_ms"),
    "preemphasis_coefficient": ("frame_opts", "preemph_coeff"),
    "num_mel_bins": ("mel_opts", "num_bins"),
    "low_freq": ("mel_opts", "low_freq"),
    "high_freq": ("mel_opts", "high_freq"),
    **{
        name: ("frame_opts", name)
        for name in (
            "dither",
            "window_type",
            "blackman_coeff",
            "remove_dc_offset",
            "round_to_power_of_two",
            "snip_edges",
        )
    },
}


def oracle(kind: str, samples: np.ndarray, rate: float, changes: dict) -> np.ndarray:
    """What Kaldi's code computes, as kaldi-native-fbank has it."""
    knf = pytest.importorskip("kaldi_native_fbank")
    options = getattr(knf, f"{kind}Options")()
    options.frame_opts.dither = 0.0
    if kind == "Mfcc":
        options.mel_opts.num_bins = 23
    for name, value in changes.items():
        place, inner = _ORACLE.get(name, ("", name))
        setattr(getattr(options, place) if place else options, inner, value)
    computer = getattr(knf, f"Online{kind}")(options)
    computer.accept_waveform(rate, samples.astype(np.float32).tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(i) for i in range(computer.num_frames_ready)])


_FRAMES = [
    {},
    {"snip_edges": False},
    {"sample_frequency": 8000.0},
    {"frame_length": 20.0, "frame_shift": 12.5},
    {"preemphasis_coefficient": 0.0, "remove_dc_offset": False},
    {"round_to_power_of_two": False},
    {"low_freq": 60.0, "high_freq": -400.0, "num_mel_bins": 30},
    *({"window_type": name} for name in ("hamming", "hanning", "rectangular", "sine")),
    {"window_type": "blackman", "blackman_coeff": 0.4},
]
_MFCC = [
    *_FRAMES,
    {"use_energy": False},
    {"raw_energy": False},
    {"energy_floor": 1e9},
    {"cepstral_lifter": 0.0, "num_ceps": 20},
    {"htk_compat": True},
    {"htk_compat": True, "use_energy": False},
]
_FBANK = [
    *_FRAMES,
    {"use_energy": True},
    {"use_energy": True, "raw_energy": False, "htk_compat": True},
    {"use_log_fbank": False},
    {"use_power": False},
]


@pytest.mark.parametrize("changes", _MFCC, ids=str)
def test_mfcc_is_kaldis(changes):
    rate = changes.get("sample_frequency", 16000.0)
    samples = sounds(rate=rate)
    made = Mfcc(dither=0.0, **changes).compute(samples, rate)
    np.testing.assert_allclose(made, oracle("Mfcc", samples, rate, changes), atol=4e-3, rtol=1e-5)


@pytest.mark.parametrize("changes", _FBANK, ids=str)
def test_fbank_is_kaldis(changes):
    rate = changes.get("sample_frequency", 16000.0)
    samples = sounds(rate=rate)
    made = Fbank(dither=0.0, **changes).compute(samples, rate)
    wanted = oracle("Fbank", samples, rate, changes)
    np.testing.assert_allclose(made, wanted, atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("raw", [True, False])
def test_spectrogram(raw):
    """Against the definition: kaldi-native-fbank has none."""
    samples = sounds(4000)
    made = Spectrogram(dither=0.0, raw_energy=raw, energy_floor=1.0).compute(samples, 16000)
    assert made.shape == (23, 257)
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
    stream = Spectrogram(dither=0.0, raw_energy=raw, energy_floor=1.0).stream()
    parts = [stream.accept(samples[at : at + 333]) for at in range(0, 4000, 333)]
    assert np.array_equal(np.concatenate(parts), made)
    for frame in (0, 11, 22):
        cut = samples[160 * frame : 160 * frame + 400].astype(np.float64)
        plain = cut - cut.mean()
        ready = (plain - 0.97 * np.concatenate((plain[:1], plain[:-1]))) * window
        power = np.abs(np.fft.rfft(ready, 512)) ** 2
        np.testing.assert_allclose(made[frame, 1:], np.log(power[1:]), atol=0.05)
        energy = np.log(np.sum((plain if raw else ready) ** 2))
        assert abs(made[frame, 0] - energy) < 1e-4
    packed = Spectrogram(dither=0.0, return_raw_fft=True).compute(samples, 16000)
    spectrum = np.fft.rfft(ready, 512)
    wanted = np.stack((spectrum.real, spectrum.imag), axis=1)[:-1].ravel()
    wanted[1] = spectrum[-1].real
    assert packed.shape == (23, 512)
    np.testing.assert_allclose(packed[22], wanted, atol=0.5, rtol=1e-4)


@pytest.mark.parametrize("name", SENTENCES)
def test_mfcc_of_a_model_are_vosks(name):
    audio, wanted = sentence(name)
    features = Mfcc(config=vosk_model("conf", "mfcc.conf"), dither=0.0)
    made = features.compute(audio.channel(), audio.rate)
    assert made.shape == wanted["mfcc"].shape
    assert np.abs(made - wanted["mfcc"]).max() < 0.004


@pytest.mark.parametrize("kind", [Mfcc, Fbank])
@pytest.mark.parametrize("snip", [True, False])
@pytest.mark.parametrize("block", [1, 7, 159, 160, 401, BLOCK, 5000])
def test_blocks_have_the_bits_of_the_whole(kind, snip, block):
    samples = sounds(6000 if block > 100 else 900)
    features = kind(snip_edges=snip, use_energy=True, dither=1.0)
    stream = features.stream(16000)
    made = [stream.accept(samples[at : at + block]) for at in range(0, len(samples), block)]
    ready = stream.frames_ready
    assert ready == sum(map(len, made)) and not stream.finished
    made.append(stream.finish())
    assert stream.finished
    whole = features.compute(samples, 16000)
    assert np.array_equal(np.concatenate(made), whole) and len(whole) == stream.frames_ready
    stream.reset()
    first = stream.accept(samples)
    assert np.array_equal(np.concatenate((first, stream.finish())), whole)


@pytest.mark.parametrize("count", [1, 20, 150, 160, 500])
def test_short_signals_are_reflected(count):
    samples = sounds(count + 1)[:count]
    made = Mfcc(snip_edges=False, dither=0.0).compute(samples, 16000)
    if count < 80:
        assert made.shape == (0, 13)
        return
    wanted = oracle("Mfcc", samples, 16000, {"snip_edges": False})
    np.testing.assert_allclose(made, wanted, atol=4e-3, rtol=1e-5)


def test_many_frames_are_those_of_few():
    samples = np.tile(sounds(16000), 23)
    features = Fbank(dither=0.0)
    whole = features.compute(samples, 16000)
    assert len(whole) > 2048
    again = features.compute(samples[2040 * 160 :], 16000)
    assert np.array_equal(whole[2040:], again)


def test_dither_has_a_seed():
    samples = sounds(4000)
    made = [Mfcc(seed=seed).compute(samples, 16000) for seed in (1, 1, 2)]
    assert np.array_equal(made[0], made[1]) and not np.array_equal(made[0], made[2])
    assert np.array_equal(Mfcc().compute(samples, seed=1), made[0])
    plain = Mfcc(dither=0.0).compute(samples)
    assert 0 < np.abs(made[0] - plain).mean() < 1.0


def test_dither_of_still_frames_alone():
    rng = np.random.default_rng(3)
    samples = rng.normal(0, 50, 4800).astype(np.float32)
    samples[1600:3200] = 7  # a constant is no signal, either
    samples[2000:2400:3] += 1
    some = Fbank(dither_still=True)
    made = some.compute(samples)
    every, none = Fbank().compute(samples), Fbank(dither=0.0).compute(samples)
    still = np.array([np.ptp(samples[160 * i : 160 * i + 400]) <= 1 for i in range(len(made))])
    assert 0 < still.sum() < len(made)
    assert np.array_equal(made[still], every[still])
    assert np.array_equal(made[~still], none[~still])
    assert not np.array_equal(made[still], none[still])
    stream = some.stream()
    blocks = [stream.accept(samples[i : i + 700]) for i in range(0, len(samples), 700)]
    assert np.array_equal(np.concatenate([*blocks, stream.finish()]), made)


def test_dither_fills_a_silence():
    made = Fbank(dither=2.0).compute(np.zeros(16000))
    again = Fbank(dither=1.0).compute(np.zeros(16000))
    # Noise of twice the size has 4 times the power.
    assert abs((made - again).mean() - np.log(4)) < 0.1
    floor = Fbank(dither=0.0).compute(np.zeros(16000))
    assert np.all(floor == np.log(np.finfo(np.float32).eps))


def test_the_short_way():
    samples = sounds(4000)
    made = mfcc(samples, 16000, num_ceps=20, dither=0.0)
    assert np.array_equal(made, Mfcc(num_ceps=20, dither=0.0).compute(samples, 16000))
    assert mfcc(samples, 8000).shape == (48, 13)  # at its own rate


def test_config_files(tmp_path):
    path = tmp_path / "mfcc.conf"
    path.write_text("# a comment\n--num_ceps=7  # another\n\n--use-energy=false\n--dither=0\n")
    assert Mfcc(config=path).options == MfccOptions(num_ceps=7, use_energy=False, dither=0.0)
    assert Mfcc(config=path, num_ceps=9).options.num_ceps == 9


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("--num-cepts=7", "mfcc.conf:1: invalid option --num-cepts, did you mean"),
        ("num-ceps=7", "mfcc.conf:1: 'num-ceps=7' is no line like --name=value"),
        ("\n--num-ceps=x", "mfcc.conf:2: --num-ceps=x is no integer"),
        ("--num-ceps=99", "mfcc.conf: num_ceps=99 must lie from 1 to num_mel_bins=23"),
        ("--window-type=square", "is no window"),
        (b"\xff", "no text"),
    ],
)
def test_configs_that_are_none(tmp_path, text, part):
    path = tmp_path / "mfcc.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(OpscopeError, match=part.split(", did")[0].replace("--", "-+")):
        Mfcc(config=path)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"num_cepts": 3}, "no option 'num_cepts'"),
        ({"num_ceps": 0}, "num_ceps=0"),
        ({"num_ceps": 2.5}, "num_ceps=2.5: want a int"),
        ({"dither": -1.0}, "dither=-1"),
        ({"dither": float("nan")}, "dither=nan"),
        ({"frame_shift": 0.0}, "0 apart"),
        ({"frame_length": 1e9}, "want 2 to 65536 samples"),
        ({"high_freq": 9000.0}, "Nyquist"),
        ({"low_freq": 8000.0}, "Nyquist"),
        ({"num_mel_bins": 250, "num_ceps": 3}, "bin 2 has no point"),
        ({"num_mel_bins": 300}, "FFT of 512 points has at most 256 bins"),
        ({"preemphasis_coefficient": 2.0}, "from 0 to 1"),
        ({"sample_frequency": 0.0}, "sample_frequency=0"),
    ],
)
def test_options_that_do_not_go(changes, part):
    with pytest.raises(OpscopeError, match=part):
        Mfcc(**changes)


def test_samples_that_do_not_go(caplog):
    features = Mfcc(dither=0.0)
    with pytest.raises(ShapeError, match="features need one channel"):
        features.compute(np.zeros((2, 1000)))
    with pytest.raises(OpscopeError, match="1 of 1000 samples are NaN or infinite.*sample 7"):
        samples = np.zeros(1000)
        samples[7] = np.nan
        features.compute(samples)
    with pytest.raises(OpscopeError, match="dtype complex128"):
        features.compute(np.zeros(1000, complex))
    with pytest.raises(OpscopeError, match=r"8000 Hz.*at 16000 Hz \(use --allow-upsample=true"):
        features.compute(np.zeros(1000), 8000)
    with pytest.raises(OpscopeError, match="--allow-downsample=true"):
        features.stream(44100)
    with pytest.raises(OpscopeError, match="rate"):
        features.compute(np.zeros(1000), "8000")
    with pytest.raises(OpscopeError, match="seed=-1: want whole numbers"):
        features.compute(np.zeros(1000), seed=-1)
    stream = features.stream()
    stream.finish()
    with pytest.raises(OpscopeError, match="finished"):
        stream.accept(np.zeros(10))
    with pytest.raises(FormatError, match="none.conf"):
        Mfcc(config="none.conf")
    with caplog.at_level(logging.WARNING):
        assert features.compute([]).shape == (0, 13)
        assert features.compute(np.zeros(399)).shape == (0, 13)
    assert "399 samples are too short" in caplog.text
    with caplog.at_level(logging.WARNING):
        features.compute(np.full(1000, 0.5))
    assert "multiply by 32768" in caplog.text


def test_deltas_are_slopes():
    ramp = np.arange(12, dtype=np.float32)[:, None] * np.float32([1, -3])
    found = deltas(ramp)
    assert found.shape == (12, 6) and found.dtype == np.float32
    np.testing.assert_allclose(found[4:8], np.c_[ramp[4:8], [[1, -3, 0, 0]] * 4], atol=1e-5)
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    around = rows[np.clip(np.arange(5)[:, None] + np.arange(-2, 3), 0, 4)]
    first = np.einsum("tjd,j->td", around, np.arange(-2, 3) / 10)
    np.testing.assert_allclose(deltas(rows, DeltaOptions(1)), np.c_[rows, first], atol=1e-6)
    with pytest.raises(OpscopeError, match="delta-window=0"):
        DeltaOptions(window=0)


@pytest.mark.skipif(native.load("features") is None, reason="no native library")
@pytest.mark.parametrize("columns", [0, 1, 9])
def test_weighted_rows_in_c_and_numpy(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=8).astype(np.float32)
    sums = WeightedRows(
        [MelBin(0, weights[:1]), MelBin(2, weights[1:]), MelBin(1, np.full(1, 2, np.float32))]
    )
    rows = rng.normal(size=(9, columns)).astype(np.float32)
    found = sums.of(rows)
    np.testing.assert_array_equal(found[2], 2 * rows[1])
    with pytest.raises(ShapeError, match=r"sums of 9 rows for a matrix \[8,"):
        sums.of(rows[:8])
    monkeypatch.setattr("opscope.framework.fusion.compiled.native.load", lambda *_: None)
    np.testing.assert_array_equal(found, sums.of(rows))
