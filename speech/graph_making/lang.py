"""The parts of Kaldi's lang folders that graphs are made of."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import PathLike, path_text, read_file, read_text
from ...framework.base.untrusted.values import whole_number
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.fst.files.fst_io import read_fst
from ...kaldi.fst.fst import Fst
from ..fst.graph_folder import read_labels
from ..fst.words import Words

_BACKOFF = "#0"
_OFFSET = "phones/nonterm_phones_offset.int"
_ALIGNED = "phones/align_lexicon.int"
_COPIED = (
    *("words.txt", "phones.txt", "phones/silence.csl"),
    *(f"phones/{name}" for name in ("disambig.txt", "disambig.int")),
    *(
        f"phones/{stem}.{ending}"
        for stem in ("word_boundary", "align_lexicon", "optional_silence")
        for ending in ("txt", "int", "csl")
    ),
)
"""What decoding wants of a lang folder besides the graph."""


@dataclass(eq=False)
class Lang:
    """A lang folder.

    Attributes:
        folder: its path. words: the words of labels. symbols: disambiguation symbols among phones.
        lexicon: L_disambig.fst.
        offset: the phone `#nonterm_bos` of graphs that call each other; 0: there is none.
    """

    folder: str
    words: Words
    symbols: list[int]
    lexicon: Fst
    offset: int = 0

    @classmethod
    def read(cls, folder: PathLike) -> Lang:
        """Read words.txt, L_disambig.fst, phones/disambig.int, and nonterm_phones_offset.int there.

        Raises:
            FormatError: a file is missing or damaged, or the lexicon has words beyond the table.
        """
        name = path_text(folder)
        path = os.path.join(name, "L_disambig.fst")
        lexicon = read_fst(Reader(path, binary=None))
        words = Words.read(os.path.join(name, "words.txt"))
        largest = int(lexicon.olabel.max(initial=0))
        if largest >= len(words):
            raise FormatError(f"{path}: the word {largest} is none of {len(words)} in words.txt")
        symbols = read_labels(os.path.join(name, "phones", "disambig.int"))
        offset = os.path.join(name, *_OFFSET.split("/"))
        begin = _only_label(offset) if os.path.exists(offset) else 0
        return cls(name, words, symbols, lexicon, begin)

    def path(self, name: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.folder, name)

    @property
    def backoff(self) -> int:
        """The label of #0, which arcs to shorter histories have; 0: there is none."""
        return self.words.find(_BACKOFF) or 0

    def grammar(self) -> Fst:
        """G.fst. Raises FormatError: it is missing or damaged."""
        return read_fst(Reader(self.path("G.fst")))

    def unknown(self) -> int:
        """The label in oov.int. Raises FormatError: it is missing, or none."""
        return _only_label(self.path("oov.int"))

    def copied(self) -> dict[str, bytes]:
        """The files that go beside the graph, as far as they are there."""
        names = [name for name in _COPIED if os.path.exists(self.path(name))]
        return {name: read_file(self.path(name)) for name in names}

    def renumbered(self, numbers: np.ndarray) -> dict[str, bytes]:
        """The copied files that have numbers of words, with new ones: `numbers`, [words]."""
        rows = zip(range(len(self.words)), numbers.tolist(), strict=True)
        lines = (f"{self.words[old]} {new}\n" for old, new in rows if self.words[old])
        files = {"words.txt": "".join(lines).encode("utf-8", "surrogateescape")}
        path = self.path(_ALIGNED)
        if os.path.exists(path):
            table = []
            for number, line in enumerate(read_text(path, "replace").splitlines(), 1):
                what, fields = f"{path}: line {number}", line.split()
                words = (whole_number(field, what, 0, len(numbers) - 1) for field in fields[:2])
                table.append(" ".join((*(str(numbers[word]) for word in words), *fields[2:])))
            files[_ALIGNED] = "".join(f"{line}\n" for line in table).encode()
        return files


def _only_label(path: str) -> int:
    labels = read_labels(path)
    if len(labels) != 1:
        raise FormatError(f"{path}: one label is wanted, not {len(labels)}")
    return labels[0]
