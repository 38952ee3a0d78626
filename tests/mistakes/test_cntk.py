"""Mistakes of CNTK's users: each gets one error of the package, and none ends the interpreter."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from mistakes.cntk import DEEP, PLAIN
from mistakes.cntk_outcomes import outcome, tell
from mistakes.test_newcomer import holds
from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.language.parser import parse_expression
from opscope.cntk.brainscript.language.printer import print_expression


@pytest.mark.parametrize(("code", "words"), PLAIN, ids=[code[:60] for code, _ in PLAIN])
def test_plain(code: str, words: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    message = outcome(code)
    assert not holds(message, words), message
    assert len(message) < 700, message


FORKING = "forkserver" in multiprocessing.get_all_start_methods()
PROCESSES = multiprocessing.get_context("forkserver" if FORKING else "spawn")
if FORKING:
    PROCESSES.set_forkserver_preload(["mistakes.cntk_outcomes"])


@pytest.mark.parametrize(("code", "words"), DEEP, ids=[code[:60] for code, _ in DEEP])
def test_deep(code: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here, there = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=tell, args=(code, there))
    process.start()
    there.close()
    message = here.recv() if here.poll(120) else "no message"
    process.join(120)
    assert (process.exitcode, Path("said").read_text()) == (0, "")
    assert not holds(message, words), message


def test_a_deep_tree_is_printed_and_shown() -> None:
    text = "[" + "a=[" * 300 + "]" * 300 + "]"
    tree = parse_expression(Source("deep.bs", text))
    assert print_expression(tree).count("[") == 301
    assert len(repr(tree)) < 1000 and "..." in repr(tree)


def test_there_are_enough_of_them() -> None:
    assert len(PLAIN) + len(DEEP) >= 40
    assert len({code for code, _ in PLAIN + DEEP}) == len(PLAIN) + len(DEEP)
