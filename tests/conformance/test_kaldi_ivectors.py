"""Gaussians, iVector extractors and PLDA as Kaldi's programs write them.

`kaldi_ivectors.json` tells how its files were made. Each run takes Kaldi's files, so that no error
of one is in the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main, done
from opscope.kaldi.files.kaldi_io import Reader
from opscope.speech.ivector.extractor import IvectorExtractor
from opscope.speech.speakers.plda import Plda

GIVEN = json.loads(Path(__file__).with_name("kaldi_ivectors.json").read_text())
RUNS = {line: (files, printed) for line, files, printed in GIVEN["runs"]}
_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)\Z")
TOLERANCE = 1e-5
"""Of differences, in terms of the greatest number of the vector or matrix: Kaldi computes many of
them in float32 and prints 7 digits."""


def _directions(path: str) -> np.ndarray:
    """What has rows that are eigenvectors, and may be negative as a whole."""
    if path.endswith(".ie"):
        extractor = IvectorExtractor.read(Reader(path))
        return np.concatenate(extractor.projections).T
    if path.endswith(".mat"):
        return Reader(path).read_matrix(np.float64)
    return Plda.read(Reader(path)).transform


SIGNED = ("1.ie", "w1.ie", "lda.mat", "plda", "adapted")
"""Files with such rows."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs, and what Kaldi's programs made of them."""
    place = tmp_path_factory.mktemp("ivectors")
    for files in (GIVEN["inputs"], *(files for files, _ in RUNS.values())):
        for name, text in files.items():
            (place / name).write_text(text)
    (place / "ours").mkdir()
    return place


def _blocks(text: str) -> tuple[list[str], list[list[float]]]:
    """The words of a file that are no numbers, and the numbers between them."""
    words: list[str] = []
    numbers: list[list[float]] = [[]]
    for word in text.split():
        if _NUMBER.match(word):
            numbers[-1].append(float(word))
        else:
            words.append(word)
            numbers.append([])
    return words, numbers


def difference(ours: str, theirs: str, change: Callable[[float], float] = float) -> float:
    """The largest difference of numbers, in terms of the largest number of the block."""
    (words, mine), (wanted_words, wanted) = _blocks(ours), _blocks(theirs)
    assert words == wanted_words
    worst = 0.0
    for block, other in zip(mine, wanted, strict=True):
        assert len(block) == len(other)
        scale = max((abs(value) for value in other if np.isfinite(value)), default=1.0) or 1.0
        for a, b in zip(map(change, block), map(change, other), strict=True):
            if a != b:
                worst = max(worst, abs(a - b) / scale)
    return worst


@pytest.mark.parametrize("line", RUNS)
def test_program(line, folder, monkeypatch, within):
    monkeypatch.chdir(folder)
    files, printed = RUNS[line]
    words = line.split()
    for number, word in enumerate(words):
        head, colon, name = word.rpartition(":")
        if name in files:
            words[number] = f"{head}{colon}ours/{name}"
    out = done(call_main(*words))
    assert out.decode() == printed
    errors = {}
    for name, theirs in files.items():
        ours = Path("ours", name).read_text()
        errors[name] = difference(ours, theirs, abs if name in SIGNED else float)
        if name in SIGNED:
            mine, wanted = _directions(f"ours/{name}"), _directions(name)
            mine *= np.sign((mine * wanted).sum(axis=1, keepdims=True))
            errors[f"{name}, signs"] = float(np.abs(mine - wanted).max() / np.abs(wanted).max())
    if errors:
        within(errors, TOLERANCE)
