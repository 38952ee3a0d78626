"""Where the campaign's inputs come from: whole files that are damaged, and grammars."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .readers.mutate import Mutation, damaged


class Depth(enum.StrEnum):
    """How far an input came without a find."""

    REFUSED = "refused"
    READ = "read"
    RAN = "ran"


class WrongError(Exception):
    """A value that differs from that of the reference.

    Args:
        what: the kind of difference, the same for inputs that show the same fault.
    """

    def __init__(self, what: str, told: str = "") -> None:
        super().__init__(f"{what}: {told}" if told else what)
        self.what = what


@dataclass(frozen=True)
class Target:
    """A reader of the campaign, which gets damaged files.

    Attributes:
        name: of the reader. suffix: of its files.
        seeds: makes whole files of the kind, in a folder.
        read: takes the path of a file and reads it as a user would.
        kinds: how files are damaged.
    """

    name: str
    suffix: str
    seeds: Callable[[Path], Sequence[bytes]]
    read: Callable[[Path], object]
    kinds: Sequence[Mutation]

    def last(self, folder: Path) -> Path:
        """The file in a folder that is written and read, again and again."""
        return folder / f"{self.name}-last{self.suffix}"

    def draw(self, rng: random.Random, seeds: Sequence[bytes]) -> bytes:
        """One input."""
        return damaged(rng.choice(seeds), rng, seeds, self.kinds)


def _no_seeds(_: Path) -> Sequence[bytes]:
    return ()


@dataclass(frozen=True)
class Generator:
    """A grammar of the campaign, which makes inputs that mostly are right.

    Attributes:
        name: of the generator. suffix: of files with its inputs.
        make: an input, of a random generator and nothing else.
        run: takes the text of an input, and tells how far it came; WrongError where a value differs
            from that of a reference.
        share: of a total of inputs, relative to the other generators: the cheap ones get more.
    """

    name: str
    make: Callable[[random.Random], str]
    run: Callable[[str], Depth]
    share: float = 1.0
    suffix: str = ".txt"
    seeds: Callable[[Path], Sequence[bytes]] = _no_seeds

    def last(self, folder: Path) -> Path:
        """The file in a folder that inputs are written to, again and again."""
        return folder / f"{self.name}-last{self.suffix}"

    def draw(self, rng: random.Random, _: Sequence[bytes]) -> bytes:
        """One input."""
        return self.make(rng).encode("utf-8", "surrogateescape")

    def read(self, path: Path) -> Depth:
        """Run the input in a file."""
        return self.run(path.read_bytes().decode("utf-8", "surrogateescape"))


def input_of(target: Target | Generator, seed: int, index: int, seeds: Sequence[bytes]) -> bytes:
    """The input that a seed and an index stand for."""
    return target.draw(random.Random(f"{seed}/{target.name}/{index}"), seeds)
