"""Kaldi's programs that average, move and scale vectors of speakers.

Source: Kaldi's `ivectorbin/ivector-mean.cc`, `ivector-normalize-length.cc`,
`ivector-subtract-global-mean.cc`, `bin/transform-vec.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import TableWriter, read_table
from ....nnet3.programs.base.options import errors_tell
from ....nnet3.programs.base.program import Option, program
from ....nnet3.programs.base.saving import fail_unless, save
from ....nnet3.programs.base.speakers import BySpeaker
from ....nnet3.programs.base.table_copies import write_table
from ...features.transforms import transform


@program(
    "ivector-mean",
    "The mean of all vectors: <ivector-rspecifier> <mean-wxfilename>; or the mean of each speaker:"
    " <spk2utt-rspecifier> <ivector-rspecifier> <ivector-wspecifier> [<num-utt-wspecifier>].",
    ("<rspecifier>", "<in-or-out>", "[<ivector-wspecifier>]", "[<num-utt-wspecifier>]"),
    Option("binary", False, "Write output in binary mode, where it is a single file"),
)
def ivector_mean(
    options: SimpleNamespace, source: str, second: str, output: str, counts: str
) -> None:
    if output:
        _means_of_speakers(options, source, second, output, counts)
        return
    total, done = _sum(source)
    if not done:
        raise FormatError(f"{source}: there are no vectors")
    writer = Writer(options.binary)
    writer.write_vector(total * (1.0 / done))
    save(writer, second)


def _sum(source: str) -> tuple[np.ndarray, int]:
    """The sum of vectors of a table, float64, and how many they are."""
    total, done = np.zeros(0), 0
    for key, vector in read_table(source, "vector"):
        if done and vector.shape != total.shape:
            raise FormatError(f"{source}: {key}: {len(vector)} elements after {len(total)}")
        total = total + vector if done else vector.astype(np.float64)
        done += 1
    return total, done


def _means_of_speakers(
    options: SimpleNamespace, speakers: str, source: str, output: str, counts: str
) -> None:
    program = options.program
    warning = "No iVector present in input for utterance"
    known = BySpeaker(options, speakers, source, "vector", warning)
    numbers: list[tuple[str, int]] = []
    failed = 0
    with TableWriter(output, "vector") as writer:
        for speaker, utterances in known:
            vectors = [vector for _, vector in utterances]
            if not vectors:
                program.warn(
                    f"Not producing output for speaker {speaker} since no utterances had iVectors"
                )
                failed += 1
                continue
            writer.write(speaker, np.sum(vectors, axis=0) * np.float32(1.0 / len(vectors)))
            numbers.append((speaker, len(vectors)))
        done = writer.count
    if counts:
        write_table(counts, "int", numbers)
    program.log(
        f"Computed mean of {done} speakers ({failed} with no utterances), consisting of"
        f" {sum(number for _, number in numbers)} utterances ({known.missing} absent from input)."
    )
    fail_unless(done)


@program(
    "ivector-normalize-length",
    "Scale vectors to the length sqrt(dim).",
    ("<ivector-rspecifier>", "<ivector-wspecifier>"),
    Option("normalize", True, "false: copy them, and log their lengths"),
    Option("scaleup", True, "false: the length is 1"),
)
def ivector_normalize_length(options: SimpleNamespace, source: str, output: str) -> None:
    program = options.program
    ratios = []
    with TableWriter(output, "vector") as writer:
        for key, vector in read_table(source, "vector"):
            expected = np.sqrt(len(vector)) if options.scaleup else 1.0
            ratio = np.float32(np.linalg.norm(vector.astype(np.float64)) / expected)
            if not ratio:
                program.warn(f"Zero iVector: {key}")
            elif options.normalize:
                vector = vector * np.float32(1.0 / ratio)
            writer.write(key, vector)
            ratios.append(float(ratio))
    program.log(f"Processed {len(ratios)} iVectors.")
    if ratios:
        program.log(
            f"Average ratio of iVector to expected length was {np.mean(ratios):g}, standard"
            f" deviation was {np.std(ratios):g}"
        )
    fail_unless(ratios)


@program(
    "ivector-subtract-global-mean",
    "Subtract a mean from vectors; the mean of them all if there is no <mean-rxfilename>.",
    ("[<mean-rxfilename>]", "<ivector-rspecifier>", "<ivector-wspecifier>"),
    Option("subtract-mean", True, "false: without a mean given, copy them"),
)
def ivector_subtract_global_mean(
    options: SimpleNamespace, mean: str, source: str, output: str
) -> None:
    if mean:
        shift = open_reader(mean).read_vector(np.float32)
    else:
        total, done = _sum(source)
        # Kaldi rounds this factor to float32.
        factor = np.float32(-1.0 / max(done, 1)) * options.subtract_mean
        shift = -np.float64(factor) * total
    with TableWriter(output, "vector") as writer:
        for key, vector in read_table(source, "vector"):
            if vector.shape != shift.shape:
                raise FormatError(f"{source}: {key}: {len(vector)} elements, not {len(shift)}")
            writer.write(key, vector - shift)
        done = writer.count
    options.program.log(f"Wrote {done} mean-subtracted iVectors")
    fail_unless(done)


@program(
    "transform-vec",
    "Multiply vectors with a matrix, which may have one more column, of offsets.",
    ("<transform-rxfilename>", "<feats-rspecifier>", "<feats-wspecifier>"),
)
def transform_vec(options: SimpleNamespace, matrix: str, source: str, output: str) -> None:
    values = open_reader(matrix).read_matrix(np.float32)
    with TableWriter(output, "vector") as writer:
        for key, vector in read_table(source, "vector"):
            with errors_tell(f"{source}: {key}"):
                writer.write(key, transform(vector[None], values)[0])
        done = writer.count
    options.program.log(f"Applied transform to {done} vectors.")
    fail_unless(done)
