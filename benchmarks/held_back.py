"""Words that are taken out of a Vosk model and added again: are they recognized as before?

    python benchmarks/held_back.py vosk-model-small-ko-0.22 --words 1000 --sentences 60

Sentences are spoken by eSpeak NG (`pip install espeakng-loader`) and recognized. The words that the
model hears in them, and others, are held back: their paths are removed from HCLr.fst; the grammar
stays. Their phones are guessed from the other words, and compared with the true ones. `adapt` adds
them again, with the true ones and the probabilities that their paths had, and the sentences are
recognized anew.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opscope.kaldi.fst.files.fst_io import fst_bytes
from opscope.kaldi.fst.fst import Fst
from opscope.speech import (
    Guesser,
    KaldiRecognizer,
    Model,
    adapt,
    known_pronunciations,
    resample,
)
from opscope.speech.adaptation.grammar import Unigrams
from opscope.speech.adaptation.own_costs import own_entries
from opscope.speech.fst.graph_folder import read_graph_fst
from opscope.speech.scoring.edits import alignment

RATE = 16000
COSTS = 1e-2  # by which costs of best paths may differ: the graph is rounded to 1/1024
Lexicon = dict[str, list[tuple[str, ...]]]


class Voice:
    """eSpeak NG, by the library in the package `espeakng_loader`."""

    def __init__(self, name: str) -> None:
        import espeakng_loader

        self._library = library = ctypes.CDLL(str(espeakng_loader.get_library_path()))
        self._parts: list[np.ndarray] = []
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
        )
        self._callback = kind(self._take)
        data = str(espeakng_loader.get_data_path()).encode()
        self._rate = library.espeak_Initialize(1, 0, data, 0)  # 1: samples are handed over
        library.espeak_SetSynthCallback(self._callback)
        if library.espeak_SetVoiceByName(name.encode()):
            raise SystemExit(f"eSpeak NG has no voice {name}")

    def _take(self, samples: ctypes._Pointer[ctypes.c_short], count: int, _: object) -> int:
        if samples and count > 0:
            self._parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    def say(self, text: str) -> np.ndarray:
        """Samples, int16."""
        self._parts.clear()
        data = text.encode() + b"\0"
        size = ctypes.c_size_t(len(data))
        self._library.espeak_Synth(data, size, 0, 0, 0, 1, None, None)  # 1: UTF-8
        self._library.espeak_Synchronize()
        spoken = np.concatenate(self._parts).astype(np.float32)
        return np.asarray(resample(spoken, self._rate, RATE)).round().clip(-32768, 32767)


def lexicon_of(folder: Path) -> Lexicon:
    found: Lexicon = {}
    for word, phones in known_pronunciations(folder):
        found.setdefault(word, []).append(phones)
    return found


def without(fst: Fst, labels: Sequence[int]) -> Fst:
    """An FST without the arcs of some output labels."""
    kept = ~np.isin(fst.olabel, labels)
    begin = np.append(0, np.cumsum(kept))[fst.begin]
    header = replace(fst.header, arcs=int(kept.sum()))
    return Fst(fst.start, fst.final, begin, fst.arcs[kept], header)


def phone_errors(guesser: Guesser, held: Sequence[str], lexicon: Lexicon) -> tuple[int, int]:
    """Errors of guesses, each beside the nearest pronunciation, and phones of these."""
    wrong = total = 0
    for word in held:
        guess = guesser.guess(word)[0].phones
        counts = []
        for way in lexicon[word]:
            edits = alignment(way, guess)
            counts.append((sum(edit.kind != "correct" for edit in edits), len(way)))
        count, size = min(counts)
        wrong, total = wrong + count, total + size
    return wrong, total


class Heard(NamedTuple):
    """The words of a sentence; those of its best path with their times; what this costs."""

    text: str
    path: list[tuple[str, float, float]]
    cost: float

    @classmethod
    def of(cls, model: Model, samples: np.ndarray) -> Heard:
        results = []
        for alternatives in (0, 1):
            recognizer = KaldiRecognizer(model, RATE)
            recognizer.SetWords(True)
            recognizer.SetMaxAlternatives(alternatives)
            recognizer.AcceptWaveform(samples.astype(np.int16).tobytes())
            results.append(json.loads(recognizer.FinalResult()))
        best = results[1]["alternatives"][0]
        path = [(word["word"], word["start"], word["end"]) for word in best.get("result", [])]
        return cls(results[0]["text"], path, best["confidence"])

    def same(self, other: Heard) -> tuple[bool, bool, bool]:
        """Whether the words, the best path, and its cost are those of another one."""
        near = abs(self.cost - other.cost) < COSTS
        return self.text == other.text, self.path == other.path, near


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--words", type=int, default=1000)
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--voice", default="ko")
    options = parser.parse_args()
    rng = random.Random(1)
    lexicon = lexicon_of(options.model)
    candidates = sorted(word for word in lexicon if word.isalpha() and 2 <= len(word) <= 6)
    voice, model = Voice(options.voice), Model(options.model)
    sentences = [voice.say(" ".join(rng.sample(candidates, 4))) for _ in range(options.sentences)]
    before = [Heard.of(model, samples) for samples in sentences]
    known = set(candidates)
    used = {word for each in before for word in each.text.split()} & known
    held = sorted(used) + rng.sample(sorted(known - used), max(options.words - len(used), 0))
    others = [(word, way) for word in lexicon.keys() - set(held) for way in lexicon[word]]
    wrong, total = phone_errors(Guesser.trained(sorted(others)), held, lexicon)
    print(f"guesses: {wrong} of {total} phones are wrong, {wrong / total:.1%}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        few, again = Path(folder, "few"), Path(folder, "again")
        shutil.copytree(options.model, few)
        graph = few / "graph"
        grammar = Unigrams(read_graph_fst(str(graph / "Gr.fst")), "Gr.fst")
        labels = [grammar.label(model.words.find(word) or 0) or 0 for word in held]
        first = read_graph_fst(str(graph / "HCLr.fst"))
        (graph / "HCLr.fst").write_bytes(fst_bytes(without(first, labels), first.header.kind))
        spoken: dict[str, list[str]] = {}
        for entry in own_entries(model, held):
            numbers = (f"{number:#.9g}" for number in (entry.probability, *(entry.silence or ())))
            spoken.setdefault(entry.word, []).append(" ".join((*numbers, *entry.phones)))
        adapt(few, again, spoken)
        anew = Model(again)
        pairs = zip(before, sentences, strict=True)
        same = np.array([old.same(Heard.of(anew, samples)) for old, samples in pairs])
        words, paths, costs = same.sum(axis=0).tolist()
        print(
            f"{options.sentences} sentences: {words} have the same words, {paths} the same best"
            f" path, {costs} its cost, {same.all(axis=1).sum()} all of these; {len(used)} words in"
            " them were held back"
        )


if __name__ == "__main__":
    main()
