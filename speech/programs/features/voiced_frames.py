"""compute-vad, select-voiced-frames. Source: Kaldi's `ivectorbin/` of these names."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ....nnet3.programs.base.options import shown
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless
from ....nnet3.training.progress import ratio
from ...features.vad import VadOptions, voiced


@program(
    "compute-vad",
    "Write for each frame 1 if it has speech, by its energy, and 0 otherwise.",
    ("<feats-rspecifier>", "<vad-wspecifier>"),
    Option("omit-unvoiced-utts", False, "Write nothing for utterances without speech"),
    *options_of(VadOptions),
)
def compute_vad(options: SimpleNamespace, source: str, output: str) -> None:
    program = options.program
    settings = from_values(VadOptions, vars(options))
    done = empty = unvoiced = frames = total = 0
    with TableWriter(output, "vector") as writer:
        for key, features in shown(read_table(source, "matrix"), "judge", "utterances"):
            if not len(features):
                program.warn(f"Empty feature matrix for utterance {key}")
                empty += 1
                continue
            found = voiced(features, settings)
            count = int(np.count_nonzero(found))
            done += count > 0
            if not count:
                program.warn(f"No frames were judged voiced for utterance {key}")
                unvoiced += 1
            frames += len(found)
            total += count
            if count or not options.omit_unvoiced_utts:
                writer.write(key, found.astype(np.float32))
    program.log(
        "Applied energy based voice activity detection; processed"
        f" {done} utterances successfully; {empty} had empty features, and {unvoiced} were"
        " completely unvoiced."
    )
    program.log(f"Proportion of voiced frames was {ratio(total, frames):g} over {frames} frames.")
    fail_unless(done)


@program(
    "select-voiced-frames",
    "Keep the frames that compute-vad has found to have speech.",
    ("<feats-rspecifier>", "<vad-rspecifier>", "<feats-wspecifier>"),
)
def select_voiced_frames(options: SimpleNamespace, source: str, vad: str, output: str) -> None:
    program = options.program
    table = RandomAccessTable(vad, "vector")
    failed = 0
    with TableWriter(output, "matrix") as writer:
        for key, features in shown(read_table(source, "matrix"), "select", "utterances"):
            found = table.get(key)
            problem = ""
            if not len(features):
                problem = "Empty feature matrix"
            elif found is None:
                problem = "No VAD input found"
            elif len(found) != len(features):
                problem = f"{len(features)} frames of features and {len(found)} of VAD"
            elif not found.any():
                problem = "No features were judged as voiced"
            if problem or found is None:
                program.warn(f"{problem} for utterance {key}")
                failed += 1
                continue
            if set(np.unique(found).tolist()) - {0.0, 1.0}:
                raise FormatError(f"{vad}: {key}: numbers other than 0 and 1")
            writer.write(key, features[found == 1])
        done = writer.count
    program.log(f"Done selecting voiced frames; processed {done} utterances, {failed} had errors.")
    fail_unless(done)
