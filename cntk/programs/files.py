"""`opscope show` and `opscope verify` for CNTK's models, checkpoints and scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import open_file
from ...framework.base.untrusted.roots import in_folder_of
from ...framework.ir.op_list import OpList
from ...framework.ir.printer import net_text
from ..brainscript.language.formatter import format_text as format_brainscript
from ..config.commands import commands
from ..config.files import parse_command_line, read_source
from ..config.formatter import format_text
from ..models.checkpoint import read_checkpoint
from ..models.open_model import format_of, open_model
from ..network.dialect import from_desc, to_desc
from ..network.network import Network
from ..run.build import Seeds, build_section_network, builder_of
from .check import ERROR, check_file

_BUILDING = {"train", "trainRNN", "adapt", "edit"}
_SNIFFED = 1 << 20
_SCRIPTS = (".cntk", ".ndl", ".mel", ".bs")


def kind_of_file(path: str) -> str:
    """ "model", "v2 model", "checkpoint" or "script" (by its name); empty for anything else."""
    if path.lower().endswith(_SCRIPTS) and os.path.isfile(path):
        return "script"
    try:
        with open_file(path) as file:
            return format_of(file.read(_SNIFFED)) or ""
    except (OSError, FormatError):
        return ""


def networks_of(path: str, extra: Sequence[str] = ()) -> dict[str, Network]:
    """The networks of a model file, or of a script by section.

    `extra` holds further `name=value` of a config's command line.

    Raises:
        FormatError: with the first of its errors.
    """
    if kind_of_file(path) in ("model", "v2 model"):
        return {os.path.basename(path): open_model(path).network}
    if not path.lower().endswith(_SCRIPTS[1:]):
        return _networks_of_config(path, extra)
    report = check_file(path, extra=extra)
    for severity, text in report.problems:
        if severity == ERROR:
            raise FormatError(text)
    return report.networks


def _networks_of_config(path: str, extra: Sequence[str]) -> dict[str, Network]:
    """What the builders of a config describe, whatever else is in its sections."""
    config = parse_command_line([f"configFile={path}", *extra])
    listed = commands(config) if "command" in config else []
    seeds = Seeds()
    networks = {}
    for command in listed:
        section = command.parameters
        if builder_of(section) is not None and _BUILDING & set(command.actions):
            built = build_section_network(section, seeds, say=lambda line: None)
            networks[command.name] = built.network
    return networks


def listing(path: str, kind: str) -> Iterator[str]:
    """The lines that `opscope show` prints for a checkpoint or a script."""
    yield from _script_lines(path) if kind == "script" else _checkpoint_lines(path)


def _script_lines(path: str) -> Iterator[str]:
    """The networks of a config or an NDL file; where there is none, its text, formatted."""
    networks = networks_of(path)
    for number, (name, network) in enumerate(networks.items()):
        if number:
            yield ""
        if len(networks) > 1:
            yield f"{name}:"
        yield net_text(to_desc(network)).rstrip("\n")
    if not networks:
        yield formatted(path).rstrip("\n")


def formatted(path: str) -> str:
    """The text of a script in the layout of its language.

    Raises:
        FormatError: it cannot be read, or its brackets do not match.
    """
    text = read_source(path).text
    return (
        format_brainscript(text, path) if path.lower().endswith(".bs") else format_text(text, path)
    )


def _checkpoint_lines(path: str) -> Iterator[str]:
    state = read_checkpoint(path)
    yield f"checkpoint after {state.samples} samples"
    yield f"learning rate per sample {state.rate:.9g}, criterion {state.criterion:.9g}"
    if state.minibatch is not None:
        yield f"minibatch size {state.minibatch}"
    for number, gradient in enumerate(state.gradients):
        count = f", count {state.counts[number]:.9g}" if state.counts else ""
        yield f"smoothed gradient {number}: {gradient.shape[0]} x {gradient.shape[1]}{count}"


def check(path: str, kind: str) -> str:
    """A line that describes a file.

    Raises:
        FormatError: it is damaged.
        ShapeError: the network in it does not fit together.
    """
    if kind == "checkpoint":
        state = read_checkpoint(path)
        return f"{path}: CNTK checkpoint with {len(state.gradients)} gradients, no error"
    network, what = open_model(path)
    return f"{path}: {what}: {len(network)} nodes, {network.parameter_count()} parameters, no error"


def check_dialect(path: str, desc: OpList) -> str:
    """Lines that describe a net in the cntk dialect, of the file `path`.

    Raises:
        FormatError: it is damaged.
        OutsideError: it names a file of initial values outside of its folder.
        ShapeError: the network does not fit together.
    """
    network = from_desc(desc)
    with in_folder_of(path):
        network.validate()
    return f"{len(network)} nodes, {network.parameter_count()} parameters"
