"""The text: CPython's own help topics, which every Python carries, as minibatches of characters."""

from __future__ import annotations

from collections.abc import Iterator
from pydoc_data.topics import topics

import numpy as np

from opscope import Sequences

SEPARATOR = "\n\n"
Batch = dict[str, Sequences | np.ndarray]


def load(limit: int = 0) -> tuple[str, str]:
    """Training and held-out text: whole topics, about a tenth of them held out by a fixed seed.

    Args:
        limit: take only so many characters of training text, and a tenth of it held out; 0 = all.
    """
    names = sorted(topics)
    order = np.random.default_rng(0).permutation(len(names))
    total = sum(len(topics[name]) for name in names)
    held_out: list[str] = []
    while sum(len(topics[name]) for name in held_out) < total / 10:
        held_out.append(names[order[len(held_out)]])
    rest = [name for name in names if name not in held_out]
    parts = (SEPARATOR.join(topics[name] for name in part) for part in (rest, held_out))
    train, test = parts
    return (train[:limit], test[: limit // 10]) if limit else (train, test)


def alphabet_of(text: str) -> str:
    """The characters of a text in the order of their codes."""
    return "".join(sorted(set(text)))


def encode(text: str, alphabet: str) -> np.ndarray:
    """Characters as numbers; one that the alphabet lacks becomes a question mark."""
    numbers = {character: number for number, character in enumerate(alphabet)}
    unknown = numbers.get("?", 0)
    return np.array([numbers.get(character, unknown) for character in text], np.int64)


def batches(data: np.ndarray, streams: int, steps: int) -> Iterator[Batch]:
    """Minibatches that go through `streams` equal pieces of the text side by side.

    Stream n of a minibatch goes on where it ended in the one before; `keep` is 0 in the first one,
    where states are to start anew.
    """
    length = (len(data) - 1) // streams
    inputs = data[: length * streams].reshape(streams, length)
    targets = data[1 : length * streams + 1].reshape(streams, length)
    for start in range(0, length, steps):
        part = slice(start, min(start + steps, length))
        width = part.stop - start
        yield {
            "ids": Sequences(inputs[:, part].reshape(-1), (np.arange(streams + 1) * width,)),
            "next": targets[:, part].reshape(-1),
            "keep": np.full((streams, 1), float(start > 0), np.float32),
        }
