"""What the edits of a config would do to models: their differences, while nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, chdir
from copy import deepcopy
from pathlib import Path

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import real_path
from ...framework.editing.difference import Difference, difference
from ..config.commands import commands
from ..config.files import parse_command_line
from ..config.parameters import ConfigParameters
from ..mel.edit import edit_section
from ..models.open_model import open_model
from ..network.dialect import parameter_arrays, to_desc
from ..network.initialize import initialize
from ..network.network import Network
from ..run.build import builder_of
from .command_line import is_redesigned
from .common import Run, build
from .settings import TopOptions


def edits_of(arguments: Sequence[str]) -> list[tuple[str, Difference]]:
    """The models that the edits of a config would write, each with what differs from the model that
    it was made of, or from nothing.

    Args:
        arguments: words of CNTK's command line.

    Raises:
        FormatError: a command does something else than to edit; the config is wrong.
        OpscopeError: an edit fails, or a network does not fit together.
    """
    if is_redesigned(arguments):
        raise FormatError("a dry run is for configs with commands, not for the redesigned language")
    config = parse_command_line(arguments)
    listed = commands(config)
    for command in listed:
        others = [action for action in command.actions if action != "edit"]
        if others:
            raise FormatError(
                f"{command.name}: the action {others[0]!r} is no edit, and a dry run is for edits"
                " alone; command=NAME on the command line says which commands run"
            )
    files = _Files()
    with ExitStack() as stack:
        folder = TopOptions.of(config).folder
        if folder:
            config.folders = [one.absolute() for one in config.folders]
            stack.enter_context(chdir(folder))
        run = Run(say=lambda text: None)
        for command in listed:
            files.edit(run, command.parameters)
    return files.written


class _Files:
    """Models in memory in place of those that are written.

    Attributes:
        written: what was, with its difference.
    """

    def __init__(self) -> None:
        self.written: list[tuple[str, Difference]] = []
        self._models: dict[str, Network] = {}
        self._before: dict[int, tuple[Network, Network]] = {}

    def edit(self, run: Run, section: ConfigParameters) -> None:
        """Do what the action does, without files."""
        if "BrainScriptNetworkBuilder" not in section:
            edit_section(section, run.seeds.ndl, self._read, self._write, lambda path, text: None)
            return
        assert builder_of(section) is not None
        network = build(run, section)
        initialize(network)
        self._write(network, Path(section.string("outputModelPath")))

    def _read(self, path: Path) -> Network:
        kept = self._models.get(real_path(path))
        network = deepcopy(kept) if kept else open_model(path, validate=False).network
        before = deepcopy(network)
        before.validate()
        self._before[id(network)] = network, before
        return network

    def _write(self, network: Network, path: Path) -> None:
        before = self._before.get(id(network), (network, Network()))[1]
        if not before.nodes:
            before.precision = network.precision
        sides = [(to_desc(one), parameter_arrays(one)) for one in (before, network)]
        self.written.append((str(path), difference(*sides[0], *sides[1])))
        self._models[real_path(path)] = deepcopy(network)
