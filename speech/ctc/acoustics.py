"""From a recording to log-probabilities of tokens: what a network of CTC takes, and gives.

The network says by its inputs what it takes: samples, [batch, samples], or filter banks, [batch,
frames, bins] or [frames, bins], and lengths or a mask of them. Texts in the file say more, by the
names that sherpa-onnx writes.

Source: sherpa-onnx's `offline-ctc-model.cc`, `features.cc`; Hugging Face's
`Wav2Vec2FeatureExtractor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ...framework.base.errors import FormatError, NotFiniteError, OpscopeError, ShapeError
from ...framework.base.untrusted.values import shown
from ..audio.resample import resample
from ..features.computers import Fbank
from ..features.frames import TINY, checked_samples
from .options import CtcOptions

_FULL = 32768.0
_BINS = 80
_BESIDE = 1 / 6  # of a window, on each side, is heard for its frames' sake alone
_FOREIGN = "EncDec"
"""How the types of NeMo's models begin, whose features are others."""


class Port(Protocol):
    """An input or output: its name, dtype, and shape with None or a text for what may vary."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> np.dtype | None: ...

    @property
    def shape(self) -> Sequence[int | str | None] | None: ...


class CtcNetwork(Protocol):
    """A network, as `opscope.from_onnx` gives it."""

    path: str
    metadata: Mapping[str, str]

    @property
    def inputs(self) -> Sequence[Any]: ...

    @property
    def outputs(self) -> Sequence[Any]: ...

    def run(self, feed: Mapping[str, Any], fetch: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name."""
        ...


class Acoustics:
    """Computes log-probabilities of recordings.

    Args:
        network: of the model. tokens: how many there are. options: see `CtcOptions`.
        features: gives the network's input for samples on the scale of 16-bit integers and their
            rate, [frames, columns], in place of what the network seems to take.

    Raises:
        FormatError: the network takes or gives something else, or another number of tokens.
    """

    def __init__(
        self,
        network: CtcNetwork,
        tokens: int,
        options: CtcOptions,
        features: Callable[[np.ndarray, float], np.ndarray] | None = None,
    ) -> None:
        self._network = network
        self._name = network.path
        self._tokens = tokens
        self._options = options
        self._own = features
        self._main, self._beside = self._inputs()
        shape = self._main.shape or (None, None)
        self._has_columns = len(shape) == 3 or isinstance(shape[-1], int)
        self._has_batch = len(shape) == 3 or not self._has_columns
        self._output, self._lengths = self._outputs()
        said = network.metadata
        if features is None and said.get("model_type", "").startswith(_FOREIGN):
            raise FormatError(
                f"{self._name}: the features of NeMo's models ({said['model_type']}) are not"
                " computed here: give features="
            )
        self._banks = None
        if features is None and self._has_columns:
            self._banks = self._filter_banks()

    def log_probabilities(self, samples: np.ndarray, rate: float) -> np.ndarray:
        """Of a recording: float32, [frames, tokens].

        Args:
            samples: [count], on the scale of 16-bit integers. rate: in Hz.

        Raises:
            OpscopeError: samples are NaN or infinite. ShapeError: there are several channels, or
                the network gives another shape than it should.
            NotFiniteError: the network gives NaN.
        """
        samples = checked_samples(samples)
        window = int(self._options.window * rate) if self._options.window else 0
        if not window or len(samples) <= window:
            return self._piece(samples, rate)
        beside = int(window * _BESIDE)
        step = window - 2 * beside
        rows = []
        for begin in range(0, len(samples), step):
            low, high = max(begin - beside, 0), min(begin + step + beside, len(samples))
            piece = self._piece(samples[low:high], rate)
            middle = low + (np.arange(len(piece)) + 0.5) * ((high - low) / max(len(piece), 1))
            rows.append(piece[(middle >= begin) & (middle < begin + step)])
        return np.concatenate(rows)

    # Inside

    def _inputs(self) -> tuple[Port, list[Port]]:
        """The input of the signal, and the others: lengths and masks."""
        real = [each for each in self._network.inputs if _is(each, "f")]
        main = [each for each in real if each.shape is None or len(each.shape) in (2, 3)]
        others = [each for each in self._network.inputs if not _is(each, "f")]
        strange = [each.name for each in others if not self._is_length(each)]
        if len(real) != 1 or not main or strange:
            told = ", ".join(f"{each.name} {_shape(each)}" for each in self._network.inputs)
            raise FormatError(
                f"{self._name}: its inputs are {told}; a CTC model takes samples [batch, samples]"
                " or features [batch, frames, columns] or [frames, columns], and lengths [batch] or"
                " a mask"
            )
        return main[0], others

    @staticmethod
    def _is_length(port: Port) -> bool:
        return _is(port, "i") and port.shape is not None and len(port.shape) in (1, 2)

    def _outputs(self) -> tuple[str, str | None]:
        """The names of the outputs of tokens, and of lengths."""
        real = [each for each in self._network.outputs if _is(each, "f")]
        rank = 2 + self._has_batch
        found = [each for each in real if each.shape is None or len(each.shape) == rank]
        if not found:
            told = ", ".join(f"{each.name} {_shape(each)}" for each in self._network.outputs)
            wanted = "[batch, frames, tokens]" if self._has_batch else "[frames, tokens]"
            raise FormatError(f"{self._name}: no output {wanted} among {told}")
        width = (found[0].shape or (None,))[-1]
        if isinstance(width, int):
            self._check_width(width)
        lengths = [
            each.name
            for each in self._network.outputs
            if _is(each, "i") and each.shape is not None and len(each.shape) == 1
        ]
        return found[0].name, lengths[0] if lengths else None

    def _check_width(self, width: int) -> None:
        if width != self._tokens:
            raise FormatError(
                f"{self._name}: the network has {width} outputs, but there are {self._tokens}"
                " tokens"
            )

    def _filter_banks(self) -> Fbank:
        columns = (self._main.shape or (None,))[-1]
        said = self._network.metadata.get("feature_dim", "")
        if isinstance(columns, int):
            bins = columns
        else:
            bins = int(said) if said.isascii() and said.isdigit() else _BINS
        return Fbank(
            num_mel_bins=bins,
            sample_frequency=self._options.sample_rate,
            dither=0.0,
            snip_edges=self._options.snip_edges,
            low_freq=self._options.low_freq,
            high_freq=self._options.high_freq,
            allow_downsample=True,
            allow_upsample=True,
        )

    def _piece(self, samples: np.ndarray, rate: float) -> np.ndarray:
        features = self._features(samples, rate)
        if not len(features):
            return np.empty((0, self._tokens), np.float32)
        given = features[None] if self._has_batch else features
        feed: dict[str, Any] = {self._main.name: given}
        for each in self._beside:
            ones = np.ones((1, len(features)), np.int64)
            value = ones if len(each.shape or ()) > 1 else ones.sum(1)
            feed[each.name] = value.astype(each.dtype)
        names = [self._output] + ([self._lengths] if self._lengths else [])
        outputs = self._network.run(feed, names)
        return self._checked(outputs[self._output], outputs.get(self._lengths or ""))

    def _features(self, samples: np.ndarray, rate: float) -> np.ndarray:
        """What the network takes: [samples] or [frames, columns]."""
        if self._own is not None:
            return np.asarray(self._own(samples, rate), np.float32)
        unit = self._is_unit()
        if self._banks is not None:
            banks = self._banks.compute(samples, rate)
            # The logarithms of smaller samples, which have the same floor.
            shift = np.float32(2 * math.log(_FULL) if unit else 0)
            return np.maximum(banks - shift, np.log(np.float32(TINY)))
        signal = resample(samples, rate, self._options.sample_rate)
        if unit:
            signal = signal / np.float32(_FULL)
        if self._options.normalize and len(signal):
            signal = (signal - signal.mean()) / np.sqrt(signal.var() + np.float32(1e-7))
        return signal.astype(np.float32)

    def _is_unit(self) -> bool:
        """Whether samples are from -1 to 1: as the file says it, by default they are."""
        said = self._network.metadata
        default = "0" if said.get("model_type", "").startswith("wenet") else "1"
        return said.get("normalize_samples", default) != "0"

    def _checked(self, output: Any, lengths: Any) -> np.ndarray:
        """The network's output as log-probabilities."""
        rows = np.asarray(output, np.float32)
        shape = rows.shape
        if rows.ndim == 3 and 1 in shape[:2]:  # [batch, frames, tokens], or frames first
            rows = rows.reshape(-1, shape[2])
        if rows.ndim != 2:
            raise ShapeError(
                f"{self._name}: the output {shown(self._output)} of shape {shape}: [1, frames,"
                f" {self._tokens}] is wanted"
            )
        self._check_width(rows.shape[1])
        if lengths is not None and np.size(lengths) == 1:
            rows = rows[: max(int(np.ravel(lengths)[0]), 0)]
        if not len(rows):
            return rows
        if np.isnan(rows).any() or np.isposinf(rows).any():
            raise NotFiniteError(f"{self._name}: the output {shown(self._output)} is not finite")
        if rows.min() >= 0 and np.allclose(rows.sum(1), 1, atol=1e-3):  # probabilities
            return np.log(np.maximum(rows, np.finfo(np.float32).tiny))
        best = rows.max(1, keepdims=True)
        if not np.isfinite(best).all():
            raise OpscopeError(f"{self._name}: a frame forbids all tokens")
        shifted = rows - best
        return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def _is(port: Any, kind: str) -> bool:
    return port.dtype is not None and port.dtype.kind == kind


def _shape(port: Any) -> str:
    return "of any shape" if port.shape is None else str(list(port.shape))
