"""CMVN, splicing and transforms: against Kaldi's rules frame by frame, and against Vosk."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.framework.fusion.compiled import native
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.speech import (
    OnlineCmvn,
    OnlineCmvnOptions,
    OnlineCmvnState,
    SlidingCmvnOptions,
    SpliceOptions,
    apply_cmvn,
    cmvn_stats,
    sliding_cmvn,
    splice,
    transform,
)
from speech_data import SENTENCES, sentence, vosk_model

RNG = np.random.default_rng(0)


def frames(count: int, dim: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, dim)) * 5 + [60, 3, -2][:dim]).astype(np.float32)


def smoothed(stats: np.ndarray, speaker: np.ndarray | None, everyone, options) -> np.ndarray:
    """Kaldi's smoothing: first with the speaker's frames, then with everyone's."""
    stats = stats.copy()
    for known, most in ((speaker, options.speaker_frames), (everyone, options.global_frames)):
        if known is None or stats[0, -1] >= options.cmn_window:
            continue
        count = min(options.cmn_window - stats[0, -1], most)
        count = min(count, known[0, -1]) if known is speaker else count
        stats += count / known[0, -1] * known
    return stats


def by_kaldi(features, asked, options, everyone, speaker=None) -> np.ndarray:
    """Frame after frame in the order asked for, with the statistics kept from one to the next."""
    kept, made = np.zeros((2, features.shape[1] + 1)), []
    for frame in asked:
        if features[frame, 0] >= options.cmn_min_energy:
            kept = cmvn_stats(features[max(frame + 1 - options.cmn_window, 0) : frame + 1])
        kept = smoothed(kept, speaker, everyone, options)
        made.append(apply_cmvn(features[frame : frame + 1], kept, options.normalize_variance)[0])
    return np.stack(made)


@pytest.mark.parametrize("variances", [False, True])
@pytest.mark.parametrize("quiet", [-np.inf, 55.0, 1000.0])
@pytest.mark.parametrize("known", [False, True])
def test_online_cmvn(variances, quiet, known):
    features, everyone = frames(120), cmvn_stats(frames(500, seed=1))
    speaker = cmvn_stats(frames(9, seed=2)) if known else None
    options = OnlineCmvnOptions(
        cmn_window=40,
        speaker_frames=15,
        global_frames=10,
        normalize_variance=variances,
        cmn_min_energy=quiet,
    )
    cmvn = OnlineCmvn(options, OnlineCmvnState(everyone, speaker))
    asked = RNG.integers(0, 120, 200)
    cmvn.accept(features)
    made = np.concatenate([cmvn.normalized(part) for part in np.array_split(asked, 7)])
    wanted = by_kaldi(features, asked, options, everyone, speaker)
    np.testing.assert_allclose(made, wanted, atol=2e-5)


def test_online_cmvn_in_blocks():
    features, everyone = frames(700), cmvn_stats(frames(50, seed=1))
    results = []
    for sizes in ([700], [1] * 100 + [600], [33] * 22):
        cmvn = OnlineCmvn(OnlineCmvnOptions(), OnlineCmvnState(everyone))
        made, at = [], 0
        for size in sizes:
            cmvn.accept(features[at : at + size])
            made.append(cmvn.normalized(np.arange(at, cmvn.frames_ready)))
            at += size
        results.append(np.concatenate(made))
        state = cmvn.next_state()
        np.testing.assert_allclose(state.speaker_stats, cmvn_stats(features))
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


def test_online_cmvn_is_left_out():
    features, state = frames(10), OnlineCmvnState(cmvn_stats(frames(9)))
    cmvn = OnlineCmvn(OnlineCmvnOptions(normalize_mean=False), state)
    cmvn.accept(features)
    assert np.array_equal(cmvn.normalized(np.arange(10)), features)
    cmvn = OnlineCmvn(OnlineCmvnOptions(skip_dims="0:2"), state)
    cmvn.accept(features)
    made = cmvn.normalized(np.arange(10))
    assert np.array_equal(made[:, [0, 2]], features[:, [0, 2]])
    assert not np.array_equal(made[:, 1], features[:, 1])


@pytest.mark.parametrize("name", SENTENCES)
def test_online_cmvn_and_lda_are_vosks(name):
    _, wanted = sentence(name)
    everyone = Reader(str(vosk_model("ivector", "global_cmvn.stats"))).read_matrix(np.float64)
    matrix = Reader(str(vosk_model("ivector", "final.mat"))).read_matrix()
    options = OnlineCmvnOptions(cmn_min_energy=50.0)
    numbers = np.arange(len(wanted["mfcc"]))
    cmvn = OnlineCmvn(options, OnlineCmvnState(everyone))
    cmvn.accept(wanted["mfcc"])
    assert np.abs(cmvn.normalized(numbers) - wanted["cmvn"]).max() < 1e-4
    # Quiet frames hang on the order: here that in which frames are put beside each other.
    cmvn = OnlineCmvn(options, OnlineCmvnState(everyone))
    cmvn.accept(wanted["mfcc"])
    around = SpliceOptions(3, 3).neighbors(numbers, len(numbers))
    spliced = cmvn.normalized(around.ravel()).reshape(len(numbers), -1)
    assert np.abs(transform(spliced, matrix) - wanted["lda"]).max() < 1e-4


def test_state_files():
    for binary in (True, False):
        for speaker in (None, np.arange(8.0).reshape(2, 4)):
            writer = Writer(binary)
            OnlineCmvnState(np.ones((2, 4)), speaker).write(writer)
            state = OnlineCmvnState.read(Reader(writer.getvalue()))
            assert np.array_equal(state.global_stats, np.ones((2, 4)))
            assert (speaker is None) == (state.speaker_stats is None)
            assert speaker is None or np.array_equal(state.speaker_stats, speaker)


def test_speaker_statistics():
    features = frames(50)
    stats = cmvn_stats(features)
    assert stats[0, -1] == 50 and stats.shape == (2, 4)
    made = apply_cmvn(features, stats, variances=True)
    np.testing.assert_allclose(made.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(made.std(axis=0), 1, atol=1e-4)
    back = apply_cmvn(made, stats, variances=True, reverse=True)
    np.testing.assert_allclose(back, features, atol=1e-4)
    weights = (np.arange(50) < 20).astype(np.float32)
    np.testing.assert_allclose(cmvn_stats(features, weights), cmvn_stats(features[:20]))


def by_sliding(features, options) -> np.ndarray:
    """Kaldi's windows, one by one."""
    made, count = np.zeros_like(features), len(features)
    for frame in range(count):
        start = frame - (options.cmn_window // 2 if options.center else options.cmn_window)
        end = start + options.cmn_window if options.center else frame + 1
        if start < 0:
            start, end = 0, end - start
        if not options.center and end > frame:
            end = max(frame + 1, options.min_window)
        if end > count:
            start, end = max(start - (end - count), 0), count
        part = features[start:end].astype(np.float64)
        made[frame] = features[frame] - part.mean(axis=0)
        if options.normalize_variance:
            made[frame] /= np.sqrt(np.maximum(part.var(axis=0), 1e-10))
            made[frame] *= len(part) > 1
    return made


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("variances", [False, True])
@pytest.mark.parametrize("count", [1, 7, 60])
def test_sliding_cmvn(center, variances, count):
    options = SlidingCmvnOptions(20, 8, center=center, normalize_variance=variances)
    features = frames(count)
    made = sliding_cmvn(features, options)
    np.testing.assert_allclose(made, by_sliding(features, options), atol=2e-5)


def test_sliding_cmvn_warns_of_constants(caplog):
    with caplog.at_level(logging.WARNING):
        sliding_cmvn(np.ones((9, 2)), SlidingCmvnOptions(5, 2, 3, normalize_variance=True))
    assert caplog.text.count("floored 2 elements") == 3
    assert caplog.text.count("Suppressing the remaining") == 1


def test_splice_and_transform():
    features = np.arange(8, dtype=np.float32).reshape(4, 2)
    made = splice(features, 1, 2)
    assert made[0].tolist() == [0, 1, 0, 1, 2, 3, 4, 5]
    assert made[3].tolist() == [4, 5, 6, 7, 6, 7, 6, 7]
    assert splice(features[:0], 1, 2).shape == (0, 8)
    matrix = RNG.normal(size=(3, 3)).astype(np.float32)
    wanted = features @ matrix[:, :2].T
    np.testing.assert_allclose(transform(features, matrix[:, :2]), wanted, atol=1e-6)
    np.testing.assert_allclose(transform(features, matrix), wanted + matrix[:, 2], atol=1e-6)


def test_what_does_not_go():
    state = OnlineCmvnState(cmvn_stats(frames(9)))
    with pytest.raises(OpscopeError, match="--norm-vars=true wants --norm-means=true"):
        OnlineCmvnOptions(normalize_mean=False, normalize_variance=True)
    with pytest.raises(OpscopeError, match="must be positive"):
        OnlineCmvnOptions(cmn_window=0)
    with pytest.raises(FormatError, match="skip-dims=0:9+: there are 3 dimensions"):
        OnlineCmvn(OnlineCmvnOptions(skip_dims="0:" + "9" * 30), state)
    with pytest.raises(FormatError, match="of no frames"):
        OnlineCmvn(OnlineCmvnOptions(), OnlineCmvnState(np.zeros((2, 4))))
    with pytest.raises(FormatError, match="too large, or of too few frames"):
        cmvn = OnlineCmvn(OnlineCmvnOptions(global_frames=0, cmn_min_energy=1e9), state)
        cmvn.accept(frames(3))
        cmvn.normalized(np.arange(3))
    huge = np.array([[1e308, 1, 1, 1], [1, 1, 1, 0]])
    with pytest.raises(FormatError, match="too large, or of too few frames"):
        cmvn = OnlineCmvn(OnlineCmvnOptions(), OnlineCmvnState(huge))
        cmvn.accept(frames(3))
        cmvn.normalized(np.arange(3))
    with pytest.raises(ShapeError, match="different dimensions"):
        OnlineCmvn(OnlineCmvnOptions(), OnlineCmvnState(np.ones((2, 4)), np.ones((2, 3))))
    with pytest.raises(ShapeError, match="features \\[5, 2\\] for statistics of 3 columns"):
        OnlineCmvn(OnlineCmvnOptions(), state).accept(np.zeros((5, 2)))
    with pytest.raises(OpscopeError, match="grow in the other order"):
        SlidingCmvnOptions(5, 8, center=True)
    with pytest.raises(OpscopeError, match="must not be negative"):
        splice(frames(2), -1, 0)
    with pytest.raises(FormatError, match="beyond the limit"):
        splice(frames(2), 10**6, 0)
    with pytest.raises(ShapeError, match="a transform \\[2, 7\\] for features of 3 columns"):
        transform(frames(2), np.zeros((2, 7)))


@pytest.mark.skipif(native.load("features") is None, reason="no native library")
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("variances", [False, True])
@pytest.mark.parametrize("dim", [1, 3])
def test_c_computes_what_numpy_does(
    dim: int, variances: bool, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames come in blocks and are asked for out of order; some are quiet, the first one too."""
    options = OnlineCmvnOptions(
        cmn_window=7,
        speaker_frames=4,
        global_frames=5,
        normalize_variance=variances,
        skip_dims="0" if dim == 3 else "",
        cmn_min_energy=58.0,
    )
    everyone = cmvn_stats(frames(30, dim, seed=5))
    state = OnlineCmvnState(everyone, cmvn_stats(frames(9, dim, seed=6)) if known else None)

    def normalized() -> list[np.ndarray]:
        cmvn, rows = OnlineCmvn(options, state), []
        rng = np.random.default_rng(1)
        for block in np.array_split(frames(40, dim), 4):
            cmvn.accept(block)
            rows.append(cmvn.normalized(rng.integers(0, cmvn.frames_ready, 25)))
        return [*rows, cmvn.normalized(np.arange(-3, 0)), cmvn.normalized(np.arange(0))]

    found = normalized()
    monkeypatch.setattr("opscope.framework.fusion.compiled.native.load", lambda *_: None)
    for ours, wanted in zip(found, normalized(), strict=True):
        np.testing.assert_array_equal(ours, wanted)
    assert np.ptp(np.concatenate(found)) > 0
