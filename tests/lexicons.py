"""Small lexicons: Kaldi's `dict` folders for tests."""

from __future__ import annotations

import random
from pathlib import Path

SMALL = """<SIL> SIL
YES Y EH S
NO N OW
NOS N OW S
KNOW N OW
<unk> SPN
A EY
A AH
CAF\u00c9 N EY
"""
_SMALL_LISTS = {
    "silence_phones": "SIL\nSPN\n",
    "optional_silence": "SIL\n",
    "nonsilence_phones": "Y\nEH\nS\nN\nOW\nEY\nAH\n",
}
_VOWELS = ("AA", "EH", "IY", "OW")
_CONSONANTS = ("P", "T", "K", "S", "M", "N", "L", "R")


def write_small(folder: Path, more: str = "", **files: str) -> Path:
    """A folder with `SMALL` and more lines, and more files by their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**_SMALL_LISTS, "lexicon": SMALL + more, **files}.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def write_stressed(folder: Path, with_silence: bool = False) -> Path:
    """A folder with probabilities and with vowels whose stresses share a root."""
    rng = random.Random(5)
    phones = [vowel + stress for vowel in _VOWELS for stress in "012"] + list(_CONSONANTS)
    seen = {}
    while len(seen) < 400:
        pronunciation = tuple(rng.choice(phones) for _ in range(rng.randint(1, 5)))
        word = "".join(pronunciation).lower()[:3]
        seen[word, pronunciation] = rng.choice(["1.0", f"{rng.uniform(0.01, 1):.3f}"])
    entries = [(word, share, " ".join(each)) for (word, each), share in seen.items()]
    entries += [("<UNK>", "1.0", "SPN"), ("!SIL", "1", "SIL"), ("<NOISE>", "0.5", "NSN")]
    folder.mkdir(parents=True)
    name = "lexiconp"
    if with_silence:
        name = "lexiconp_silprob"
        entries = [(word, f"{share} {_three(rng)}", phones) for word, share, phones in entries]
        (folder / "silprob.txt").write_text("<s> 0.85\n</s>_s 2.47\n</s>_n 0.43\noverall 0.2\n")
    files = {
        name: "".join(f"{word}\t{share} {phones}\n" for word, share, phones in entries),
        "silence_phones": "SIL\nSPN NSN\n",
        "optional_silence": "SIL\n",
        "nonsilence_phones": "".join(f"{v}0 {v}1 {v}2\n" for v in _VOWELS)
        + "".join(f"{each}\n" for each in _CONSONANTS),
        "extra_questions": "SIL SPN NSN\n"
        + "".join(" ".join(v + stress for v in _VOWELS) + "\n" for stress in "012"),
    }
    for file, text in files.items():
        (folder / f"{file}.txt").write_text(text)
    return folder


def _three(rng: random.Random) -> str:
    """The probability of silence after a word, and factors of silence and none before it."""
    return " ".join(
        f"{rng.uniform(low, high):.2f}" for low, high in ((0.01, 0.99), (0.1, 3), (0.1, 3))
    )
