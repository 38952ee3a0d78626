"""Source text of CNTK's languages: places in it, and errors that point at them.

A parser keeps one `Source` per file, command line or in-line text and hands out a `Location` for
each thing that can be wrong. `located` makes the error that a user sees:

    lstm.ndl:12:9: unknown function "Tims" (did you mean Times?)
        z = Tims(W, h)
            ^
      in LSTMLayer(...), called at train.cntk:40:11
            L1 = LSTMLayer(features)
                 ^
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from ...framework.base.errors import OpscopeError
from ...framework.base.files.atomic import PathLike
from ...framework.base.python.cached import cached_property
from ...framework.base.untrusted.opener import read_text as text_of_file

MOST_ERRORS = 100  # of one text that are reported, before a reading that goes on ends
WIDTH = 120  # columns of a source line that an error shows
_LONGEST_LINE = 400  # characters of a line of a message
LONGEST_CHAIN = 12  # entries of a chain that an error shows: its first and last few

ErrorT = TypeVar("ErrorT", bound=OpscopeError)


class Source:
    """A named text: a file, a command line, or text written in line in another one."""

    def __init__(self, name: str, text: str):
        self.name = name
        self.text = text
        self.closings: dict[int, int] = {}  # brackets, as `config.scan` pairs them

    @cached_property
    def _starts(self) -> list[int]:
        """Offset of the first character of every line."""
        starts = [0]
        newline = self.text.find("\n")
        while newline >= 0:
            starts.append(newline + 1)
            newline = self.text.find("\n", newline + 1)
        return starts

    def locate(self, offset: int) -> Location:
        """The place of the character at `offset`; one past the last character is also a place."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self._starts, offset)
        return Location(self, line, offset - self._starts[line - 1] + 1)

    def line(self, number: int) -> str:
        """The text of a line, counted from 1, without its line end; empty if there is none."""
        start, end = self.line_ends(number)
        return self.text[start:end]

    def line_ends(self, number: int) -> tuple[int, int]:
        """The offsets of the first character of a line and of its end; equal if there is none."""
        if not 1 <= number <= len(self._starts):
            return 0, 0
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        while end > start and self.text[end - 1] == "\r":
            end -= 1
        return start, end

    def __repr__(self) -> str:
        return f"Source({self.name!r}, {len(self.text)} characters)"

    def whole(self) -> Text:
        """All of it, as a text that can be cut and joined."""
        return Text(self.text, self)


@dataclass(frozen=True, slots=True)
class Location:
    """A character of a source; line and column count from 1."""

    source: Source
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    def caret(self, indent: str = "    ") -> str:
        """The source line and a caret under the column, cut to a readable width."""
        begin, end = self.source.line_ends(self.line)
        column = self.column - 1
        start = max(0, min(column - WIDTH // 2, end - begin - WIDTH))
        text = self.source.text[begin + start : min(begin + start + WIDTH, end)]
        shown = "".join(c if c.isprintable() or c == "\t" else "?" for c in text)
        before = "..." if start else ""
        after = "..." if begin + start + WIDTH < end else ""
        padding = "".join("\t" if c == "\t" else " " for c in shown[: column - start])
        padding += " " * (column - start - len(padding))
        return f"{indent}{before}{shown}{after}\n{indent}{' ' * len(before)}{padding}^"


@dataclass(frozen=True, slots=True)
class Text:
    """A string that knows where its characters come from, also after cutting and joining.

    Configs are rewritten before they are read: comments go, files are included, `$variables$`
    are replaced, sections merged. An offset still has the place where it was written.
    """

    string: str
    origin: Source | _Pieces | None = None
    shift: int = 0  # of the first character within the origin

    def __len__(self) -> int:
        return len(self.string)

    def __str__(self) -> str:
        return self.string

    def cut(self, start: int, end: int) -> Text:
        """The part from `start` up to `end`."""
        return Text(self.string[start:end], self.origin, self.shift + start)

    def strip(self, characters: str = " \t") -> Text:
        """The text without the given characters at both ends."""
        left = len(self.string) - len(self.string.lstrip(characters))
        return self.cut(left, max(left, len(self.string.rstrip(characters))))

    def locate(self, offset: int = 0) -> Location | None:
        """Where the character at `offset` was written; None for text that a program made."""
        text = self
        offset = max(offset, 0)
        while isinstance(text.origin, _Pieces):
            text, offset = text.origin.find(text.shift + offset)
        return text.origin.locate(text.shift + offset) if text.origin is not None else None


class _Pieces:
    """Texts put together: which of them an offset falls into."""

    __slots__ = ("closings", "starts", "texts")

    def __init__(self, texts: list[Text]):
        self.texts = texts
        self.closings: dict[int, int] = {}
        self.starts: list[int] = []
        start = 0
        for text in texts:
            self.starts.append(start)
            start += len(text)

    def find(self, offset: int) -> tuple[Text, int]:
        index = bisect_right(self.starts, offset) - 1
        while index > 0 and self.texts[index].origin is None:
            index -= 1  # text in between, such as a separator: the end of what stands before it
        text = self.texts[index]
        return text, min(offset - self.starts[index], len(text))


def join(texts: Iterable[Text | str]) -> Text:
    """One text from several; plain strings among them have no place of their own."""
    pieces = [Text(piece) if isinstance(piece, str) else piece for piece in texts]
    if not pieces:
        return Text("")
    if len(pieces) == 1:
        return pieces[0]
    return Text("".join(piece.string for piece in pieces), _Pieces(pieces))


# The way to the place of an error, innermost first: ("in macro DNN(...), called at", place).
Chain = Iterable[tuple[str, Location | None]]


def located(
    error_class: type[ErrorT], message: str, location: Location | None, chain: Chain = ()
) -> ErrorT:
    """An `error_class` whose text shows the place and how the reading came there.

    `chain` holds pairs of a text and a place, innermost first. The error keeps `location` and
    `chain` as attributes. Without a location only message and chain are shown.
    """
    links = list(chain)
    message = "\n".join(map(_clipped, message.split("\n")))
    text = f"{location}: {message}\n{location.caret()}" if location else message
    error = error_class(text + _shown(links))
    vars(error).update(location=location, chain=links)
    return error


def _clipped(line: str) -> str:
    """A line without its middle, where a word of the text makes it too long to read."""
    return line if len(line) <= _LONGEST_LINE else f"{line[:250]} ... {line[-145:]}"


def read_text(path: PathLike) -> str:
    """The text of a file, its line ends as newlines; bytes that are no UTF-8 become surrogates.

    Raises:
        FormatError: it cannot be read.
    """
    return text_of_file(path, "surrogateescape")


def reason(error: OSError | ValueError) -> str:
    """Why a file could not be read; a ValueError stands for text in another encoding."""
    if isinstance(error, UnicodeDecodeError):
        return "it is no text in UTF-8"
    return getattr(error, "strerror", None) or str(error)


def is_located(error: BaseException) -> bool:
    """Whether an error has the place in a source text that it is about."""
    return getattr(error, "location", None) is not None


def extended(error: ErrorT, chain: Chain) -> ErrorT:
    """The same error with more links at the end of its chain."""
    links = list(chain)
    longer = type(error)(str(error) + _shown(links))
    vars(longer).update(vars(error))
    vars(longer)["chain"] = [*getattr(error, "chain", []), *links]
    return longer


def _shown(links: list[tuple[str, Location | None]]) -> str:
    text = ""
    half = LONGEST_CHAIN // 2
    for number, (what, place) in enumerate(links):
        if len(links) > LONGEST_CHAIN and half <= number < len(links) - half:
            if number == half:
                text += f"\n  ... {len(links) - 2 * half} more ..."
            continue
        text += f"\n  {what} {place}\n{place.caret('      ')}" if place else f"\n  {what}"
    return text
