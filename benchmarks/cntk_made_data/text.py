"""Files of CNTKTextFormatReader."""

from __future__ import annotations

import numpy as np

from opscope.cntk.config import ConfigParameters
from opscope.cntk.readers.base.data import Stream
from opscope.cntk.readers.text.reader import text_streams

from .base import CLASSES, MadeData, write

_DOCUMENTS = 600  # that are ranked: the criterion changes where two of a group change places


def text(made: MadeData, section: ConfigParameters) -> None:
    """A file of CNTKTextFormatReader."""
    path = section.string("file")
    known = made.texts.setdefault(path, {})  # other sections may read it, too
    known.update((one.alias, one) for one in text_streams(section))
    streams = list(known.values())
    if any(made.meaning(one.stream.name).role == "group" for one in streams):
        made.count = _DOCUMENTS
        made.minibatch = 1 << 20  # whole groups
    lines = []
    for sequence in range(made.count):
        meanings = [made.meaning(one.stream.name) for one in streams]
        lengths = [made.length(meaning, sequence) for meaning in meanings]
        for step in range(max(lengths)):
            words = [str(sequence)]
            for one, length in zip(streams, lengths, strict=True):
                if step < length:
                    sample = _text_sample(made, one.stream, sequence, step)
                    words.append(f"|{one.alias} {sample}")
            lines.append(" ".join(words) + "\n")
    write(path, "".join(lines))


def _text_sample(made: MadeData, stream: Stream, sequence: int, step: int) -> str:
    kind = (sequence + step) % CLASSES
    role = made.meaning(stream.name).role
    if stream.sparse:
        return f"{kind % stream.dim}:1"
    row = made.row(stream.name, stream.dim, kind)
    if role == "group":
        row[:] = sequence // CLASSES
    elif not role:
        random = np.random.default_rng((sequence, step))
        row = row + random.normal(scale=0.1, size=len(row))
    return " ".join(f"{value:.4g}" for value in row)
