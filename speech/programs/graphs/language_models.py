"""arpa2fst: FSTs of n-gram models. Source: Kaldi's `lmbin/arpa2fst.cc`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.fst.algorithms.operations import sort_arcs
from ....kaldi.fst.fst import SymbolTable
from ....kaldi.tables.streams import Files, open_output
from ....nnet3.programs.base.graphs import save_fst
from ....nnet3.programs.base.program import Option, program
from ...fst.words import Words
from ...language_model.arpa import ArpaText, parse_arpa
from ...language_model.compile import compiled


@program(
    "arpa2fst",
    "Convert an n-gram language model in an ARPA file to an FST. Without symbol tables among the"
    " options, the FST holds its own.",
    ("<arpa-in>", "[<fst-out>]"),
    Option("bos-symbol", "<s>", "Beginning of sentence symbol"),
    Option("eos-symbol", "</s>", "End of sentence symbol"),
    Option(
        "disambig-symbol",
        "",
        "Disambiguator. If provided (e.g. #0), used on input side of backoff links, and <s> and"
        " </s> are replaced with epsilons",
    ),
    Option("read-symbol-table", "", "Use existing symbol table"),
    Option("write-symbol-table", "", "Write generated symbol table to a file"),
    Option(
        "keep-symbols", False, "Store symbol table with FST; always, if none is read or written"
    ),
    Option("ilabel-sort", True, "Ilabel-sort the output FST"),
    Option("max-arpa-warnings", 30, "Maximum warnings to report on ARPA parsing; -1: all"),
)
def arpa2fst(options: SimpleNamespace, source: str, output: str = "") -> None:
    file = Files().reader(source)
    text = parse_arpa(bytes(file.data), file.name)
    table = _table(options, text, output)
    label = {word: number for number, word in table.texts.items()}
    begin, end = label[options.bos_symbol], label[options.eos_symbol]
    backoff = label[options.disambig_symbol] if options.disambig_symbol else 0
    labels = np.array([label.get(word, -1) for word in text.vocabulary], np.int64)
    _refuse_labels(text, labels, {0, backoff})
    warnings = _Warnings(options)
    _warn_of_words(text, labels, begin, end, warnings)
    model = text.model(warnings)
    warnings.close()
    fst = compiled(model, labels, begin, end, backoff)
    if options.ilabel_sort:
        fst = sort_arcs(fst)
    if options.keep_symbols or not (options.read_symbol_table or options.write_symbol_table):
        fst.header.input_symbols = fst.header.output_symbols = table
    if options.write_symbol_table:
        with open_output(options.write_symbol_table) as written:
            for number, word in table.texts.items():
                written.write(f"{word}\t{number}\n".encode("utf-8", "surrogateescape"))
    save_fst(fst, output or "-")


class _Warnings:
    """Prints the first warnings about n-grams, and how many more there were."""

    def __init__(self, options: SimpleNamespace) -> None:
        self.program = options.program
        self.most = options.max_arpa_warnings
        self.count = 0

    def __call__(self, message: str) -> None:
        self.count += 1
        if self.most < 0 or self.count <= self.most:
            self.program.warn(message)

    def close(self) -> None:
        if 0 <= self.most < self.count:
            self.program.warn(
                f"Of {self.count} parse warnings, {self.most} were reported. Run program with"
                " --max-arpa-warnings=-1 to see all warnings"
            )


def _table(options: SimpleNamespace, text: ArpaText, output: str) -> SymbolTable:
    """The table that is read, or one of the model's words; with the ends of sentences."""
    name = options.read_symbol_table
    if name:
        words = Words.read(name)
        texts = {at: words[at] for at in range(len(words)) if words[at]}
        added = [options.bos_symbol, options.eos_symbol]
    else:
        texts = {0: "<eps>"}
        symbols = options.disambig_symbol, options.bos_symbol, options.eos_symbol
        added = [*filter(None, symbols), *text.vocabulary]
    known = set(texts.values())
    if name and options.disambig_symbol and options.disambig_symbol not in known:
        raise FormatError(f"{name}: there is no symbol {options.disambig_symbol}")
    available = max(texts, default=-1) + 1
    for symbol in added:
        if symbol not in known:
            known.add(symbol)
            texts[available] = symbol
            available += 1
    return SymbolTable(name or output or "standard output", available, texts)


def _refuse_labels(text: ArpaText, labels: np.ndarray, refused: set[int]) -> None:
    for row in np.flatnonzero(np.isin(labels, list(refused))).tolist():
        raise FormatError(
            f"{text.place(1, row)}: <eps> and the disambiguation symbol are no words of a language"
            " model"
        )


def _warn_of_words(
    text: ArpaText, labels: np.ndarray, begin: int, end: int, warn: _Warnings
) -> None:
    for order, words in enumerate(text.words, 1):
        label = labels[words]
        unknown = np.any(label < 0, axis=1)
        misplaced = (label[:, 1:] == begin).any(1) | (label[:, :-1] == end).any(1)
        for row in np.flatnonzero(unknown | misplaced).tolist():
            problem = (
                "a word is not in the symbol table"
                if unknown[row]
                else ("a symbol of the beginning or end of sentences stands where it cannot")
            )
            warn(f"{text.place(order, row)}: left out: {problem}")
