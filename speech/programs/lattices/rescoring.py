"""Kaldi's programs that give lattices the costs of other language models.

Source: Kaldi's `latbin/lattice-lmrescore*.cc`, `lmbin/arpa-to-const-arpa.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.lattices.lattice import CompactLattice
from ....kaldi.tables.streams import Files, open_reader
from ....kaldi.tables.tables import TableWriter, read_table
from ....nnet3.network.nnet import Nnet
from ....nnet3.programs.base.graphs import open_fst
from ....nnet3.programs.base.options import DEBUG, UNUSED, errors_tell, shown
from ....nnet3.programs.base.passes import optimization_options
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless, save
from ...language_model.arpa import parse_arpa
from ...language_model.automaton import (
    Automaton,
    Backoff,
    Both,
    FstModel,
    LanguageModel,
    Scaled,
    projected,
)
from ...language_model.const_arpa import ConstArpa, ConstArpaAutomaton, const_arpa
from ...language_model.model import NgramModel
from ...language_model.rnnlm import Rnnlm, RnnlmAutomaton, RnnlmOptions
from ...lattice.composition import ComposeOptions, composed_pruned
from ...lattice.rescoring import rescored

_COMPACT = "compact_lattice"
_LATTICES = "<lattice-rspecifier>", "<lattice-wspecifier>"
_SCALE = Option("lm-scale", 1.0, "Factor for the costs of the language model; often 1 or -1")
_ORDER = Option(
    "max-ngram-order",
    3,
    "Words that are told apart, with those before them, in a recurrent model; 0: all",
)
_RNNLM = (*options_of(RnnlmOptions), *DEBUG, *optimization_options())
_PRUNED = options_of(ComposeOptions)


def _acoustic(scale: float) -> Option:
    return Option("acoustic-scale", scale, "Factor for acoustic costs, while paths are compared")


@program(
    "lattice-lmrescore",
    "Add the costs of a language model, an FST, to the graph costs of lattices: the costs of its"
    " best way through each sequence of words.",
    ("<lattice-rspecifier>", "<lm-fst-in>", "<lattice-wspecifier>"),
    _SCALE,
    Option("num-states-cache", 50000, UNUSED),
)
def lattice_lmrescore(options: SimpleNamespace, source: str, model: str, output: str) -> None:
    automaton = FstModel(open_fst(model))
    _rescore(options, source, output, lambda: automaton)


@program(
    "lattice-lmrescore-const-arpa",
    "Add the costs of a language model, a const-ARPA file, to the graph costs of lattices.",
    ("<lattice-rspecifier>", "<const-arpa-in>", "<lattice-wspecifier>"),
    _SCALE,
)
def lattice_lmrescore_const_arpa(
    options: SimpleNamespace, source: str, model: str, output: str
) -> None:
    known = ConstArpa.read(open_reader(model))
    _rescore(options, source, output, lambda: ConstArpaAutomaton(known))


@program(
    "lattice-lmrescore-kaldi-rnnlm",
    "Add the costs of a recurrent language model to the graph costs of lattices.",
    ("<embedding-file>", "<raw-rnnlm-in>", *_LATTICES),
    _SCALE,
    _ORDER,
    *_RNNLM,
)
def lattice_lmrescore_kaldi_rnnlm(
    options: SimpleNamespace, embedding: str, network: str, source: str, output: str
) -> None:
    automaton = _rnnlm(options, embedding, network)

    def fresh() -> LanguageModel:
        automaton.clear()
        return automaton

    _rescore(options, source, output, fresh)


@program(
    "lattice-lmrescore-kaldi-rnnlm-pruned",
    "Take the costs of a language model from the graph costs of lattices, and add the costs of a"
    " recurrent one, along their best paths.",
    ("<old-lm-in>", "<embedding-file>", "<raw-rnnlm-in>", *_LATTICES),
    Option("lm-scale", 0.5, "Factor for both models' costs"),
    _acoustic(0.1),
    _ORDER,
    Option("use-const-arpa", False, "The old model is a const-ARPA file, not an FST"),
    *_RNNLM,
    *_PRUNED,
)
def lattice_lmrescore_kaldi_rnnlm_pruned(
    options: SimpleNamespace, old: str, embedding: str, network: str, source: str, output: str
) -> None:
    automaton = _rnnlm(options, embedding, network)
    fresh = _opened(old, options.use_const_arpa)

    def models() -> tuple[Automaton, Automaton]:
        automaton.clear()
        return fresh(), automaton

    _replace(options, models, source, output)


@program(
    "lattice-lmrescore-pruned",
    "Take the costs of a language model from the graph costs of lattices, and add another one's,"
    " along their best paths.",
    ("<lm-to-subtract>", "<lm-to-add>", *_LATTICES),
    _SCALE,
    _acoustic(1.0),
    Option("add-const-arpa", False, "The second model is a const-ARPA file, not an FST"),
    *_PRUNED,
)
def lattice_lmrescore_pruned(
    options: SimpleNamespace, old: str, new: str, source: str, output: str
) -> None:
    subtracted, added = _opened(old, False), _opened(new, options.add_const_arpa)
    _replace(options, lambda: (subtracted(), added()), source, output)


@program(
    "arpa-to-const-arpa",
    "Convert an n-gram language model in an ARPA file, whose words are labels, to a const-ARPA"
    " file.",
    ("<input-arpa>", "<const-arpa>"),
    Option("bos-symbol", -1, "The label of <s>"),
    Option("eos-symbol", -1, "The label of </s>"),
    Option("unk-symbol", -1, "The label of the word that stands for unknown ones; -1: none"),
    Option("max-arpa-warnings", 30, UNUSED),
)
def arpa_to_const_arpa(options: SimpleNamespace, source: str, output: str) -> None:
    if -1 in (options.bos_symbol, options.eos_symbol):
        raise FormatError("Please set --bos-symbol and --eos-symbol.")
    model = _labeled(source)
    made = const_arpa(model, options.bos_symbol, options.eos_symbol, options.unk_symbol)
    writer = Writer()
    made.write_to(writer)
    save(writer, output)


def _labeled(source: str) -> NgramModel:
    """The model of an ARPA file, with its words, which are labels, in ascending order."""
    file = Files().reader(source)
    text = parse_arpa(bytes(file.data), file.name)
    for row, word in enumerate(text.vocabulary):
        if not word.isdecimal() or not 0 < int(word) < 2**31 or word != str(int(word)):
            raise FormatError(f"{text.place(1, row)}: words must be labels above 0")
    order = sorted(range(len(text.vocabulary)), key=lambda row: int(text.vocabulary[row]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    text.vocabulary = [text.vocabulary[row] for row in order]
    text.words = [rank[words] for words in text.words]
    return text.model()


def _rnnlm(options: SimpleNamespace, embedding: str, network: str) -> RnnlmAutomaton:
    if -1 in (options.bos_symbol, options.eos_symbol):
        raise FormatError("You must set --bos-symbol and --eos-symbol options")
    nnet = Nnet.read_any(open_reader(network))
    words = open_reader(embedding).read_matrix(np.float32)
    chosen = from_values(RnnlmOptions, vars(options))
    with errors_tell(network):
        return RnnlmAutomaton(Rnnlm(nnet, words, chosen), options.max_ngram_order)


def _opened(name: str, is_const_arpa: bool) -> Callable[[], Automaton]:
    """What gives a language model as an automaton without states."""
    if is_const_arpa:
        known = ConstArpa.read(open_reader(name))
        return lambda: ConstArpaAutomaton(known)
    fst = projected(open_fst(name))
    if fst.start < 0:
        raise FormatError(f"{name}: the language model is empty")
    backoff = Backoff(fst)
    return lambda: backoff


def _read(source: str) -> Iterator[tuple[str, CompactLattice]]:
    yield from shown(read_table(source, _COMPACT), "rescore", "lattices")


def _rescore(
    options: SimpleNamespace,
    source: str,
    output: str,
    model: Callable[[], LanguageModel],
) -> None:
    """Add the costs of a model to whole lattices."""
    failed = 0
    with TableWriter(output, _COMPACT) as writer:
        for key, lattice in _read(source):
            with errors_tell(f"{source}: {key}"):
                made = rescored(lattice, model(), options.lm_scale)
            if made is None:
                options.program.warn(f"Empty lattice for utterance {key} (incompatible LM?)")
                failed += 1
            else:
                writer.write(key, made)
        done = writer.count
    options.program.log(f"Done {done} lattices, failed for {failed}")
    fail_unless(done)


def _replace(
    options: SimpleNamespace,
    models: Callable[[], tuple[Automaton, Automaton]],
    source: str,
    output: str,
) -> None:
    """Give the best paths of lattices the costs of another model."""
    acoustic = options.acoustic_scale
    if not acoustic:
        raise FormatError("Acoustic scale cannot be zero.")
    limits = from_values(ComposeOptions, vars(options))
    failed = 0
    with TableWriter(output, _COMPACT) as writer:
        for key, lattice in _read(source):
            old, new = models()
            both = Both(Scaled(old, -options.lm_scale), Scaled(new, options.lm_scale))
            with errors_tell(f"{source}: {key}"):
                made = composed_pruned(lattice.scaled(acoustic=acoustic), both, limits)
            if not made.states:
                options.program.warn(f"{key}: Composed lattice has no states")
                failed += 1
            else:
                writer.write(key, made.scaled(acoustic=1 / acoustic))
        done = writer.count
    options.program.log(f"Overall, succeeded for {done} lattices, failed for {failed}")
    fail_unless(done)
