"""ComputationRequest: which rows of which nodes are given, which are wanted, which derivatives.

Source: Kaldi's nnet-computation.h; the text form is one line for each input and output and one for
the flags:

    input input has_deriv=1 0,5,0 0,6,0
    output output has_deriv=1 0,5,0
    need_model_derivative=1 store_component_stats=0
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, ShapeError, check_kind
from ..index.indexes import as_indexes, format_indexes


@dataclass
class IoSpecification:
    """An input or output node with its rows.

    Attributes:
        name: the node: an input node (or a component node whose values are given), or an output.
        indexes: int32 [rows, 3]: n, t, x.
        has_deriv: for an input: its derivative is wanted; for an output: its derivative is given.
    """

    name: str
    indexes: np.ndarray
    has_deriv: bool = False

    def __post_init__(self) -> None:
        check_kind(self.name, str, "the name of an input or output")
        if self.name.split() != [self.name]:
            raise FormatError(f"{self.name!r} is no name of an input or output")
        check_kind(self.has_deriv, bool | np.bool_, f"'{self.name}': has_deriv")
        self.indexes = as_indexes(self.indexes, f"'{self.name}'")

    def __str__(self) -> str:
        flag = "true" if self.has_deriv else "false"
        return f"name={self.name}, has-deriv={flag}, indexes={format_indexes(self.indexes)}"


@dataclass
class ComputationRequest:
    """The inputs that a computation takes and the outputs that it computes."""

    inputs: list[IoSpecification] = field(default_factory=list)
    outputs: list[IoSpecification] = field(default_factory=list)
    need_model_derivative: bool = False
    store_component_stats: bool = False

    def __post_init__(self) -> None:
        for what, listed in (("inputs", self.inputs), ("outputs", self.outputs)):
            check_kind(listed, list, f"{what} of a request")
            for io in listed:
                check_kind(io, IoSpecification, f"each of the {what} of a request")
        for name in ("need_model_derivative", "store_component_stats"):
            check_kind(getattr(self, name), bool | np.bool_, f"{name} of a request")

    @classmethod
    def parse(cls, text: str, where: str = "request") -> ComputationRequest:
        """The request from its text form.

        Raises:
            FormatError: with line number: what is wrong.
            AttributeTypeError: the text is no str.
        """
        check_kind(text, str, "the text of a request")
        request = cls()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            try:
                if not words or words[0].startswith("#"):
                    continue
                if words[0] in ("input", "output"):
                    listed = request.inputs if words[0] == "input" else request.outputs
                    listed.append(_io(words))
                else:
                    for word in words:
                        name, value = _flag(word)
                        if name not in ("need_model_derivative", "store_component_stats"):
                            raise FormatError(f"unknown word '{word}'")
                        setattr(request, name, value)
            except OpscopeError as error:
                raise FormatError(f"{where}, line {number}: {error}") from None
        return request

    def to_text(self) -> str:
        """The text form, which `parse` reads."""
        lines = []
        for kind, listed in (("input", self.inputs), ("output", self.outputs)):
            for io in listed:
                rows = " ".join(",".join(map(str, row)) for row in io.indexes.tolist())
                lines.append(f"{kind} {io.name} has_deriv={int(io.has_deriv)} {rows}".rstrip())
        lines.append(
            f"need_model_derivative={int(self.need_model_derivative)}"
            f" store_component_stats={int(self.store_component_stats)}"
        )
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        lines = ["# Computation request:"]
        for kind, listed in (("input", self.inputs), ("output", self.outputs)):
            lines += [f"{kind}-{i}: {io}" for i, io in enumerate(listed)]
        lines.append(f"need-model-derivative: {str(self.need_model_derivative).lower()}")
        lines.append(f"store-component-stats: {str(self.store_component_stats).lower()}")
        return "\n".join(lines)

    def key(self) -> tuple[object, ...]:
        """A hashable value that is equal for equal requests."""

        def ios(listed: list[IoSpecification]) -> tuple[object, ...]:
            return tuple((io.name, io.has_deriv, io.indexes.tobytes()) for io in listed)

        flags = (self.need_model_derivative, self.store_component_stats)
        return ios(self.inputs), ios(self.outputs), flags

    def needs_derivatives(self) -> bool:
        """Whether there is a backward part.

        Raises:
            ShapeError: derivatives are wanted, and no output's derivative is given.
        """
        wanted = self.need_model_derivative or any(io.has_deriv for io in self.inputs)
        if wanted and not any(io.has_deriv for io in self.outputs):
            raise ShapeError(
                "the request wants derivatives of the model or of inputs, and gives none at an"
                " output (has_deriv=1)"
            )
        return wanted

    def find(self, name: str, output: bool) -> IoSpecification | None:
        """The input or output of that name."""
        listed = self.outputs if output else self.inputs
        return next((io for io in listed if io.name == name), None)


_INDEX = re.compile(r"(-?\d{1,10}),(-?\d{1,10}),(-?\d{1,10})\Z")


def _io(words: list[str]) -> IoSpecification:
    if len(words) < 2:
        raise FormatError(f"'{words[0]}' wants a node's name and its indexes")
    rest = words[2:]
    has_deriv = False
    if rest and "=" in rest[0]:
        name, has_deriv = _flag(rest.pop(0))
        if name != "has_deriv":
            raise FormatError(f"unknown word '{name}='")
    rows = []
    for word in rest:
        match = _INDEX.match(word)
        if match is None:
            raise FormatError(f"'{word}' is no index; it is written n,t,x")
        rows.append([int(part) for part in match.groups()])
    return IoSpecification(words[1], np.array(rows, np.int64), has_deriv)


def _flag(word: str) -> tuple[str, bool]:
    name, _, value = word.partition("=")
    if value not in ("0", "1", "true", "false"):
        raise FormatError(f"'{word}' should be NAME=0 or NAME=1")
    return name, value in ("1", "true")
