"""From samples to log-likelihoods as Vosk computes them, in blocks; weights of silence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.nnet3 import LoopedComputer, LoopedOptions
from opscope.speech import IvectorModel, Mfcc, OnlineIvector, SilenceWeights
from speech_data import BLOCK, SENTENCES, sentence, vosk_model


@pytest.fixture(scope="module")
def ivector_model() -> IvectorModel:
    return IvectorModel.from_folder(vosk_model("ivector"))


@pytest.fixture(scope="module")
def network() -> LoopedComputer:
    options = LoopedOptions(frames_per_chunk=24, frame_subsampling_factor=3)
    return LoopedComputer(str(vosk_model("am", "final.mdl")), options)


def feature_blocks(name: str) -> Iterator[tuple[np.ndarray, bool]]:
    """The MFCC of each block, and whether it is the last."""
    audio, _ = sentence(name)
    samples = audio.channel()
    stream = Mfcc(config=vosk_model("conf", "mfcc.conf"), dither=0.0).stream(audio.rate)
    for begin in range(0, len(samples), BLOCK):
        yield stream.accept(samples[begin : begin + BLOCK]), False
    yield stream.finish(), True


class Run:
    """A sentence, block by block: iVectors where the network takes one, and its outputs."""

    def __init__(self, model: IvectorModel, network: LoopedComputer) -> None:
        self.ivectors, self._stream = OnlineIvector(model), network.stream()
        self._held: list[np.ndarray] = []
        self.taken: dict[int, np.ndarray] = {}
        self.outputs: list[np.ndarray] = []

    def block(self, features: np.ndarray, last: bool) -> None:
        self._held.append(features)
        if not last and self._stream.lacking > sum(map(len, self._held)):
            return
        frame = self.ivectors.frames_ready - 1
        self.taken[frame] = self.ivectors.ivector(frame)
        self.outputs.append(self._stream.accept(np.concatenate(self._held), self.taken[frame]))
        self._held.clear()
        if last:
            self.outputs.append(self._stream.finish())

    def check(self, frames: np.ndarray, ivectors: np.ndarray, outputs: np.ndarray) -> None:
        assert set(self.taken) == set(frames.tolist())
        for frame, wanted in zip(frames.tolist(), ivectors, strict=True):
            assert np.abs(self.taken[frame] - wanted).max() < 1e-3, frame
        made = np.concatenate(self.outputs)
        assert made.shape == outputs.shape and np.abs(made - outputs).max() < 3e-3


@pytest.mark.parametrize("name", SENTENCES)
def test_ivectors_and_log_likelihoods(name, ivector_model, network):
    wanted, run = sentence(name)[1], Run(ivector_model, network)
    for features, last in feature_blocks(name):
        run.ivectors.accept(features)
        if last:
            run.ivectors.finish()
        run.block(features, last)
    run.check(wanted["ivector_frames"], wanted["ivectors"], wanted["loglikes"])


def test_silence_weights():
    phones = np.array([0, 1, 1, 2, 2, 3])
    weights = SilenceWeights(phones, [1], 0.25, subsampling=2)
    frames, changes = weights.changes(5)  # no path yet: all may be silence
    assert frames.tolist() == list(range(6)) and changes.tolist() == [0.25] * 6
    weights.traceback(np.array([3, 1]))
    frames, changes = weights.changes(7)
    # The first is speech; the others, and what comes, silence as before.
    assert frames.tolist() == [0, 1, 6, 7] and changes.tolist() == [0.75, 0.75, 0.25, 0.25]
    weights.traceback(np.array([3, 4, 5]))
    # Speech goes on; but the second frame leaves the same token, and stays what it was.
    frames, changes = weights.changes(7)
    assert frames.tolist() == [4, 5, 6, 7] and changes.tolist() == [0.75] * 4
    assert [each.tolist() for each in SilenceWeights(phones, [1]).changes(0)] == [[], []]


def test_tokens_of_a_traceback():
    phones = np.array([0, 1, 2])
    made = []
    for tokens in ([7, 8, 9], [7, 6, 9], [5, 6, 9]):
        weights = SilenceWeights(phones, [1], 0.0)
        weights.traceback(np.array([1, 1, 1]), np.array([7, 8, 9]))
        assert weights.changes(3)[1].tolist() == [0]
        weights.traceback(np.array([2, 2, 2]), np.array(tokens))
        frames, changes = weights.changes(3)
        made.append(frames[changes != 0].tolist())
    assert made == [[], [], []]
    weights = SilenceWeights(phones, [1], 0.0)
    weights.traceback(np.array([1, 1]), np.array([7, 8]))
    weights.traceback(np.array([2, 2, 2]), np.array([7, 6, 9]))
    frames, changes = weights.changes(3)
    assert frames[changes != 0].tolist() == [1, 2]


def test_long_states_count_as_silence():
    phones = np.array([0, 1, 2, 2])
    weights = SilenceWeights(phones, [1], 0.5, max_state_duration=3)
    weights.traceback(np.array([2, 2, 3, 3, 3, 2]))
    assert weights.changes(6)[1].tolist() == [1, 1, 0.5, 0.5, 0.5, 1]


def test_weights_change_no_further_back_than_100_frames():
    phones = np.array([0, 1, 2])
    weights = SilenceWeights(phones, [1], 0.0)
    weights.traceback(np.full(150, 1), np.arange(150))
    assert weights.changes(150)[0].tolist() == [149]
    weights.traceback(np.full(160, 2), np.arange(1000, 1160))
    assert weights.changes(160)[0].tolist() == list(range(60, 160))


def test_what_is_no_traceback():
    weights = SilenceWeights(np.array([0, 1, 2]), [1])
    with pytest.raises(OpscopeError, match="transition-ids that are not among 2"):
        weights.traceback(np.array([1, 3]))
    weights.traceback(np.array([1, 2]))
    with pytest.raises(OpscopeError, match="a traceback of 1 frames after 2 frames"):
        weights.traceback(np.array([1]))
    with pytest.raises(OpscopeError, match="3 tokens for 3 frames, after 0 tokens for 2"):
        weights.traceback(np.array([1, 2, 2]), np.arange(3))
    with pytest.raises(OpscopeError, match="give no weights"):
        SilenceWeights(np.array([0]), [], subsampling=0)
