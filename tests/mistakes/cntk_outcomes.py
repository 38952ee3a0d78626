"""What comes of a mistake of CNTK's users, in this process or in one of its own."""

from __future__ import annotations

import os
import struct
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from mistakes.cntk import redesigned
from opscope.cntk.actions.common import place_of
from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.build import build_network, build_section, evaluate_text, file_finder
from opscope.cntk.brainscript.experiment import read_experiment
from opscope.cntk.brainscript.language.parser import parse_members
from opscope.cntk.config.files import (
    load_config,
    parse_command_line,
    parse_config,
    read_source,
)
from opscope.cntk.mel.parse import parse_mel
from opscope.cntk.models.checkpoint import read_checkpoint
from opscope.cntk.models.open_model import open_model
from opscope.cntk.models.stream import BinaryReader
from opscope.cntk.models.v1 import read_model
from opscope.cntk.ndl.parse import parse_ndl
from opscope.cntk.network.nodes.initial_values import read_matrix
from opscope.cntk.readers.base.htk_files import HtkFile
from opscope.cntk.readers.base.steady_file import SteadyFile
from opscope.cntk.readers.base.words import read_lines
from opscope.framework.base.errors import OpscopeError


def experiment(text: str, overrides: dict[str, str] | None = None) -> object:
    return read_experiment(Source("train.bs", text), overrides)


def matrix(kind: bytes, first: int, second: int) -> object:
    """Read a matrix whose header claims these sizes, with nothing behind it."""

    def wide(text: str) -> bytes:
        return text.encode("utf-16-le") + b"\0\0"

    data = kind + wide("BMAT") + struct.pack("<Q", 4) + wide("x")
    filled = struct.pack("<Q", 0) if kind == b"s" else b""
    data += struct.pack("<i", 5) + filled + struct.pack("<QQ", first, second) + wide("EMAT")
    return BinaryReader(data).matrix()


def included(suffix: str, text: str) -> object:
    """Read the first of 2,000 files, each of which includes the next."""
    for number in range(2000):
        Path(f"{number}.{suffix}").write_text(text.format(f"{number + 1}.{suffix}"))
    Path(f"2000.{suffix}").write_text("b = 1\n")
    if suffix == "bs":
        return parse_members(read_source("0.bs"), file_finder([Path()]))
    return load_config("0.cntk")


NAMES: dict[str, Any] = {
    "BinaryReader": BinaryReader,
    "HtkFile": HtkFile,
    "SteadyFile": SteadyFile,
    "build_section": build_section,
    "config": parse_config,
    "experiment": experiment,
    "included": included,
    "load_config": load_config,
    "matrix": matrix,
    "network": build_network,
    "np": np,
    "open_model": open_model,
    "parse_command_line": parse_command_line,
    "parse_mel": parse_mel,
    "parse_ndl": parse_ndl,
    "place_of": place_of,
    "read_checkpoint": read_checkpoint,
    "read_lines": read_lines,
    "read_matrix": read_matrix,
    "read_model": read_model,
    "redesigned": redesigned,
    "value": evaluate_text,
}


def outcome(code: str) -> str:
    """The message of the error that code ends with."""
    try:
        exec(compile(code, "mistake.py", "exec"), dict(NAMES))
    except OpscopeError as error:
        return str(error)
    raise AssertionError("nothing was wrong")


def tell(code: str, there: Connection) -> None:
    """Send the message that code ends with; all else that this process says goes into a file."""
    os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT), 2)
    there.send(outcome(code))
