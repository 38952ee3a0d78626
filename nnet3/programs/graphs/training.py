"""Kaldi's programs that make the graphs of utterances for training and alignment.

Source: Kaldi's `bin/compile-train-graphs.cc`, `bin/compile-train-graphs-fsts.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.fst.fst import Fst
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import read_table
from ...chain.graphs.training_graph import TrainingGraphCompiler, linear
from ..base.graphs import open_fst
from ..base.program import Option, program
from ..base.saving import fail_unless
from ..base.symbols import read_symbols
from ..base.table_copies import write_table

_OPTIONS = (
    Option("transition-scale", 0.0, "Scale of transition probabilities (excluding self-loops)"),
    Option("self-loop-scale", 0.0, "Scale of self-loop vs. non-self-loop probability mass"),
    Option("reorder", True, "Self-loops stand after the transition that leaves their state"),
    Option("rm-eps", False, "Remove epsilons locally where disambiguation symbols have left them"),
    Option("batch-size", 250, "Graphs are made one after the other, whatever this is"),
    Option("read-disambig-syms", "", "File with the disambiguation symbols of the lexicon"),
)
_FILES = ("<tree>", "<model>", "<lexicon-fst-in>")


def _compiler(
    options: SimpleNamespace, tree: str, model: str, lexicon: str
) -> TrainingGraphCompiler:
    try:
        return TrainingGraphCompiler(
            ContextDependency.read(open_reader(tree)),
            TransitionModel.read_from(open_reader(model)),
            open_fst(lexicon),
            read_symbols(options.read_disambig_syms) if options.read_disambig_syms else (),
            transition_scale=options.transition_scale,
            self_loop_scale=options.self_loop_scale,
            remove_epsilons=options.rm_eps,
            reorder=options.reorder,
        )
    except FormatError as error:
        raise FormatError(f"{lexicon}, {model}: {error}") from error


def _compile(
    options: SimpleNamespace,
    compiler: TrainingGraphCompiler,
    grammars: Iterator[tuple[str, Fst]],
    output: str,
) -> int:
    """Write the graphs of utterances; returns how many they were."""
    failed = 0

    def graphs() -> Iterator[tuple[str, Fst]]:
        nonlocal failed
        for key, grammar in grammars:
            try:
                graph = compiler.compile(grammar)
            except (FormatError, ShapeError) as error:
                raise FormatError(f"{key}: {error}") from error
            if graph.states:
                yield key, graph
            else:
                options.program.warn(f"Empty decoding graph for utterance {key}")
                failed += 1

    done = write_table(output, "fst", graphs())
    options.program.log(f"compile-train-graphs: succeeded for {done} graphs, failed for {failed}")
    return done


@program(
    "compile-train-graphs",
    "Make graphs of transcripts, without the probabilities of transitions by default.",
    (*_FILES, "<transcriptions-rspecifier>", "<graphs-wspecifier>"),
    *_OPTIONS,
)
def compile_train_graphs(
    options: SimpleNamespace, tree: str, model: str, lexicon: str, source: str, output: str
) -> None:
    def grammars() -> Iterator[tuple[str, Fst]]:
        for key, words in read_table(source, "int_vector"):
            if np.any(words <= 0):
                raise FormatError(f"{source}: {key}: {int(words.min())} is no word")
            yield key, linear(words.tolist())

    fail_unless(_compile(options, _compiler(options, tree, model, lexicon), grammars(), output))


@program(
    "compile-train-graphs-fsts",
    "Make graphs of grammars of utterances, without the probabilities of transitions by default."
    " The lexicon should have disambiguation symbols, named by --read-disambig-syms.",
    (*_FILES, "<graphs-rspecifier>", "<graphs-wspecifier>"),
    *_OPTIONS,
)
def compile_train_graphs_fsts(
    options: SimpleNamespace, tree: str, model: str, lexicon: str, source: str, output: str
) -> None:
    if not options.read_disambig_syms:
        options.program.warn(
            "no disambiguation symbols are given; graphs of FSTs can seldom be determinized without"
            " them (--read-disambig-syms, and a lexicon that has them)"
        )
    compiler = _compiler(options, tree, model, lexicon)
    _compile(options, compiler, read_table(source, "fst"), output)
