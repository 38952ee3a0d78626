"""Words and their labels, as arrays: tables of half a million words load at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.python.cached import cached_property
from ...framework.base.untrusted.opener import read_file
from ...framework.base.untrusted.values import shown, whole_number

_MOST = 1 << 28


class Words:
    """The text of each label, from 0 on; labels that a table leaves out have an empty text.

    Args:
        text: of all labels, one after the other, in UTF-8, uint8. ends: where each ends in it.
    """

    def __init__(self, text: np.ndarray, ends: np.ndarray) -> None:
        self.text = text
        self.ends = ends

    @classmethod
    def of(cls, symbols: Mapping[int, str], what: str) -> Words:
        """The table that a mapping describes.

        Raises:
            FormatError: it has far fewer words than its largest label says; `what` names it.
        """
        count = max(symbols, default=-1) + 1
        if count > min(_MOST, 1000 + 100 * len(symbols)):
            raise FormatError(f"{what}: a label {count - 1}, of {len(symbols)} words")
        encoded = [b""] * count
        for label, text in symbols.items():
            encoded[label] = text.encode("utf-8", "surrogateescape")
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, count))
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    @classmethod
    def read(cls, path: str) -> Words:
        """A table of text, a word and its label in each line.

        Raises:
            FormatError: a line is something else, or two words have the same label.
        """
        symbols: dict[int, str] = {}
        at = 0
        for number, line in enumerate(read_file(path).split(b"\n"), 1):
            fields = line.split()
            if fields:
                what = f"{path}: line {number} (byte {at})"
                if len(fields) != 2:
                    raise FormatError(f"{what}: a word and its label are wanted")
                label = whole_number(fields[1].decode("ascii", "replace"), what, 0, _MOST)
                text = fields[0].decode("utf-8", "surrogateescape")
                if symbols.setdefault(label, text) != text:
                    raise FormatError(f"{what}: {shown(text)} has the label of another word")
            at += len(line) + 1
        return cls.of(symbols, path)

    def with_words(self, words: Mapping[str, int]) -> Words:
        """The table with words of labels beyond it, rising."""
        text, ends = [self.text], [self.ends]
        at, count = len(self.text), len(self.ends)
        for word, label in words.items():
            data = np.frombuffer(word.encode("utf-8", "surrogateescape"), np.uint8)
            ends.append(np.append(np.full(label - count, at), at + len(data)))
            text.append(data)
            at, count = at + len(data), label + 1
        return Words(np.concatenate(text), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, label: int) -> str:
        """The text of a label.

        Raises:
            IndexError: there is no such label.
        """
        if not 0 <= label < len(self.ends):
            raise IndexError(f"a word with the label {label}, of {len(self.ends)}")
        begin = int(self.ends[label - 1]) if label else 0
        return bytes(self.text[begin : int(self.ends[label])]).decode("utf-8", "surrogateescape")

    @cached_property
    def _labels(self) -> dict[bytes, int]:
        data = bytes(self.text)
        labels = {}
        begin = 0
        for label, end in enumerate(self.ends.tolist()):
            labels.setdefault(data[begin:end], label)
            begin = end
        return labels

    def find(self, text: str) -> int | None:
        """The label of a word; None: it is not in the table."""
        return self._labels.get(text.encode("utf-8", "surrogateescape")) if text else None
