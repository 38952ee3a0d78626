"""Inputs with a reference: the first line is the seed that makes the same text and its meaning."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable
from typing import TypeVar

from ..inputs import Depth, Generator

Meaning = TypeVar("Meaning")


def chosen(rng: random.Random, names: Iterable[str]) -> str:
    """One of these names; one more name changes few of the choices, and none to another old name.

    An index would change nearly all, and with them what seeds and bounds of tests stand for.
    """
    draw = rng.getrandbits(64).to_bytes(8, "little")
    return max(names, key=lambda name: hashlib.blake2b(name.encode(), key=draw).digest())


def seeded(
    name: str,
    build: Callable[[random.Random], tuple[str, Meaning]],
    run: Callable[[str, Meaning | None], Depth],
    share: float,
) -> Generator:
    """A generator of texts with what they mean.

    Args:
        build: a text, and its meaning for `run`.
        run: takes a text, with None for one that was changed by hand or shrunk.
    """

    def make(rng: random.Random) -> str:
        seed = rng.getrandbits(40)
        return f"{seed}\n{build(random.Random(seed))[0]}"

    def again(text: str) -> Depth:
        seed, _, body = text.partition("\n")
        made, meaning = build(random.Random(int(seed) if seed.isdecimal() else 0))
        return run(body, meaning if made == body else None)

    return Generator(name, make, again, share)
