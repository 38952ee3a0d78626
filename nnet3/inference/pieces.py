"""What is computed: utterances, and the chunks that they are cut into."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError, check_kind
from ...framework.base.options.option_fields import option
from ...framework.base.untrusted.limits import check_limit
from ..run.input_arrays import warn_of_nan


@dataclass(frozen=True)
class ChunkOptions:
    """The chunks that utterances are cut into, with the names of Kaldi's options.

    Attributes:
        frames_per_chunk: output frames of a chunk, before subsampling; rounded up to a multiple of
            the subsampling factor and of the network's modulus. None: as many as cost least where
            the output does not depend on it, else 50 as in Kaldi.

    Raises:
        OpscopeError: a value is out of range.
    """

    frames_per_chunk: int | None = None
    extra_left_context: int = option(
        0, "Frames of left context besides those that the network needs"
    )
    extra_right_context: int = option(0, "Frames of right context besides those that it needs")
    extra_left_context_initial: int = option(
        -1, "If >= 0, takes the place of --extra-left-context at the start of an utterance"
    )
    extra_right_context_final: int = option(
        -1, "If >= 0, takes the place of --extra-right-context at the end of an utterance"
    )
    frame_subsampling_factor: int = option(
        1, "Input frames for one output frame, e.g. 3 for 'chain'"
    )
    acoustic_scale: float = option(1.0, "Factor for the output")
    chunks_per_batch: int = option(
        16, "Chunks, of several utterances, that are computed at once", "minibatch-size"
    )

    def __post_init__(self) -> None:
        check_options(self, _LEAST, may_be_none=("frames_per_chunk",))


_LEAST = {
    "frames_per_chunk": 1,
    "extra_left_context": 0,
    "extra_right_context": 0,
    "extra_left_context_initial": -1,
    "extra_right_context_final": -1,
    "frame_subsampling_factor": 1,
    "chunks_per_batch": 1,
}


_FRAMES = {name for name in _LEAST if name.startswith(("frames", "extra"))}


def check_options(options: Any, least: Mapping[str, int], may_be_none: Sequence[str] = ()) -> None:
    """Refuse options that are out of range; `least` has those that are whole numbers.

    Raises:
        OpscopeError: one is of the wrong kind, too small, or beyond the limit `chunk`; or the
            acoustic scale is not finite.
    """
    for name, smallest in least.items():
        value = getattr(options, name)
        if value is not None or name not in may_be_none:
            check_kind(value, int, name)
        if value is not None and value < smallest:
            raise OpscopeError(f"{name} is {value}; it must be at least {smallest}")
        if value is not None and name in _FRAMES:
            check_limit("chunk", value, name)
    check_kind(options.acoustic_scale, float, "acoustic_scale")
    if not math.isfinite(options.acoustic_scale):
        raise OpscopeError(f"acoustic_scale is {options.acoustic_scale}; it must be finite")


@dataclass(frozen=True)
class LoopedOptions:
    """The chunks that a stream is cut into, with the names of Kaldi's options.

    Attributes:
        frames_per_chunk: output frames of a chunk, before subsampling; rounded up to a multiple of
            the subsampling factor and of the network's modulus. The output lags after the input
            by at most so many frames and the network's right context.
        extra_left_context_initial: copies of the first frame before it, besides those that the
            network needs.

    Raises:
        OpscopeError: a value is out of range.
    """

    frames_per_chunk: int = option(24, "Frames that the network computes at once")
    extra_left_context_initial: int = option(0, "Frames of left context besides, at the start")
    frame_subsampling_factor: int = option(
        1, "Input frames for one output frame, e.g. 3 for 'chain'"
    )
    acoustic_scale: float = option(1.0, "Factor for log-likelihoods")

    def __post_init__(self) -> None:
        least = {
            "frames_per_chunk": 1,
            "extra_left_context_initial": 0,
            "frame_subsampling_factor": 1,
        }
        check_options(self, least)


@dataclass(frozen=True)
class Utterance:
    """An utterance to compute: features and, where the network wants them, iVectors.

    Attributes:
        key: the name of the utterance.
        features: [frames, dim].
        ivector: one for all of it, [dim].
        online_ivectors: [count, dim], one for every `ivector_period` frames.
        ivector_period: frames between two online iVectors.
    """

    key: str
    features: np.ndarray
    ivector: np.ndarray | None = None
    online_ivectors: np.ndarray | None = None
    ivector_period: int = 0

    def check(self, input_dim: int, ivector_dim: int) -> None:
        """Refuse inputs that a network of these dimensions cannot take.

        Raises:
            ShapeError: features or iVectors are not as wide as wanted, or there are too few.
        """
        features, key = self.features, self.key
        check_kind(key, str, "the key of an utterance")
        for name in ("features", "ivector", "online_ivectors"):
            value = getattr(self, name)
            check_kind(
                value, np.ndarray if name == "features" else np.ndarray | None, f"{key}: {name}"
            )
            if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
                raise ShapeError(f"{key}: {name}: no real numbers ({value.dtype})")
        if features.ndim != 2 or not len(features):
            raise ShapeError(
                f"{key}: features must be a matrix of at least one row; you gave an array"
                f" {list(features.shape)}"
            )
        if features.shape[1] != input_dim:
            raise ShapeError(
                f"{key}: the input wants {input_dim} columns, you gave {features.shape[1]}"
                f" ({len(features)} rows)"
            )
        ivector, online = self.ivector, self.online_ivectors
        if ivector is not None and online is not None:
            raise ShapeError(f"{key}: both one iVector and online iVectors are given")
        if ivector is not None and ivector.ndim != 1:
            raise ShapeError(f"{key}: the iVector must be a vector")
        if online is not None and (online.ndim != 2 or not len(online)):
            raise ShapeError(f"{key}: online iVectors must be a matrix of at least one row")
        columns = next((v.shape[-1] for v in (ivector, online) if v is not None), 0)
        if columns != ivector_dim:
            wanted = f"an iVector of {ivector_dim} columns" if ivector_dim else "no iVector"
            actual = f"one of {columns} columns" if columns else "none"
            raise ShapeError(f"{key}: the network wants {wanted}, you gave {actual}")
        if online is not None:
            check_kind(self.ivector_period, int, f"{key}: ivector_period")
            if self.ivector_period < 1:
                raise ShapeError(f"{key}: online iVectors want their period, in frames")

    def warn_of_nan(self) -> None:
        """Warn where features or iVectors are NaN or infinite."""
        warn_of_nan(self.features, f"{self.key}: features", unit="frame")
        for name, value in (("iVector", self.ivector), ("online iVectors", self.online_ivectors)):
            if value is not None:
                warn_of_nan(np.atleast_2d(value), f"{self.key}: {name}")


@dataclass(frozen=True)
class Shape:
    """The sizes in frames that chunks must share to be computed together."""

    left_context: int  # input frames before the first output frame
    input_frames: int
    output_frames: int


@dataclass(frozen=True)
class Chunk:
    """A piece of an utterance.

    Attributes:
        utterance: its number.
        first, count: the output frames that are wanted, counted after subsampling.
        shape: of the computed chunk: `count` output frames, or more, the rest of which is dropped.
        skipped: output frames before the first one that are also computed.
    """

    utterance: int
    first: int
    count: int
    shape: Shape
    skipped: int = 0
