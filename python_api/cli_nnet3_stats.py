"""Kaldi's programs around training: LDA statistics and transforms, acoustic models, priors.

Source: Kaldi's `nnet3bin/nnet3-acc-lda-stats.cc`, `nnet2bin/nnet-get-feature-transform.cc`,
`nnet3bin/nnet3-am-init.cc`, `nnet3bin/nnet3-am-adjust-priors.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ..framework.errors import FormatError, ShapeError
from ..nnet3.context_dependency import ContextDependency, new_transition_model
from ..nnet3.kaldi_io import Writer
from ..nnet3.model import AmNnetSimple
from ..nnet3.streams import open_output, open_reader
from ..nnet3.training.lda import (
    LdaAccumulator,
    LdaStats,
    TransformOptions,
    feature_transform,
    within_cholesky,
    write_packed,
)
from ..nnet3.training.progress import number
from ..nnet3.transition_model import TransitionModel, convert
from .cli_nnet3_program import Option, program
from .cli_nnet3_train import BINARY, SRAND, in_turn, read_raw


def _save(writer: Writer, name: str) -> None:
    with open_output(name) as file:
        file.write(writer.getvalue())


@program(
    "nnet3-acc-lda-stats",
    "Accumulate statistics for LDA of the output of a raw nnet3 network on examples.",
    ("<raw-nnet-in>", "<training-examples-in>", "<lda-stats-out>"),
    BINARY,
    SRAND,
    Option("rand-prune", 0.0, "Posteriors below this are set to it or to 0 at random"),
)
def nnet3_acc_lda_stats(options: SimpleNamespace, model: str, examples: str, output: str) -> None:
    accumulator = LdaAccumulator(read_raw(model), options.rand_prune, options.srand & 0xFFFFFFFF)
    count = in_turn(examples, accumulator.accumulate, "accumulate")
    options.program.log(f"Processed {count} examples.")
    stats = accumulator.stats
    if not stats.total:
        raise FormatError("Accumulated no stats.")
    writer = Writer(options.binary)
    stats.write(writer)
    _save(writer, output)
    options.program.log(
        f"Accumulated stats, soft frame count = {number(stats.total)}.  Wrote to {output}"
    )


@program(
    "nnet-get-feature-transform",
    "Make the transform of a network's input from statistics for LDA.",
    ("<matrix-out>", "<lda-acc>..."),
    BINARY,
    Option("remove-offset", True, "Append a column that takes the mean to 0"),
    Option("dim", -1, "Dimension of the result; -1 = that of the input"),
    Option("within-class-factor", 0.001, "Variance within classes in telling dimensions"),
    Option("max-singular-value", 5.0, "If above 0, the largest singular value of the transform"),
    Option("write-cholesky", "", "Where to write the Cholesky factor of the covariance in classes"),
    Option("write-within-covar", "", "Where to write the covariance within classes"),
)
def nnet_get_feature_transform(options: SimpleNamespace, output: str, *files: str) -> None:
    stats = LdaStats()
    for name in files:
        stats.add(LdaStats.read(open_reader(name)))
    chosen = TransformOptions(
        options.remove_offset,
        options.dim,
        options.within_class_factor,
        options.max_singular_value,
    )
    writer = Writer(options.binary)
    writer.write_matrix(feature_transform(stats, chosen, options.program.log))
    _save(writer, output)
    if options.write_cholesky or options.write_within_covar:
        factor = within_cholesky(stats, options.program.log)
        for name, matrix in (
            (options.write_cholesky, factor),
            (options.write_within_covar, factor @ factor.T),
        ):
            if name:
                writer = Writer(options.binary)
                write_packed(writer, matrix)
                _save(writer, name)


@program(
    "nnet3-am-init",
    "Make an nnet3 acoustic model of a raw network and a transition model, or a tree and a topology"
    " of which that is made.",
    ("<trans-model-or-tree-in>", "[<topology-in>]", "<input-raw-nnet>", "<output-am-nnet>"),
    BINARY,
)
def nnet3_am_init(
    options: SimpleNamespace, first: str, topology: str, raw: str, output: str
) -> None:
    reader = open_reader(first)
    if topology:
        tree = ContextDependency.read(reader)
        transitions = new_transition_model(tree, open_reader(topology))
    else:
        transitions = TransitionModel.read_from(reader)
    writer = Writer(options.binary, header=False)
    transitions.write_to(writer)
    model = AmNnetSimple(read_raw(raw), writer.getvalue(), options.binary)
    model.set_context()
    writer = Writer(options.binary)
    model.write_to(writer)
    _save(writer, output)
    options.program.log(f"Initialized am-nnet (neural net acoustic model) and wrote to {output}")


@program(
    "nnet3-am-adjust-priors",
    "Set the priors of an nnet3 acoustic model to (summed) posteriors of its network.",
    ("<nnet-in>", "<summed-posterior-vector-in>", "<nnet-out>"),
    BINARY,
    Option("prior-floor", 1e-15, "Least value of a prior"),
)
def nnet3_am_adjust_priors(
    options: SimpleNamespace, source: str, posteriors: str, output: str
) -> None:
    log = options.program.log
    model = AmNnetSimple.read_from(open_reader(source))
    reader = open_reader(posteriors)
    counts = reader.read_vector(np.float32).astype(np.float64)
    if not counts.sum() > 0 or (counts < 0).any():
        raise reader.error("posteriors must not be negative, and their sum positive")
    priors = np.maximum(counts / counts.sum(), options.prior_floor)
    old = model.priors.astype(np.float64)
    if not old.size:
        log("Model did not previously have priors attached.")
    elif old.shape != priors.shape:
        raise ShapeError(f"{priors.size} posteriors for a model with {old.size} priors")
    else:
        place = int(np.abs(priors - old).argmax())
        log(
            f"Adjusting priors: largest absolute difference was for pdf {place},"
            f" {number(old[place])} -> {number(priors[place])}"
        )
        p, q = old / old.sum(), priors / priors.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            divergence = float(np.where(p > 0, p * np.log(p / q), 0.0).sum())
        log(f"Adjusting priors: K-L divergence from old to new is {number(divergence)}")
    model.set_priors(priors)
    if options.binary != model.binary:
        model.transition_model = convert(
            model.transition_model, options.binary, from_binary=model.binary
        )
        model.binary = options.binary
    writer = Writer(options.binary)
    model.write_to(writer)
    _save(writer, output)
    log(f"Modified priors of neural network model and wrote it to {output}")
