"""Several simple components in a row as one, so that less memory is needed between them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...kaldi.files.kaldi_io import Reader, Writer
from ..language.config import ConfigLine, Key, read_keys
from .base.component import (
    Component,
    Properties,
    UpdatableComponent,
    is_component_type,
    new_component,
)
from .base.fields import INT, Field, Kind
from .base.keys import key
from .base.lowering import OUT, Recipe, X, lower_into

_P = Properties
_MOST = 100000  # as many components Kaldi reads at most
_PART: Final = Key(
    "component",
    "str",
    doc="the config line of a part, in quotes: type= and its keys; simple, not random",
    numbered=True,
)


def _read_components(reader: Reader) -> list[Component]:
    count = reader.read_int32()
    if not 0 < count <= _MOST:
        raise reader.error(f"{count} is no number of components")
    parts = []
    for _ in range(count):
        start = reader.offset
        if reader.peek_token() == "<CompositeComponent>":
            raise reader.error("a CompositeComponent within a CompositeComponent", start)
        parts.append(Component.read_new(reader))
    return parts


def _write_components(writer: Writer, parts: list[Component]) -> None:
    writer.write_int32(len(parts))
    for part in parts:
        part.write(writer)


class CompositeComponent(UpdatableComponent):
    """Applies `components` one after the other, at most `max_rows_process` rows at a time."""

    max_rows_process: int

    own_fields = (
        Field("<MaxRowsProcess>", INT, "max_rows_process"),
        Field(
            "<NumComponents>",
            Kind("components", list[Component], _read_components, _write_components),
            "components",
        ),
    )
    common_keys = ()  # the parts have their own
    own_keys = (key("max-rows-process", int, 4096), key("num-components", int), _PART)
    components: list[Component]

    @property
    def input_dim(self) -> int:
        return self.components[0].input_dim

    @property
    def output_dim(self) -> int:
        return self.components[-1].output_dim

    @property
    def properties(self) -> Properties:
        first = self.components[0].properties
        last = self.components[-1].properties
        flags = _P.SIMPLE | _P.BACKPROP_NEEDS_INPUT
        flags |= last & (_P.PROPAGATE_ADDS | _P.BACKPROP_NEEDS_OUTPUT | _P.OUTPUT_CONTIGUOUS)
        flags |= first & (_P.BACKPROP_ADDS | _P.INPUT_CONTIGUOUS)
        if self._updatable():
            flags |= _P.UPDATABLE
        return flags | (_P.BACKPROP_NEEDS_OUTPUT if last & _P.STORES_STATS else _P(0))

    def init_from_config(self, line: ConfigLine, rng: np.random.Generator) -> None:
        settings = read_keys(line, self.keys, self.type)
        self.max_rows_process = settings.max_rows_process
        count = settings.num_components
        if not 0 < count <= _MOST:
            raise line.error(f"{self.type} wants a positive num-components=")
        self.components = []
        for i in range(1, count + 1):
            place = f"{line.place or 'line'}, component{i}"
            nested = ConfigLine(line.require(f"{_PART.name}{i}"), place)
            type = nested.require("type")
            if nested.first_token:
                raise nested.error(f"{nested.first_token!r} is not expected here")
            if type == self.type or not is_component_type(type):
                raise nested.error(f"{type} cannot be a part of a {self.type}")
            part = new_component(type)
            part.init_from_config(nested, rng)
            if part.properties & _P.RANDOM:
                raise nested.error(f"{type} is random; it cannot be a part of a {self.type}")
            self.components.append(part)
        line.check_unused()
        try:
            self.check()
        except ValueError as error:
            raise line.error(f"{self.type}: {error}") from error

    def check(self) -> None:
        for part in self.components:
            self.demand(bool(part.properties & _P.SIMPLE), f"{part.type} is not simple")
        for a, b in zip(self.components, self.components[1:], strict=False):
            self.demand(
                a.output_dim == b.input_dim,
                f"{a.type} gives {a.output_dim} columns, {b.type} after it takes {b.input_dim}",
            )

    def info(self) -> str:
        parts = (f"sub-component{i} = {{ {p.info()} }}" for i, p in enumerate(self.components, 1))
        return f"{self.type} {', '.join(parts)}"

    # The parts hold the parameters.

    def _updatable(self) -> list[Any]:
        return [part for part in self.components if part.is_updatable]

    @property
    def num_parameters(self) -> int:
        return sum(part.num_parameters for part in self.components)

    def vectorize(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.float32), *(p.vectorize() for p in self.components)])

    def unvectorize(self, vector: np.ndarray) -> None:
        self.check_size(vector)
        begin = 0
        for part in self._updatable():
            part.unvectorize(vector[begin : begin + part.num_parameters])
            begin += part.num_parameters

    def set_learning_rate(self, rate: float) -> None:
        super().set_learning_rate(rate)
        for part in self._updatable():
            part.set_learning_rate(self.learning_rate)

    def zero_stats(self) -> None:
        for part in self.components:
            part.zero_stats()

    def lower(self, recipe: Recipe) -> None:
        # Intermediate results are variables like any other;
        # `composite_rows` cuts the rows into chunks.
        source = X
        last = len(self.components) - 1
        for number, part in enumerate(self.components):
            path = f"{recipe.path}{number}."
            wanted = recipe.natural_gradient, recipe.statistics
            inner = Recipe((None, -1), *wanted, path=path)
            lower_into(part, inner)
            target = OUT if number == last else recipe.temp()
            names = {X: source, OUT: target}
            names |= {name: recipe.temp() for name in inner.temps()}
            recipe.forward += [step.renamed(names) for step in inner.forward]
            recipe.parameters |= inner.parameters
            recipe.constants |= inner.constants
            recipe.states |= inner.states
            recipe.parts.append((inner, names))
            source = target
