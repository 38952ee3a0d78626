"""NDL, CNTK's network description language: parser, printer, and evaluation into a network.

Gives networks to `mel`, `run` and programs. May import base, config and network.
"""

from .builder import NdlNetwork, build_ndl_file, build_ndl_section
from .evaluate import Evaluator
from .macros import Macros
from .parse import parse_ndl
from .syntax import format_script

__all__ = [
    "Evaluator",
    "Macros",
    "NdlNetwork",
    "build_ndl_file",
    "build_ndl_section",
    "format_script",
    "parse_ndl",
]
