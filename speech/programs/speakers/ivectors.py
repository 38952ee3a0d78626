"""ivector-extract-online2. Source: Kaldi's `online2bin/ivector-extract-online2.cc`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ....kaldi.tables.tables import RandomAccessTable, TableWriter
from ....nnet3.programs.base.options import UNUSED, errors_tell
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless
from ....nnet3.programs.base.speakers import BySpeaker
from ...ivector.model import IvectorFiles, IvectorModel, IvectorOptions
from ...ivector.online import AdaptationState, OnlineIvector

_PITCH = 3  # columns that Kaldi's scripts append


@program(
    "ivector-extract-online2",
    "Extract iVectors for utterances every --ivector-period frames, as an online recognizer does"
    " while it hears the utterances of a speaker one after the other. Features come without"
    " CMVN. --use-most-recent-ivector is ignored: each iVector belongs to its frame.",
    ("<spk2utt-rspecifier>", "<feature-rspecifier>", "<ivector-wspecifier>"),
    *options_of(IvectorFiles),
    *options_of(IvectorOptions),
    Option("num-threads", 8, UNUSED),
    Option("repeat", False, "Write an iVector for each frame"),
    Option("frame-weights-rspecifier", "", "Table of weights of frames"),
    Option("length-tolerance", 0, "Most frames by which features and weights may differ"),
)
def ivector_extract_online2(
    options: SimpleNamespace, speakers: str, source: str, output: str
) -> None:
    options.use_most_recent_ivector = False
    settings = from_values(IvectorOptions, vars(options))
    model = IvectorModel.read(from_values(IvectorFiles, vars(options)), settings)
    extraction = _Extraction(options, model)
    heard = BySpeaker(options, speakers, source, "matrix", "Did not find audio for utterance")
    with TableWriter(output, "matrix") as writer:
        for speaker, utterances in heard:
            state = AdaptationState.empty(model)
            for key, features in utterances:
                with errors_tell(f"{source}: {key}"):
                    estimated = extraction.utterance(speaker, key, features, state)
                if estimated is not None:
                    writer.write(key, estimated[0])
                    state = estimated[1]
    extraction.tell(writer.count, heard.missing)


class _Extraction:
    """The iVectors of utterances, and what is logged of them at the end."""

    def __init__(self, options: SimpleNamespace, model: IvectorModel) -> None:
        self._options = options
        self._model = model
        weights = options.frame_weights_rspecifier
        self._weights = RandomAccessTable(weights, "vector") if weights else None
        self._failed = 0
        self._warned = False
        self._frames = 0
        self._improvement = self._length = self._last_length = 0.0

    def utterance(
        self, speaker: str, key: str, features: np.ndarray, state: AdaptationState
    ) -> tuple[np.ndarray, AdaptationState] | None:
        """The iVectors of an utterance, [count, dim], and the speaker's next state."""
        program = self._options.program
        features = self._narrowed(features)
        ivectors = OnlineIvector(self._model, state)
        ivectors.accept(features)
        ivectors.finish()
        if not len(features):
            program.warn(f"No frames in utterance {key}")
            self._failed += 1
            return None
        if self._weights is not None and not self._weigh(ivectors, key, len(features)):
            self._failed += 1
            return None
        step = 1 if self._options.repeat else self._model.options.ivector_period
        rows = np.stack([ivectors.ivector(frame) for frame in range(0, len(features), step)])
        self._add(ivectors, rows, len(features))
        program.vlog(
            2,
            f"For utterance {key} of speaker {speaker}, UBM loglike/frame was"
            f" {ivectors.log_likelihood():g}, iVector length (at utterance end) was"
            f" {np.linalg.norm(rows[-1]):g}, objf improvement/frame from iVector estimation was"
            f" {ivectors.improvement():g}",
        )
        return rows, ivectors.adaptation_state()

    def _narrowed(self, features: np.ndarray) -> np.ndarray:
        """Features without the columns of the pitch."""
        if features.shape[1] != self._model.feature_dim + _PITCH:
            return features
        if not self._warned:
            self._options.program.warn(
                "Feature dimension is too large by 3, assuming there are pitch features and"
                " removing the last 3 dims."
            )
            self._warned = True
        return features[:, :-_PITCH]

    def _weigh(self, ivectors: OnlineIvector, key: str, frames: int) -> bool:
        assert self._weights is not None
        program = self._options.program
        if key not in self._weights:
            program.warn(f"Did not find weights for utterance {key}")
            return False
        weights = self._weights[key]
        if abs(len(weights) - frames) > self._options.length_tolerance:
            program.warn(
                f"{len(weights)} weights for {frames} frames of utterance {key}, which differ by"
                f" more than --length-tolerance={self._options.length_tolerance}"
            )
            return False
        padded = np.zeros(frames, np.float32)
        padded[: len(weights)] = weights[:frames]
        ivectors.weigh(np.arange(frames), padded)
        return True

    def _add(self, ivectors: OnlineIvector, rows: np.ndarray, frames: int) -> None:
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
        self._frames += frames
        self._improvement += frames * ivectors.improvement()
        self._length += frames * float(lengths.mean())
        self._last_length += frames * float(lengths[-1])

    def tell(self, done: int, missing: int) -> None:
        """Log what was done; no output at all is a failure."""
        log = self._options.program.log
        log(f"Estimated iVectors for {done} files, {self._failed + missing} with errors.")
        fail_unless(done)
        frames = self._frames
        log(
            f"Average objective-function improvement was {self._improvement / frames:g} per frame,"
            f" over {frames} frames (weighted)."
        )
        log(
            f"Average iVector length was {self._length / frames:g} and at utterance-end was"
            f" {self._last_length / frames:g}, over {frames} frames (weighted);  expected length is"
            f" {self._model.dim**0.5:g}"
        )
