"""Transcripts as text, JSON, subtitles (SRT, WebVTT), CTM and Praat TextGrid."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from .transcript import Spoken, Transcript
from .utterance import Phone, Word

_MOST_WORDS, _MOST_LETTERS = 12, 42  # of a subtitle
_LONG_GAP = 1.0  # seconds of silence that part two subtitles
_DIGITS = 3
_SPEAKER_DIGITS = 6  # of the numbers of a speaker's vector, as in Vosk
_PRECISION = 6  # digits of a TextGrid's times
_AUDIO = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64", ".m4a")


def as_text(transcript: Transcript) -> str:
    """A line for each utterance."""
    return "".join(f"{each.text}\n" for each in transcript.utterances)


def spoken_json(each: Spoken) -> dict[str, Any]:
    """An utterance as JSON's types; confidences and times are rounded."""
    record: dict[str, Any] = {
        "start": round(each.start, _DIGITS),
        "end": round(each.end, _DIGITS),
        "text": each.text,
        "words": [_word(word) for word in each.words],
    }
    if each.phones:
        record["phones"] = [rounded(asdict(phone)) for phone in each.phones]
    if each.alternatives:
        record["alternatives"] = [
            {
                "text": one.text,
                "log_likelihood": round(one.log_likelihood, _DIGITS),
                "words": [_word(word) for word in one.words],
            }
            for one in each.alternatives
        ]
    if each.speaker is not None:
        record["speaker"] = {
            "frames": each.speaker.frames,
            "vector": [round(value, _SPEAKER_DIGITS) for value in each.speaker.values.tolist()],
        }
    return record


def as_json(transcript: Transcript) -> str:
    """One line of JSON."""
    record = {
        "name": transcript.name,
        "duration": round(transcript.duration, _DIGITS),
        "text": transcript.text,
        "utterances": [spoken_json(each) for each in transcript.utterances],
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


def as_srt(transcript: Transcript) -> str:
    """SubRip subtitles."""
    lines = [
        f"{number}\n{_period(words, ',')}\n{_text(words)}\n"
        for number, words in enumerate(_subtitles(transcript), 1)
    ]
    return "\n".join(lines)


def as_vtt(transcript: Transcript) -> str:
    """WebVTT subtitles."""
    lines = ["WEBVTT\n"]
    for words in _subtitles(transcript):
        text = _text(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        lines.append(f"{_period(words, '.')}\n{text}\n")
    return "\n".join(lines)


def as_ctm(transcript: Transcript) -> str:
    """NIST's CTM: recording, channel, begin, duration, word, confidence."""
    name = "_".join(_stem(transcript.name).split()) or "_"
    lines: list[str] = []
    for word in transcript.words:
        begin, end = round(word.start, 2), round(word.end, 2)
        confidence = 1.0 if word.confidence is None else word.confidence
        lines.append(f"{name} 1 {begin:.2f} {end - begin:.2f} {word.text} {confidence:.2f}\n")
    return "".join(lines)


def as_textgrid(transcript: Transcript) -> str:
    """A TextGrid of Praat with the tiers "words" and, where there are any, "phones"."""
    tiers: list[tuple[str, Sequence[Word | Phone]]] = [("words", transcript.words)]
    if transcript.phones:
        tiers.append(("phones", transcript.phones))
    end = max(transcript.duration, *(part.end for _, parts in tiers for part in parts), 0.0)
    lines = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0",
        f"xmax = {end:.6f}",
        "tiers? <exists>",
        f"size = {len(tiers)}",
        "item []:",
    ]
    for number, (name, parts) in enumerate(tiers, 1):
        intervals = list(_intervals(parts, end))
        lines += [
            f"    item [{number}]:",
            '        class = "IntervalTier"',
            f'        name = "{name}"',
            "        xmin = 0",
            f"        xmax = {end:.6f}",
            f"        intervals: size = {len(intervals)}",
        ]
        for place, (begin, until, text) in enumerate(intervals, 1):
            quoted = text.replace('"', '""')
            lines += [
                f"        intervals [{place}]:",
                f"            xmin = {begin:.6f}",
                f"            xmax = {until:.6f}",
                f'            text = "{quoted}"',
            ]
    return "\n".join(lines) + "\n"


FORMATS: dict[str, Callable[[Transcript], str]] = {
    "txt": as_text,
    "json": as_json,
    "srt": as_srt,
    "vtt": as_vtt,
    "ctm": as_ctm,
    "textgrid": as_textgrid,
}
"""Functions that write a transcript, by the names of formats."""

ENDINGS = {**{name: f".{name}" for name in FORMATS}, "textgrid": ".TextGrid"}


def _subtitles(transcript: Transcript) -> Iterator[list[Word]]:
    """Words that stand on the screen together."""
    for each in transcript.utterances:
        line: list[Word] = []
        for word in each.words:
            full = len(line) >= _MOST_WORDS or len(_text([*line, word])) > _MOST_LETTERS
            if line and (full or word.start - line[-1].end > _LONG_GAP):
                yield line
                line = []
            line.append(word)
        if line:
            yield line


def _intervals(parts: Sequence[Word | Phone], end: float) -> Iterator[tuple[float, float, str]]:
    """The parts and the gaps between them, one after the other up to the end."""
    at = 0.0
    for part in parts:
        begin, until = (max(round(time, _PRECISION), at) for time in (part.start, part.end))
        if until <= begin:
            continue
        if begin > at:
            yield at, begin, ""
        yield begin, until, part.text
        at = until
    if round(end, _PRECISION) > at:
        yield at, end, ""


def _period(words: Sequence[Word], point: str) -> str:
    return f"{_clock(words[0].start, point)} --> {_clock(words[-1].end, point)}"


def _clock(seconds: float, point: str) -> str:
    thousandths = max(round(seconds * 1000), 0)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def _text(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


def _word(word: Word) -> dict[str, Any]:
    record = rounded(asdict(word))
    if word.confidence is None:
        del record["confidence"]
    return record


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """With the precision of JSON's times and confidences."""
    return {
        name: round(value, _DIGITS) if isinstance(value, float) else value
        for name, value in values.items()
    }


def _stem(name: str) -> str:
    """The name of a recording without folder and ending; keys of tables may have points."""
    stem, ending = os.path.splitext(os.path.basename(name))
    return stem if ending.lower() in _AUDIO else stem + ending
