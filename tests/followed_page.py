"""Follows a page on adding something, word by word, in a copy of the package.

A block of a page is the whole of a new file ("This is the whole of `PATH`:"), or lines that go into
an existing file ("These lines go before `TEXT` in `PATH`:"), or a program to run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(
    r"(?:This is the whole of `(?P<new>[^`]+)`:\n\n"
    r"|hese lines go before `(?P<before>[^`]+)` in `(?P<edited>[^`]+)`:\n\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A block: the path of the file that it is or goes into (else ""), and where it goes there."""

    path: str
    before: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    return [
        Block(
            match["new"] or match["edited"] or "",
            match["before"] or "",
            match["language"],
            match["text"],
        )
        for match in _BLOCK.finditer(page.read_text())
    ]


class Copy:
    """A copy of the package and of the modules that tests share, to import `opscope` from."""

    def __init__(self, home: Path, *floors: str) -> None:
        self.home, self.root = home, home / "opscope"
        leave = shutil.ignore_patterns("__pycache__")
        for floor in floors:
            shutil.copytree(ROOT / floor, self.root / floor, ignore=leave)
        for name in ("__init__.py", "__main__.py", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root)
        for path in (ROOT / "tests").rglob("*.py"):
            if not path.name.startswith("test_"):
                copy = self.root / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)

    def follow(self, page: Path) -> tuple[list[str], list[str]]:
        """Write what the page says; the paths of the files that are new, and of those changed."""
        new, changed = [], []
        for block in blocks(page):
            if not block.path:
                continue
            target = self.root / block.path
            if not block.before:
                assert not target.exists(), f"{block.path} is there already"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text)
                new.append(block.path)
                continue
            text = target.read_text()
            assert text.count(block.before) == 1, f"{block.before!r} in {block.path}"
            target.write_text(text.replace(block.before, block.text + block.before))
            changed.append(block.path)
        return new, sorted(set(changed))

    def run(self, *arguments: str) -> str:
        """What a Python process that imports from the copy prints."""
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(self.home)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def test(self, *arguments: str) -> None:
        """Run pytest; at least one test passes and none fails."""
        printed = self.run("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments)
        assert re.search(r"\d+ passed", printed) and "failed" not in printed
