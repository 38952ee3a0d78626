"""A made language whose words sound by rules of their letters."""

from __future__ import annotations

import random

_RULES = {
    "sh": ("S2",),
    "x": ("K", "S"),
    "h": (),
    "c": ("K",),
    **{letter: (letter.upper(),) for letter in "aeiouklmnprst"},
}
_SYLLABLES = [
    first + vowel + last
    for first in ("sh", "x", "c", "k", "l", "m", "p", "r", "s", "t", "h", "")
    for vowel in "aeiou"
    for last in ("n", "r", "", "x", "h", "t")
]


def phones_of(word: str) -> tuple[str, ...]:
    """How a word sounds; a vowel before the last letter r is long."""
    phones: list[str] = []
    at = 0
    while at < len(word):
        chunk = "sh" if word.startswith("sh", at) else word[at]
        phones += _RULES[chunk]
        at += len(chunk)
        if word[at:] == "r":
            phones[-1] += ":"
    return tuple(phones)


def words(count: int, seed: int = 0) -> list[str]:
    """Words of one to three syllables."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = rng.choices(_SYLLABLES, k=rng.randint(1, 3))
        if any(phones_of("".join(syllables))):
            found["".join(syllables)] = None
    return list(found)
