"""Cepstral mean and variance normalization: by a speaker, by a sliding window, while frames come.

Source: Kaldi's `transform/cmvn.cc`, `OnlineCmvn` in `feat/online-feature.cc`,
`SlidingWindowCmn` in `feat/feature-functions.cc`; the option `cmn-min-energy` is Vosk's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, ShapeError
from ...framework.base.options.option_fields import option
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import bind
from ...kaldi.files.kaldi_io import Reader, Writer
from ...nnet3.programs.features import CmvnTerms, dimensions
from .rows import Rows

_LEAST_VARIANCE = 1e-20


def cmvn_stats(features: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The statistics of features: float64, [2, dim + 1]: sums and squares, and the count.

    Args:
        features: [frames, dim]. weights: of frames, [frames].
    """
    values = np.asarray(features, np.float64)
    scale = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    stats = np.zeros((2, values.shape[1] + 1))
    stats[0, :-1], stats[0, -1] = scale @ values, scale.sum()
    stats[1, :-1] = scale @ (values * values)
    return stats


def apply_cmvn(
    features: np.ndarray, stats: np.ndarray, variances: bool = False, reverse: bool = False
) -> np.ndarray:
    """Features normalized by statistics: float32, [frames, dim].

    Args:
        features: [frames, dim]. stats: [2, dim + 1], see `cmvn_stats`.
        variances: normalize them as well as means.
        reverse: give normalized features the mean and variance of the statistics.

    Raises:
        ShapeError: the statistics are of another dimension.
        FormatError: they count no frames.
    """
    terms = CmvnTerms(variances, (), reverse)
    scale, offset = terms.of(np.array(stats, np.float64), features.shape[1])
    features = np.asarray(features, np.float32)
    return features + offset if scale is None else features * scale + offset


@dataclass(frozen=True)
class OnlineCmvnOptions:
    """The options of online CMVN, as in an `online_cmvn.conf`.

    Raises:
        OpscopeError: values do not go together.
    """

    cmn_window: int = option(600, "Frames of the window")
    speaker_frames: int = option(600, "Frames that a speaker's statistics count at most")
    global_frames: int = option(200, "Frames that the global statistics count at most")
    normalize_mean: bool = option(True, "Normalize means", "norm-means")
    normalize_variance: bool = option(False, "Normalize variances", "norm-vars")
    skip_dims: str = option("", "Dimensions that are left alone, with ':' between")
    cmn_min_energy: float = option(
        -np.inf, "Frames with a C0 below it take the statistics before (Vosk's option, there 50)"
    )

    def __post_init__(self) -> None:
        if self.normalize_variance and not self.normalize_mean:
            raise OpscopeError("--norm-vars=true wants --norm-means=true")
        if self.cmn_window < 1 or min(self.global_frames, self.speaker_frames) < 0:
            raise OpscopeError(
                f"--cmn-window={self.cmn_window} must be positive, --global-frames="
                f"{self.global_frames} and --speaker-frames={self.speaker_frames} not negative"
            )
        dimensions(self.skip_dims)


@dataclass
class OnlineCmvnState:
    """What is known before an utterance.

    Attributes:
        global_stats: of all speakers, float64, [2, dim + 1].
        speaker_stats: of the speaker's utterances before, float64, [2, dim + 1]; None: there are
            none.
    """

    global_stats: np.ndarray
    speaker_stats: np.ndarray | None = None

    def write(self, writer: Writer) -> None:
        """Write it as Kaldi's `OnlineCmvnState`."""
        nothing = np.zeros((0, 0))
        writer.write_token("<OnlineCmvnState>")
        for token, stats in (
            ("<SpeakerCmvnStats>", self.speaker_stats),
            ("<GlobalCmvnStats>", self.global_stats),
            ("<FrozenState>", None),
        ):
            writer.write_token(token)
            writer.write_matrix(nothing if stats is None else stats)
        writer.write_token("</OnlineCmvnState>")

    @classmethod
    def read(cls, reader: Reader) -> OnlineCmvnState:
        """Read Kaldi's `OnlineCmvnState`.

        Raises:
            FormatError: the bytes are something else, or a frozen state, which no program writes.
        """
        reader.expect_token("<OnlineCmvnState>")
        matrices = []
        for token in ("<SpeakerCmvnStats>", "<GlobalCmvnStats>", "<FrozenState>"):
            reader.expect_token(token)
            matrices.append(reader.read_matrix(np.float64))
        if matrices[2].size:
            raise reader.error("a frozen state of CMVN, which is not read")
        reader.expect_token("</OnlineCmvnState>")
        return cls(matrices[1], matrices[0] if matrices[0].size else None)


def checked_stats(stats: np.ndarray, what: str) -> np.ndarray:
    """Statistics of CMVN, which files bring.

    Raises:
        FormatError: they are none, or of no frames.
    """
    if stats.ndim != 2 or len(stats) != 2 or stats.shape[1] < 2:
        raise FormatError(f"{what}: {list(stats.shape)} are no statistics of CMVN, [2, dim + 1]")
    if not np.isfinite(stats).all() or not stats[0, -1] > 0:
        raise FormatError(f"{what}: statistics of CMVN of no frames, or not finite")
    return stats


class OnlineCmvn:
    """Normalizes frames by a window that ends with each, smoothed by what was known before.

    Frames that are too quiet, by `cmn_min_energy`, reuse the statistics of the frame asked for
    before, smoothed once more: they depend on the order in which frames are asked for.

    Args:
        options: see there.
        state: what is known before.

    Raises:
        FormatError: the global statistics count no frames.
    """

    def __init__(self, options: OnlineCmvnOptions, state: OnlineCmvnState) -> None:
        self.options = options
        self.state = state
        checked_stats(state.global_stats, "the global statistics")
        if state.speaker_stats is not None and (
            state.speaker_stats.shape != state.global_stats.shape
        ):
            raise ShapeError(
                f"statistics of the speaker {list(state.speaker_stats.shape)} and of all"
                f" {list(state.global_stats.shape)} are of different dimensions"
            )
        self.dim = state.global_stats.shape[1] - 1
        skipped = dimensions(options.skip_dims)
        if not all(0 <= each < self.dim for each in skipped):
            raise FormatError(f"skip-dims={options.skip_dims}: there are {self.dim} dimensions")
        self._is_skipped = np.zeros(self.dim, bool)
        self._is_skipped[np.array(skipped, np.int64)] = True
        self._frames = Rows((self.dim,))
        # Sums, and where variances are wanted squares, of the window that ends before each frame.
        self._sums = Rows((1 + options.normalize_variance, self.dim), np.float64)
        self._sums.append(np.zeros((1, 1 + options.normalize_variance, self.dim)))
        self._global_count = float(state.global_stats[0, -1])
        known = state.speaker_stats
        self._speaker_count = 0.0 if known is None else float(known[0, -1])
        # The statistics before: the window they come from, and the shares of the other statistics.
        self._before = (0, 0.0, 0.0)

    @property
    def frames_ready(self) -> int:
        """Frames that can be normalized."""
        return len(self._frames)

    def accept(self, features: np.ndarray) -> None:
        """Take the next frames, [frames, dim].

        Raises:
            ShapeError: they are of another dimension.
        """
        features = np.asarray(features, np.float32)
        if features.ndim != 2 or features.shape[1] != self.dim:
            raise ShapeError(
                f"features {list(features.shape)} for statistics of {self.dim} columns"
            )
        if not len(features):
            return
        first = len(self._frames)
        window = self.options.cmn_window
        self._frames.append(features)
        values = features.astype(np.float64)
        leaving = np.zeros_like(values)
        begin = first - window
        if begin + len(values) > 0:
            skip = max(-begin, 0)
            leaving[skip:] = self._frames.all[begin + skip : begin + len(values)]
        # One sum after the other, a frame in, a frame out: no bit depends on the blocks.
        rows = 1 + self.options.normalize_variance
        steps = np.empty((2 * len(values) + 1, rows, self.dim))
        steps[0] = self._sums.all[-1]
        steps[1::2, 0], steps[2::2, 0] = values, -leaving
        if rows > 1:
            steps[1::2, 1], steps[2::2, 1] = values * values, -(leaving * leaving)
        np.cumsum(steps, axis=0, out=steps)
        self._sums.append(steps[2::2])

    def normalized(self, frames: np.ndarray) -> np.ndarray:
        """Frames, in the order in which they are asked for: float32, [count, dim].

        Args:
            frames: their numbers, [count], below `frames_ready`.
        """
        frames = np.asarray(frames, np.int64)
        features = self._frames.all[frames]
        if not self.options.normalize_mean or not len(frames):
            return features
        with np.errstate(all="ignore"):  # what files say may overflow; then the result shows it
            normal = self._compiled(features, frames)
            if normal is None:
                normal = self._terms(features, *self._shares(frames))
        if not np.isfinite(normal).all() and np.isfinite(features).all():
            raise FormatError("the statistics of CMVN are too large, or of too few frames")
        return normal

    def _compiled(self, features: np.ndarray, frames: np.ndarray) -> np.ndarray | None:
        """What `_shares` and `_terms` compute, by the native library; None: it does not."""
        library = native.load("features")
        if library is None:
            return None
        options, state, known = self.options, self.state, self.state.speaker_stats
        normal, before = np.empty_like(features), np.array(self._before, np.float64)
        block = bind(
            library,
            "cmvn_frames",
            frames=len(frames),
            dim=self.dim,
            rows=1 + options.normalize_variance,
            heard=len(self._frames),
            numbers=np.ascontiguousarray(frames),
            features=features,
            sums=self._sums.all.reshape(len(self._sums), -1),
            everyone=np.ascontiguousarray(state.global_stats, np.float64),
            known=None if known is None else np.ascontiguousarray(known, np.float64),
            skipped=self._is_skipped.view(np.uint8),
            window=options.cmn_window,
            speaker_frames=options.speaker_frames,
            global_frames=options.global_frames,
            least_energy=options.cmn_min_energy,
            least_variance=_LEAST_VARIANCE,
            before=before,
            normal=normal,
        )
        block.run()
        if not block.struct.done:  # a frame's number counts from the end, as NumPy has it
            return None
        window, speaker, shared = before.tolist()
        self._before = int(window), speaker, shared
        return normal

    def _terms(
        self, features: np.ndarray, windows: np.ndarray, speaker: np.ndarray, shared: np.ndarray
    ) -> np.ndarray:
        """Features less their means, over their deviations; arguments as `_shares` gives them."""
        known, everyone = self.state.speaker_stats, self.state.global_stats
        rows = 1 + self.options.normalize_variance
        stats = self._sums.all[windows] + shared[:, None, None] * everyone[:rows, :-1]
        counts = np.minimum(windows, self.options.cmn_window) + shared * everyone[0, -1]
        if known is not None:
            stats += speaker[:, None, None] * known[:rows, :-1]
            counts += speaker * known[0, -1]
        counts[counts < 1] = np.nan  # too few, as Kaldi has it
        mean = stats[:, 0] / counts[:, None]
        mean[:, self._is_skipped] = 0.0
        if rows == 1:
            return features - mean.astype(np.float32)
        variance = np.maximum(stats[:, 1] / counts[:, None] - mean * mean, _LEAST_VARIANCE)
        scale = 1.0 / np.sqrt(variance)
        scale[:, self._is_skipped] = 1.0
        return features * scale.astype(np.float32) - (mean * scale).astype(np.float32)

    def _shares(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the statistics of frames are made of.

        Returns:
            The last frame of their windows, plus one, int64; the shares of the speaker's
            statistics and of the global ones, float64.
        """
        windows = frames + 1
        speaker, shared = self._smoothed(windows, np.zeros(len(frames)), np.zeros(len(frames)))
        least = np.float32(self.options.cmn_min_energy)
        for place in np.flatnonzero(self._frames.all[frames, 0] < least).tolist():
            before = self._before
            if place:
                at = place - 1
                before = int(windows[at]), float(speaker[at]), float(shared[at])
            windows[place] = before[0]
            # Of numbers, the functions of Python take a tenth of the time.
            speaker[place], shared[place] = self._smoothed(*before, min, max)
        self._before = int(windows[-1]), float(speaker[-1]), float(shared[-1])
        return windows, speaker, shared

    def _smoothed(
        self,
        windows: Any,
        speaker: Any,
        shared: Any,
        least: Callable[..., Any] = np.minimum,
        most: Callable[..., Any] = np.maximum,
    ) -> tuple[Any, Any]:
        """The shares after as many frames of the speaker and of all came in as windows lack.

        Args:
            windows, speaker, shared: numbers, or arrays of them. least, most: of two of these.
        """
        options, total = self.options, self._global_count
        lacking = options.cmn_window - least(windows, options.cmn_window) - shared * total
        if self._speaker_count > 0:
            count = self._speaker_count
            lacking = lacking - speaker * count
            added = most(least(lacking, min(options.speaker_frames, count)), 0.0)
            speaker = speaker + added / count
            lacking = lacking - added
        added = most(least(lacking, options.global_frames), 0.0)
        return speaker, shared + added / total

    def next_state(self) -> OnlineCmvnState:
        """What is known after the utterance: the speaker's statistics with all its frames."""
        known = self.state.speaker_stats
        stats = cmvn_stats(self._frames.all)
        return OnlineCmvnState(self.state.global_stats, stats if known is None else known + stats)
