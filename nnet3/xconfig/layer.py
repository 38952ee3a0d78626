"""The base of xconfig layers: options, one input, config lines, named outputs.

A layer type is a `LayerType`: its options with their defaults, and a function that checks a `Layer`
and writes its lines. `LAYER_TYPES` holds them by Kaldi's name.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from ...framework.base.errors import FormatError, nearest
from ..language.config import REQUIRED, Computed, Key
from .inputs import Resolved
from .lines import XconfigLine
from .meanings import meaning

REFERENCE_AND_FINAL = ("ref", "final")
ALL_CONFIGS = ("init", "ref", "final")

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}\Z")
_TRUE_FALSE = {"true": True, "True": True, "false": False, "False": False}


@dataclasses.dataclass(frozen=True)
class Unset:
    """Default of an option that Kaldi's components set themselves: not written unless given, and
    then as it was given. `kind` is the kind of its value: a `number` or a `flag`."""

    kind: str


NUMBER = Unset("number")
FLAG = Unset("flag")

OF_INPUT: Final = Computed("the input's", -1)
"""Default of a dimension, which is the input's unless it is given."""
NEEDED: Final = Computed("required", -1)
NEEDED_TEXT: Final = Computed("required", "")
"""Defaults of options that must be given; -1 and "" stand for none."""

Default = bool | int | float | str | Unset | Computed
Value = bool | int | float | str


@dataclasses.dataclass(frozen=True)
class LayerType:
    """A layer type.

    Attributes:
        name: the word that begins its lines.
        options: defaults by key, without `name`; the type of a default is the type of the option.
        build: checks the layer, then adds its lines and outputs.
        doc: what the layer computes.
        meanings: of the keys that mean here something else than elsewhere; see `meanings`.
    """

    name: str
    options: Mapping[str, Default]
    build: Callable[[Layer], None]
    doc: str
    meanings: Mapping[str, str]

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys of its lines, with types, defaults and meanings."""
        name = Key("name", "str", doc="the name of the layer; its nodes are called NAME.part")
        return (name, *(self._key(key, default) for key, default in self.options.items()))

    def _key(self, key: str, default: Default) -> Key:
        doc = self.meanings.get(key) or meaning(key)
        if isinstance(default, Unset):
            kind = {"number": "float", "flag": "bool"}[default.kind]
            return Key(key, kind, None, "the component's", doc)
        words = ""
        value = default
        if isinstance(default, Computed):
            words, value = default.words, default.mark
        kind = type(value).__name__
        if words == NEEDED.words:
            return Key(key, kind, REQUIRED, doc=doc)
        return Key(key, kind, value, words or ("none" if value == "" else ""), doc)


@dataclasses.dataclass(frozen=True)
class Output:
    """An output for other layers: a descriptor, and a line that is written only if one uses it."""

    text: str
    dim: int
    line: str = ""


LAYER_TYPES: dict[str, LayerType] = {}


def layer_type(
    *names: str,
    options: Mapping[str, Default],
    doc: str = "",
    meanings: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """Register the decorated function as the builder of the layer types `names`.

    Args:
        names: of the types.
        options, meanings: see `LayerType`.
        doc: what the layer computes; by default the function's docstring.
    """

    def register(build: Callable[[Layer], None]) -> Callable[[Layer], None]:
        text = " ".join((doc or build.__doc__ or "").split())
        for name in names:
            LAYER_TYPES[name] = LayerType(name, options, build, text, meanings or {})
        return build

    return register


class Layer:
    """One layer while it is built.

    Attributes:
        name: its name.
        type: the word that begins its line.
        options: the value of every option of the type.
        input: config text of its input; empty for a layer without one.
        input_dim: dimension of the input.
        lines: (configs that get it, config line), in order.
        outputs: by name what others may use; "" is the layer itself.
    """

    def __init__(self, line: XconfigLine, kind: LayerType, name: str) -> None:
        self.name = name
        self.type = line.type
        self.place = line.place
        self.explicit = line.values
        self.input = ""
        self.input_dim = 0
        self.lines: list[tuple[tuple[str, ...], str]] = []
        self.outputs: dict[str, Output] = {}
        self.options = {
            key: self._value(key, default, line.values.get(key))
            for key, default in kind.options.items()
        }

    def __getitem__(self, key: str) -> Any:
        return self.options[key]

    def fail(self, message: str) -> NoReturn:
        """Refuse the layer.

        Raises:
            FormatError: always, with the place and the layer's name and type.
        """
        raise self.error(message)

    def error(self, message: str) -> FormatError:
        """An error about the layer."""
        return FormatError(f"{self.place}: {self.type} {self.name!r}: {message}")

    def connect(self, resolved: Resolved) -> None:
        """Take `resolved` as the input."""
        self.input = resolved.text
        self.input_dim = resolved.dim

    def default_dim(self, key: str = "dim") -> int:
        """The dimension under `key`, which is the input's unless given, or given as -1."""
        if self[key] == -1:
            self.options[key] = self.input_dim
        return self.positive(key)

    def positive(self, key: str) -> Any:
        """The value of `key`, which must be given above zero."""
        if not self[key] > 0:
            problem = "must be above zero" if key in self.explicit else "is missing"
            self.fail(f"{key}={self[key] if key in self.explicit else ''} {problem}")
        return self[key]

    def between(self, key: str, least: float, most: float = math.inf, *, unset: Any = None) -> None:
        """Refuse a value of `key` outside [`least`, `most`]; `unset` means none."""
        if self[key] != unset and not least <= self[key] <= most:
            bounds = f"at least {least}" if most == math.inf else f"from {least} to {most}"
            self.fail(f"{key}={self[key]} must be {bounds}")

    def choice(self, key: str, *choices: str) -> str:
        """The value of `key`, which must be one of `choices`."""
        if self[key] not in choices:
            self.fail(
                f"{key}={self[key]} is none of {', '.join(choices)}{nearest(self[key], choices)}"
            )
        return self[key]

    def written(self, *keys: str) -> str:
        """`key=value key=value` of those `keys` that have a value."""
        return " ".join(f"{key}={self[key]}" for key in keys if self[key] != "")

    def l2(self) -> str:
        """`l2-regularize=...` unless it is zero."""
        return f"l2-regularize={self['l2-regularize']}" if self["l2-regularize"] else ""

    def node_input(self) -> str:
        """The input, which must be a node: no descriptor fits there.

        Raises:
            FormatError: it is a descriptor.
        """
        if "(" in self.input:
            self.fail(f"input={self.input} must be the output of one layer, without offsets")
        return self.input

    def line(self, text: str, configs: tuple[str, ...] = REFERENCE_AND_FINAL) -> None:
        """Add a config line; runs of spaces become one."""
        self.lines.append((configs, " ".join(text.split())))

    def component(self, suffix: str, kind: str, fields: str, input: str, **more: Any) -> str:
        """Add a component and its node, both of the layer's name and `suffix`; returns the name."""
        name = self.name + suffix
        self.line(f"component name={name} type={kind} {fields}", **more)
        self.line(f"component-node name={name} component={name} input={input}", **more)
        return name

    def output(self, text: str, dim: int, name: str = "", line: str = "") -> None:
        """State that `text` with `dim` columns is the output `name`."""
        self.outputs[name] = Output(text, dim, line)

    def _value(self, key: str, default: Default, text: str | None) -> Value:
        plain = default.mark if isinstance(default, Computed) else default
        if text is None:
            return "" if isinstance(plain, Unset) else plain
        if isinstance(plain, str):
            return text
        if isinstance(plain, bool) or plain is FLAG:
            if text not in _TRUE_FALSE:
                self.fail(f"{key}={text} is neither true nor false")
            return text if plain is FLAG else _TRUE_FALSE[text]
        if isinstance(plain, int):
            if not _INTEGER.match(text) or abs(int(text)) >= 1 << 31:
                self.fail(f"{key}={text} is no integer of 32 bits")
            return int(text)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{key}={text} is no number")
        return text if isinstance(plain, Unset) else number
