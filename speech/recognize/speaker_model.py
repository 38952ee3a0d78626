"""Vectors that tell speakers apart: models of speakers as Vosk has them.

Source: Vosk's `spk_model.cc`, and `GetSpkVector` in its `recognizer.cc`; Snyder et al., X-vectors:
Robust DNN embeddings for speaker recognition (2018).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.python.cached import new_lock
from ...framework.base.untrusted.opener import path_text
from ...kaldi.files.kaldi_io import Reader
from ...nnet3.cache.computers import ComputerCache
from ...nnet3.inference.xvector import xvector
from ...nnet3.network.for_inference import for_inference
from ..audio.read import read_audio
from ..audio.wav import Audio
from ..features.computers import Mfcc
from ..features.sliding import SlidingCmvnOptions, sliding_cmvn
from ..features.vad import VadOptions, voiced
from .config import features_of

LEAST_FRAMES = 50
"""Frames of speech without which there is no vector."""
_NETWORK, _MFCC, _MEAN, _TRANSFORM = "final.ext.raw", "mfcc.conf", "mean.vec", "transform.mat"
_WINDOW = SlidingCmvnOptions(cmn_window=300, center=True)


@dataclass(frozen=True)
class SpeakerVector:
    """What tells the speaker of an utterance.

    Attributes:
        values: float32, [dim]; vectors of one speaker point in like directions.
        frames: of features with speech, of which it was made.
    """

    values: np.ndarray
    frames: int

    def distance(self, other: SpeakerVector) -> float:
        """The cosine distance, 0 to 2, as Vosk's example compares speakers by it."""
        lengths = float(np.linalg.norm(self.values)) * float(np.linalg.norm(other.values))
        return 1.0 - float(self.values @ other.values) / lengths if lengths else 1.0


class SpkModel:
    """A folder of a speaker model, read and checked; recognizers share it.

    Example:
        recognizer = KaldiRecognizer(Model("vosk-model-small-en-us-0.15"), 16000)
        recognizer.SetSpkModel(SpkModel("vosk-model-spk-0.4"))

    Args:
        model_path: the folder: `final.ext.raw`, an x-vector network; `mfcc.conf`; `mean.vec` and
            `transform.mat`, which make its vectors comparable.

    Attributes:
        path: the folder. features: of the network. dim: elements of a speaker's vector.

    Raises:
        FormatError: a file is missing or damaged, or they do not go together.
    """

    def __init__(self, model_path: str | os.PathLike[str]) -> None:
        self.path = path = Path(path_text(model_path))
        wanted = _NETWORK, _MFCC, _MEAN, _TRANSFORM
        missing = [name for name in wanted if not (path / name).is_file()]
        if missing:
            raise FormatError(
                f"{path}: no speaker model: {', '.join(missing)} not found (looked for"
                f" {', '.join(wanted)})"
            )
        self.features = features_of(Mfcc, str(path / _MFCC))
        nnet = for_inference(str(path / _NETWORK))
        self._cache = ComputerCache(nnet)
        self._computing = new_lock()
        self._mean = Reader(str(path / _MEAN)).read_vector(np.float32)
        self._transform = Reader(str(path / _TRANSFORM)).read_matrix(np.float32)
        self.dim = len(self._transform)
        self._check(nnet.input_dim("input"), nnet.output_dim("output"))

    def vector(self, features: np.ndarray) -> np.ndarray:
        """The vector of frames with speech, float32, [dim], of the length sqrt(dim).

        Args:
            features: float32, [frames, dim of the features].

        Raises:
            ShapeError: they are no such matrix. FormatError: the network holds NaN.
        """
        with self._computing:
            embedding = xvector(self._cache, sliding_cmvn(features, _WINDOW), min_chunk_size=1)
        assert embedding is not None
        projected = self._transform @ (embedding - self._mean)
        norm = float(np.linalg.norm(projected))
        return projected * np.float32(math.sqrt(self.dim) / norm) if norm else projected

    def of_recording(
        self,
        recording: str | os.PathLike[str] | Audio,
        channel: int = -1,
        vad: VadOptions | None = None,
    ) -> SpeakerVector | None:
        """The vector of a whole recording, without a recognizer; None: there is too little speech.

        Args:
            recording: or its file. channel: of it; -1: it has one.
            vad: how frames with speech are found by their energy.

        Raises:
            FormatError: it cannot be read, or has no such channel.
            OpscopeError: its rate does not go with the model.
        """
        audio = recording if isinstance(recording, Audio) else read_audio(recording)
        stream = self.features.stream(audio.rate)
        frames = np.concatenate((stream.accept(audio.channel(channel)), stream.finish()))
        chosen = frames[voiced(frames, vad)]
        return SpeakerVector(self.vector(chosen), len(chosen)) if _enough(chosen) else None

    def stream(self, rate: float, frame_shift: float) -> SpeakerStream:
        """Frames of a signal at `rate` Hz; the recognizer's frames are `frame_shift` ms apart.

        Raises:
            OpscopeError: the rate does not go with the model, or frames are as far apart.
        """
        return SpeakerStream(self, rate, frame_shift)

    def _check(self, inputs: int, outputs: int) -> None:
        path = self.path
        network = self.path / _NETWORK
        if inputs != self.features.dim:
            raise FormatError(
                f"{network}: the network takes {inputs} features, {path / _MFCC} gives"
                f" {self.features.dim}"
            )
        if self._mean.shape != (outputs,):
            raise FormatError(
                f"{path / _MEAN}: {self._mean.size} elements, but x-vectors of {network} have"
                f" {outputs}"
            )
        if not self.dim or self._transform.shape[1] != outputs:
            raise FormatError(
                f"{path / _TRANSFORM}: a matrix of {' x '.join(map(str, self._transform.shape))},"
                f" but x-vectors of {network} have {outputs} elements"
            )
        for name, values in ((_MEAN, self._mean), (_TRANSFORM, self._transform)):
            if not np.isfinite(values).all():
                raise FormatError(f"{path / name}: NaN or infinity")


class SpeakerStream:
    """Frames of a signal that comes block by block, and the vector of an utterance in it."""

    def __init__(self, model: SpkModel, rate: float, frame_shift: float) -> None:
        shift = model.features.options.frame_shift
        if shift != frame_shift:
            raise OpscopeError(
                f"{model.path / _MFCC}: frames of {shift:g} ms, but the recognizer's model"
                f" has frames of {frame_shift:g} ms"
            )
        self._model = model
        self._stream = model.features.stream(rate)
        self._held = np.empty((0, model.features.dim), np.float32)
        self._first = 0  # frame of the signal, of those held

    def accept(self, samples: np.ndarray) -> None:
        """Take the next samples, [count], on the scale of 16-bit integers."""
        self._held = np.concatenate((self._held, self._stream.accept(samples)))

    def forget(self, first: int) -> None:
        """Let go of the frames of the signal before this one."""
        self._held = self._held[max(first - self._first, 0) :]
        self._first = max(first, self._first)

    def vector(self, spoken: np.ndarray, factor: int) -> SpeakerVector | None:
        """The vector of what is held, or None where there is too little speech.

        Args:
            spoken: frames of the decoder with speech, from the first that is held on.
            factor: frames of features for each of the decoder's.
        """
        chosen = self._held[np.isin(np.arange(len(self._held)) // factor, spoken)]
        return SpeakerVector(self._model.vector(chosen), len(chosen)) if _enough(chosen) else None


def _enough(frames: np.ndarray) -> bool:
    return len(frames) >= LEAST_FRAMES
