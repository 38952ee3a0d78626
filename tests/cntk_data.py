"""CNTK's reference results, which lie beside the repository or where OPSCOPE_CNTK_CASES says."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_folders import CNTK as FOLDER


def need(*parts: str) -> Path:
    """The path of a reference file or folder; the test is skipped where it is absent."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no reference results of CNTK: {path} is missing (see OPSCOPE_CNTK_CASES)")
    return path


def cases(prefix: str = "") -> list[str]:
    """The names of the case folders that start with `prefix`; empty where there are none."""
    if not FOLDER.is_dir():
        return []
    return sorted(
        path.name
        for path in FOLDER.iterdir()
        if path.name.startswith(prefix) and (path / "command.txt").exists()
    )
