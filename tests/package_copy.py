"""Pages that add files to the package, followed word by word in a copy of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Block(NamedTuple):
    """A code block of a page.

    Attributes:
        path: the file that the block is the whole of; "" for others.
        language: of the block.
        text: of the block.
    """

    path: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, in order."""
    pattern = r"(?:This is the whole of `([^`]+)`:\n\n)?^```(\w*)\n(.*?)^```$"
    found = re.findall(pattern, page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [Block(*parts) for parts in found]


def copy_package(home: Path, *floors: str) -> Path:
    """Copies floors of the package below `home`, to import `opscope` from there, with the modules
    that tests share. Returns `home`."""
    leave = shutil.ignore_patterns("__pycache__")
    for floor in floors:
        shutil.copytree(ROOT / floor, home / "opscope" / floor, ignore=leave)
    for name in ("__init__.py", "pyproject.toml"):
        shutil.copy(ROOT / name, home / "opscope")
    for floor in floors:
        (home / "opscope/tests" / floor).mkdir(parents=True)
    for path in (ROOT / "tests").glob("*.py"):
        if not path.name.startswith("test_"):
            shutil.copy(path, home / "opscope/tests")
    return home


def add_files(home: Path, page: Path) -> list[str]:
    """Writes the files of a page into a copy; returns their paths."""
    files = [block for block in blocks(page) if block.path]
    for path, _, text in files:
        assert not (ROOT / path).exists(), "the page adds files, it changes none"
        (home / "opscope" / path).write_text(text)
    return [block.path for block in files]


def run(home: Path, *arguments: str) -> str:
    """What a Python process prints that imports `opscope` from `home`."""
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=home / "opscope",
        env=os.environ | {"PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_tests(home: Path, path: str) -> None:
    """Runs a test file of the copy; all tests pass."""
    printed = run(home, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", path)
    assert re.search(r"\d+ passed", printed) and "failed" not in printed
