"""All problems of an xconfig at once; `xconfig_to_configs` stops at the first.

A layer that is wrong still has its name and its place, so that the layers which read it are not
called wrong as well.
"""

from __future__ import annotations

import os

from ...framework.base.errors import FormatError, OpscopeError, one_list
from ...framework.base.files.atomic import PathLike
from ..language.config import is_valid_name
from ..network.config_check import NetworkCheck
from ..network.model_check import ERROR, Problem
from ..network.nnet import Nnet
from .configs import LayerNetwork
from .inputs import Resolved
from .layer import Layer, LayerType
from .lines import XconfigLine, parse_line, split_lines


@one_list()
def xconfig_problems(path: PathLike) -> list[Problem]:
    """What is wrong, and what is unusual, in an xconfig, in the order of its lines.

    Raises:
        FormatError: the file cannot be read, is no UTF-8 text, or holds no layer.
    """
    network = _TolerantNetwork()
    place = ""
    for place, content in split_lines(path):
        network.add_text(content, place)
    return network.problems(os.fspath(path), place)


class _UnknownDim(int):
    """The columns of a layer that is wrong: equal to any number, and so are sums with it."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __add__(self, other: int) -> _UnknownDim:
        return self

    __radd__ = __add__
    __hash__ = int.__hash__


class _TolerantNetwork(LayerNetwork):
    """The layers so far, as far as they can be understood."""

    def __init__(self) -> None:
        super().__init__({})
        self._problems: list[tuple[int, Problem]] = []  # with the number of the layer
        self._wrong: set[str] = set()
        self._count = 0

    def add_text(self, content: str, place: str) -> None:
        """Take the next line."""
        self._count += 1
        try:
            line = parse_line(content, place)
        except FormatError as error:
            self._tell(error)
            self._pass_over(_guessed(content, place))
            return
        try:
            whole = self._is_built(line)
        except FormatError as error:
            self._tell(error)
            whole = False
        if not whole:
            self._pass_over(line)

    def _tell(self, *errors: OpscopeError) -> None:
        self._problems += [(self._count, Problem(ERROR, str(error))) for error in errors]

    def _is_built(self, line: XconfigLine) -> bool:
        """Build the layer of a line; False where it has values that are none, or its input has
        unknown columns."""
        kind = self.kind_of(line)
        name = self.name_of(line)
        values: dict[str, str] = {}
        wrong = False
        for key, value in line.values.items():
            try:
                alone = Layer(XconfigLine(line.type, {key: value}, line.place), kind, name)
            except FormatError as error:
                self._tell(error)
                wrong = True
                continue
            errors = self.wrong_keys(alone, kind)
            self._tell(*errors)
            if not errors:
                values[key] = value
        layer = Layer(XconfigLine(line.type, values, line.place), kind, name)
        self.connect(layer)
        if wrong or isinstance(layer.input_dim, _UnknownDim):
            return False
        kind.build(layer)
        self.layers[name] = layer
        return True

    def _pass_over(self, line: XconfigLine) -> None:
        """Keep the name and the place of a layer that is wrong."""
        name = line.values.get("name", "")
        if not is_valid_name(name):
            name = f"unnamed.{self._count}"
        if name not in self.layers:
            self._wrong.add(name)
            self.layers[name] = Layer(XconfigLine(line.type, {}, line.place), _NOTHING, name)

    def find(self, name: str) -> Resolved:
        """The descriptor for `layer` or `layer.output` in an input."""
        if {name, name.partition(".")[0]} & self._wrong:
            return Resolved(name, _UnknownDim())
        return super().find(name)

    def problems(self, source: str, last: str) -> list[Problem]:
        """All problems, now that all lines are known; `last` is the place of the last."""
        right = [layer for layer in self.layers.values() if layer.name not in self._wrong]
        if not self._problems:
            try:
                texts = self.texts(last)
            except FormatError as error:
                return [Problem(ERROR, str(error))]
            check = NetworkCheck()
            for layer in right:
                _add_lines(check, layer, "")
            return check.problems(source, lambda: Nnet.from_config_text(texts["ref"], 0))
        for number, layer in enumerate(self.layers.values(), 1):
            if layer.name not in self._wrong:
                check = NetworkCheck()
                _add_lines(check, layer, "component ")
                self._problems += [(number, problem) for problem in check.of_lines()]
        if not any(layer.type.startswith("output") for layer in self.layers.values()):
            self._count += 1
            self._tell(FormatError(f"{last}: the last line, and there was no output layer"))
        return [problem for _, problem in sorted(self._problems, key=lambda item: item[0])]


def _add_lines(check: NetworkCheck, layer: Layer, word: str) -> None:
    """Add the config lines of a layer that begin so, at the place of the layer."""
    for configs, text in layer.lines:
        if "ref" in configs and text.startswith(word):
            check.add(text, layer.place)


def _guessed(content: str, place: str) -> XconfigLine:
    """The type and the name of a line that is none."""
    words = content.split()
    named = next((word for word in words if word.startswith("name=")), "name=")
    return XconfigLine(words[0], {"name": named.removeprefix("name=")}, place)


_NOTHING = LayerType("", {}, lambda layer: None, "", {})
