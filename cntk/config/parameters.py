"""Sections of a config: names without regard to case, looked up in the sections around, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...framework.base.errors import FormatError, nearest
from ..base.text import Location, Source, Text, join, located
from .array import ConfigArray
from .scan import closing, key_end, opens, records, skip_blanks
from .value import ConfigValue
from .variables import resolve


class ConfigParameters:
    """A section `[ a = 1 ; b = [ c = 2 ] ]`, or a whole config.

    Names ignore case. A name that the section lacks is looked up in the sections around it. A name
    given twice has the last value; a value in square brackets is merged with what comes later, so
    `Train=[SGD=[maxEpochs=3]]` behind a config changes that one value. A name alone is `true`. The
    value `default` counts as absent. Values may hold `$name$`, see `variables`.

    Attributes:
        path: the name in error messages: file and keys, separated by colons.
        parent: the section around.
        folders: where files named in the config are looked for, in order.
    """

    def __init__(
        self,
        text: Text | str = "",
        path: str = "unknown",
        parent: ConfigParameters | None = None,
    ) -> None:
        self.path = path
        self.parent = parent
        self._entries: dict[str, tuple[str, Text, Text]] = {}  # lower name: name, key, value
        self._read: set[str] = set()
        self._empty: set[str] = set()  # names with nothing behind the equals sign
        self.folders: list[Path] = []
        self.text = Source("<string>", text).whole() if isinstance(text, str) else text
        self.parse(self.text)

    @classmethod
    def of(cls, value: ConfigValue) -> ConfigParameters:
        """The section that a value holds; it looks further in the section of the value."""
        return cls(value.text, value.path, value.parent)

    # -- writing

    def parse(self, text: Text, separator: str = ";") -> None:
        """Insert all `name = value` of a text."""
        for start, end in records(text, separator):
            self._insert_record(text.cut(start, end))

    def _insert_record(self, record: Text) -> None:
        string = record.string
        start = skip_blanks(string, 0)
        stop = key_end(string, start, len(string))
        key = record.cut(start, stop).strip()
        if stop == len(string):
            if key.string:
                self._insert(key, Text("true", key.origin, key.shift))
            return
        begin = skip_blanks(string, stop + 1 if string[stop] == "=" else stop)
        if begin == len(string):
            if key.string:  # CNTK refuses it here, even where the command line gives the value
                self._insert(key, key.cut(len(key), len(key)))
                self._empty.add(key.string.lower())
            return
        end = len(string)
        if opens(string, begin):
            end = closing(record, begin) + 1
            if string[begin] == '"':
                begin, end = begin + 1, end - 1
        if key.string:
            self._insert(key, record.cut(begin, end).strip())

    def _insert(self, key: Text, value: Text) -> None:
        lower = key.string.lower()
        name, first, old = self._entries.get(lower, (key.string, key, Text("")))
        if old.string and value.string.startswith("["):
            value = join([old, " ", value])
        self._entries[lower] = (name, first, value)
        self._empty.discard(lower)

    def insert(self, name: str, value: str | Text | ConfigValue) -> None:
        """Give `name` a value, merged with the present one if that is in square brackets."""
        if isinstance(value, ConfigValue):
            value = value.text
        text = value if isinstance(value, Text) else Source("<inserted>", value).whole()
        self._insert(Text(name, text.origin, text.shift), text)

    # -- looking up

    def names(self) -> list[str]:
        """The names of this section alone, in CNTK's order: sorted without regard to case."""
        return [self._entries[lower][0] for lower in sorted(self._entries)]

    def __iter__(self) -> Iterator[str]:
        """The names in the order of their first appearance."""
        return iter([name for name, _, _ in self._entries.values()])

    def __len__(self) -> int:
        return len(self._entries)

    def has(self, name: str) -> bool:
        """Whether this section itself has the name."""
        return name.lower() in self._entries

    def given(self, name: str) -> bool:
        """Whether this section itself has the name, with something behind the equals sign."""
        return self.has(name) and name.lower() not in self._empty

    def is_section(self, name: str) -> bool:
        """Whether this section itself has the name, and what is written there is a section."""
        return self.given(name) and self.raw(name).string[:1] in ("[", "{")

    def __contains__(self, name: str) -> bool:
        """Whether this section or one around it has the name."""
        return self.has(name) or (self.parent is not None and name in self.parent)

    def raw(self, name: str) -> Text:
        """The value of a name of this section as it was written, variables not replaced.

        Raises:
            FormatError: there is nothing behind its equals sign.
        """
        name, key, value = self._entries[name.lower()]
        if name.lower() in self._empty:
            raise located(
                FormatError,
                f"ParseValue: No value given for '{name}' in {self.path}",
                key.locate(),
            )
        return value

    def place(self, name: str) -> Location | None:
        """Where a name of this section was first written."""
        return self._entries[name.lower()][1].locate()

    def owner(self, name: str) -> ConfigParameters | None:
        """The section, this one or one around it, that has the name."""
        section: ConfigParameters | None = self
        while section is not None and not section.has(name):
            section = section.parent
        return section

    def find(self, name: str, default: str | None = None) -> ConfigValue | None:
        """The value of `name` here or in a section around, variables replaced, or the default.

        None where there is neither.
        """
        owner = self.owner(name)
        if owner is None:
            if default is None:
                return None
            return ConfigValue(Text(default), f"{self.path}:{name}", self)
        lower = name.lower()
        owner.mark_read(lower)
        text = owner.raw(name)
        path = f"{owner.path}:{name}"
        if text.string == "default":
            return None if default is None else ConfigValue(Text(default), path, owner)
        return ConfigValue(resolve(text, owner), path, owner)

    def __getitem__(self, name: str) -> ConfigValue:
        """The value of a name that must be there; a section made from it looks further here.

        Raises:
            FormatError: it is missing, or empty.
        """
        value = self.find(name)
        if value is None or not value.text.string:
            raise self.missing(name)
        return ConfigValue(value.text, value.path, self)

    def missing(self, name: str) -> FormatError:
        """The error that a parameter which must be given is not."""
        known = [known for section in self.outwards() for known in section]
        return located(
            FormatError,
            f"configparameters: required parameter missing: {self.path}:{name}"
            f"{nearest(name, known)}",
            self.text.locate(),
        )

    def outwards(self) -> Iterator[ConfigParameters]:
        """This section and those around it, from inside out."""
        section: ConfigParameters | None = self
        while section is not None:
            yield section
            section = section.parent

    def search_folders(self) -> list[Path]:
        """The folders to look for files in: those of the whole config."""
        return [folder for section in self.outwards() for folder in section.folders]

    # -- reading by type

    def _value(self, name: str, default: str | None) -> ConfigValue:
        value = self.find(name, default)
        if value is None or (default is None and not value.text.string):
            raise self.missing(name)
        return value

    def string(self, name: str, default: str | None = None) -> str:
        return str(self._value(name, default))

    def int(self, name: str, default: int | None = None) -> int:
        return self._value(name, None if default is None else str(default)).int()

    def size(self, name: str, default: int | None = None) -> int:
        return self._value(name, None if default is None else str(default)).size()

    def float(self, name: str, default: float | None = None) -> float:
        return self._value(name, None if default is None else repr(default)).float()

    def bool(self, name: str, default: bool | None = None) -> bool:
        return self._value(name, None if default is None else str(default).lower()).bool()

    def array(self, name: str, default: str | None = None, separator: str = ":") -> ConfigArray:
        return self._value(name, default).array(separator)

    def section(self, name: str) -> ConfigParameters:
        """The section called `name`; FormatError where it is missing."""
        return self[name].section()

    def match(self, name: str, text: str) -> bool:
        """Whether the value of `name` is `text`, without regard to case."""
        value = self.find(name)
        return str(value if value is not None else "").lower() == text.lower()

    # -- looking at it

    def mark_read(self, name: str) -> None:
        """Count a name of this section as asked for."""
        self._read.add(name.lower())

    def unread(self) -> list[str]:
        """The names of this section that nobody has asked for so far."""
        return [name for lower, (name, _, _) in self._entries.items() if lower not in self._read]

    def dump(self) -> str:
        """All values with their variables replaced, as CNTK logs them at its start."""
        lines = []
        for name in self.names():
            value = resolve(self.raw(name), self).string
            if "\n" in value and not value.endswith("\n"):
                value += "\n"
            lines.append(f"configparameters: {self.path}:{name}={value}\n")
        return "".join(lines)
