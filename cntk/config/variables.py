"""`$name$` in configuration values: replaced by the value that the name has around it."""

from __future__ import annotations

import re

from ...framework.base.errors import FormatError, nearest
from ...framework.base.untrusted.limits import check_limit
from ..base.text import Location, Text, join, located
from .scan import lines, strip_comment
from .section import Section

_TIMES = 64  # as often as the limit of one value, all values of a config may grow together
DEEPEST = 100  # variables whose values use variables

# A name starts with a letter or `_`. Behind any other character CNTK skips two, so `$$a$` has none.
_VARIABLE = re.compile(
    r"\$(?:([A-Za-z_][^$,/<>?;':\"\[\]{}\\|!@#%^&*()+=~` \t\n]*)\$|[^A-Za-z_]|)", re.DOTALL
)


def resolve(text: Text, section: Section, unknown: bool = False) -> Text:
    """`text` with every `$name$` replaced by its value in `section` or one around it.

    Comments are stripped once more, and of a text of several lines the empty ones. With `unknown`,
    an unknown name (the command line may have it) is replaced by itself, without the dollars.

    Raises:
        FormatError: a name is unknown, its value has several lines, or leads back to itself.
    """
    if "$" not in text.string and "#" not in text.string:
        return text
    return _Resolver(unknown).text(text, section)


def names_used(string: str) -> list[str]:
    """The names in the `$name$` of a text."""
    return [match.group(1) for match in _VARIABLE.finditer(string) if match.group(1)]


class _Resolver:
    """One replacement: the variables being replaced now, and those known already."""

    def __init__(self, unknown: bool = False) -> None:
        self.unknown = unknown
        self.open: list[tuple[Section, str, Location | None]] = []
        self.known: dict[tuple[int, str], Text] = {}
        self.grown = 0  # characters put in the place of variables

    def text(self, text: Text, section: Section) -> Text:
        if "\n" not in text.string:
            return self.line(text, section)
        pieces: list[Text | str] = []
        for line in lines(text):
            pieces += [self.line(line, section), "\n"]
        return join(pieces)

    def line(self, line: Text, section: Section) -> Text:
        line = strip_comment(line)
        pieces: list[Text | str] = []
        done = 0
        for match in _VARIABLE.finditer(line.string):
            name = match.group(1)
            if name is None:
                continue
            value = self.value(name, line, match.start(), section)
            pieces += [line.cut(done, match.start()), value]
            done = match.end()
            self.check_size(len(value), line, section)
        if not pieces:
            return line
        pieces.append(line.cut(done, len(line)))
        return join(pieces)

    def value(self, name: str, line: Text, offset: int, section: Section) -> Text:
        """The value of one variable, its own variables replaced."""
        owner = section.owner(name)
        if self.unknown and (owner is None or not owner.has_value(name)):
            return line.cut(offset + 1, offset + 1 + len(name))
        if owner is None or owner.raw(name).string == "default":
            known = [known for around in section.outwards() for known in around]
            raise self.error(
                f"No variable found with the name {name}{nearest(name, known)}. "
                f"Parsing of string failed: {section.path}:{line.string[:200]}",
                line.locate(offset),
            )
        key = (id(owner), name.lower())
        if key in self.known:
            return self.known[key]
        if any(around is owner and other.lower() == key[1] for around, other, _ in self.open):
            names = " -> ".join([other for _, other, _ in self.open] + [name])
            raise self.error(
                f"the variable {name} is defined by itself: {names}", line.locate(offset)
            )
        if len(self.open) >= DEEPEST:
            raise self.error(
                f"more than {DEEPEST} variables that use one another", line.locate(offset)
            )
        self.open.append((owner, name, line.locate(offset)))
        value = self.text(owner.raw(name), owner)
        self.open.pop()
        if "\n" in value.string:
            raise self.error(
                "Newline characters are not allowed in the value of a variable which is resolved "
                f"using $varName$ feature: {name}",
                line.locate(offset),
                [(f"{name} is defined at", owner.place(name))],
            )
        owner.record.ask(owner, name)
        self.known[key] = value
        return value

    def error(
        self,
        message: str,
        place: Location | None,
        chain: list[tuple[str, Location | None]] | None = None,
    ) -> FormatError:
        uses = [(f"in the value of {name}, used at", where) for _, name, where in self.open[::-1]]
        return located(FormatError, message, place, (chain or []) + uses)

    def check_size(self, size: int, line: Text, section: Section) -> None:
        """Refuse values that grow without bounds: `b = $a$$a$`, `c = $b$$b$` and so on."""
        self.grown += size
        section.record.grown += size
        try:
            check_limit("text", self.grown, "a value whose variables are replaced")
            check_limit("text", section.record.grown // _TIMES, f"1/{_TIMES} of all such values")
        except FormatError as error:
            raise self.error(str(error), line.locate()) from None
