"""Names and their texts in a config section, also looked up in the sections around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...framework.base.errors import FormatError, OpscopeError, nearest
from ..base.text import Location, Source, Text, join, located
from .record import Record
from .scan import closing, key_end, opens, records, skip_blanks


class Section:
    """The `name = text` of a section, as they were written.

    Names ignore case. A name given twice has the last text; a text in square brackets is merged
    with the one that comes later. A name alone is `true`.

    Attributes:
        path: the name in error messages: file and keys, separated by colons.
        parent: the section around.
        folders: where files named in the config are looked for, in order.
        text: the whole section.
        record: what was read from the whole config.
        warned: the warnings about values of this config so far, kept in its outermost section.
    """

    def __init__(
        self,
        text: Text | str = "",
        path: str = "unknown",
        parent: Section | None = None,
    ) -> None:
        self.path = path
        self.parent = parent
        # Lower name: name, key, and the values of this name that are merged into one.
        self._entries: dict[str, tuple[str, Text, list[Text | str]]] = {}
        self._empty: set[str] = set()  # names with nothing after the equals sign
        self.folders: list[Path] = []
        self.record: Record[Section] = Record() if parent is None else parent.record
        self.warned: set[str] = set()
        self.text = Source("<string>", text).whole() if isinstance(text, str) else text
        self.parse(self.text)

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
                begin = begin + 1
                end = end - 1
        if key.string:
            self._insert(key, record.cut(begin, end).strip())

    def _insert(self, key: Text, value: Text) -> None:
        lower = key.string.lower()
        old: list[Text | str]
        name, first, old = self._entries.get(lower, (key.string, key, []))
        if value.string.startswith("[") and any(map(str, old)):
            old += [" ", value]
        else:
            old = [value]
        self._entries[lower] = (name, first, old)
        self._empty.discard(lower)

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
        """Whether this section itself has the name; the record counts it as read."""
        self.record.ask(self, name)
        return self.holds(name) and not self.record.is_left_out(f"{self.path}:{name}")

    def holds(self, name: str) -> bool:
        """Whether this section itself has the name, whoever reads it."""
        return name.lower() in self._entries

    def has_value(self, name: str) -> bool:
        """Whether this section itself has the name, with something after the equals sign."""
        return self.holds(name) and name.lower() not in self._empty

    def is_section(self, name: str) -> bool:
        """Whether this section itself has the name, with a section as its value."""
        return self.has_value(name) and self.raw(name).string[:1] in ("[", "{")

    def __contains__(self, name: str) -> bool:
        """Whether this section or one around it has the name."""
        return self.has(name) or (self.parent is not None and name in self.parent)

    def raw(self, name: str) -> Text:
        """The value of a name of this section as it was written, variables not replaced.

        Raises:
            FormatError: there is nothing after its equals sign.
        """
        name, key, values = self._entries[name.lower()]
        if name.lower() in self._empty:
            raise located(
                FormatError,
                f"ParseValue: No value given for '{name}' in {self.path}",
                key.locate(),
            )
        if len(values) > 1:
            values[:] = [join(values)]
        return join(values)

    def place(self, name: str) -> Location | None:
        """Where a name of this section was first written."""
        return self._entries[name.lower()][1].locate()

    def owner(self, name: str) -> Section | None:
        """The section, this one or one around it, that has the name."""
        section: Section | None = self
        while section is not None and not section.holds(name):
            section = section.parent
        return section

    def missing(self, name: str) -> FormatError:
        """The error that a parameter which must be given is not."""
        known = [known for section in self.outwards() for known in section]
        self.record.missing.add(name.lower())
        error = located(
            FormatError,
            f"configparameters: required parameter missing: {self.path}:{name}"
            f"{nearest(name, known)}",
            self.text.locate(),
        )
        owner = self.owner(name)
        if owner is not None:
            vars(error)["parameter"] = f"{owner.path}:{name}"
        return error

    def complain(self, error: OpscopeError) -> None:
        """Raise an error, unless the reading is lenient: it is noted then, and the reading
        continues as if nothing was wrong. Where a parameter was left out, nothing else may be
        wrong."""
        if not self.record.is_incomplete and not self.record.note(error):
            raise error

    def only_if(self, used: bool, reason: str, *names: str) -> None:
        """Say which parameters a reader looks up only where a setting beside them wants it.

        Args:
            used: whether it does.
            reason: why the parameters have no effect if not, for the warning about those given.
            names: of the parameters.
        """
        for name in () if used else names:
            for section in self.outwards():
                self.record.explain(section, name, reason)
                if section.holds(name):
                    break

    def outwards(self) -> Iterator[Section]:
        """This section and those around it, from inside out."""
        section: Section | None = self
        while section is not None:
            yield section
            section = section.parent

    def search_folders(self) -> list[Path]:
        """The folders in which the whole config looks for files."""
        return [folder for section in self.outwards() for folder in section.folders]
