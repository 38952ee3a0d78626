"""What is installed, read without `importlib.metadata`, and the operators that come first."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope
from opscope.framework.base.machine import installed

GROUP = "opscope.operators"
KERNELS = """
import json
from opscope.framework.ir import registry
registry.lookup("relu")
assert registry._load_state == "no", "all operators are loaded for one"
def told():
    return {name: [(k.library, k.device) for k in entry.kernels]
            for name, entry in registry.REGISTERED.items()}
before = told()
registry.load_operators()
after = told()
print(json.dumps([name for name in before if before[name] != after[name]]))
print(len(before), len(after))
"""
SEEN = """
from opscope.framework.ir import registry
registry.lookup("relu")
print("other.operator" in registry.REGISTERED)
"""
PLUGIN = """
from opscope.framework.ir.registry import Slot, operator
operator("other.operator", doc="nothing", inputs=[Slot("x", "any")], outputs=[Slot("out", "x")],
         no_gradient="none")
"""


def run(code: str, *folders: Path) -> str:
    root = Path(opscope.__file__).resolve().parent.parent
    path = os.pathsep.join(map(str, (root, *folders)))
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout


def package(folder: Path, name: str, entry_points: str = "", files: str | None = None) -> None:
    record = folder / f"{name}-1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if entry_points:
        (record / "entry_points.txt").write_text(entry_points)
    if files is not None:
        (record / "RECORD").write_text(files)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where packages are looked for."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [installed.PathFinder])
    return tmp_path


def test_common_operators_have_all_their_kernels() -> None:
    changed, counts = run(KERNELS).splitlines()
    assert json.loads(changed) == []
    common, everything = map(int, counts.split())
    assert 100 < common < everything


def test_operators_of_another_package_are_there_from_the_start(tmp_path: Path) -> None:
    assert run(SEEN).strip() == "False"
    package(tmp_path, "other", f"[{GROUP}]\nother = other_operators\n")
    (tmp_path / "other_operators.py").write_text(PLUGIN)
    assert run(SEEN, tmp_path).strip() == "True"


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("", False),
        ("[console_scripts]\na = b:c\n", False),
        (f"[{GROUP}]\nnnet3 = opscope.nnet3.operators\n", False),
        (f"[{GROUP}]\na = opscope.b\nc = opscopes.d\n", True),
        (f"[x]\na = b\n\n[{GROUP}]\n\na=b\n[y]\nc = d\n", True),
        (f"[{GROUP}]\n\n[y]\nc = d\n", False),
    ],
)
def test_entry_points_of_others(text: str, there: bool, folder: Path) -> None:
    package(folder, "some", text)
    assert installed.any_elsewhere(GROUP) == there
    theirs = [p for p in importlib.metadata.entry_points(group=GROUP) if p.module[:8] != "opscope."]
    assert bool(theirs) == there


def test_archives_and_finders_may_bring_packages(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not installed.any_elsewhere(GROUP)
    monkeypatch.setattr(sys, "path", [str(folder), str(folder / "absent")])
    assert not installed.any_elsewhere(GROUP)
    archive = folder / "packages.zip"
    archive.write_bytes(b"")
    monkeypatch.setattr(sys, "path", [str(folder), str(archive)])
    assert installed.any_elsewhere(GROUP)

    class Finder:
        def find_distributions(self) -> None:
            """Knows of others."""

    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.setattr(sys, "meta_path", [installed.PathFinder, Finder()])
    assert installed.any_elsewhere(GROUP)


@pytest.mark.parametrize("files", [None, "a/b.so,sha256=0,1\n../lib/c.so,,\n", '"a,b.so",,\n'])
def test_files_of_a_package(files: str | None, folder: Path) -> None:
    assert installed.files("some") is None
    package(folder, "some", files=files)
    installed._records_in.cache_clear()
    wanted = [str(file.locate()) for file in importlib.metadata.files("some") or []]
    assert [os.path.normpath(file) for file in installed.files("some") or []] == [
        os.path.normpath(file) for file in wanted
    ]
