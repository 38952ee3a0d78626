"""Sections of a config: names without regard to case, also looked up in the sections around."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from ...framework.base.errors import FormatError
from ...framework.base.options.option_fields import option_fields
from ..base.text import Source, Text
from .section import Section
from .value import ConfigArray, ConfigValue
from .variables import resolve


class ConfigParameters(Section):
    """A section `[ a = 1 ; b = [ c = 2 ] ]`, or a whole config.

    Names ignore case. A name that the section lacks is looked up in the sections around it. A name
    given twice has the last value; a value in square brackets is merged with what comes later, so
    `Train=[SGD=[maxEpochs=3]]` after a config changes that one value. A name alone is `true`. The
    value `default` counts as absent. Values may hold `$name$`, see `variables`.

    Attributes:
        path: the name in error messages: file and keys, separated by colons.
        parent: the section around.
        folders: where files named in the config are looked for, in order.
    """

    @classmethod
    def of(cls, value: ConfigValue) -> ConfigParameters:
        """The section that a value holds; it looks further in the section of the value."""
        return cls(value.text, value.path, value.parent)

    def insert(self, name: str, value: str | Text | ConfigValue) -> None:
        """Give `name` a value, merged with the present one if that is in square brackets."""
        self.record.ask(self, name)
        if isinstance(value, ConfigValue):
            value = value.text
        text = value if isinstance(value, Text) else Source("<inserted>", value).whole()
        self._insert(Text(name, text.origin, text.shift), text)

    def find(self, name: str, default: str | None = None) -> ConfigValue | None:
        """The value of `name` here or in a section around, variables replaced, or the default.

        None where there is neither.
        """
        owner: Section | None = None
        for owner in self.outwards():
            self.record.ask(owner, name)
            if owner.holds(name):
                break
        else:
            owner = None
        path = f"{(owner or self).path}:{name}"
        if owner is None or self.record.is_left_out(path):
            return None if default is None else ConfigValue(Text(default), path, self)
        try:
            text = owner.raw(name)
            if text.string == "default":
                return None if default is None else ConfigValue(Text(default), path, owner)
            return ConfigValue(resolve(text, owner), path, owner)
        except FormatError as error:
            vars(error)["parameter"] = path
            raise

    def __getitem__(self, name: str) -> ConfigValue:
        """The value of a name that must be there; a section made from it looks further here.

        Raises:
            FormatError: it is missing, or empty.
        """
        value = self.find(name)
        if value is None or not value.text.string:
            raise self.missing(name)
        return ConfigValue(value.text, value.path, self)

    # -- looking without reading: the record does not count it

    def value(self, name: str) -> ConfigValue:
        """The value of a name that this section itself has, variables replaced."""
        return ConfigValue(resolve(self.raw(name), self), f"{self.path}:{name}", self)

    def peek(self, name: str) -> ConfigParameters:
        """The section that this section itself has under a name."""
        return ConfigParameters.of(self.value(name))

    # -- reading by type

    def _value(self, name: str, default: str | None, stand_in: str = "") -> ConfigValue:
        """`stand_in`: what a lenient reading goes on with where a parameter is missing."""
        value = self.find(name, default)
        if value is not None and (default is not None or value.text.string):
            return value
        error = self.missing(name)
        left_out = self.record.is_left_out(getattr(error, "parameter", ""))
        if not left_out and not self.record.note(error):
            raise error
        return ConfigValue(Text(stand_in), f"{self.path}:{name}", self)

    def string(self, name: str, default: str | None = None) -> str:
        return self._value(name, default).string()

    def int(self, name: str, default: int | None = None) -> int:
        return self._value(name, None if default is None else str(default), "1").int()

    def size(self, name: str, default: int | None = None) -> int:
        return self._value(name, None if default is None else str(default), "1").size()

    def float(self, name: str, default: float | None = None) -> float:
        return self._value(name, None if default is None else repr(default), "1").float()

    def bool(self, name: str, default: bool | None = None) -> bool:
        return self._value(name, None if default is None else str(default).lower()).bool()

    def array(self, name: str, default: str | None = None, separator: str = ":") -> ConfigArray:
        return self._value(name, default).array(separator)

    def options(self, kind: type) -> dict[str, Any]:
        """The values of the fields of a dataclass that `option` has made, by the fields' names.

        The field names are the names of parameters; where one is missing, the default is the
        field's.
        """
        values = {}
        for each in option_fields(kind):
            read = self.string if each.kind is str else getattr(self, each.kind.__name__)
            values[each.field] = read(each.name, None if each.default is MISSING else each.default)
        return values

    def section(self, name: str) -> ConfigParameters:
        """The section called `name`; FormatError where it is missing."""
        return ConfigParameters.of(self[name])

    def files(self, *names: str) -> list[ConfigValue]:
        """The values of the given ones of these names: files that must exist."""
        values = [self.find(name) for name in names]
        return [value for value in values if value is not None and value.text.string]

    def empty(self, name: str) -> ConfigParameters:
        """A section without values, in the place of one that is not given."""
        part = ConfigParameters("", f"{self.path}:{name}")
        part.record = self.record
        return part

    def match(self, name: str, text: str) -> bool:
        """Whether the value of `name` is `text`, without regard to case."""
        value = self.find(name)
        return str(value if value is not None else "").lower() == text.lower()

    def dump(self) -> str:
        """All values with their variables replaced, as CNTK logs them at its start."""
        lines = []
        for name in self.names():
            value = resolve(self.raw(name), self).string
            if "\n" in value and not value.endswith("\n"):
                value += "\n"
            lines.append(f"configparameters: {self.path}:{name}={value}\n")
        return "".join(lines)
