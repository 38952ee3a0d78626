"""Texts and scores for tests of language models."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np

from opscope.speech.language_model.model import NgramModel

WORDS = [*"abcdefgh", *(f"w{place}" for place in range(60))]


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    weights = [1 / (place + 1) for place in range(len(WORDS))]
    made = []
    for _ in range(count):
        words = draw.choices(WORDS, weights, k=draw.randrange(1, 9))
        made.append(
            " ".join("b" if before == "a" else word for before, word in pairwise(["c", *words]))
        )
    return made


def log10(model: NgramModel, word: str, context: tuple[str, ...]) -> float:
    rows = [np.zeros(1, np.int64)]
    for n in range(1, model.order):
        row = np.zeros(1, np.int64) if n <= len(context) else np.full(1, -1)
        for j, part in enumerate(context[len(context) - n :] if n <= len(context) else ()):
            row = model.orders[j].find(row, np.array([model.number(part)]))
        rows.append(row)
    return float(model.scored(rows, np.array([model.number(word)]))[0][0])
