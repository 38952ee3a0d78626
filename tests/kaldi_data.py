"""Kaldi's reference results, which lie beside the repository or where OPSCOPE_KALDI_DATA says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.run.computer import NnetComputer
from reference_folders import KALDI as FOLDER


def need(*parts: str) -> Path:
    """The path of a reference file or folder; the test is skipped where it is absent."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no reference results of Kaldi: {path} is missing (see OPSCOPE_KALDI_DATA)")
    return path


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """The matrices and vectors of a binary archive by key."""
    return dict(read_table(f"ark:{path}", "array"))


def run_recorded(computer: NnetComputer, io: Mapping[str, np.ndarray]) -> None:
    """Forward, then backward, on the inputs of an archive: `input.NODE`, `output_deriv.NODE`."""
    for part in ("input", "output_deriv"):
        for name, matrix in io.items():
            kind, _, node = name.partition(".")
            if kind == part:
                computer.accept_input(node, matrix)
        computer.run()


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """Relative norm of the difference."""
    return float(
        np.linalg.norm(np.asarray(got, np.float64) - wanted) / (np.linalg.norm(wanted) or 1.0)
    )
