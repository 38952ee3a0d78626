"""compute-kaldi-pitch-feats, process-kaldi-pitch-feats, compute-and-process-kaldi-pitch-feats.

Source: Kaldi's programs of these names, in `featbin`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError, OpscopeError
from ....kaldi.tables.tables import TableWriter, read_table
from ....nnet3.programs.base.options import SRAND, shown
from ....nnet3.programs.base.program import from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless
from ...audio.wav import WAVE
from ...features.pitch import PitchOptions, PitchTracker
from ...features.pitch_processing import (
    Pitch,
    PitchProcessor,
    ProcessPitchOptions,
    whole_pitch,
)
from .spectral import first_channel, key_seed

_TABLES = ("<wav-rspecifier>", "<feats-wspecifier>")


@program(
    "compute-kaldi-pitch-feats",
    "Track the pitch of recordings: columns of NCCF and pitch in Hz.",
    _TABLES,
    *options_of(PitchOptions),
)
def compute_kaldi_pitch_feats(options: SimpleNamespace, source: str, output: str) -> None:
    tracking = from_values(PitchOptions, vars(options))

    def features(samples: np.ndarray, _: str) -> np.ndarray:
        return whole_pitch(PitchTracker(tracking), tracking, samples)

    _compute(options, tracking, features, source, output)


@program(
    "compute-and-process-kaldi-pitch-feats",
    "Track the pitch of recordings, and make features of it.",
    _TABLES,
    *options_of(PitchOptions),
    *options_of(ProcessPitchOptions),
    SRAND,
)
def compute_and_process_kaldi_pitch_feats(
    options: SimpleNamespace, source: str, output: str
) -> None:
    tracking = from_values(PitchOptions, vars(options))
    pitch = Pitch(tracking, from_values(ProcessPitchOptions, vars(options)))

    def features(samples: np.ndarray, key: str) -> np.ndarray:
        return pitch.compute(samples, seed=key_seed(options.srand, key))

    _compute(options, tracking, features, source, output)


@program(
    "process-kaldi-pitch-feats",
    "Make features of NCCF and pitch.",
    ("<feats-rspecifier>", "<feats-wspecifier>"),
    *options_of(ProcessPitchOptions),
    SRAND,
)
def process_kaldi_pitch_feats(options: SimpleNamespace, source: str, output: str) -> None:
    settings = from_values(ProcessPitchOptions, vars(options))
    with TableWriter(output, "matrix") as writer:
        for key, pitch in shown(read_table(source, "matrix"), "features", "utterances"):
            if len(pitch) and (pitch.shape[1] != 2 or not np.all(pitch[:, 1] > 0)):
                raise FormatError(f"{key}: no features of pitch, which have columns NCCF and Hz")
            processor = PitchProcessor(settings, key_seed(options.srand, key))
            count = processor.ready(len(pitch), finished=True)
            empty = np.empty((0, settings.dim), np.float32)
            writer.write(key, processor.processed(pitch, 0, 0, count) if count else empty)
        done = writer.count
    options.program.log(f"Post-processed pitch for {done} utterances.")
    fail_unless(done)


def _compute(
    options: SimpleNamespace,
    tracking: PitchOptions,
    features: Callable[[np.ndarray, str], np.ndarray],
    source: str,
    output: str,
) -> None:
    errors = 0
    with TableWriter(output, "matrix") as writer:
        for key, audio in shown(read_table(source, WAVE), "pitch", "utterances"):
            samples = first_channel(options.program.warn, audio)
            if audio.rate != tracking.sample_frequency:
                raise FormatError(
                    f"Sample frequency mismatch: you specified {tracking.sample_frequency:g} but"
                    f" data has {audio.rate:g} (use --sample-frequency option).  Utterance is {key}"
                )
            try:
                matrix = features(samples, key)
            except OpscopeError as error:
                options.program.warn(f"Failed to compute pitch for utterance {key}: {error}")
                errors += 1
                continue
            writer.write(key, matrix)
        done = writer.count
    options.program.log(f"Done {done} utterances, {errors} with errors.")
    fail_unless(done)
