"""Changes to single examples, and streams of them: frames chosen, context cut, order changed.

Source: Kaldi's `nnet3bin/nnet3-copy-egs.cc`, `nnet3-shuffle-egs.cc`, `nnet3-subset-egs.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from ...framework.base.errors import FormatError
from ..files.examples import NnetExample, NnetIo
from .rows import keep_rows, scale_rows

Item = TypeVar("Item")
_NEVER_SHIFTED = ("ivector",)


def renamed_output(example: NnetExample, name: str) -> NnetExample:
    """With `output` called `name`. Raises FormatError: there is no `output`."""
    _need_output(example)
    return NnetExample(
        [
            NnetIo(name if io.name == "output" else io.name, io.indexes, io.features)
            for io in example.io
        ]
    )


def scaled_output(example: NnetExample, weight: float) -> NnetExample:
    """With all targets of `output` times a weight. Raises FormatError: there is no `output`."""
    _need_output(example)
    return NnetExample(
        [
            NnetIo(io.name, io.indexes, scale_rows(io.features, weight))
            if io.name == "output"
            else io
            for io in example.io
        ]
    )


def _need_output(example: NnetExample) -> None:
    if all(io.name != "output" for io in example.io):
        raise FormatError("the example has no 'output'")


def shifted(example: NnetExample, frames: int) -> NnetExample:
    """With all times later by so many frames, except times of iVectors."""
    if not frames:
        return example
    moved = []
    for io in example.io:
        indexes = io.indexes
        if io.name not in _NEVER_SHIFTED:
            indexes = indexes + np.array([0, frames, 0], np.int32)
        moved.append(NnetIo(io.name, indexes, io.features))
    return NnetExample(moved)


def times(example: NnetExample, name: str) -> tuple[int, int]:
    """The first and last time of an input or output of a single example.

    Raises:
        FormatError: there is no such thing, or the example is merged already.
    """
    if any(io.indexes[:, 0].any() for io in example.io):
        raise FormatError("frames cannot be chosen from merged examples")
    return span(example.io, name)


def span(parts: Iterable[Any], name: str) -> tuple[int, int]:
    """The first and last time of the part `name`. Raises FormatError: there is none with rows."""
    for part in parts:
        if part.name == name and len(part.indexes):
            return int(part.indexes[:, 1].min()), int(part.indexes[:, 1].max())
    raise FormatError(f"the example has no {name!r}")


def selected(
    example: NnetExample,
    frame: int | None = None,
    left_context: int = -1,
    right_context: int = -1,
) -> NnetExample | None:
    """With one frame of output only, and no more context of input than said.

    Args:
        frame: its time; None = all. left_context, right_context: -1 = all that is there.

    Returns:
        None where there is no such frame.

    Raises:
        FormatError: it is no single example with an `input` and an `output`.
    """
    first_in, last_in = times(example, "input")
    first_out, last_out = times(example, "output")
    if frame is not None:
        if not first_out <= frame <= last_out:
            return None
        first_out = last_out = frame
    if left_context != -1:
        first_in = max(first_in, first_out - left_context)
    if right_context != -1:
        last_in = min(last_in, last_out + right_context)
    spans = {"input": (first_in, last_in), "output": (first_out, last_out)}
    kept = []
    for io in example.io:
        kept.append(within(io, *spans[io.name]) if io.name in spans else io)
    return NnetExample(kept)


def within(io: NnetIo, first: int, last: int) -> NnetIo:
    """Its rows of the times `first` to `last`. Raises FormatError: there are none."""
    keep = (io.indexes[:, 1] >= first) & (io.indexes[:, 1] <= last)
    if not keep.any():
        raise FormatError(f"nothing is left of {io.name!r} in times {first} to {last}")
    return NnetIo(io.name, io.indexes[keep], keep_rows(io.features, keep))


def shuffle(items: Iterable[Item], rng: np.random.Generator, buffer: int = 0) -> Iterator[Item]:
    """Yield the items in random order; with a `buffer` at most so many are in memory."""
    if buffer <= 0:
        everything = list(items)
        for number in rng.permutation(len(everything)):
            yield everything[number]
        return
    held: dict[int, Item] = {}  # by place; a buffer may be larger than all items
    for item in items:
        place = int(rng.integers(buffer))
        if place in held:
            yield held[place]
        held[place] = item
    yield from (held[place] for place in sorted(held))


def subset(
    items: Iterable[Item], count: int, rng: np.random.Generator, randomize: bool = True
) -> tuple[list[Item], int]:
    """`count` items drawn from a stream, and how many there were; `randomize` their order."""
    chosen: list[Item] = []
    seen = 0
    for item in items:
        seen += 1
        if len(chosen) < count:
            chosen.append(item)
        elif rng.random() < count / seen:
            chosen[int(rng.integers(count))] = item
    if randomize:
        chosen = [chosen[i] for i in rng.permutation(len(chosen))]
    return chosen, seen
