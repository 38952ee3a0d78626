"""What is installed, as far as that shows without `importlib.metadata`, which is slow to load.

Installed packages are described in folders beside them, on `sys.path`. Where packages may come from
elsewhere, an archive or another finder, nothing is said here, and callers ask `importlib.metadata`.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.machinery import PathFinder

_RECORDS = (".dist-info", ".egg-info", "EGG-INFO")
_OWN = b"opscope."


def files(package: str) -> list[str] | None:
    """The paths of an installed package's files; None where it is not installed.

    Args:
        package: its name, a single word.
    """
    records = _records()
    if records is not None:
        names = [(os.path.basename(record).lower(), record) for record in records]
        own = [record for name, record in names if name.startswith((f"{package}-", "egg-info"))]
        if not own:
            return None
        listed = _listed(own[0]) if len(own) == 1 else None
        if listed is not None:
            return listed
    import importlib.metadata  # slow to load

    try:
        return [str(file.locate()) for file in importlib.metadata.files(package) or []]
    except importlib.metadata.PackageNotFoundError:
        return None


def _listed(record: str) -> list[str] | None:
    """The files that a record lists; None where it has no list, or one of unusual names."""
    try:
        with open(os.path.join(record, "RECORD"), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    if any([line.startswith('"') for line in lines]):
        return None
    return [os.path.join(os.path.dirname(record), line.partition(",")[0]) for line in lines if line]


def any_elsewhere(group: str) -> bool:
    """Whether a package other than this one may have entry points of a group."""
    records = _records()
    return records is None or any([_has_others(record, group) for record in records])


def _records() -> tuple[str, ...] | None:
    """The folders that describe installed packages; None where these cannot be all."""
    for finder in sys.meta_path:
        if finder is not PathFinder and hasattr(finder, "find_distributions"):
            return None
    return _records_in(tuple(dict.fromkeys(sys.path)), os.getcwd() if "" in sys.path else "")


@lru_cache(maxsize=4)
def _records_in(folders: tuple[str, ...], here: str) -> tuple[str, ...] | None:
    """Those in the given folders; `here` stands for the empty name."""
    records = []
    for folder in folders:
        try:
            names = os.listdir(folder or here)
        except FileNotFoundError:
            continue
        except OSError:
            return None  # an archive, which may hold packages
        records += [os.path.join(folder or here, name) for name in names if name.endswith(_RECORDS)]
    return tuple(records)


def _has_others(record: str, group: str) -> bool:
    try:
        with open(os.path.join(record, "entry_points.txt"), "rb") as file:
            text = file.read()
    except FileNotFoundError:
        return False
    except OSError:  # an old record in one file, or one that is not readable
        return not os.path.isfile(record)
    _, heading, rest = text.partition(f"[{group}]".encode())
    if not heading:
        return False
    lines = rest.partition(b"\n[")[0].splitlines()
    modules = [line.partition(b"=")[2].strip() for line in lines if b"=" in line]
    return not all([module.startswith(_OWN) for module in modules])
