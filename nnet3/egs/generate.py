"""Examples from features and targets.

Source: Kaldi's `nnet3bin/nnet3-get-egs.cc`, `nnet3-get-egs-dense-targets.cc`,
`nnet3-xvector-get-egs.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.sequence import repeated
from ...framework.base.untrusted.values import INT32
from ...kaldi.files.posterior import Posterior
from ...kaldi.files.sparse import GeneralMatrix, SparseMatrix, to_dense
from ..files.examples import NnetExample, NnetIo
from .rows import compressed, example_inputs, example_io, posterior_matrix, take_range, take_rows
from .splitting import Chunk, UtteranceSplitter

Targets = Callable[[Chunk], NnetIo]
"""Makes the output of an example from a chunk."""


class IvectorSource:
    """iVectors of one utterance, [iVectors, dim], one for each `period` frames; examples get one of
    a frame drawn by `rng`."""

    def __init__(self, matrix: np.ndarray, period: int, rng: np.random.Generator) -> None:
        self.matrix = matrix
        self.period = period
        self.rng = rng

    def io(self, first: int, frames: int) -> NnetIo:
        """The input of an example that begins at input frame `first`."""
        frame = int(self.rng.integers(first, first + frames))
        row = min(max(frame // self.period, 0), len(self.matrix) - 1)
        return example_io("ivector", self.matrix[row : row + 1])


def examples(
    name: str,
    features: GeneralMatrix,
    targets: Targets,
    splitter: UtteranceSplitter,
    ivectors: IvectorSource | None = None,
    compress: bool = True,
) -> Iterator[tuple[str, NnetExample]]:
    """The examples of an utterance, with their keys NAME-FIRSTFRAME."""
    for chunk in splitter.split(features.shape[0]):
        first = chunk.first - chunk.left
        frames = chunk.left + chunk.frames + chunk.right
        ivector = None if ivectors is None else ivectors.io(first, frames)
        inputs = example_inputs(features, first, frames, chunk.left, ivector, compress)
        target = targets(chunk)
        if compress:
            target.features = compressed(target.features)
        yield f"{name}-{chunk.first}", NnetExample([*inputs, target])


def posterior_targets(post: Posterior, num_pdfs: int, factor: int) -> Targets:
    """Targets from posteriors of output frames, weighted down where chunks overlap.

    Raises:
        ShapeError: a class that does not exist.
    """
    matrix = posterior_matrix(post, num_pdfs)

    def targets(chunk: Chunk) -> NnetIo:
        frames = len(chunk.weights)
        begin = chunk.first // factor
        rows = np.arange(begin, min(begin + frames, len(post)))
        part = take_rows(matrix, rows)
        assert isinstance(part, SparseMatrix)
        counts = np.diff(part.starts)
        values = part.values * repeated(chunk.weights[: len(rows)], counts)
        missing = frames - len(rows)  # frames after the last posterior have no target
        part = SparseMatrix(
            np.full(frames, num_pdfs, np.int32),
            np.concatenate((part.starts, np.full(missing, part.starts[-1]))),
            part.columns,
            values,
        )
        return example_io("output", part, 0, factor)

    return targets


def dense_targets(matrix: np.ndarray, factor: int) -> Targets:
    """Targets from a row of numbers for each output frame; the last one is repeated."""

    def targets(chunk: Chunk) -> NnetIo:
        part = take_range(matrix, chunk.first // factor, len(chunk.weights))
        return example_io("output", part, 0, factor)

    return targets


@dataclass(frozen=True)
class XvectorChunk:
    """A line of a ranges file: which frames of an utterance become an example of which speaker."""

    utterance: str
    archive: int
    first: int
    frames: int
    label: int

    @property
    def key(self) -> str:
        """The key of the example."""
        return f"{self.utterance}-{self.first}-{self.frames}-{self.label}"


def read_ranges(text: str, where: str) -> dict[str, list[XvectorChunk]]:
    """The chunks of each utterance in a ranges file: lines of utterance, archive, (number that
    does not count,) first frame, number of frames, label.

    Raises:
        FormatError: a line is none, with its number.
    """
    chunks: dict[str, list[XvectorChunk]] = {}
    for line, words in enumerate(map(str.split, text.splitlines()), 1):
        if not words:
            continue
        try:
            archive, _, first, frames, label = map(int, words[1:])
            numbers = archive, first, frames, label
            if min(numbers) < 0 or not frames or max(numbers) > INT32[1]:
                raise ValueError
        except ValueError:
            raise FormatError(
                f"{where}:{line}: want an utterance and five whole numbers: archive, archive,"
                f" first frame, frames, label; this is {' '.join(words)[:80]!r}"
            ) from None
        chunks.setdefault(words[0], []).append(
            XvectorChunk(words[0], archive, first, frames, label)
        )
    return chunks


def xvector_example(
    chunk: XvectorChunk, features: GeneralMatrix, num_pdfs: int, compress: bool = True
) -> NnetExample:
    """The example of one chunk: its frames, and one row that says whose they are.

    Raises:
        ShapeError: the utterance is shorter than the chunk, or the label is too large.
    """
    rows = features.shape[0]
    if rows < chunk.frames:
        raise ShapeError(f"a chunk of {chunk.frames} frames of an utterance that has {rows}")
    first = min(chunk.first, rows - chunk.frames)
    part = to_dense(features)[first : first + chunk.frames]
    post = Posterior.from_frames([[(chunk.label, 1.0)]])
    output = example_io("output", posterior_matrix(post, num_pdfs))
    return NnetExample([example_io("input", compressed(part) if compress else part), output])
