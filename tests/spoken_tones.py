"""Recordings of two words that are tones, with their texts, for trainings of recognizers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from opscope.kaldi.files.kaldi_io import Writer
from opscope.speech.audio.wav import Audio, write_wav

RATE = 8000
LEXICON = "low l o\nhigh h i\n"
_TONES = {"l": 300, "o": 500, "h": 1400, "i": 2300}
_PHONE = 0.09  # seconds
SPEAKERS = ("ann", "bob", "cid")
SMALL = {
    **{"width": 16, "epochs": 20, "copies": 3, "initial_lr": 0.02, "minibatch": "4,2,1"},
    "test_speakers": "cid",
}
"""The settings of a small training on them."""


def spoken(text: str, rng: np.random.Generator, rate: int = RATE, pitch: float = 1.0) -> np.ndarray:
    """Samples of a text with pauses between words, [count]; `pitch` is a factor of its tones."""
    ways = dict(line.split(None, 1) for line in LEXICON.splitlines())
    pause = np.zeros(int(0.15 * rate))
    parts = [pause]
    for word in text.split():
        for phone in ways[word].split():
            time = np.arange(int(_PHONE * rate)) / rate
            parts.append(3000 * np.sin(2 * np.pi * pitch * _TONES[phone] * time))
        parts.append(pause)
    samples = np.concatenate(parts)
    return samples + rng.normal(0, 30, len(samples))


def write_recording(path: Path, samples: np.ndarray, rate: int = RATE) -> None:
    """Write a WAV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = Writer(True, header=False)
    write_wav(writer, Audio(np.asarray(samples, np.float32)[None], float(rate)))
    writer.save(path)


def write_corpus(folder: Path, each: int = 4, pitch: float = 1.0) -> Path:
    """Write so many recordings of each speaker, with texts beside, and `lexicon.txt`."""
    rng = np.random.default_rng(0)
    for speaker in SPEAKERS:
        for number in range(each):
            text = " ".join(rng.choice(["low", "high"], 2 + number % 2))
            path = folder / speaker / f"{number}.wav"
            write_recording(path, spoken(text, rng, pitch=pitch))
            path.with_suffix(".txt").write_text(f"{text}\n")
    (folder / "lexicon.txt").write_text(LEXICON)
    return folder
