"""The surroundings that actions share: place, network, readers and writers."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...framework.base.backend import CPUPlace, GPUPlace, Place, gpu_present
from ...framework.base.communicator import Communicator
from ...framework.base.errors import FormatError, OpscopeError, OutsideError
from ..base.text import is_located, located
from ..base.write import write_text
from ..config.device import device_of
from ..config.parameters import ConfigParameters
from ..config.value import ConfigValue
from ..models.dump import dump
from ..models.open_model import open_model
from ..network.network import Network
from ..readers.base.reader import DataReader
from ..readers.catalog import create_reader
from ..run.build import Seeds, build_section_network, builder_of
from ..run.runtime import CntkNet
from ..sgd.job import JobProgress
from ..sgd.report import Say, to_stderr

_LONGEST_PATH = 4096
_QUIET = ("SimpleNetworkBuilder", "NDLNetworkBuilder")  # builders that do not log validation


@dataclass
class Run:
    """A run of commands.

    Attributes:
        seeds: numbers of the random parameters of all its networks.
        say: takes the lines of the log.
        progress: reports how far the run is; None: no reports.
        communicator: the ranks that run the same commands; None: this one alone.
    """

    seeds: Seeds = field(default_factory=Seeds)
    say: Say = to_stderr
    progress: JobProgress | None = None
    communicator: Communicator | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes files."""
        return self.communicator is None or self.communicator.rank == 0


def place_of(section: ConfigParameters, say: Say = to_stderr) -> Place:
    """Where `deviceId` says to run: -1 or "cpu", a GPU's number, "gpu" for the first one, "auto"
    for a GPU if there is one; where there is none, `say` gets a line that says so.

    Raises:
        FormatError: it says something else. DeviceError: there is no such GPU.
    """
    text = device_of(section)
    if text == "cpu":
        return CPUPlace()
    if text == "auto" and not gpu_present():
        if "deviceId" in section:
            say("deviceId = auto: there is no GPU, so this runs on the CPU\n")
        return CPUPlace()
    place = GPUPlace(int(text) if text.isdecimal() else 0)
    place.xp  # noqa: B018  raises where there is no GPU
    return place


def precision_of(section: ConfigParameters) -> str:
    """ "float" or "double".

    Raises:
        FormatError: `precision` says something else.
    """
    value = section.string("precision", "float").lower()
    if value not in ("float", "double"):
        raise section["precision"].error(
            f'Invalid precision string: "{value}", must be "float" or "double"'
        )
    return value


@dataclass(frozen=True)
class BuildOptions:
    """What is done with a network besides its building.

    Attributes:
        precision: "float" or "double".
        constant_seed: whether all random parameters get the same numbers.
        dump: the file to describe it in; "" for none.
    """

    precision: str
    constant_seed: bool
    dump: str

    @classmethod
    def of(cls, section: ConfigParameters) -> BuildOptions:
        """The settings of a section.

        Raises:
            FormatError: a value is wrong.
        """
        dump = ""
        builder = builder_of(section)
        if builder == "NDLNetworkBuilder":
            dump = section.section(builder).string("dumpFileName", "")
        constant = section.bool("forceConstantRandomSeed", False)
        return cls(precision_of(section), constant, dump)


def build(run: Run, section: ConfigParameters) -> Network:
    """The network of the builder that a section names, validated."""
    options = BuildOptions.of(section)
    built = build_section_network(section, run.seeds, say=run.say)
    for warning in built.warnings:
        run.say(f"WARNING: {warning}\n")
    built.network.precision = options.precision
    if options.constant_seed:
        for node in built.network.nodes.values():
            if node.is_parameter:
                node.attributes["randomSeed"] = 1
    if options.dump:
        write_text(options.dump, dump(built.network, None, False, True))
    if built.builder not in _QUIET:
        _log_network(run, section, built.network)
    return built.network


def load(section: ConfigParameters, path: str | Path) -> Network:
    """The network of a model file, validated."""
    precision = precision_of(section)
    network = open_model(path, precision).network
    network.precision = precision
    return network


def _log_network(run: Run, section: ConfigParameters, network: Network) -> None:
    """Log how a network is validated."""
    if section.int("traceLevel", 0) > 0:
        run.say("\nPost-processing network...\n")
        network.validate(lambda line: run.say(f"{line}\n"))
        run.say("\nPost-processing network complete.\n\n")


def build_or_load(run: Run, section: ConfigParameters, outputs: Sequence[str] = ()) -> Network:
    """The network that a builder describes, or else of `modelPath`; the nodes called `outputs`
    are its output nodes, if there are any."""
    if builder_of(section) is not None:
        network = build(run, section)
        _set_outputs(run, network, outputs)
        return network
    value = section["modelPath"]
    try:
        network = load(section, str(value))
    except FormatError as error:
        if is_located(error):
            raise
        raise value.error(str(error)) from None
    _set_outputs(run, network, outputs)
    _log_network(run, section, network)
    return network


def _set_outputs(run: Run, network: Network, names: Sequence[str]) -> None:
    if not names:
        return
    nodes = []
    for name in names:
        if name in network:
            nodes.append(network.find(name))
        else:
            run.say(f"PatchOutputNodes: No node named '{name}'; skipping\n")
    network.groups["output"] = list(dict.fromkeys(nodes))
    network.validate()


def net_of(section: ConfigParameters, network: Network, run: Run | None = None) -> CntkNet:
    """A network that runs on the device of a section; `run` logs what that falls back to."""
    return CntkNet(network, place_of(section, (run or Run()).say))


def reader_of(section: ConfigParameters, name: str = "reader", *, in_order: str = "") -> DataReader:
    """The reader of a section.

    Args:
        in_order: "always": sequences come in the order of the file; "default": unless the section
            says how to randomize.
    """
    return create_reader(reader_section(section, name, in_order=in_order))


def reader_section(
    section: ConfigParameters, name: str = "reader", *, in_order: str = ""
) -> ConfigParameters:
    """The section of a reader, with what the action says for it; see `reader_of`."""
    part = section.section(name)
    if not part.has("traceLevel"):
        part.insert("traceLevel", section.string("traceLevel", "0"))
    if in_order == "always" or (in_order == "default" and not part.has("randomize")):
        part.insert("randomize", "none")
    return part


def refuse_overwriting(
    section: ConfigParameters, paths: Iterable[str | Path], own: Collection[str] = ()
) -> None:
    """Refuse to write files that a section names: they are read, meanwhile or later.

    Args:
        own: names of the writer's own parameters, in lower case.

    Raises:
        FormatError: a path is one of them, however it is written.
    """
    targets = [Path(path) for path in paths]
    targets = [path for path in targets if os.path.isfile(path)]
    if not targets:
        return
    for name, value in _values(section):
        if name.lower() in own:
            continue
        read = Path(str(value))
        for path in targets:
            if os.path.isfile(read) and read.samefile(path):
                raise value.error(f"{path} would be overwritten while {name!r} is read from it")


def _values(section: ConfigParameters) -> Iterator[tuple[str, ConfigValue]]:
    """The values of a section and of those in it; values that cannot be read are left out."""
    for name in section:
        if not section.has_value(name) or name.lower().endswith("networkbuilder"):
            continue
        raw = section.raw(name).string
        with suppress(OpscopeError):
            if section.is_section(name):
                yield from _values(section.peek(name))
            elif 0 < len(raw) < _LONGEST_PATH and "\n" not in raw:
                yield name, section.value(name)


def minibatch_size(section: ConfigParameters, default: int) -> int:
    """Samples of a minibatch, for actions that are not divided into epochs.

    Raises:
        FormatError: it is no number, or below 1.
    """
    size = section.array("minibatchSize", str(default)).ints()[0]
    if size < 1:
        raise section["minibatchSize"].error("a minibatch has at least one sample")
    return size


def whole(size: int) -> int | None:
    """The epoch size that a config means: 0 = all the data."""
    return size or None


@contextmanager
def naming_values(config: ConfigParameters) -> Iterator[None]:
    """A block in which an error about a file that may not be opened shows where it is named."""
    try:
        yield
    except OutsideError as error:
        if is_located(error) or not error.path:
            raise
        text = config.text
        name = os.path.basename(error.path)
        # What is made of a name, such as the model of an epoch, has an ending of its own.
        written = (error.path, os.path.splitext(error.path)[0], name)
        place = next((at for part in written if (at := text.string.find(part)) >= 0), None)
        if place is None:
            raise
        raise located(OutsideError, str(error), text.locate(place)) from None
