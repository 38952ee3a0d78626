"""A model's folder with new words: `adapt`."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...framework.base.errors import ArgumentError, FormatError
from ...framework.base.files.atomic import make_folder_of, write_together
from ...framework.base.untrusted.opener import PathLike, path_text, read_file
from ...framework.base.untrusted.values import shown
from ...kaldi.fst.algorithms.operations import sort_arcs
from ...kaldi.fst.algorithms.symbols import changed, remove_symbols
from ...kaldi.fst.files.fst_io import CONST, NGRAM, fst_bytes
from ...kaldi.fst.files.ngram import is_ngram
from ...kaldi.fst.fst import Fst
from ..adaptation.addition import Adapted, Spelled, addition, checked_weight
from ..adaptation.grammar import NewLabel, Unigrams, with_header_of
from ..adaptation.remade import remade
from ..adaptation.word_list import NewWords
from ..fst.graph import StaticGraph, distinct_sets
from ..fst.graph_folder import read_graph_fst
from ..fst.words import Words
from ..graph_making.grammars import Vocabulary, grammar_of
from ..recognize.model import Model

_log = logging.getLogger(__name__)
_BACKOFF = "#0"
_RESCORING = ("rescore", "rnnlm")


def adapt(
    model: PathLike,
    out: PathLike,
    words: NewWords | None = None,
    *,
    arpa: PathLike | None = None,
    text: PathLike | None = None,
    order: int = 3,
    method: str = "witten-bell",
    skip_unknown: bool = False,
    weight: float | None = None,
) -> Adapted:
    """Write a copy of a model's folder that knows new words, or has another grammar, or both.

    HCLr.fst gets a path for each pronunciation, Gr.fst the words as unigrams. HCLG.fst, whose
    grammar does not follow from its words, is made again, and wants another grammar. The tables of
    words get their texts; all other files are copied, except models that rescore results: they
    would drop new words, and subtract the costs of the old grammar from results.

    Args:
        model: the folder, with word_boundary.int. out: a new or empty folder.
        words: a file with a word and its phones in each line, or a mapping, as for `make_lang`.
            Words without phones get a guess by the model's pronunciations.
        arpa, text: another grammar, one of: an n-gram model; sentences that one is made of.
        order, method: of the n-gram model of a text; see `opscope make-lm`.
        skip_unknown: leave out what has words that neither the model nor `words` has; they are
            refused by default.
        weight: the cost of a new word that the grammar lacks, -log of its probability; by default
            the median cost of the grammar's words.

    Raises:
        FormatError: the folder is damaged, or lacks what is wanted; a word is there already with
            the same phones, or the model lacks a phone; with file and line. ArgumentError: `out`
            has files, the weight is no number, or there is nothing to do. SaveError: a file cannot
            be written. Nothing is written then.
    """
    if weight is not None:
        checked_weight(weight)
    if words is None and arpa is None and text is None:
        raise ArgumentError("new words or another grammar are wanted")
    target = Path(path_text(out))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ArgumentError(f"{target} is there already and is no empty folder")
    known = Model(model)
    grammar = _Grammar({"arpa": arpa, "text": text}, order, method, skip_unknown, weight)
    way = _static if isinstance(known.graph, StaticGraph) else _look_ahead
    files, spelled, adapted = way(known, words, grammar)
    files |= {path: _appended(path, lines) for path, lines in _more_lines(known, spelled).items()}
    is_rescored = not spelled.added and grammar.name is None
    _write(known, target, files, leave_out=() if is_rescored else _RESCORING)
    return adapted


@dataclass(frozen=True)
class _Grammar:
    """Another grammar; see `adapt`."""

    sources: dict[str, PathLike | None]
    order: int
    method: str
    skip_unknown: bool
    weight: float | None

    @property
    def name(self) -> str | None:
        """Its file; None: there is none."""
        return next((path_text(path) for path in self.sources.values() if path is not None), None)

    def made(self, words: Words, path: Path, new: dict[str, int]) -> tuple[Fst, int, float]:
        """The grammar over numbers of words, the label of its arcs to shorter histories, and the
        cost of the words that it lacks.

        Args:
            words: by number; `path`: their file. new: words that it must have, and their numbers.
        """
        backoff = words.find(_BACKOFF)
        if backoff is None:
            backoff = len(words)
            words = words.with_words({_BACKOFF: backoff})
        vocabulary = Vocabulary(words, backoff, self.skip_unknown, str(path))
        fst = grammar_of(vocabulary, self.sources, self.order, self.method)
        assert fst is not None and self.name is not None  # the caller has asked for the name
        unigrams = Unigrams(fst, self.name, backoff)
        missing = [(n, n, word) for word, n in new.items() if unigrams.label(n) is None]
        weight = unigrams.weight if self.weight is None else self.weight
        return sort_arcs(unigrams.with_words(missing, weight)), backoff, weight


_Changed = tuple[dict[Path, bytes], Spelled, Adapted]
"""Files with other contents, new words, what is new."""


def _look_ahead(model: Model, words: NewWords | None, grammar: _Grammar) -> _Changed:
    folder = model.graph_folder
    first, second = (read_graph_fst(str(folder / name)) for name in ("HCLr.fst", "Gr.fst"))
    files: dict[Path, bytes] = {}
    labels: list[NewLabel] = []
    spelled, adapted, made = Spelled(model, None), Adapted([], [], 0.0), second
    if words is not None:
        reached = first.header.reachability
        assert reached is not None  # the model has been loaded
        following = distinct_sets(reached.begin, reached.intervals)
        added = addition(model, words, first, following, second, grammar.weight)
        spelled, adapted, made, labels = added.spelled, added.adapted, added.second, added.labels
        lexicon = added.first.with_header_of(first)
        files[folder / "HCLr.fst"] = fst_bytes(lexicon, lexicon.header.kind)
    if grammar.name is not None:
        table = model.words.with_words(spelled.added)
        other, backoff, weight = grammar.made(table, folder / "words.txt", spelled.numbers)
        made = _relabeled(remove_symbols(other, [backoff]), made, table, grammar.name)
        adapted = replace(adapted, weight=weight)
    made = with_header_of(made, second, labels)
    as_before = second.header.kind == NGRAM and is_ngram(made)
    files[folder / "Gr.fst"] = fst_bytes(made, NGRAM if as_before else CONST)
    return files, spelled, adapted


def _relabeled(grammar: Fst, old: Fst, words: Words, name: str) -> Fst:
    """A grammar of numbers of words with the labels that these have in another one."""
    labels = np.zeros(len(words) + 1, np.int32)
    labels[old.olabel] = old.ilabel
    labels[0] = 0
    lost = grammar.olabel[(grammar.olabel > 0) & (labels[grammar.olabel] == 0)]
    if len(lost):
        raise FormatError(f"{name}: the model's graph has no path for {shown(words[lost[0]])}")
    return sort_arcs(changed(grammar, ilabel=labels[grammar.olabel]))


def _static(model: Model, words: NewWords | None, grammar: _Grammar) -> _Changed:
    folder = model.graph_folder
    if grammar.name is None:
        raise FormatError(
            f"{folder / 'HCLG.fst'}: words and grammar are one graph; the one with new words wants"
            " a grammar of its own: an ARPA file (--lm) or sentences (--text)"
        )
    spelled = Spelled(model, words)
    table = model.words.with_words(spelled.added)
    other, backoff, weight = grammar.made(table, folder / "words.txt", spelled.numbers)
    graph, adapted = remade(model, spelled, other, backoff)
    files = {folder / "HCLG.fst": fst_bytes(graph, CONST)}
    if not (folder / "words.txt").is_file():  # the old graph has them
        lines = (f"{table[at]} {at}\n" for at in range(len(table)) if table[at])
        files[folder / "words.txt"] = "".join(lines).encode("utf-8", "surrogateescape")
    return files, spelled, replace(adapted, weight=weight)


def _more_lines(model: Model, spelled: Spelled) -> dict[Path, list[str]]:
    """What is appended to the tables of words and phones, those that are there."""
    listed = {
        model.graph_folder / "words.txt": [f"{word} {at}" for word, at in spelled.added.items()],
        model.path / model.word_files[1]: [
            " ".join(map(str, (number, number, *phones))) for number, phones in spelled.rows
        ],
    }
    return {path: lines for path, lines in listed.items() if lines and path.is_file()}


def _appended(path: Path, lines: list[str]) -> bytes:
    data = read_file(str(path))
    end = b"" if not data or data.endswith(b"\n") else b"\n"
    return data + end + "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n"


def _write(
    model: Model, target: Path, files: dict[Path, bytes], leave_out: tuple[str, ...]
) -> None:
    """Write a folder with the files of another one, of which some are other ones or new."""
    paths = {
        Path(folder, name) for folder, _, names in os.walk(model.path) for name in names
    } | set(files)
    targets = []
    for path in sorted(paths):
        inside = path.relative_to(model.path)
        if inside.parts[0] in leave_out:
            _log.warning("%s is left out: it goes with the old words and grammar", path)
            continue
        make_folder_of(target / inside)
        targets.append((target / inside, _writer(path, files.get(path))))
    write_together(targets)


def _writer(path: Path, data: bytes | None):
    return lambda file: file.write(read_file(str(path)) if data is None else data)
