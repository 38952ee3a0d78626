"""Advice on length: files and folders in which more than one idea may have gathered.

A file is cut where a thought ends, not where a ruler says: nothing fails by this.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .process import ROOT

MOST_LINES = 500
MOST_MODULES = 15
_LEFT_OUT = {"build", "dist", "docs"}


def advice(root: Path = ROOT) -> Iterator[str]:
    """A line for each file that is longer, each folder that holds more modules, than advised."""
    folders: dict[Path, int] = {}
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] in _LEFT_OUT or place.parts[0].startswith("."):
            continue
        if path.stem.endswith("_pb2") or path.name == "__init__.py":
            continue
        folders[place.parent] = folders.get(place.parent, 0) + 1
        lines = len(path.read_bytes().splitlines())
        if lines > MOST_LINES:
            yield f"{place} has {lines} lines: does it hold one idea?"
    for folder, count in folders.items():
        if count > MOST_MODULES and folder.parts and folder.parts[0] != "tests":
            yield f"{folder} holds {count} modules: would rooms help?"
