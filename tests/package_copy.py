"""A copy of the package and of the modules that tests share, for pages that add files to it."""

from __future__ import annotations

import shutil
from pathlib import Path

from house import FLOORS

ROOT = Path(__file__).resolve().parents[1]


def copy_package(home: Path) -> Path:
    """Copy the package below `home`, to import `opscope` from there; returns the copy.

    Compiled modules come along: they stay valid, and save their time.
    """
    copy = home / "opscope"
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, copy / floor)
    for name in ("__init__.py", "__init__.pyi", "__main__.py", "metrics.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    for path in (ROOT / "tests").rglob("*.py"):
        if not path.name.startswith("test_"):
            target = copy / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    return copy
