"""Mistakes of CNTK's users: each gets one error of the package, and none ends the interpreter."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mistakes.cntk import DEEP, PLAIN, redesigned
from mistakes.test_newcomer import holds
from opscope.cntk.actions.common import place_of
from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.build import build_network, build_section, evaluate_text, file_finder
from opscope.cntk.brainscript.experiment import read_experiment
from opscope.cntk.brainscript.language.parser import parse_expression, parse_members
from opscope.cntk.brainscript.language.printer import print_expression
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


@pytest.mark.parametrize(("code", "words"), PLAIN, ids=[code[:60] for code, _ in PLAIN])
def test_plain(code: str, words: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    message = outcome(code)
    assert not holds(message, words), message
    assert len(message) < 700, message


@pytest.mark.parametrize(("code", "words"), DEEP, ids=[code[:60] for code, _ in DEEP])
def test_deep(code: str, words: str, tmp_path: Path) -> None:
    tests = Path(__file__).parent.parent
    script = (
        f"import sys; sys.path.append({str(tests)!r})\n"
        "from mistakes.test_cntk import outcome\n"
        f"message = outcome({code!r})\n"
        "sys.exit(' '.join(message.split()))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, (done.returncode, done.stderr[-500:])
    assert done.stderr.count("\n") == 1, done.stderr[-500:]
    assert not holds(done.stderr, words), done.stderr


def test_a_deep_tree_is_printed_and_shown() -> None:
    text = "[" + "a=[" * 300 + "]" * 300 + "]"
    tree = parse_expression(Source("deep.bs", text))
    assert print_expression(tree).count("[") == 301
    assert len(repr(tree)) < 1000 and "..." in repr(tree)


def test_there_are_enough_of_them() -> None:
    assert len(PLAIN) + len(DEEP) >= 40
    assert len({code for code, _ in PLAIN + DEEP}) == len(PLAIN) + len(DEEP)
