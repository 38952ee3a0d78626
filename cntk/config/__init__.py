"""CNTK's old config language: sections, arrays, variables, includes, command lines, commands.

Gives `ConfigParameters` and `ConfigValue` to every later room. May import base.
"""

from .commands import ACTIONS, Command, commands
from .files import load_array, load_config, load_into, parse_command_line, parse_config
from .parameters import ConfigParameters
from .printer import format_config
from .value import ArgVector, ConfigArray, ConfigValue, param_list

__all__ = [
    "ACTIONS",
    "ArgVector",
    "Command",
    "ConfigArray",
    "ConfigParameters",
    "ConfigValue",
    "commands",
    "format_config",
    "load_array",
    "load_config",
    "load_into",
    "param_list",
    "parse_command_line",
    "parse_config",
]
