"""Recognizers beside Vosk itself, on signals of our own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opscope.speech import KaldiRecognizer, Model
from own_sentences import CASES, QUICK, Case
from speech_data import vosk_model
from vosk_beside import vosk_beside

IN_CI = ("slow", "telephone, noise", "grammar, noise")
"""Where tests must be over in minutes: each case takes some four seconds, most of them Vosk's."""


def cases(names: Iterable[str], in_ci: Callable[[Case], bool]) -> list[Any]:
    """Cases as parameters, of which CI takes those of `IN_CI` for which that holds."""
    found = []
    for name in names:
        left_out = bool(os.environ.get("CI")) and not (name in IN_CI and in_ci(CASES[name]))
        marks = [pytest.mark.skipif(left_out, reason="CI takes a part of the signals")]
        marks += [] if name in QUICK else [pytest.mark.slow]
        found.append(pytest.param(name, marks=marks))
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Any, Any]]]:
    """Recognizer and model of ours and of Vosk's, without dither."""
    folder, source = tmp_path_factory.mktemp("vosk") / "model", vosk_model()
    folder.mkdir()
    for path in sorted(source.rglob("*")):
        target = folder / path.relative_to(source)
        target.mkdir() if path.is_dir() else target.symlink_to(path)
    config = Path(folder, "conf", "mfcc.conf")
    text = config.read_text()
    config.unlink()
    config.write_text(f"{text}\n--dither=0\n")
    with vosk_beside() as vosk:
        yield [(KaldiRecognizer, Model(folder)), (vosk.KaldiRecognizer, vosk.Model(str(folder)))]


def heard(kind: Any, model: Any, case: Case, alternatives: int) -> tuple[list[dict], list[str]]:
    """Results and partial results."""
    more = () if case.grammar is None else (case.grammar,)
    recognizer = kind(model, case.rate, *more)
    recognizer.SetWords(True)
    recognizer.SetMaxAlternatives(alternatives)
    data, found, partial = case.samples().tobytes(), [], []
    block = case.block or len(data)
    for begin in range(0, len(data), block):
        if recognizer.AcceptWaveform(data[begin : begin + block]):
            found.append(json.loads(recognizer.Result()))
        else:
            partial.append(json.loads(recognizer.PartialResult())["partial"])
    return [*found, json.loads(recognizer.FinalResult())], partial


@pytest.mark.parametrize(
    "name", cases((n for n, case in CASES.items() if case.near), lambda case: True)
)
def test_words_times_and_confidences_are_vosks(name: str, both: list[tuple[Any, Any]]) -> None:
    (ours, our_partials), (theirs, their_partials) = (heard(*side, CASES[name], 0) for side in both)
    assert our_partials == their_partials
    for one, other in zip(ours, theirs, strict=True):
        assert one["text"] == other["text"]
        for mine, wanted in zip(one.get("result", []), other.get("result", []), strict=True):
            assert mine["word"] == wanted["word"]
            for key in ("start", "end", "conf"):
                assert mine[key] == pytest.approx(wanted[key], abs=1e-3)
    assert any(each["text"] for each in ours)


@pytest.mark.parametrize("name", cases(CASES, lambda case: not case.near))
def test_best_paths_are_vosks(name: str, both: list[tuple[Any, Any]]) -> None:
    (ours, our_partials), (theirs, their_partials) = (heard(*side, CASES[name], 1) for side in both)
    assert our_partials == their_partials
    for one, other in zip(ours, theirs, strict=True):
        (mine,), (wanted,) = one["alternatives"], other["alternatives"]
        assert mine["text"] == wanted["text"]
        for word, known in zip(mine.get("result", []), wanted.get("result", []), strict=True):
            assert word["word"] == known["word"]
            assert word["start"] == pytest.approx(known["start"], abs=1e-3)
            assert word["end"] == pytest.approx(known["end"], abs=1e-3)
