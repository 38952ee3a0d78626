"""A recognizer that is trained on tones, once for all tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from opscope.speech import train
from spoken_tones import SMALL, write_corpus
from tone_trainings import refine


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `data`, `model` and `model.work`."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_corpus(folder / "data")
    lines: list[str] = []
    counts = train(
        data, folder / "model", lexicon=str(data / "lexicon.txt"), log=lines.append, **SMALL
    )
    assert counts is not None
    assert (counts.errors, counts.sentences) == (0, 4)
    assert any(", about " in line and line.endswith(" s left") for line in lines)
    return folder


@pytest.fixture(scope="session")
def refined(trained: Path) -> Path:
    """The model of two passes."""
    counts = refine(trained, "refined", lambda line: None)
    assert counts is not None
    assert (counts.errors, counts.sentences) == (0, 4)
    return trained / "refined"
