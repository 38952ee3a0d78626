"""Kaldi's programs for LDA: statistics of a network's output, sums of them, input transforms.

Source: Kaldi's `nnet3bin/nnet3-acc-lda-stats.cc`, `chainbin/nnet3-chain-acc-lda-stats.cc`,
`bin/sum-lda-accs.cc`, `nnet2bin/nnet-get-feature-transform.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.files.packed import packed, write_packed
from ....kaldi.tables.streams import open_reader
from ...training.lda import (
    LdaAccumulator,
    LdaStats,
    TransformOptions,
    feature_transform,
    within_cholesky,
)
from ...training.progress import number
from ..base.options import BINARY, SRAND
from ..base.program import Option, from_values, options_of, program
from ..base.saving import save
from .train import in_turn, read_raw

_ACCUMULATING = (
    ("<raw-nnet-in>", "<training-examples-in>", "<lda-stats-out>"),
    BINARY,
    SRAND,
    Option("rand-prune", 0.0, "Posteriors below this are set to it or to 0 at random"),
)


@program(
    "nnet3-acc-lda-stats",
    "Accumulate statistics for LDA of the output of a raw nnet3 network on examples.",
    *_ACCUMULATING,
)
def nnet3_acc_lda_stats(options: SimpleNamespace, model: str, examples: str, output: str) -> None:
    _accumulate(options, model, examples, output, "example")


def _accumulate(
    options: SimpleNamespace, model: str, examples: str, output: str, kind: str
) -> None:
    accumulator = LdaAccumulator(read_raw(model), options.rand_prune, options.srand & 0xFFFFFFFF)
    chain = kind == "chain_example"
    use = accumulator.accumulate_chain if chain else accumulator.accumulate
    count = in_turn(examples, use, "accumulate", kind)
    options.program.log(f"Processed {count} examples.")
    stats = accumulator.stats
    if not stats.total:
        raise FormatError("Accumulated no stats.")
    writer = Writer(options.binary)
    stats.write(writer)
    save(writer, output)
    options.program.log(
        f"Accumulated stats, soft frame count = {number(stats.total)}.  Wrote to {output}"
    )


@program(
    "nnet3-chain-acc-lda-stats",
    "Accumulate statistics for LDA of the output of a raw nnet3 network on chain examples.",
    *_ACCUMULATING,
)
def nnet3_chain_acc_lda_stats(
    options: SimpleNamespace, model: str, examples: str, output: str
) -> None:
    _accumulate(options, model, examples, output, "chain_example")


@program(
    "sum-lda-accs",
    "Add statistics for LDA.",
    ("<accs-out>", "<stats-in>..."),
    BINARY,
)
def sum_lda_accs(options: SimpleNamespace, output: str, *files: str) -> None:
    stats = LdaStats()
    for name in files:
        stats.add(LdaStats.read(open_reader(name)))
    writer = Writer(options.binary)
    stats.write(writer)
    save(writer, output)


@program(
    "nnet-get-feature-transform",
    "Make the transform of a network's input from statistics for LDA.",
    ("<matrix-out>", "<lda-acc>..."),
    BINARY,
    *options_of(TransformOptions),
    Option("write-cholesky", "", "Where to write the Cholesky factor of the covariance in classes"),
    Option("write-within-covar", "", "Where to write the covariance within classes"),
)
def nnet_get_feature_transform(options: SimpleNamespace, output: str, *files: str) -> None:
    chosen = from_values(TransformOptions, vars(options))
    stats = LdaStats()
    for name in files:
        stats.add(LdaStats.read(open_reader(name)))
    writer = Writer(options.binary)
    writer.write_matrix(feature_transform(stats, chosen, options.program.log))
    save(writer, output)
    if options.write_cholesky or options.write_within_covar:
        factor = within_cholesky(stats, options.program.log)
        for name, matrix in (
            (options.write_cholesky, factor),
            (options.write_within_covar, factor @ factor.T),
        ):
            if name:
                writer = Writer(options.binary)
                write_packed(writer, packed(matrix).astype(np.float32))
                save(writer, name)
