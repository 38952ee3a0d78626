"""The commands of a config and their actions, in the order in which CNTK runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...framework.base.errors import FormatError, nearest
from ...framework.base.options.plugins import Plugins
from .parameters import ConfigParameters
from .value import ConfigValue

ACTIONS = (
    "train",
    "trainRNN",
    "bnstat",
    "adapt",
    "test",
    "eval",
    "edit",
    "cv",
    "write",
    "devtest",
    "dumpNodes",
    "dumpNode",
    "dumpnode",
    "convertdbn",
    "exportdbn",
    "createLabelMap",
    "writeWordAndClass",
    "plot",
    "topo",
    "SVD",
)

ABSENT = {
    "devtest": "it runs tests of CNTK's own on data that lay on its makers' machines",
}
"""Actions of CNTK that are left out, and why."""

PLUGINS: Plugins[Callable[..., object]] = Plugins("action", "opscope.actions", ACTIONS)
"""All actions; a further one is a function that takes a run and the section of the command."""


@dataclass(frozen=True)
class Command:
    """A section that `command` names, with its actions.

    Attributes:
        name: of the section.
        actions: of the command, in order; "train" where it names none.
        parameters: the section.
    """

    name: str
    actions: tuple[str, ...]
    parameters: ConfigParameters


def commands(config: ConfigParameters) -> list[Command]:
    """The commands of a config in the order they run.

    `command = Train:Test` names sections; without it there is one, `train`.

    Raises:
        FormatError: a section is missing, or an action is unknown.
    """
    return [command_of(config, name) for name in config.array("command", "train")]


def command_of(config: ConfigParameters, name: ConfigValue) -> Command:
    """One command of a config.

    Raises:
        FormatError: the section is missing, or an action is unknown.
    """
    section = _section(config, name)
    actions = []
    known = PLUGINS.names()
    for action in section.array("action", "train"):
        if str(action) not in known:
            raise action.error(
                f"unknown action: {action}  in command set: {name}{nearest(str(action), known)}"
            )
        actions.append(str(action))
    return Command(str(name), tuple(actions), section)


def _section(config: ConfigParameters, name: ConfigValue) -> ConfigParameters:
    if str(name) not in config:
        sections = [known for known in config if config.is_section(known)]
        raise name.error(
            f"configparameters: required parameter missing: {config.path}:{name}"
            f"{nearest(str(name), sections)}, named",
            error_class=FormatError,
        )
    return config.section(str(name))


def banner(command: str, action: str) -> str:
    """The lines that CNTK logs in front of an action."""
    width = 78
    title = f"{command} command ({action} action)"
    bar = "#" * width
    empty = f"#{' ' * (width - 2)}#"
    return f"\n{bar}\n{empty}\n# {title.ljust(width - 4)} #\n{empty}\n{bar}\n\n"
