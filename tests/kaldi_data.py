"""Kaldi's reference results, which lie beside the repository or where OPSCOPE_KALDI_DATA says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(
    os.environ.get("OPSCOPE_KALDI_DATA")
    or Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "kaldi"
)


def need(*parts: str) -> Path:
    """The path of a reference file or folder; the test is skipped where it is absent."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no reference results of Kaldi: {path} is missing (see OPSCOPE_KALDI_DATA)")
    return path
