"""A model's folder with new words: `adapt`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...framework.base.atomic import make_folder_of, write_together
from ...framework.base.errors import ArgumentError, FormatError
from ...framework.base.untrusted.opener import PathLike, path_text, read_file
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.fst import Fst
from ...kaldi.fst.fst_io import CONST, fst_bytes
from ...kaldi.graphs.hmms import PhoneHmms
from ..adaptation.contexts import Contexts, graph_contexts
from ..adaptation.grammar import Unigrams
from ..adaptation.joining import Spelling, joined
from ..adaptation.junctions import Junctions
from ..adaptation.word_list import read_words, with_phones
from ..fst.graph_folder import read_graph_fst
from ..lattice.word_boundary import WordBoundaries
from ..lexicon.entries import Entry
from ..pronunciation.known import base_names, model_pronunciations
from ..recognize.model import Model


@dataclass(frozen=True)
class Adapted:
    """What a folder has got.

    Attributes:
        words: new words and their phones, guessed where none were given.
        unseen: pairs of a phone and the one after it that the model's own words never have; the
            second one sounds there as after the phone that it follows most often.
        weight: the cost of each new word in the grammar.
    """

    words: list[tuple[str, tuple[str, ...]]]
    unseen: list[tuple[str, str]]
    weight: float


def adapt(
    model: PathLike,
    out: PathLike,
    words: PathLike | Mapping[str, str | Sequence[str]],
    *,
    weight: float | None = None,
) -> Adapted:
    """Write a copy of a model's folder that knows new words.

    HCLr.fst gets a path for each pronunciation, Gr.fst the words as unigrams, the tables of words
    their texts; all other files are copied.

    Args:
        model: the folder, with HCLr.fst, Gr.fst and word_boundary.int. out: a new or empty folder.
        words: a file with a word and its phones in each line, or a mapping, as for `make_lang`. In
            a file, words without phones get a guess by the model's pronunciations.
        weight: the cost of a word in the grammar, -log of its probability; by default the median
            cost of the model's words.

    Raises:
        FormatError: the folder is damaged or has HCLG.fst, a word is there already with the same
            phones, or the model lacks a phone; with file and line. ArgumentError: `out` has files,
            or the weight is no number. SaveError: a file cannot be written. Nothing is written
            then.
    """
    if weight is not None and not abs(weight) < np.inf:
        raise ArgumentError(f"weight is a number, not {weight}")
    target = Path(path_text(out))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ArgumentError(f"{target} is there already and is no empty folder")
    entries = read_words(words)
    known = Model(model)
    folder = known.graph_folder
    if (folder / "HCLG.fst").exists():
        raise FormatError(
            f"{folder / 'HCLG.fst'}: a graph with its grammar in it gets no words; HCLr.fst and"
            " Gr.fst are wanted, which make-graph --look-ahead makes of a lexicon and an ARPA file"
        )
    if known.boundaries is None:
        raise FormatError(
            f"{known.path}: {known.word_files[0]} is missing: where words begin cannot be seen"
        )
    if any(not entry.phones or known.words.find(entry.word) is not None for entry in entries):
        entries = with_phones(entries, model_pronunciations(known))
    return _Adaptation(known, known.boundaries, entries).write(target, weight)


class _Adaptation:
    def __init__(self, model: Model, boundaries: WordBoundaries, entries: list[Entry]) -> None:
        self._model = model
        self._boundaries = boundaries
        self._entries = entries
        self._folder = model.graph_folder
        self._first = read_graph_fst(str(self._folder / "HCLr.fst"))
        self._grammar = read_graph_fst(str(self._folder / "Gr.fst"))
        self._names = base_names(model, boundaries)
        self._forms = {(name, boundaries.kind(phone)): phone for phone, name in self._names.items()}

    def write(self, target: Path, weight: float | None) -> Adapted:
        unigrams = Unigrams(self._grammar, str(self._folder / "Gr.fst"))
        weight = unigrams.weight if weight is None else weight
        outputs, labels, new = self._labels(unigrams)
        phones = [self._phones(entry) for entry in self._entries]
        spellings = [(labels[e.word], each) for e, each in zip(self._entries, phones, strict=True)]
        first_new = min((row[0] for row in new), default=max(labels.values()) + 1)
        graph, unseen = self._joined(spellings, first_new)
        files = {
            self._folder / "HCLr.fst": fst_bytes(graph, graph.header.kind),
            self._folder / "Gr.fst": fst_bytes(unigrams.with_words(new, weight), CONST),
        }
        self._append(
            files,
            self._folder / "words.txt",
            [
                f"{word} {label}"
                for word, label in outputs.items()
                if label >= len(self._model.words)
            ],
        )
        rows = [
            (outputs[entry.word], *each) for entry, each in zip(self._entries, phones, strict=True)
        ]
        self._append(
            files,
            self._model.path / self._model.word_files[1],
            [" ".join(map(str, (row[0], *row))) for row in rows],
        )
        _write(self._model.path, target, files)
        added = [(entry.word, entry.phones) for entry in self._entries]
        names = [(self._names.get(left, "<s>"), self._names[phone]) for left, phone in unseen]
        return Adapted(added, names, weight)

    def _labels(
        self, unigrams: Unigrams
    ) -> tuple[dict[str, int], dict[str, int], list[tuple[int, int, str]]]:
        """The label of each word in the table, that in the graph, and the words that the grammar
        lacks, as `Unigrams.with_words` takes them."""
        reached = self._first.header.reachability
        assert reached is not None  # the model has been loaded
        free = 1 + max(
            reached.final_label,
            int(reached.intervals.max(initial=0)) - 1,
            int(self._first.olabel.max(initial=0)),
            int(self._grammar.ilabel.max(initial=0)),
        )
        outputs: dict[str, int] = {}
        labels: dict[str, int] = {}
        new: list[tuple[int, int, str]] = []
        count = len(self._model.words)
        # In the order of phones, so that the words of a beginning have labels side by side.
        for entry in sorted(self._entries, key=lambda entry: entry.phones):
            word = entry.word
            if word in labels:
                continue
            number = self._model.words.find(word)
            if number is None:
                number, count = count, count + 1
            outputs[word] = number
            label = unigrams.label(number)
            if label is None:
                label, free = free, free + 1
                new.append((label, number, word))
            labels[word] = label
        return outputs, labels, new

    def _phones(self, entry: Entry) -> tuple[int, ...]:
        """The phones of a word in their forms."""
        kinds = ["internal"] * len(entry.phones)
        kinds[0], kinds[-1] = "begin", "end"
        if len(kinds) == 1:
            kinds = ["singleton"]
        found = []
        for name, kind in zip(entry.phones, kinds, strict=True):
            phone = self._forms.get((name, kind))
            if phone is None:
                where = "alone in a word" if kind == "singleton" else f"at its place ({kind})"
                what = where if name in self._names.values() else ""
                raise FormatError(f"{entry.place}: the model has no phone {name} {what}".rstrip())
            found.append(phone)
        return tuple(found)

    def _joined(self, words: list[Spelling], first_new: int) -> tuple[Fst, list[tuple[int, int]]]:
        """The graph with new words, and the pairs of phones that it did not have."""
        model = TransitionModel.read_from(Reader(str(self._model.network_path)))
        ids = self._model.transitions
        try:
            contexts = graph_contexts(self._first, ids, model)
            hmms = PhoneHmms(contexts.tree, model)
            parts = Junctions(self._first, ids, model, hmms, self._boundaries, contexts)
        except FormatError as error:
            raise FormatError(f"{self._folder / 'HCLr.fst'}: {error}") from error
        self._check(words, contexts, parts)
        graph, used = joined(self._first, words, parts, hmms, first_new)
        return graph, sorted(used - contexts.seen)

    def _check(self, words: list[Spelling], contexts: Contexts, parts: Junctions) -> None:
        """Refuse words whose phones no word of the graph has, or has at its end."""
        there = {phone for _, phone in contexts.seen}
        for entry, (_, phones) in zip(self._entries, words, strict=True):
            for name, phone in zip(entry.phones, phones, strict=True):
                if phone not in there or (phone == phones[-1] and not parts.exits(phone)):
                    raise FormatError(f"{entry.place}: no word of the model has phone {name} there")

    def _append(self, files: dict[Path, bytes], path: Path, lines: list[str]) -> None:
        """The file with more lines, where it is there."""
        if path.is_file() and lines:
            data = read_file(str(path))
            end = b"" if not data or data.endswith(b"\n") else b"\n"
            more = "\n".join(lines).encode("utf-8", "surrogateescape")
            files[path] = data + end + more + b"\n"


def _write(source: Path, target: Path, changed: dict[Path, bytes]) -> None:
    """Write a folder with the files of another one, of which some have changed."""
    targets = []
    for folder, _, names in os.walk(source):
        for path in (Path(folder, name) for name in sorted(names)):
            data = changed.get(path)
            place = target / path.relative_to(source)
            make_folder_of(place)
            targets.append((place, _writer(path, data)))
    write_together(targets)


def _writer(path: Path, data: bytes | None):
    return lambda file: file.write(read_file(str(path)) if data is None else data)
