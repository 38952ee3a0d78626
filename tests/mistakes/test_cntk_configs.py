"""Broken configs: `check` tells each mistake once, at its place; whole ones have none."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mistakes.cntk import redesigned
from mistakes.cntk_configs import BROKEN, CONFIGS, FILES
from mistakes.test_newcomer import holds
from opscope.cntk.programs.check import check_file

HEADER = struct.pack(">iihh", 1, 100000, 8, 9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "redesigned.bs").write_text(redesigned())
    (tmp_path / "a.htk").write_bytes(HEADER + struct.pack(">ff", 1, 2))
    (tmp_path / "a.scp").write_text("a=a.htk[0,0]\n")
    (tmp_path / "a.mlf").write_text('#!MLF!#\n"a.lab"\n0 100000 s 0\n.\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("config", CONFIGS)
def test_whole_configs_have_no_problem_and_nothing_is_written(config: str, folder: Path) -> None:
    before = contents(folder)
    report = check_file(config)
    assert report.problems == []
    assert report.networks
    assert contents(folder) == before


def config_of(name: str) -> str:
    return "ndl.cntk" if name in ("net.ndl", "edit.mel") else name


IDS = [f"{name}: {new[:50]}" for name, _, new, _, _ in BROKEN]


@pytest.mark.parametrize(("name", "old", "new", "severity", "words"), BROKEN, ids=IDS)
def test_broken(name: str, old: str, new: str, severity: str, words: str, folder: Path) -> None:
    text = (folder / name).read_text()
    assert old in text, "the table does not fit the file"
    (folder / name).write_text(text.replace(old, new, 1))
    before = contents(folder)
    problems = check_file(config_of(name)).problems
    shown = "\n".join(f"{kind}: {text}" for kind, text in problems)
    found = [(kind, text) for kind, text in problems if not holds(text, words)]
    assert found, shown
    assert found[0][0] == severity, shown
    errors = [text for kind, text in problems if kind == "error"]
    assert len(errors) <= (4 if "modelPath" in old else 1), shown  # 4 commands want one
    assert all(len(line) <= 500 for _, text in problems for line in text.split("\n"))
    assert contents(folder) == before


def test_there_are_enough_of_them() -> None:
    for config in (*CONFIGS, "net.ndl", "edit.mel"):
        assert sum(name == config for name, *_ in BROKEN) >= 2, config
    assert len(BROKEN) >= 60
