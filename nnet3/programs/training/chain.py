"""Kaldi's programs that train, judge and combine nnet3 networks with LF-MMI.

Source: Kaldi's `chainbin/nnet3-chain-train.cc`, `nnet3-chain-compute-prob.cc`,
`nnet3-chain-combine.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

from ....framework.base.errors import FormatError, nearest
from ....kaldi.tables.tables import read_table
from ...chain.denominator import DenominatorGraph
from ...chain.objective import ChainOptions
from ...network.nnet import Nnet
from ...training import NnetTrainer, NnetTrainerOptions
from ...training.chain_objectives import ChainObjectives
from ...training.chain_request import XENT
from ..base.graphs import open_fst
from ..base.options import ALLOCATOR, BINARY, DEBUG, GPU, SRAND, UNUSED, chosen_place
from ..base.passes import chosen_passes, optimization_options
from ..base.program import Option, from_values, options_of, program
from ..base.saving import fail_unless, write_model
from .train import (
    CACHE,
    COMBINING,
    COMPILER,
    TEST_MODES,
    Change,
    chosen_trainer,
    combine_models,
    in_turn,
    read_raw,
    set_test_modes,
    train_pass,
)

CHAIN = (
    *options_of(ChainOptions),
    Option("numerator-graph-threads", 4, UNUSED),
)


TRAINING = (
    BINARY,
    SRAND,
    GPU,
    Option("apply-deriv-weights", True, "Use the weights of derivatives in the examples"),
    *options_of(NnetTrainerOptions),
    *CHAIN,
    *CACHE,
    *ALLOCATOR,
    *DEBUG,
    *COMPILER,
    *optimization_options(),
)
COMBINING_CHAIN = (BINARY, GPU, *COMBINING, *CHAIN)
Graphs = DenominatorGraph | Mapping[str, DenominatorGraph]
"""The denominator graph, or one for each output."""


def read_graph(name: str, nnet: Nnet, output: str = "output") -> DenominatorGraph:
    """The graph in an FST's file, for the pdfs of an output of the network.

    Raises:
        FormatError: it is no FST, or its labels are no pdfs of the network, or there is no such
            output.
    """
    dims = nnet.node_dims()
    if output not in dims:
        raise FormatError(f"the network has no output {output!r}{nearest(output, dims)}")
    return DenominatorGraph.of_fst(open_fst(name), dims[output])


@program(
    "nnet3-chain-train",
    "Train a raw nnet3 network with LF-MMI, one step for each (merged) chain example.",
    ("<raw-nnet-in>", "<denominator-fst-in>", "<chain-training-examples-in>", "<raw-nnet-out>"),
    *TRAINING,
)
def nnet3_chain_train(
    options: SimpleNamespace, model: str, graph: str, examples: str, output: str
) -> None:
    nnet = read_raw(model)
    train_chain(options, nnet, read_graph(graph, nnet), examples, output)


def train_chain(
    options: SimpleNamespace,
    nnet: Nnet,
    graphs: Graphs,
    examples: str,
    output: str,
    change: Change | None = None,
) -> None:
    """Train a network on a table of chain examples, and write it.

    Args:
        change: see `in_turn`.
    """
    log = options.program.log
    objective = ChainObjectives(
        graphs, from_values(ChainOptions, vars(options)), options.apply_deriv_weights
    )
    trainer = NnetTrainer(
        chosen_trainer(options),
        nnet,
        chosen_place(options.use_gpu),
        options.srand & 0xFFFFFFFF,
        log,
        objective,
    )
    trained = train_pass(trainer, options, examples, "chain_example", change)
    write_model(nnet, output, options.binary)
    log(f"Wrote raw model to {output}")
    fail_unless(trained)


@program(
    "nnet3-chain-compute-prob",
    "Print the average LF-MMI objective of a raw nnet3 network on (merged) chain examples.",
    ("<raw-nnet3-model-in>", "<denominator-fst>", "<training-examples-in>"),
    GPU,
    *TEST_MODES,
    Option("compute-accuracy", True, UNUSED),
    Option("compute-per-dim-accuracy", False, UNUSED),
    *CHAIN,
    *DEBUG,
    *COMPILER,
    *optimization_options(),
)
def nnet3_chain_compute_prob(
    options: SimpleNamespace, model: str, graph: str, examples: str
) -> None:
    from ...training.chain_prob import NnetChainComputeProb

    nnet = read_raw(model)
    set_test_modes(options, nnet)
    prob = NnetChainComputeProb(
        nnet,
        read_graph(graph, nnet),
        from_values(ChainOptions, vars(options)),
        chosen_place(options.use_gpu),
        chosen_passes(options),
    )
    in_turn(examples, prob.compute, "compute", "chain_example")
    fail_unless(prob.print_total_stats(options.program.log))


@program(
    "nnet3-chain-combine",
    "Average the first n of several raw nnet3 networks (the last one first), with the n that has"
    " the best LF-MMI objective on chain examples.",
    ("<den-fst>", "<raw-nnet-in>...", "<chain-examples-in>", "<raw-nnet-out>"),
    *COMBINING_CHAIN,
)
def nnet3_chain_combine(options: SimpleNamespace, fst: str, *files: str) -> None:
    combine_chain(options, lambda nnet: read_graph(fst, nnet), files)


def combine_chain(
    options: SimpleNamespace,
    read: Callable[[Nnet], Graphs],
    files: Sequence[str],
    change: Change | None = None,
) -> None:
    """Combine networks by their LF-MMI objective, and write the result.

    Args:
        read: reads the denominator graphs for such a network.
        files: the networks, the examples, the network that is written.
        change: see `in_turn`.
    """
    from ...training.chain_prob import NnetChainComputeProb

    *models, valid, output = files
    chosen = from_values(ChainOptions, vars(options))
    place = chosen_place(options.use_gpu)
    table = read_table(valid, "chain_example")
    examples = [example if change is None else change(key, example) for key, example in table]
    options.program.log(f"Read {len(examples)} examples.")
    nnets = [read_raw(models[0])]
    graphs = read(nnets[0])
    has_xent = any(node.name.endswith(XENT) for node in nnets[0].outputs())

    def make_prob(nnet: Nnet, store_component_stats: bool) -> NnetChainComputeProb:
        settings = chosen
        if store_component_stats and has_xent and not chosen.xent_regularize:
            settings = replace(chosen, xent_regularize=0.1)  # statistics of that branch, too
        return NnetChainComputeProb(
            nnet, graphs, settings, place, store_component_stats=store_component_stats
        )

    rest = (nnets.pop() if nnets else read_raw(name) for name in models)
    combine_models(options, rest, len(models), examples, output, make_prob)
