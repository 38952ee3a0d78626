"""Kaldi's programs that train and judge nnet3 acoustic models with MMI, MPFE or sMBR on lattices.

Source: Kaldi's `nnet3bin/nnet3-discriminative-train.cc`, `nnet3-discriminative-compute-objf.cc`.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from ....framework.base.errors import ShapeError
from ....kaldi.files.kaldi_io import Reader
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.lattices.transition_ids import TransitionIds
from ....kaldi.tables.streams import open_reader
from ...discriminative.objective import DiscriminativeOptions
from ...network import adjust
from ...network.model import AmNnetSimple
from ...training import NnetTrainer, NnetTrainerOptions
from ...training.discriminative import DiscriminativeObjectives
from ..base.options import BINARY, DEBUG, GPU, UNUSED, chosen_place
from ..base.passes import chosen_passes, optimization_options
from ..base.program import Option, from_values, options_of, program
from ..base.saving import fail_unless, write_model
from .train import (
    CACHE,
    COMPILER,
    TEST_MODES,
    chosen_trainer,
    in_turn,
    set_test_modes,
    train_pass,
)

KIND = "discriminative_example"
_WITHOUT = ("l2_regularize_factor", "backstitch_training_scale", "batchnorm_stats_scale")
"""Settings of training that Kaldi's program has and does not use."""


def _read_model(name: str) -> tuple[AmNnetSimple, TransitionIds]:
    """An acoustic model and what its transition-ids are.

    Raises:
        FormatError: it is damaged. ShapeError: its transition model belongs to another network.
    """
    model = AmNnetSimple.read_from(open_reader(name))
    reader = Reader(model.transition_model, name=name, binary=model.binary)
    ids = TransitionIds.of(TransitionModel.read_from(reader))
    columns = model.nnet.output_dim("output")
    if ids.num_pdfs != columns:
        raise ShapeError(
            f"{name}: the transition model has {ids.num_pdfs} pdfs, the network's output {columns}"
            " columns"
        )
    return model, ids


@program(
    "nnet3-discriminative-train",
    "Train the network of an nnet3 acoustic model with MMI, MPFE or sMBR, one step for each"
    " (merged) discriminative example, and write it as a raw network.",
    ("<nnet-in>", "<discriminative-training-examples-in>", "<raw-nnet-out>"),
    BINARY,
    GPU,
    TEST_MODES[1],
    Option("apply-deriv-weights", True, "Use the weights of derivatives in the examples"),
    *options_of(NnetTrainerOptions),
    *options_of(DiscriminativeOptions),
    *CACHE,
    *DEBUG,
    *COMPILER,
    *optimization_options(),
)
def nnet3_discriminative_train(
    options: SimpleNamespace, source: str, examples: str, output: str
) -> None:
    program = options.program
    model, ids = _read_model(source)
    nnet = model.nnet
    if options.dropout_test_mode:
        adjust.set_dropout_test_mode(nnet, True)
    chosen = chosen_trainer(options)
    for name in _WITHOUT:
        if getattr(chosen, name) != getattr(NnetTrainerOptions, name):
            program.warn(f"--{name.replace('_', '-')} has no effect in discriminative training")
    chosen = replace(
        chosen, component_limits=False, backstitch_training_scale=0.0, batchnorm_stats_scale=1.0
    )
    objective = DiscriminativeObjectives(
        from_values(DiscriminativeOptions, vars(options)),
        ids,
        model.priors,
        options.apply_deriv_weights,
    )
    place = chosen_place(options.use_gpu)
    trainer = NnetTrainer(chosen, nnet, place, log=program.log, objective=objective)
    trained = train_pass(trainer, options, examples, KIND)
    write_model(nnet, output, options.binary)
    program.log(f"Wrote raw nnet model to {output}")
    fail_unless(trained)


@program(
    "nnet3-discriminative-compute-objf",
    "Print the average objective of MMI, MPFE or sMBR of an nnet3 acoustic model on (merged)"
    " discriminative examples.",
    ("<nnet3-model-in>", "<training-examples-in>"),
    *TEST_MODES,
    Option("compute-accuracy", True, UNUSED),
    Option("compute-per-dim-accuracy", False, UNUSED),
    *options_of(DiscriminativeOptions),
    *DEBUG,
    *COMPILER,
    *optimization_options(),
)
def nnet3_discriminative_compute_objf(options: SimpleNamespace, source: str, examples: str) -> None:
    from ...training.discriminative import NnetDiscriminativeComputeObjf

    model, ids = _read_model(source)
    set_test_modes(options, model.nnet)
    objf = NnetDiscriminativeComputeObjf(
        model.nnet,
        from_values(DiscriminativeOptions, vars(options)),
        ids,
        model.priors,
        optimize=chosen_passes(options),
    )
    in_turn(examples, objf.compute, "compute", KIND)
    fail_unless(objf.print_total_stats(options.program.log))
