"""How CNTK's old config language is cut into records: brackets, separators, comments.

Configs, arrays, NDL and MEL all go through this one scanner (Source/Common/Include/Config.h), which
also cuts records within records. Records end at newlines, commas and one further separator, but not
inside brackets and quotes. A bracket that a record consists of is opened, its content cut in turn;
a separator character right after such a bracket replaces the further separator inside of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from ...framework.base.errors import FormatError
from ..base.text import Text, join, located

OPEN = "[{("
CLOSE = {"[": "]", "{": "}", "(": ")", '"': '"'}
LIMIT = 200  # levels of brackets inside one another

_BRACKETS = re.compile(r'[\[\](){}"]')
_BRACKET_OR_EQUALS = re.compile(r'[\[{("=]')
_BLANKS = re.compile(r"[ \t]*")
# A path that starts with a dot or two backslashes is no separator.
_OWN_SEPARATOR = re.compile(r"(?!\.\.|\.\\|\./)[`~!@$%^&*_\-+|:;,?.]")


@lru_cache(maxsize=64)
def _separators(separator: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Skips separators; finds the next separator or opening bracket."""
    group = r"\r\n," + re.escape(separator)
    return re.compile(f"[{group}]*"), re.compile(rf'[{group}\[{{("]')


def bracketed(items: list[str], brackets: str = "()") -> str:
    """Items separated by commas in brackets, written so that none is taken for a separator."""
    lead = "," if items and _OWN_SEPARATOR.match(items[0]) else ""
    return f"{brackets[0]}{lead}{', '.join(items)}{brackets[1]}"


def skip_blanks(string: str, start: int) -> int:
    """The offset of the first character from `start` on that is no space and no tab."""
    match = _BLANKS.match(string, start)
    assert match is not None  # it matches nothing, too
    return match.end()


def closing(text: Text, start: int) -> int:
    """The offset of the bracket or quote that closes the one at `start`.

    Raises:
        FormatError: it is not closed, closed by another bracket, or nested too deeply.
    """
    string = text.string
    if string[start] == '"':
        end = string.find('"', start + 1)
        if end < 0:
            raise _unclosed(text, start)
        return end
    # Brackets inside of a pair that was found are paired, too: each is looked for once, however
    # deep it lies, while its text is cut into smaller and smaller records.
    known = text.origin.closings if text.origin is not None else {}
    end = known.get(text.shift + start, -1) - text.shift
    if start < end < len(string):
        return end
    pairs: list[tuple[int, int]] = []
    stack = [start]
    position = start + 1
    while match := _BRACKETS.search(string, position):
        position, bracket = match.end(), match.group()
        if bracket == '"':
            end = string.find('"', position)
            if end < 0:
                raise _unclosed(text, match.start())
            position = end + 1
        elif bracket in OPEN:
            stack.append(match.start())
            if len(stack) > LIMIT:
                raise located(
                    FormatError,
                    f"more than {LIMIT} brackets inside one another",
                    text.locate(match.start()),
                )
        elif bracket == CLOSE[string[stack[-1]]]:
            pairs.append((text.shift + stack.pop(), text.shift + match.start()))
            if not stack:
                known.update(pairs)
                return match.start()
        else:
            wanted = CLOSE[string[stack[-1]]]
            raise located(
                FormatError,
                f"unmatched bracket found in parameters: {bracket} where {wanted} is needed",
                text.locate(match.start()),
                [(f"{string[stack[-1]]} was opened at", text.locate(stack[-1]))],
            )
    raise _unclosed(text, stack[-1])


def _unclosed(text: Text, start: int) -> FormatError:
    wanted = CLOSE[text.string[start]]
    return located(FormatError, f"no closing {wanted} found in parameters", text.locate(start))


def opens(string: str, offset: int) -> bool:
    """Whether a bracket or quote opens at `offset`."""
    return offset < len(string) and string[offset] in CLOSE


def records(text: Text, separator: str = ";") -> Iterator[tuple[int, int]]:
    """The (start, end) of each record of `text`, in order."""
    string = text.string
    skip, stop = _separators(separator)
    limit = len(string)  # where the bracket that is open now closes
    inside = False
    position = 0
    while position < len(string):
        separators = skip.match(string, position)
        assert separators is not None  # it matches nothing, too
        start = skip_blanks(string, separators.end())
        if start >= len(string):
            return
        if opens(string, start):
            close = closing(text, start)
            if not inside and start + 1 < len(string):
                position = start + 1
                limit = close
                inside = True
                if _OWN_SEPARATOR.match(string, position):
                    skip, stop = _separators(string[position])
                    position += 1
                continue
            quoted = string[start] == '"'
            begin, end = (start + 1, close) if quoted else (start, close + 1)
            after = close + 1
        else:
            match = stop.search(string, start, limit)
            end = match.start() if match else limit
            if match and match.group() in CLOSE:
                end = closing(text, end) + 1
            begin, after = start, end
        if end > begin:
            yield begin, end
        if end == limit:
            after = end + 1
            limit = len(string)
            inside = False
            skip, stop = _separators(separator)
        position = after


def key_end(string: str, start: int, end: int) -> int:
    """The offset of the first `=` or opening bracket in a record, or `end`."""
    match = _BRACKET_OR_EQUALS.search(string, start, end)
    return match.start() if match else end


def strip_comment(line: Text) -> Text:
    """A line without its comment: `#` in front of everything, or after a space or tab.

    Only the first `#` counts, as in CNTK, even inside quotes.
    """
    string = line.string
    first = skip_blanks(string, 0)
    if first == len(string) or string[first] == "#":
        return line.cut(0, 0)
    mark = string.find("#", first)
    if mark < 0 or string[mark - 1] not in " \t":
        return line
    return line.cut(first, mark)


def lines(text: Text) -> Iterator[Text]:
    """The lines of a text that are not empty, without their line ends."""
    start = 0
    string = text.string
    while start < len(string):
        end = string.find("\n", start)
        end = len(string) if end < 0 else end
        stop = end - 1 if end > start and string[end - 1] == "\r" else end
        if stop > start:
            yield text.cut(start, stop)
        start = end + 1


def refuse_nul(text: Text) -> None:
    """Refuse a text with a NUL character: no name of a file can hold one.

    Raises:
        FormatError: it has one.
    """
    at = text.string.find("\0")
    if at >= 0:
        raise located(FormatError, "a NUL character", text.locate(at))


def strip_comments(text: Text) -> Text:
    """A whole file without comments and empty lines, each line ended by a newline.

    Raises:
        FormatError: there is a NUL character in it, which no name of a file can hold.
    """
    refuse_nul(text)
    pieces = []
    for line in lines(text):
        line = strip_comment(line)
        if line.string:
            pieces += [line, "\n"]
    return join(pieces)
