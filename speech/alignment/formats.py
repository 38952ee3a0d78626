"""Alignments as text, JSON, subtitles, CTM and Praat TextGrid."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from ..recognize.formats import FORMATS as TRANSCRIPTS
from ..recognize.formats import rounded
from .result import AlignedWord, Alignment


def as_text(found: Alignment) -> str:
    """A line for each word: begin, end, confidence, word, phones."""
    return "".join(
        f"{word.start:.2f} {word.end:.2f} {word.confidence:.2f} {word.text}"
        f" {' '.join(phone.text for phone in word.phones)}".rstrip()
        + "\n"
        for word in found.words
    )


def as_json(found: Alignment) -> str:
    """One line of JSON: an utterance for each line of the text; its words, with their phones."""
    numbers = {
        "confidence": found.confidence,
        "log_likelihood": found.log_likelihood,
        "beam": found.beam,
    }
    made = {
        "name": found.name,
        **rounded({"duration": found.duration}),
        "text": found.text,
        **rounded(numbers),
        "utterances": [
            {
                **rounded({"start": line[0].start, "end": line[-1].end}),
                "text": " ".join(word.text for word in line),
                "words": [_word(word) for word in line],
            }
            for line in found.lines
        ],
    }
    return json.dumps(made, ensure_ascii=False) + "\n"


def _word(word: AlignedWord) -> dict[str, Any]:
    made = rounded(asdict(word))
    made["phones"] = [rounded(asdict(phone)) for phone in word.phones]
    return made


def _of_transcript(form: str, found: Alignment) -> str:
    return TRANSCRIPTS[form](found.transcript())


FORMATS: dict[str, Callable[[Alignment], str]] = {
    "txt": as_text,
    "json": as_json,
    **{form: partial(_of_transcript, form) for form in ("srt", "vtt", "ctm", "textgrid")},
}
"""Functions that write an alignment, by the names of formats."""
