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


def as_text(alignment: Alignment) -> str:
    """A line for each word: begin, end, confidence, word, phones."""
    return "".join(
        f"{word.start:.2f} {word.end:.2f} {word.confidence:.2f} {word.text}"
        f" {' '.join(phone.text for phone in word.phones)}".rstrip()
        + "\n"
        for word in alignment.words
    )


def as_json(alignment: Alignment) -> str:
    """One line of JSON: an utterance for each line of the text; its words, with their phones."""
    numbers = {
        "confidence": alignment.confidence,
        "log_likelihood": alignment.log_likelihood,
        "beam": alignment.beam,
    }
    record = {
        "name": alignment.name,
        **rounded({"duration": alignment.duration}),
        "text": alignment.text,
        **rounded(numbers),
        "utterances": [
            {
                **rounded({"start": line[0].start, "end": line[-1].end}),
                "text": " ".join(word.text for word in line),
                "words": [_word(word) for word in line],
            }
            for line in alignment.lines
        ],
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


def _word(word: AlignedWord) -> dict[str, Any]:
    record = rounded(asdict(word))
    record["phones"] = [rounded(asdict(phone)) for phone in word.phones]
    return record


def _of_transcript(form: str, alignment: Alignment) -> str:
    return TRANSCRIPTS[form](alignment.transcript())


FORMATS: dict[str, Callable[[Alignment], str]] = {
    "txt": as_text,
    "json": as_json,
    **{form: partial(_of_transcript, form) for form in ("srt", "vtt", "ctm", "textgrid")},
}
"""Functions that write an alignment, by the names of formats."""
