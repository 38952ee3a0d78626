"""The tokens of a CTC model: its outputs, one of which is the blank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...framework.base.errors import FormatError, nearest
from ...framework.base.python.cached import cached_property
from ...framework.base.untrusted.opener import PathLike, path_text, read_text
from ...framework.base.untrusted.values import shown, whole_number

BLANKS = ("<blk>", "<blank>", "<eps>", "<pad>", "[PAD]", "_")
"""What files call the blank; the first of these that is a token is it."""
BEGINS_WORD = "\u2581"
"""Stands for the space before a word, in the tokens of SentencePiece."""
BETWEEN_WORDS = ("|", " ", "<space>")
"""Tokens that are the space itself."""
_MOST = 1 << 20


@dataclass(frozen=True)
class CtcTokens:
    """The texts of outputs, by number.

    Attributes:
        texts: of all outputs. blank: the number of the blank. name: of the file, for messages.
    """

    texts: tuple[str, ...]
    blank: int
    name: str = "tokens"

    @classmethod
    def read(cls, path: PathLike, blank: str | int | None = None) -> CtcTokens:
        """A file with a token and its number in each line, or a vocab.json with both.

        Args:
            blank: its text or number; None: the first one of `BLANKS`.

        Raises:
            FormatError: a line is something else, numbers are missing or given twice, or there is
                no blank. With file and line.
        """
        name = path_text(path)
        text = read_text(name, "surrogateescape")
        rows = _of_json(text, name) if name.endswith(".json") else _of_lines(text, name)
        return cls._of_rows(rows, name, blank)

    @classmethod
    def of(cls, texts: Sequence[str], blank: str | int | None = None) -> CtcTokens:
        """Tokens in the order of the outputs. Raises FormatError: as `read`."""
        rows = [(each, at, f"token {at}") for at, each in enumerate(texts)]
        return cls._of_rows(rows, "tokens", blank)

    @classmethod
    def _of_rows(
        cls, rows: list[tuple[str, int, str]], name: str, blank: str | int | None
    ) -> CtcTokens:
        texts: dict[int, str] = {}
        numbers: dict[str, int] = {}
        for text, number, place in rows:
            if number in texts:
                raise FormatError(
                    f"{place}: {shown(text)} has the number of {shown(texts[number])}"
                )
            if text in numbers:
                raise FormatError(
                    f"{place}: the token {shown(text)} also is number {numbers[text]}"
                )
            texts[number], numbers[text] = text, number
        if not texts:
            raise FormatError(f"{name}: there is no token in this file")
        missing = next((at for at in range(len(texts)) if at not in texts), None)
        if missing is not None:
            raise FormatError(f"{name}: no token has the number {missing}, of {len(texts)} tokens")
        ordered = tuple(texts[at] for at in range(len(texts)))
        return cls(ordered, _blank(numbers, blank, name), name)

    @property
    def spoken(self) -> list[int]:
        """The tokens that texts may have: neither the blank nor symbols like `<unk>`."""
        return [at for at in range(len(self.texts)) if at != self.blank and not self._is_symbol(at)]

    def find(self, text: str) -> int | None:
        """The number of a token; None: there is none."""
        return self._numbers.get(text)

    def spelled(self, word: str) -> tuple[str, ...] | None:
        """The tokens that a word is written with, the longest first; None: it cannot be.

        Tokens of SentencePiece begin a word with `▁`; where a token stands between words, it
        follows the word.
        """
        begin = BEGINS_WORD if self._begins_words else ""
        text, at, parts = begin + word, 0, []
        while at < len(text):
            longest = min(self._longest, len(text) - at)
            end = next(
                (at + size for size in range(longest, 0, -1) if text[at : at + size] in self._said),
                None,
            )
            if end is None:
                return None
            parts.append(text[at:end])
            at = end
        return tuple(parts)

    @property
    def between(self) -> str:
        """The token that stands between words; "": there is none."""
        return next((each for each in BETWEEN_WORDS if each in self._numbers), "")

    def joined(self, tokens: Sequence[str]) -> list[tuple[int, int, str]]:
        """The words that tokens make: the first token, the one after the last, and the text.

        Tokens that mark no words, such as characters of Chinese, are words of their own.
        """
        if not self.between and not self._begins_words:
            return [(at, at + 1, each) for at, each in enumerate(tokens)]
        words: list[tuple[int, int, str]] = []
        begin, text = 0, ""
        for at, each in enumerate((*tokens, None)):
            ends = each is None or each in BETWEEN_WORDS or each.startswith(BEGINS_WORD)
            if ends and text:
                words.append((begin, at, text))
            if ends:
                begin, text = at, ""
            if each is None or each in BETWEEN_WORDS:
                begin = at + 1
            else:
                text += each.removeprefix(BEGINS_WORD)
        return words

    # Inside

    def _is_symbol(self, at: int) -> bool:
        text = self.texts[at]
        is_marked = len(text) > 2 and text[0] + text[-1] in ("<>", "[]")
        return is_marked and text not in BETWEEN_WORDS

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {text: at for at, text in enumerate(self.texts)}

    @cached_property
    def _said(self) -> frozenset[str]:
        return frozenset(self.texts[at] for at in self.spoken)

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._said), default=0)

    @cached_property
    def _begins_words(self) -> bool:
        return any(text.startswith(BEGINS_WORD) for text in self._said)


def _of_lines(text: str, name: str) -> list[tuple[str, int, str]]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        place = f"{name}: line {number}"
        fields = line.split()
        if not fields:
            continue
        if len(fields) == 1 and line[0] in " \t":  # the token is the space
            fields.insert(0, " ")
        if len(fields) != 2:
            raise FormatError(f"{place}: {shown(line)}: a token and its number are wanted")
        rows.append((fields[0], whole_number(fields[1], place, 0, _MOST), place))
    return rows


def _of_json(text: str, name: str) -> list[tuple[str, int, str]]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: no JSON: {error}") from None
    if not isinstance(table, dict):
        raise FormatError(f"{name}: an object of tokens and their numbers is wanted")
    rows = []
    for token, number in table.items():
        if not isinstance(number, int) or not 0 <= number <= _MOST:
            raise FormatError(f"{name}: the token {shown(token)} has the number {shown(number)}")
        rows.append((token, number, f"{name}: {shown(token)}"))
    return rows


def _blank(numbers: Mapping[str, int], blank: str | int | None, name: str) -> int:
    if isinstance(blank, int):
        if not 0 <= blank < len(numbers):
            raise FormatError(f"{name}: the blank {blank} is none of {len(numbers)} tokens")
        return blank
    if blank is not None:
        if blank not in numbers:
            raise FormatError(f"{name}: no blank {shown(blank)}{nearest(blank, numbers)}")
        return numbers[blank]
    for text in BLANKS:
        if text in numbers:
            return numbers[text]
    raise FormatError(f"{name}: no blank: none of the tokens is {', '.join(BLANKS)}; name it")
