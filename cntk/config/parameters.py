"""Sections of a config: names without regard to case, looked up in the sections around, too."""

from __future__ import annotations

from ..base.text import Source, Text
from .section import Section
from .value import ConfigArray, ConfigValue
from .variables import resolve


class ConfigParameters(Section):
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

    @classmethod
    def of(cls, value: ConfigValue) -> ConfigParameters:
        """The section that a value holds; it looks further in the section of the value."""
        return cls(value.text, value.path, value.parent)

    def insert(self, name: str, value: str | Text | ConfigValue) -> None:
        """Give `name` a value, merged with the present one if that is in square brackets."""
        if isinstance(value, ConfigValue):
            value = value.text
        text = value if isinstance(value, Text) else Source("<inserted>", value).whole()
        self._insert(Text(name, text.origin, text.shift), text)

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
        return ConfigParameters.of(self[name])

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
