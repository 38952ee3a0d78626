"""Checks of scripts: NDL, MEL and BrainScript, in files of their own or inside a config."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ....framework.base.errors import FormatError, OpscopeError
from ....framework.base.untrusted.values import stem_of
from ...base.text import Text
from ...brainscript.build import (
    build_network,
    build_section,
    file_finder,
    network_expression,
    source_of,
)
from ...brainscript.language.parser import parse_members
from ...config.files import parse_command_line, read_config_text, read_source
from ...config.parameters import ConfigParameters
from ...config.variables import resolve
from ...mel.commands import checked
from ...mel.parse import parse_mel_file
from ...mel.syntax import Command, MelStatement
from ...ndl.builder import load_macro_files, parse_ndl_file
from ...ndl.evaluate import Evaluator
from ...ndl.parse import parse_ndl
from ...ndl.syntax import Script
from ...network.network import Network
from .report import WARNING, Report

_BUILDERS = {"brainscriptnetworkbuilder", "experimentalnetworkbuilder"}
_NODE_GROUPS = {
    f"{name}nodes" for name in ("feature", "label", "criterion", "evaluation", "output")
}
"""Members of a file that describes a network, in lower case."""
_SCRIPT_NAMES = re.compile(r"\b(?:run|load)[ \t]*=[ \t]*\"?([\w:]+)", re.IGNORECASE)


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
        value = config.raw(name)
        lower = name.lower()
        with report.collected():
            if lower in _BUILDERS:
                text = resolve(value, config, unknown=True)
                network_expression(source_of(text), config.search_folders())
            elif not value.string.startswith(("[", "{")):
                continue
            elif lower in scripts:
                _keep_all(lambda errors, text=value: parse_ndl(text, errors=errors), report)
            else:
                inner = ConfigParameters(value, f"{config.path}:{name}", config)
                parse_sections(inner, report, scripts)


def _keep_all(parse: Callable[[list[Any]], object], report: Report) -> None:
    """Run a parser or an evaluation that goes on after errors, and add them all."""
    errors: list[OpscopeError] = []
    try:
        parse(errors)
    finally:
        for error in errors:
            report.add_error(error)


def check_ndl(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    """Check a file of NDL: the text and, unless `parse_only`, its network."""
    config = parse_command_line(list(extra))
    text = read_config_text(path)
    scripts: list[Script] = []
    _keep_all(lambda errors: scripts.extend(parse_ndl_file(text, path.name, errors)), report)
    if parse_only or report.recorded:
        return
    scripts = parse_ndl_file(resolve(text, config), path.name)
    evaluator = Evaluator(Network(stem_of(path)))
    if "ndlMacros" in config:
        load_macro_files(config["ndlMacros"], config, evaluator.macros)
    whole = Script(tuple(statement for script in scripts for statement in script))

    def evaluate(errors: list[Any]) -> None:
        evaluator.errors = errors
        evaluator.run(whole)
        evaluator.connect()

    _keep_all(evaluate, report)
    for warning in evaluator.warnings:
        report.add(WARNING, warning)
    if whole.assignments and not evaluator.errors:
        with evaluator.explained():
            evaluator.network.validate()
        report.networks[stem_of(path)] = evaluator.network


def check_mel(path: Path, parse_only: bool, extra: Sequence[str], report: Report) -> None:
    """Check a file of MEL: the text and, unless `parse_only`, its commands, without models."""
    text = read_config_text(path)
    if parse_only:
        _statements(text, path.name, report)
    else:
        check_commands(text, path.name, report)


def check_commands(text: Text, name: str, report: Report) -> None:
    """Check the names, parameters and options of all commands of a MEL script."""
    for statement in _statements(text, name, report):
        if report.is_full:
            break
        if isinstance(statement, Command):
            with report.collected():
                checked(statement)


def _statements(text: Text, name: str, report: Report) -> list[MelStatement]:
    statements: list[MelStatement] = []
    _keep_all(lambda errors: statements.extend(parse_mel_file(text, name, errors)[1]), report)
    return statements


def check_brainscript(path: Path, report: Report, parse_only: bool = False) -> None:
    """Check a file of BrainScript that is no experiment: the text and, where it describes a network
    and not only functions for others, that.

    Such a file stands in a config as `BrainScriptNetworkBuilder = { include "FILE" }`, or has these
    words itself.
    """
    record = parse_members(read_source(path), file_finder([path.parent]))
    names = {member.name.lower() for member in record.members}
    if parse_only:
        return
    if names & _BUILDERS:
        config = parse_command_line([f"configFile={path}"])
        network = build_section(config, say=_nothing)
    elif names & _NODE_GROUPS:
        if '"' in path.name:
            raise FormatError(f"{path}: no network can be built of a file with quotes in its name")
        text = f'{{ include "{path.name}" }}'
        network = build_network(text, path.name, folders=[path.parent], say=_nothing)
    else:
        return
    network.validate()
    report.networks[stem_of(path)] = network


def _nothing(line: str) -> None:
    """Takes the lines of Print."""
