"""Kaldi's programs that train, judge and combine nnet3 networks.

What judges and combines is imported by the programs that do so: training starts sooner without.
Source: Kaldi's `nnet3bin/nnet3-train.cc`, `nnet3-compute-prob.cc`, `nnet3-combine.cc`,
`nnet3-show-progress.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ....framework.base.errors import FormatError, OpscopeError
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import read_table
from ...components.base.summary import singular_values
from ...files.examples import NnetExample
from ...network import adjust
from ...network.nnet import Nnet
from ...training import NnetTrainer, NnetTrainerOptions
from ..base.options import (
    ALLOCATOR,
    BINARY,
    DEBUG,
    GPU,
    SRAND,
    chosen_place,
    errors_tell,
    shown,
)
from ..base.passes import chosen_passes, optimization_options
from ..base.program import Option, from_values, options_of, program
from ..base.saving import fail_unless, save, write_model

if TYPE_CHECKING:
    from ...training.combination import MakeProb

Change = Callable[[str, Any], Any]
COMPILER = (
    Option("compiler.cache-capacity", 64, "How many compiled computations are kept"),
    Option("compiler.use-shortcut", True, "Compile for two sequences where there are many"),
)
CACHE = (
    Option("read-cache", "", "File with computations that were compiled before"),
    Option("write-cache", "", "File to which compiled computations are written at the end"),
    Option("binary-write-cache", True, "Write that file in binary mode"),
)
COMBINING = (
    Option("max-objective-evaluations", 30, "How often to compute the objective, at most"),
    Option("batchnorm-test-mode", False, "Test mode of batch-norm components meanwhile"),
    Option("dropout-test-mode", True, "Test mode of dropout components meanwhile"),
)
TEST_MODES = (
    Option("batchnorm-test-mode", True, "Test mode of batch-norm components"),
    Option("dropout-test-mode", True, "Test mode of dropout components"),
)
_ACCURACY = (
    Option("compute-accuracy", True, "Compute accuracy besides the objective"),
    Option("compute-per-dim-accuracy", False, "Compute accuracy for each class, too"),
)


def chosen_trainer(options: SimpleNamespace) -> NnetTrainerOptions:
    """The trainer that the options describe.

    Raises:
        AttributeTypeError: a value out of bounds.
    """
    return from_values(
        NnetTrainerOptions,
        vars(options),
        optimize=chosen_passes(options),
        use_shortcut=options.compiler_use_shortcut,
        cache_capacity=options.compiler_cache_capacity,
    )


def train_pass(
    trainer: NnetTrainer,
    options: SimpleNamespace,
    examples: str,
    kind: str = "example",
    change: Change | None = None,
) -> bool:
    """Train on a table of examples and put the parameters into the network; whether there were any.

    Compiled computations are read from --read-cache, and written to --write-cache.

    Args:
        change: see `in_turn`.

    Raises:
        OpscopeError: an example does not fit the network, or something cannot be read or written.
    """
    program = options.program
    if options.read_cache:
        from ...cache.files import read_cache

        try:
            reader = open_reader(options.read_cache)
            if read_cache(trainer.compiler, trainer.nnet, reader):
                program.log(f"Read computation cache from {options.read_cache}")
            else:
                program.log(f"{options.read_cache}: made for another network or other passes")
        except OpscopeError as error:
            program.warn(
                "Could not open cached computation. Probably this is the first training iteration."
                f" ({error})"
            )
    in_turn(examples, trainer.train, "train", kind, change)
    trained = trainer.print_total_stats()
    trainer.store()
    if options.write_cache:
        from ...cache.files import write_cache

        writer = Writer(options.binary_write_cache)
        write_cache(trainer.compiler, trainer.nnet, writer)
        save(writer, options.write_cache)
        program.log(f"Wrote computation cache to {options.write_cache}")
    return trained


def read_raw(name: str) -> Nnet:
    """The network in a raw file or an acoustic model. Raises FormatError: it is damaged."""
    return Nnet.read_any(open_reader(name))


def read_examples(rspecifier: str) -> Iterator[NnetExample]:
    """The examples of a table, without their keys.

    Raises:
        FormatError: an example is damaged.
    """
    for _, example in read_table(rspecifier, "example"):
        yield example


def in_turn(
    rspecifier: str, use: Any, what: str, kind: str = "example", change: Change | None = None
) -> int:
    """Call `use` with each example of a table and show progress; returns how many there were.

    Args:
        change: what becomes of an example first, by its key.

    Raises:
        OpscopeError: what `use` raises, with the example's key in front.
    """
    count = 0
    for key, example in shown(read_table(rspecifier, kind), what, "minibatches"):
        with errors_tell(f"{rspecifier}: {key}"):
            use(example if change is None else change(key, example))
        count += 1
    return count


@program(
    "nnet3-train",
    "Train a raw nnet3 network with stochastic gradient descent, one step for each (merged)"
    " example.",
    ("<raw-model-in>", "<training-examples-in>", "<raw-model-out>"),
    BINARY,
    SRAND,
    GPU,
    *options_of(NnetTrainerOptions),
    *CACHE,
    *ALLOCATOR,
    *DEBUG,
    *COMPILER,
    *optimization_options(),
)
def nnet3_train(options: SimpleNamespace, model: str, examples: str, output: str) -> None:
    log = options.program.log
    nnet = read_raw(model)
    chosen = chosen_trainer(options)
    place = chosen_place(options.use_gpu)
    trainer = NnetTrainer(chosen, nnet, place, options.srand & 0xFFFFFFFF, log)
    trained = train_pass(trainer, options, examples)
    write_model(nnet, output, options.binary)
    log(f"Wrote model to {output}")
    fail_unless(trained)


def set_test_modes(options: SimpleNamespace, nnet: Nnet) -> None:
    """Set the test modes that the options want, but in batch-norm components without statistics:
    an initial network is judged with those of each minibatch. (Kaldi takes random numbers.)"""
    if options.batchnorm_test_mode:
        without = adjust.without_statistics(nnet)
        adjust.set_batchnorm_test_mode(nnet, True, but=without)
        if without:
            options.program.warn(
                f"{', '.join(without)}: no statistics for test mode, so those of each minibatch"
                " count. This is not a problem in compute_prob_*.0.log."
            )
    if options.dropout_test_mode:
        adjust.set_dropout_test_mode(nnet, True)


@program(
    "nnet3-compute-prob",
    "Print the average objective and accuracy of a raw nnet3 network on (merged) examples.",
    ("<raw-model-in>", "<training-examples-in>"),
    GPU,
    *TEST_MODES,
    Option("collapse-model", True, "Join components where possible"),
    *_ACCURACY,
    *DEBUG,
    *COMPILER,
    *optimization_options(),
)
def nnet3_compute_prob(options: SimpleNamespace, model: str, examples: str) -> None:
    from ...training.compute_prob import NnetComputeProb, NnetComputeProbOptions

    nnet = read_raw(model)
    set_test_modes(options, nnet)
    if options.collapse_model:
        from ...network.collapse import collapse_model

        collapse_model(nnet)
    chosen = from_values(NnetComputeProbOptions, vars(options), optimize=chosen_passes(options))
    prob = NnetComputeProb(nnet, chosen, chosen_place(options.use_gpu))
    in_turn(examples, prob.compute, "compute")
    fail_unless(prob.print_total_stats(options.program.log))


@program(
    "nnet3-combine",
    "Average the first n of several raw nnet3 networks (the last one first), with the n that has"
    " the best objective on examples.",
    ("<nnet-in>...", "<valid-examples-in>", "<nnet-out>"),
    BINARY,
    GPU,
    *COMBINING,
)
def nnet3_combine(options: SimpleNamespace, *files: str) -> None:
    *models, valid, output = files
    examples = list(read_examples(valid))
    options.program.log(f"Read {len(examples)} examples.")
    combine_models(options, map(read_raw, models), len(models), examples, output)


def combine_models(
    options: SimpleNamespace,
    nnets: Iterable[Nnet],
    count: int,
    examples: Sequence[Any],
    output: str,
    make_prob: MakeProb | None = None,
) -> None:
    """Combine networks as the options say, and write the result; see `combine`."""
    from ...training.combination import combine, frame_prob

    nnet = combine(
        nnets,
        count,
        examples,
        options.program.log,
        options.max_objective_evaluations,
        options.batchnorm_test_mode,
        options.dropout_test_mode,
        make_prob=make_prob or frame_prob,
    )
    write_model(nnet, output, options.binary)
    options.program.log(f"Finished combining neural nets, wrote model to {output}")


@program(
    "nnet3-show-progress",
    "Show how parameters of a raw nnet3 network changed, and with examples what each component did"
    " for the objective.",
    ("<old-net-in>", "<new-net-in>", "[<training-examples-in>]"),
    GPU,
    Option("num-segments", 1, "Places between the networks where the gradient is computed"),
    *_ACCURACY,
    *DEBUG,
    *COMPILER,
    *optimization_options(),
)
def nnet3_show_progress(options: SimpleNamespace, old: str, new: str, examples: str) -> None:
    from ...training.combination import show_progress
    from ...training.compute_prob import NnetComputeProbOptions

    if options.num_segments < 1:
        raise FormatError("--num-segments must be positive")
    before, after = read_raw(old), read_raw(new)
    if before.num_parameters != after.num_parameters:
        options.program.warn("Parameter-dim mismatch, cannot show progress.")
        return
    wanted = bool(examples) and before.is_simple()
    listed = list(read_examples(examples)) if wanted else []
    if wanted and not listed:
        raise FormatError(f"{examples}: no examples")
    chosen = from_values(NnetComputeProbOptions, vars(options), optimize=chosen_passes(options))
    program = options.program
    vlog = partial(program.vlog, 1) if options.verbose else None
    with singular_values(options.verbose > 1):
        show_progress(before, after, listed, program.log, options.num_segments, chosen, vlog)
