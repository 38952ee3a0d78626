"""Checks of CNTK's files without data: all that is wrong with one, with places and suggestions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ...framework.base.errors import FormatError, OpscopeError
from ..actions.experiment import check_settings
from ..brainscript.build import file_finder, network_expression, source_of
from ..brainscript.experiment import LaterAction, TrainAction, is_redesigned, load_experiment
from ..brainscript.language.parser import parse_members
from ..config.commands import commands
from ..config.files import parse_command_line, read_config_text, read_source
from ..config.known import unknown_parameters
from ..config.parameters import ConfigParameters
from ..config.variables import resolve
from ..mel.commands import checked
from ..mel.parse import parse_mel_file
from ..mel.syntax import Command, MelStatement
from ..models.open_model import format_of, open_model
from ..ndl.builder import load_macro_files, parse_ndl_file
from ..ndl.evaluate import Evaluator
from ..ndl.parse import parse_ndl
from ..ndl.syntax import Script
from ..network.network import Network
from ..run.build import Seeds, build_section_network, builder_of

ERROR, WARNING = "error", "warning"
_SCRIPT_NAMES = re.compile(r"\b(?:run|load)[ \t]*=[ \t]*\"?([\w:]+)", re.IGNORECASE)


@dataclass
class Report:
    """The problems and networks of one file.

    Attributes:
        problems: pairs of `ERROR` or `WARNING` and a text with its place.
        networks: the networks that were built, by the names of their sections.
    """

    problems: list[tuple[str, str]] = field(default_factory=list)
    networks: dict[str, Network] = field(default_factory=dict)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """A context whose errors are added, each once."""
        try:
            yield
        except OpscopeError as error:
            self.add(ERROR, str(error))
            for other in getattr(error, "others", ()):  # of other members, of the rest of a text
                self.add(ERROR, str(other))
            network = getattr(error, "network", None)
            for other in network.problems() if network is not None else ():
                if not str(error).startswith(str(other)):  # the first, perhaps with a longer chain
                    self.add(ERROR, str(other))

    def add(self, severity: str, text: str) -> None:
        if (severity, text) not in self.problems:
            self.problems.append((severity, text))


def check_file(path: str | Path, parse_only: bool = False, extra: Sequence[str] = ()) -> Report:
    """Check a config, an NDL, MEL or BrainScript file, or a model.

    The text is parsed; without `parse_only`, networks are built and validated too, as far as that
    needs no data. `extra` holds further `name=value` of a config's command line.
    """
    report = Report()
    path = Path(path)
    check = _CHECKS.get(path.suffix.lower())
    if check is None:
        check = _check_model if _is_binary(path) else _check_config
    with report.collected():
        check(path, parse_only, extra, report)
    return report


def _is_binary(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return format_of(file.read(1 << 16)) is not None
    except OSError:
        return False


def _check_config(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    config = parse_command_line([f"configFile={path}", f"currentDirectory={path.parent}", *extra])
    parse_sections(config, report)
    for text in unknown_parameters(config):
        report.add(WARNING, text)
    if parse_only or report.problems and any(s == ERROR for s, _ in report.problems):
        return
    listed = []
    with report.collected():
        listed = commands(config) if "command" in config else []
    seeds = Seeds()
    for command in listed:
        section = command.parameters
        trains = {"train", "trainRNN", "adapt"} & set(command.actions)
        if builder_of(section) is None or not (trains or "edit" in command.actions):
            continue
        with report.collected():
            built = build_section_network(section, seeds, say=lambda line: None)
            report.networks[command.name] = built.network
            for text in built.warnings:
                report.add(WARNING, text)


def parse_sections(
    config: ConfigParameters, report: Report, scripts: frozenset[str] | None = None
) -> None:
    """Parse all sections inside a config, and the scripts in it, each by its own parser.

    `scripts` holds the names of the sections with NDL, in lower case; by default what `run` and
    `load` name anywhere in the config.
    """
    if scripts is None:
        named = _SCRIPT_NAMES.findall(config.text.string)
        scripts = frozenset(name.lower() for names in named for name in names.split(":"))
    for name in config:
        if not config.has_value(name):
            continue
        value, lower = config.raw(name), name.lower()
        with report.collected():
            if lower in ("brainscriptnetworkbuilder", "experimentalnetworkbuilder"):
                text = resolve(value, config, unknown=True)
                network_expression(source_of(text), config.search_folders())
            elif not value.string.startswith(("[", "{")):
                continue
            elif lower in scripts:
                _keep_all(lambda errors, text=value: parse_ndl(text, errors=errors), report)
            else:
                inner = ConfigParameters(value, f"{config.path}:{name}", config)
                parse_sections(inner, report, scripts)


def _keep_all(parse: Callable[[list[FormatError]], object], report: Report) -> None:
    """Run a parser that goes on behind errors, and add them all."""
    errors: list[FormatError] = []
    try:
        parse(errors)
    finally:
        for error in errors:
            report.add(ERROR, str(error))


def _check_ndl(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    config = parse_command_line(list(extra))
    text = read_config_text(path)
    scripts: list[Script] = []
    _keep_all(lambda errors: scripts.extend(parse_ndl_file(text, path.name, errors)), report)
    if parse_only or report.problems:
        return
    scripts = parse_ndl_file(resolve(text, config), path.name)
    evaluator = Evaluator(Network(path.stem))
    evaluator.errors = []
    if "ndlMacros" in config:
        load_macro_files(config["ndlMacros"], config, evaluator.macros)
    whole = Script(tuple(statement for script in scripts for statement in script))
    evaluator.run(whole)
    evaluator.connect()
    for error in evaluator.errors:
        report.add(ERROR, str(error))
    for warning in evaluator.warnings:
        report.add(WARNING, warning)
    if whole.assignments and not evaluator.errors:
        with evaluator.explained():
            evaluator.network.validate()
        report.networks[path.stem] = evaluator.network


def _check_mel(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    text = read_config_text(path)
    statements: list[MelStatement] = []
    _keep_all(lambda errors: statements.extend(parse_mel_file(text, path.name, errors)[1]), report)
    for statement in statements:
        if isinstance(statement, Command) and not parse_only:
            with report.collected():
                checked(statement)


def _check_brainscript(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    source = read_source(path)
    if not is_redesigned(source):
        parse_members(source, file_finder([path.parent]))
    elif not parse_only:
        warn = partial(report.add, WARNING)
        for action in load_experiment([f"configFile={path}", *extra], warn).actions:
            if isinstance(action, LaterAction):
                continue  # its model is not there before an action has run
            networks = (
                [action.network]
                if isinstance(action, TrainAction)
                else [network for _, network, _ in action.steps]
            )
            for network in networks:
                with report.collected():
                    network.validate()
                    report.networks[action.name] = network
            if isinstance(action, TrainAction):
                with report.collected():
                    check_settings(action)


def _check_model(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    report.networks[path.stem] = open_model(path, validate=not parse_only).network


_CHECKS = {
    ".ndl": _check_ndl,
    ".mel": _check_mel,
    ".bs": _check_brainscript,
}
