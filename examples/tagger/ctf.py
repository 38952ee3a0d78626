"""A small reader of CNTK's text format, for streams that hold one class a line.

    0 |S0 178:1 |# BOS |S1 14:1 |# flight |S2 128:1 |# O
    0 |S0 479:1 |# i |S2 128:1 |# O

Lines with one number in front are one sequence. Each `|name` begins a stream's sample, here a
sparse vector with a single 1; `|# ...` is a comment, here the name of the class before it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Stream:
    """The sequences of one stream.

    Attributes:
        sequences: of class numbers, one array for each sequence; empty where a stream has no
            sample there. names: class number -> name, as far as comments tell them.
    """

    sequences: list[np.ndarray] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)


def read_ctf(path: pathlib.Path, wanted: Sequence[str]) -> dict[str, Stream]:
    """The streams called `wanted` of a file.

    Raises:
        ValueError: a line that is not of this form, or a stream that the file lacks.
    """
    streams = {name: Stream() for name in wanted}
    samples: dict[str, list[int]] = {name: [] for name in wanted}
    current = None

    def close() -> None:
        for name, stream in streams.items():
            stream.sequences.append(np.array(samples[name], np.int64))
            samples[name] = []

    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            first, *parts = line.strip().split("|")
            if not parts and not first:
                continue
            if first.strip() and first.strip() != current:
                if current is not None:
                    close()
                current = first.strip()
            last: tuple[Stream, int] | None = None
            for part in parts:
                name, _, text = part.strip().partition(" ")
                if name == "#":
                    if last is not None:
                        last[0].names.setdefault(last[1], text.strip())
                elif name in streams:
                    try:
                        index, value = text.split(":")
                        found = int(index)
                    except ValueError:
                        found = -1
                        value = ""
                    if found < 0 or float(value) != 1:
                        raise ValueError(
                            f"{path}:{number}: stream {name}: want CLASS:1, not {text!r}"
                        )
                    samples[name].append(found)
                    last = streams[name], found
                else:
                    last = None
            if current is None or not parts:
                raise ValueError(f"{path}:{number}: want NUMBER |stream ..., not {line.strip()!r}")
    if current is not None:
        close()
    for name, stream in streams.items():
        if not any(len(sequence) for sequence in stream.sequences):
            raise ValueError(f"{path}: holds no stream {name!r}")
    return streams
