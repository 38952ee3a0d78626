"""The iVector of a signal while its frames come.

Source: Kaldi's `online2/online-ivector-feature.cc`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ...framework.fusion.compiled import native
from ...framework.fusion.rows.small_products import on_one_blas_thread
from ...kaldi.files.kaldi_io import Reader, Writer
from ..features.cmvn import OnlineCmvn, OnlineCmvnState
from ..features.rows import Rows
from ..features.transforms import transform
from .estimation import IvectorStats
from .gmm import posteriors
from .model import IvectorModel

_MOST_POST = np.float32(0.99)  # a frame keeps its most probable Gaussian alone


@dataclass
class AdaptationState:
    """What is known of a speaker after some utterances.

    Attributes:
        cmvn: statistics for CMVN. stats: of the iVector.
    """

    cmvn: OnlineCmvnState
    stats: IvectorStats

    @classmethod
    def empty(cls, model: IvectorModel) -> AdaptationState:
        """Of a speaker who was not heard yet."""
        extractor = model.extractor
        most = model.options.max_count
        stats = IvectorStats(extractor.dim, extractor.prior_offset, most)
        return cls(OnlineCmvnState(model.global_stats), stats)

    def write(self, writer: Writer) -> None:
        """Write it as Kaldi does."""
        writer.write_token("<OnlineIvectorExtractorAdaptationState>")
        writer.write_token("<CmvnState>")
        self.cmvn.write(writer)
        writer.write_token("<IvectorStats>")
        self.stats.write(writer)
        writer.write_token("</OnlineIvectorExtractorAdaptationState>")

    @classmethod
    def read(cls, reader: Reader) -> AdaptationState:
        """Read what Kaldi wrote.

        Raises:
            FormatError: the bytes are something else, or shapes do not agree.
        """
        reader.expect_token("<OnlineIvectorExtractorAdaptationState>")
        reader.expect_token("<CmvnState>")
        cmvn = OnlineCmvnState.read(reader)
        reader.expect_token("<IvectorStats>")
        stats = IvectorStats.read(reader)
        reader.expect_token("</OnlineIvectorExtractorAdaptationState>")
        return cls(cmvn, stats)


class OnlineIvector:
    """The iVector of an utterance while its frames come.

    As in Kaldi, an estimate depends on when it is asked for: it starts from the one before, and
    sees the frames, and the weights, that have come by then. Before any frame is ready, Kaldi's
    decoders take an iVector of zeros.

    Example:
        ivectors = OnlineIvector(model)
        for frames in features:
            ivectors.accept(frames)
            if ivectors.frames_ready:
                ivector = ivectors.ivector()
        ivectors.finish()

    Args:
        model: see `IvectorModel`.
        state: what is known of the speaker, of `adaptation_state` after the utterance before.

    Raises:
        ShapeError: the state is of another model.
    """

    def __init__(self, model: IvectorModel, state: AdaptationState | None = None) -> None:
        state = state or AdaptationState.empty(model)
        if len(state.stats.linear) != model.dim:
            raise ShapeError(
                f"a state of iVectors of {len(state.stats.linear)} elements for a model of"
                f" {model.dim}"
            )
        self.model = model
        self._cmvn = OnlineCmvn(model.cmvn, state.cmvn)
        if self._cmvn.dim != model.feature_dim:
            raise ShapeError(
                f"a state of {self._cmvn.dim} features for a model of {model.feature_dim}"
            )
        self.stats = state.stats.copy()
        self._features = Rows((model.feature_dim,))
        self._normalized: dict[int, np.ndarray] = {}  # transformed frames that come again
        self._finished = False
        self._done = 0  # frames whose turn has come
        self._weights: list[tuple[int, float]] = []  # changes whose turn has not come
        self._weighted = False
        self._unweighted = False
        self._last_weighted = -1
        self._history: list[np.ndarray] = []
        self._current = np.zeros(model.dim)
        self._current[0] = model.extractor.prior_offset
        self._log_likelihood = 0.0

    @property
    def dim(self) -> int:
        """Elements of an iVector."""
        return self.model.dim

    @property
    def frames_ready(self) -> int:
        """Frames that an iVector can be asked for: those whose right context is there."""
        count = len(self._features)
        return count if self._finished else max(count - self.model.splice.right_context, 0)

    def accept(self, features: np.ndarray) -> None:
        """Take the next frames: features before CMVN, [frames, dim].

        Raises:
            ShapeError: they are of another dimension. OpscopeError: `finish` was called.
        """
        if self._finished:
            raise OpscopeError("the utterance is finished: no more frames are taken")
        self._cmvn.accept(features)
        self._features.append(np.asarray(features, np.float32))

    def finish(self) -> None:
        """No more frames come."""
        self._finished = True

    def weigh(self, frames: np.ndarray, changes: np.ndarray) -> None:
        """Change the weights of frames, which begin at 0.0; see `SilenceWeights`.

        Once it is called, each frame up to the one asked for must have got a weight.

        Args:
            frames: their numbers, [count]; they may be beyond those that have come.
            changes: what is added to their weights, float32, [count].

        Raises:
            OpscopeError: iVectors were estimated without weights before.
        """
        if self._unweighted:
            raise OpscopeError("frames without weights were counted already; weigh from the start")
        frames = np.asarray(frames, np.int64)
        changes = np.asarray(changes, np.float32)
        if frames.shape != changes.shape or frames.ndim != 1:
            raise ShapeError(f"{list(frames.shape)} frames and {list(changes.shape)} changes")
        if frames.size and frames.min() < 0:
            raise OpscopeError(f"frame {frames.min()} has no weight")
        if not np.isfinite(changes).all():
            raise OpscopeError("weights of frames must be finite")
        self._weights += zip(frames.tolist(), changes.tolist(), strict=True)
        self._last_weighted = max(self._last_weighted, int(frames.max(initial=-1)))
        self._weighted = True

    def ivector(self, frame: int | None = None) -> np.ndarray:
        """The iVector for a frame, less the offset of the prior: float32, [dim].

        Args:
            frame: its number; None: the last that is ready.

        Raises:
            OpscopeError: the frame is not ready, or has no weight though others have.
        """
        options = self.model.options
        ready = self.frames_ready
        frame = ready - 1 if frame is None else frame
        if not 0 <= frame < ready:
            raise OpscopeError(f"no iVector for frame {frame}: {ready} frames are ready")
        until = ready - 1 if options.greedy_ivector_extractor else frame
        if self._weighted and until > self._last_weighted:
            raise OpscopeError(
                f"no iVector for frame {until}: weights were given up to frame"
                f" {self._last_weighted}"
            )
        self._unweighted = self._unweighted or not self._weighted
        with on_one_blas_thread():
            self._advance(until)
        estimate = self._current
        if not options.use_most_recent_ivector:
            estimate = self._history[frame // options.ivector_period]
        result = estimate.astype(np.float32)
        result[0] -= np.float32(self.model.extractor.prior_offset)
        return result

    def _advance(self, until: int) -> None:
        """Count all frames up to one, and estimate where that is due."""
        options = self.model.options
        if options.use_most_recent_ivector:
            if self._done <= until:
                self._count(self._due(until))
                self._done = until + 1
                self._estimate()
            return
        while self._done <= until:
            due = self._done + -self._done % options.ivector_period
            self._count(self._due(min(due, until)))
            self._done = min(due, until) + 1
            if due <= until:
                self._estimate()
                self._history.append(self._current)

    def _estimate(self) -> None:
        self._current = self.stats.ivector(self._current, self.model.options.num_cg_iters)

    def _due(self, until: int) -> list[tuple[int, float]]:
        """Frames up to one, in order, and what is to be added to their weights, float32."""
        if not self._weighted:
            return [(frame, 1.0) for frame in range(self._done, until + 1)]
        self._weights.sort()
        end = bisect_right(self._weights, (until, math.inf))
        due, self._weights = self._weights[:end], self._weights[end:]
        changes: dict[int, float] = {}
        for frame, change in due:
            known = changes.get(frame)
            changes[frame] = change if known is None else float(np.float32(known + change))
        return [(frame, change) for frame, change in changes.items() if change != 0]

    def _count(self, due: list[tuple[int, float]]) -> None:
        """Add frames to the statistics, with their weights."""
        if not due:
            return
        options = self.model.options
        frames = np.array([frame for frame, _ in due])
        weights = np.array([weight for _, weight in due], np.float32)
        normalized = self._normalized_frames(frames)
        used = normalized if options.online_cmvn_iextractor else self._plain_frames(frames)
        library = native.load("ivectors")
        if library is not None:
            how = options.num_gselect, options.min_post, options.posterior_scale
            heard = normalized, used, weights
            self._log_likelihood += self.model.compiled.add(library, self.stats, heard, *how)
            return
        likes = self.model.gaussians.log_likelihoods(normalized)
        least = np.minimum(np.float32(options.min_post) / np.abs(weights), _MOST_POST)
        gaussians, shares, totals = posteriors(likes, options.num_gselect, least)
        self._log_likelihood += float(weights @ totals)
        shares = shares * (np.float32(options.posterior_scale) * weights)[:, None]
        self.stats.add(self.model.extractor, used, gaussians, shares)

    def _plain_frames(self, frames: np.ndarray) -> np.ndarray:
        """Spliced and transformed frames."""
        around = self.model.splice.neighbors(frames, len(self._features))
        spliced = self._features.all[around].reshape(len(frames), -1)
        return transform(spliced, self.model.transform)

    def _normalized_frames(self, frames: np.ndarray) -> np.ndarray:
        """The same after CMVN. Each is computed once, since CMVN depends on the order."""
        new = np.array([frame for frame in frames.tolist() if frame not in self._normalized])
        normalized = np.empty((0, len(self.model.transform)), np.float32)
        if len(new):
            around = self.model.splice.neighbors(new, len(self._features))
            spliced = self._cmvn.normalized(around.ravel()).reshape(len(new), -1)
            normalized = transform(spliced, self.model.transform)
        if not self._weighted:  # no frame comes again
            return normalized
        self._normalized.update(zip(new.tolist(), normalized, strict=True))
        return np.stack([self._normalized[frame] for frame in frames.tolist()])

    @property
    def frame_count(self) -> float:
        """Frames that were counted, by their weights, including the state's."""
        return self.stats.count / self.model.options.posterior_scale

    def log_likelihood(self) -> float:
        """The log-likelihood of a frame by the Gaussians, on average."""
        return self._log_likelihood / self.frame_count if self.frame_count else 0.0

    def improvement(self) -> float:
        """What the objective function gains a frame by the iVector over the default one."""
        return self.stats.improvement(self._current)

    def length(self) -> float:
        """The length of the latest estimate, less the offset of the prior."""
        latest = self._current.copy()
        latest[0] -= self.model.extractor.prior_offset
        return float(np.linalg.norm(latest))

    def adaptation_state(self) -> AdaptationState:
        """What is known after this utterance, for the speaker's next one."""
        most, scale = self.model.options.max_remembered_frames, self.model.options.posterior_scale
        cmvn = self._cmvn.next_state()
        stats = self.stats.copy()
        known = cmvn.speaker_stats
        if known is not None and known[0, -1] > most:
            cmvn.speaker_stats = known * (most / known[0, -1])
        if stats.count > most * scale:
            stats.scale(most * scale / stats.count)
        return AdaptationState(cmvn, stats)


def online_ivectors(model: IvectorModel, features: np.ndarray) -> np.ndarray:
    """The iVectors of an utterance, one for each period of frames, as a recognizer has them that
    hears it frame by frame: float32, [count, dim].

    Args:
        features: before CMVN, [frames, dim].

    Raises:
        ShapeError: they are of another dimension than the model's.
    """
    settings = replace(model.options, use_most_recent_ivector=False, greedy_ivector_extractor=False)
    ivectors = OnlineIvector(replace(model, options=settings))
    ivectors.accept(features)
    ivectors.finish()
    frames = range(0, len(features), settings.ivector_period)
    return np.stack([ivectors.ivector(frame) for frame in frames]).astype(np.float32)
