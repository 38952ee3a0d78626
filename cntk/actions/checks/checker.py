"""Shared by the checks of all actions: readings that continue after errors, networks, data."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ....framework.base.errors import FormatError, OpscopeError, VariableError, nearest
from ...base.text import is_located, located
from ...brainscript.build import model_loader
from ...config.device import device_of
from ...config.parameters import ConfigParameters
from ...config.value import ConfigValue
from ...models.open_model import open_model
from ...network.network import Network
from ...network.nodes.analysis import depth_first
from ...network.nodes.node import Node
from ...network.standard.settings import SimpleNetworkSettings
from ...readers.base.data import Stream
from ...readers.base.minibatches import minibatches
from ...readers.base.reader import DataReader
from ...readers.catalog import reader_opening
from ...readers.opening import Opening
from ...run.build import BUILDERS, Seeds, build_section_network, builder_of
from ..common import BuildOptions, precision_of, reader_section
from .models import Models
from .report import ERROR, WARNING, Report

_SMALL = 1 << 20  # bytes of files whose data are looked at, and samples of their first minibatch

T = TypeVar("T")


class NotMadeError(FormatError):
    """A script loads a model that a command before it cannot make: that was reported already."""


class Checker:
    """Reads the sections of a config as a run does.

    Args:
        report: takes what is wrong.
        build: whether networks are built; a run that is about to begin builds them itself.

    Attributes:
        models: of commands so far.
        seeds: numbers of random parameters.
    """

    def __init__(self, report: Report, *, build: bool = True) -> None:
        self.report = report
        self.build = build
        self.models = Models()
        self.seeds = Seeds()

    # -- readings

    def read(self, section: ConfigParameters, reading: Callable[[], T]) -> T | None:
        """The result of a reading that continues after errors; None where nothing came of it."""
        value, problems = section.record.lenient(reading)
        for error in problems:
            self.report.add_error(error)
        if value is None:
            section.record.leave(section.path)
        return value

    def part(self, section: ConfigParameters, name: str) -> ConfigParameters | None:
        """The section of a name; None where it is missing, which is reported."""
        with self.report.collected():
            return section.section(name)
        return None

    @contextmanager
    def at(self, section: ConfigParameters) -> Iterator[None]:
        """A context whose errors are reported; errors without a place get the section's."""
        with self.report.collected():
            try:
                yield
            except OpscopeError as error:
                if is_located(error):
                    raise
                raise located(type(error), str(error), section.text.locate()) from None

    def common(self, section: ConfigParameters) -> None:
        """What every action reads."""
        for reading in (precision_of, device_of):
            self.read(section, lambda reading=reading: reading(section))
        self.read(section, lambda: section.int("traceLevel", 0))

    # -- files

    def file(self, value: ConfigValue) -> bool:
        """Whether the file that a value names is there; reported if not."""
        path = str(value)
        if os.path.exists(path):
            return True
        beside = [Path(folder) / path for folder in _folders(value)]
        other_file = next((str(other) for other in beside if os.path.isfile(other)), "")
        hint = f"; there is {other_file}, for a run in another folder" if other_file else ""
        error = value.error(f"error opening file '{path[:200]}': No such file or directory{hint}")
        self.report.add_error(error, file=os.path.abspath(path.replace("\0", "?")))
        return False

    # -- networks

    def network(
        self, section: ConfigParameters, names: Sequence[ConfigValue] = ()
    ) -> Network | None:
        """The network of a builder, or else of `modelPath`; `names` become its outputs."""
        if builder_of(section) is not None:
            network = self.built(section)
        else:
            network = self.model(section, "modelPath")
        if network is not None and names:
            self._set_outputs(network, names)
        return network

    def built(self, section: ConfigParameters, command: str = "") -> Network | None:
        """The network of a builder; `command` is the name to report it by."""
        self.read(section, lambda: BuildOptions.of(section))
        builder = builder_of(section)
        if builder is None and not self.build:
            return None
        if builder is not None:
            others = [name for name in BUILDERS if name != builder]
            section.only_if(False, f"{builder} describes the network", *others)
        if builder == "SimpleNetworkBuilder" and not self._simple(section.section(builder)):
            return None
        if not self.build:
            section.record.leave(f"{section.path}:{builder}")
            return None
        with self.report.collected():
            load = self._loader(section)
            built = build_section_network(section, self.seeds, load, say=lambda line: None)
            for warning in built.warnings:
                self.report.add(WARNING, warning)
            if command:
                self.report.networks[command] = built.network
            return built.network
        section.record.leave(f"{section.path}:{builder}")
        return None

    def _simple(self, part: ConfigParameters) -> bool:
        """Whether the settings of a standard network are right."""
        before = len(self.report.errors)
        self.read(part, lambda: SimpleNetworkSettings.from_config(part))
        return self.build and len(self.report.errors) == before

    def _loader(self, section: ConfigParameters) -> Callable[[str], Network]:
        from_files = model_loader(section.search_folders(), section.string("precision", "float"))

        def load(name: str) -> Network:
            return self.models.find(name) or from_files(name)

        return load

    def model(self, section: ConfigParameters, name: str) -> Network | None:
        """The network of the model file that a parameter names."""
        name_or_path = self.read(section, lambda: section.string(name))
        value = section.find(name)
        if not name_or_path or value is None or not self.build:
            return None
        known = self.models.find(name_or_path)
        if known is not None:
            with self.report.collected():
                known.validate()
                return known
            return None
        if self.models.is_expected(name_or_path) or not self.file(value):
            return None
        try:
            return open_model(name_or_path, precision_of(section)).network
        except OpscopeError as error:
            self.report.add_error(error if is_located(error) else value.error(str(error)))
            return None

    def open(self, path: Path) -> Network:
        """The network of a model file that a script loads, not validated.

        Raises:
            FormatError: it is not there, or is no model.
        """
        known = self.models.find(path)
        if known is not None:
            return known
        if self.models.is_expected(path):
            raise NotMadeError(f"{path}: the command that writes it is wrong")
        if not os.path.isfile(path):
            raise FormatError(f"error opening file '{path}': No such file or directory")
        return open_model(path, validate=False).network

    def _set_outputs(self, network: Network, names: Sequence[ConfigValue]) -> None:
        nodes = [network.find(str(name)) for name in names if self.node(network, name)]
        network.groups["output"] = list(dict.fromkeys(nodes))
        with self.report.collected():
            network.validate()

    def node(self, network: Network, name: ConfigValue) -> bool:
        """Whether a network has the node of a name; a warning if not, as the run passes it over."""
        if str(name) in network:
            return True
        known = [node.name for node in network.nodes.values()]
        message = f"no node is called {str(name)[:60]!r}{nearest(str(name), known)}: passed over"
        self.report.add_error(name.error(message, error_class=VariableError), WARNING)
        return False

    # -- data

    def reader(
        self,
        section: ConfigParameters,
        network: Network | None,
        nodes: Sequence[Node] = (),
        name: str = "reader",
        in_order: str = "",
        precompute: bool = False,
    ) -> None:
        """Check a reader, and whether it gives what the inputs below some nodes need.

        Args:
            section: of the command.
            network: that takes the data; None: not known.
            nodes: of it, which the command computes.
            name: of the reader's section.
            in_order: see `reader_of`.
            precompute: whether statistics of inputs are computed as well.
        """
        with self.report.collected():
            part = reader_section(section, name, in_order=in_order)
            opening = self.read(part, lambda: reader_opening(part))
            if opening is None:
                return
            before = len(self.report.errors)
            if opening.streams is not None and network is not None:
                self._compare(part, opening.streams, network, nodes, precompute)
            streams = self._streams(part, opening, before)
            if opening.streams is None and streams is not None and network is not None:
                self._compare(part, streams, network, nodes, precompute)

    def _streams(
        self, part: ConfigParameters, opening: Opening[DataReader], before: int
    ) -> Sequence[Stream] | None:
        """The streams of a reader; None where they are not known without reading large data. The
        data are looked at where nothing was wrong since there were `before` errors."""
        if opening.foreign:
            part.record.leave(part.path)
            return opening.streams
        there = [self.file(value) for value in opening.files]
        if not (self.build and all(there)) or len(self.report.errors) > before:
            return opening.streams
        if opening.probe is not None:
            with self.report.collected():
                opening.probe()
        if not opening.light:
            return opening.streams
        if sum(os.path.getsize(str(value)) for value in opening.files) > _SMALL:
            return opening.streams
        with self.report.collected(), opening.open() as reader:
            next(minibatches(reader, _SMALL), None)
            return list(reader.streams)
        return opening.streams

    def _compare(
        self,
        part: ConfigParameters,
        streams: Sequence[Stream],
        network: Network,
        nodes: Sequence[Node],
        precompute: bool,
    ) -> None:
        given = {stream.name: stream for stream in streams}
        for node in inputs_of(nodes, precompute):
            stream = given.get(node.name)
            size = math.prod(node.shape or ())
            if stream is None:
                names = ", ".join(sorted(stream.name for stream in streams)) or "none"
                hint = nearest(node.name, given)
                message = f"the reader gives no stream {node.name!r}{hint}; it has {names}"
                self.report.add_error(node.error(f"{message} in {part.path}"))
            elif stream.dim not in (0, size):
                self.report.add_error(
                    self._about(
                        part,
                        stream.name,
                        f"the reader gives samples of {stream.dim}, but the input {node.name!r} of"
                        f" the network has {size}",
                    )
                )
        known = [node.name for node in network.nodes.values() if node.is_input]
        for name, stream in given.items():
            if name not in known and stream.dim:
                message = f"no input of the network is called {name!r}{nearest(name, known)}"
                self.report.add_error(self._about(part, name, message), WARNING)

    def _about(self, part: ConfigParameters, stream: str, message: str) -> OpscopeError:
        """An error about a stream, at the section that describes it."""
        place = part.text.locate()
        for path, section in part.record.sections.items():
            if path.startswith(part.path.lower()) and section.holds(stream):
                place = section.place(stream)
        return located(VariableError, f"{message} in {part.path}", place)


def inputs_of(nodes: Sequence[Node], precompute: bool) -> list[Node]:
    """The inputs that some nodes need; `precompute`: also for statistics below them."""
    if precompute:
        return [node for node in depth_first(nodes) if node.is_input]
    inputs: list[Node] = []
    seen = set(nodes)
    left = list(nodes)
    while left:
        node = left.pop()
        if node.is_input:
            inputs.append(node)
        for child in node.inputs if not node.kind.precompute else ():
            if child is not None and child not in seen:
                seen.add(child)
                left.append(child)
    return sorted(inputs, key=lambda node: node.name)


def _folders(value: ConfigValue) -> list[Path]:
    return value.parent.search_folders() if value.parent is not None else []


__all__ = ["ERROR", "WARNING", "Checker"]
