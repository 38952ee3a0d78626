"""Kaldi's programs for acoustic models: made, given priors and transition probabilities.

Source: Kaldi's `nnet3bin/nnet3-am-init.cc`, `nnet3-am-adjust-priors.cc`,
`nnet3-am-train-transitions.cc`, `bin/copy-transition-model.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.sequence import bincount
from ...kaldi.files.context_dependency import ContextDependency, new_transition_model
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.tables.streams import open_reader
from ...kaldi.tables.tables import read_table
from ..network.model import AmNnetSimple
from ..training.progress import number, ratio
from ..training.transitions import TransitionOptions, output_priors, train_transitions
from .base.options import BINARY
from .base.program import Option, from_values, options_of, program
from .base.saving import write_model
from .training.train import read_raw


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
    write_model(model, output, options.binary)
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
    model.set_form(options.binary)
    write_model(model, output, options.binary)
    log(f"Modified priors of neural network model and wrote it to {output}")


@program(
    "nnet3-am-train-transitions",
    "Set the transition probabilities of an nnet3 acoustic model, and its priors, to what is found"
    " in alignments.",
    ("<nnet-in>", "<alignments-rspecifier>", "<nnet-out>"),
    BINARY,
    Option("set-priors", True, "Set the priors of outputs, too"),
    Option("prior-floor", 5.0e-06, "Least value of a prior"),
    *options_of(TransitionOptions),
)
def nnet3_am_train_transitions(
    options: SimpleNamespace, source: str, alignments: str, output: str
) -> None:
    log = options.program.log
    model = AmNnetSimple.read_from(open_reader(source))
    reader = Reader(model.transition_model, name=source, binary=model.binary)
    transitions = TransitionModel.read_from(reader)
    counts = np.zeros(len(transitions.log_probs))
    done = 0
    for key, alignment in read_table(alignments, "int_vector"):
        if len(alignment) and not 0 < alignment.min() <= alignment.max() < len(counts):
            raise FormatError(
                f"{alignments}: {key}: a transition-id is none of 1 to {len(counts) - 1}"
            )
        counts += bincount(alignment, minlength=len(counts))
        done += 1
    log(f"Accumulated transition stats from {done} utterances.")
    chosen = from_values(TransitionOptions, vars(options))
    gain, total = train_transitions(transitions, counts, chosen, log)
    log(
        f"Transition model update: average {number(ratio(gain, total))} log-like improvement per"
        f" frame over {number(total)} frames."
    )
    writer = Writer(model.binary, header=False)
    transitions.write_to(writer)
    model.transition_model = writer.getvalue()
    if options.set_priors:
        log("Setting priors of pdfs in the model.")
        model.set_priors(output_priors(transitions, counts, options.prior_floor))
    model.set_form(options.binary)
    write_model(model, output, options.binary)
    log(f"Trained transitions of neural network model and wrote it to {output}")


@program(
    "copy-transition-model",
    "Copy the transition model of an acoustic model.",
    ("<model-in>", "<transition-model-out>"),
    BINARY,
)
def copy_transition_model(options: SimpleNamespace, source: str, output: str) -> None:
    model = TransitionModel.read_from(open_reader(source))
    write_model(model, output, options.binary)
    options.program.log("Copied transition model.")
