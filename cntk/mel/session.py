"""A session of MEL: the models that are open, and which of them names without a model mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

from ...framework.base.errors import FormatError, VariableError, nearest
from ...framework.base.files.atomic import make_folder_of
from ...framework.base.untrusted.values import Fills
from ...framework.editing.operations import Edit
from ..base.text import Text, located
from ..base.write import write_text
from ..config.files import find_file, read_config_text
from ..config.parameters import ConfigParameters
from ..models.open_model import open_model
from ..models.v1 import write_model
from ..ndl.builder import parse_ndl_file
from ..ndl.evaluate import Evaluator
from ..ndl.macros import Macros
from ..ndl.numbering import Numbering
from ..ndl.parse import parse_ndl
from ..ndl.scope import Instance, reduce
from ..ndl.syntax import Script, Word
from ..network.edit import split_pattern
from ..network.editing.perform import perform
from ..network.initialize import initial_value
from ..network.network import Network
from ..network.nodes.node import Node
from .syntax import Inline


@dataclass(eq=False)
class Model:
    """A model of a session and the NDL written in line for it."""

    name: str
    network: Network
    ndl: Evaluator


def write_with_folder(network: Network, path: Path) -> None:
    """Write a model file, with the folders it needs."""
    make_folder_of(path)
    write_model(network, path)


@dataclass(eq=False)
class Session:
    """The state of a run of MEL scripts; `run_script` runs one.

    Attributes:
        macros: of NDL, for scripts in line.
        folders: where files to read are looked for; none: the current folder.
        models: by lower-case name.
        default: the model of names that do not start with one.
        warnings: of ignored statements.
        read, write: how models come from and go to files; by default as CNTK's binary files.
        write_text: how descriptions of models go to files.
    """

    macros: Macros = field(default_factory=Macros)
    folders: list[Path] = field(default_factory=list)
    seeds: Iterator[int] = field(default_factory=lambda: count(1))
    read: Callable[[Path], Network] | None = None
    write: Callable[[Network, Path], None] = write_with_folder
    write_text: Callable[[Path, str], None] = write_text
    models: dict[str, Model] = field(default_factory=dict)
    default: Model | None = None
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbering = Numbering(self.macros)

    # -- models

    def open(self, name: str, network: Network) -> None:
        """Add a model; it is the default where there is none. One of the same name is dropped."""
        old = self.models.get(name.lower())
        if old is not None:
            self.warnings.append(f"conflicting model name {name}: the older model is dropped")
            if self.default is old:
                self.default = None
        model = Model(name, network, Evaluator(network, self.macros, self.seeds, self.numbering))
        self.models[name.lower()] = model
        if self.default is None:
            self.default = model

    def model(self, name: Text) -> Model:
        """The model of a name.

        Raises:
            VariableError: there is none.
        """
        named = self.models.get(name.string.lower())
        if named is None:
            known = [model.name for model in self.models.values()]
            raise located(
                VariableError,
                f"Model {name} does not exist{nearest(name.string, known)}",
                name.locate(),
            )
        return named

    def load(self, file: Text) -> Network:
        """The network of a model file, not validated.

        Raises:
            FormatError: it cannot be opened, or is no model.
        """
        path = find_file(file.string, self.folders)
        if self.read is not None:
            return self.read(path)
        if not os.path.isfile(path):
            reason = "Is a directory" if os.path.isdir(path) else "No such file or directory"
            raise located(FormatError, f"error opening file '{file}': {reason}", file.locate())
        return open_model(path, validate=False).network

    def snippet(self, file: Text, section: str | None) -> Network:
        """The network of an NDL file, or of one section of it."""
        text = read_config_text(find_file(file.string, self.folders))
        if section is None:
            scripts = parse_ndl_file(text, Path(file.string).name)
        else:
            sections = ConfigParameters(text, Path(file.string).name)
            if section not in sections:
                raise located(
                    FormatError,
                    f"Section {section} specified in optional parameter was not found in the "
                    f"{file} file{nearest(section, sections)}",
                    file.locate(),
                )
            scripts = [parse_ndl(sections[section].text)]
        return self.evaluate(Script(tuple(s for script in scripts for s in script)))

    def evaluate(self, script: Script) -> Network:
        """The network of an NDL script, which need not be complete."""
        evaluator = Evaluator(Network(), self.macros, self.seeds, self.numbering)
        evaluator.run(script)
        evaluator.connect()
        evaluator.finish()
        self.warnings += evaluator.warnings
        return evaluator.network

    # -- NDL in line

    def run_inline(self, statement: Inline) -> None:
        """Give a statement of NDL to the default model.

        Raises:
            VariableError: there is no default model.
        """
        if self.default is None:
            raise located(
                VariableError,
                "NDL Command cannot be executed until default model is established: there is no "
                "model yet",
                statement.text.locate(),
            )
        self.default.ndl.run(Script((statement.assignment,)))

    def settle(self, model: Model) -> Network:
        """The network of a model, after all in-line NDL so far."""
        model.ndl.connect()
        model.ndl.finish()
        self.warnings += model.ndl.warnings
        model.ndl.warnings = []
        fill(model.network)
        return model.network

    def save(self, model: Model, file: Text) -> None:
        """Write a model, validated and with the initial values of its new parameters."""
        network = self.settle(model)
        with model.ndl.explained():
            network.validate()
        fill(network)
        self.write(network, Path(file.string))

    # -- names

    def split(self, symbol: Text) -> tuple[Model, str]:
        """The model and the node name or pattern of `m1.L1.*`, `L1.W` or `m1` (all nodes).

        Raises:
            VariableError: no model is named, and there is no default.
        """
        string = symbol.string
        end = min((i for i in (string.find("."), string.find("*")) if i >= 0), default=len(string))
        model = self.models.get(string[:end].lower())
        if model is not None:
            return model, string[end + 1 :] or "*"
        if self.default is None:
            raise located(
                VariableError,
                f"{symbol}: no model is the default, and none is named",
                symbol.locate(),
            )
        return self.default, string

    def find(self, symbol: Text) -> tuple[Model, list[Node]]:
        """The nodes that a name or pattern means, and their model.

        A name of in-line NDL whose value is a number becomes a constant node.

        Raises:
            VariableError: there are none.
        """
        model, name = self.split(symbol)
        model.ndl.connect()
        nodes = model.network.match(name)
        if not nodes and split_pattern(name) is None:
            nodes = self._ndl_node(model, name)
        if not nodes:
            raise located(
                VariableError,
                f"FindSymbols could not find a symbol for {symbol}"
                f"{nearest(name, model.network.nodes)}",
                symbol.locate(),
            )
        return model, nodes

    def names(self, symbol: Text) -> tuple[Model, tuple[str, ...]]:
        """The names of these nodes, for an edit; errors as of `find`."""
        model, nodes = self.find(symbol)
        return model, tuple(node.name for node in nodes)

    def perform(self, model: Model, edit: Edit) -> None:
        """Carry out an edit in a model."""
        perform(model.network, edit)

    def _ndl_node(self, model: Model, name: str) -> list[Node]:
        symbol = model.ndl.root.find(name)
        if symbol is None:
            return []
        value = reduce(symbol.value, symbol.scope)
        if isinstance(value, Instance):
            return [value.node] if value.node is not None else []
        if isinstance(value, tuple) and isinstance(value[0], Word):
            number = value[0].number
            if number is not None:
                attributes = {"shape": (1, 1), "init": "fixedValue", "value": number}
                return [model.network.add("LearnableParameter", name, attributes=attributes)]
        return []


def fill(network: Network) -> None:
    """Give the parameters that have none, and whose shape is known, their initial values."""
    dtype = np.dtype(np.float64 if network.precision == "double" else np.float32)
    with Fills():
        for node in network.nodes.values():
            if node.is_parameter and node.value is None:
                node.shape = node.shape or node.attributes["shape"]
                if node.shape and 0 not in node.shape:
                    node.value = initial_value(node, dtype)
