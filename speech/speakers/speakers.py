"""Speakers that are enrolled by vectors of their speech, and verified."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, ShapeError
from ...framework.base.sequence import repeated
from ...framework.base.untrusted.opener import path_text
from ...kaldi.files.kaldi_io import Reader, Writer
from ..features.transforms import transform as projected
from ..recognize.speaker_model import SpeakerVector
from .lda import speaker_lda
from .plda import Plda, PldaOptions, estimate_plda

_MEAN, _TRANSFORM, _PLDA = "mean.vec", "transform.mat", "plda"
Vector = np.ndarray | SpeakerVector


@dataclass(frozen=True)
class Match:
    """How well a vector fits a speaker.

    Attributes:
        name: of the speaker.
        score: how much likelier it is the speaker's than a stranger's, as a logarithm.
    """

    name: str
    score: float


class Speakers:
    """Speakers known by their vectors: x-vectors, iVectors, or a Vosk speaker model's.

    Vectors are prepared as in Kaldi's recipes: less the mean, projected by LDA, scaled to one
    length; then PLDA compares them.

    Example:
        speakers = Speakers.train({"ann": ann_vectors, "bob": bob_vectors, ...}, lda_dim=20)
        speakers.enroll("eve", eve_vectors)
        speakers.verify("eve", vector)

    Args:
        plda: what compares vectors.
        mean: subtracted from vectors, [columns]; None: nothing is.
        transform: LDA, [dim, columns], or with a column of offsets; None: none.

    Raises:
        ShapeError: they do not go together.
    """

    def __init__(
        self, plda: Plda, mean: np.ndarray | None = None, transform: np.ndarray | None = None
    ) -> None:
        self.plda = plda
        self.mean = mean
        self.transform = transform
        self._sums: dict[str, np.ndarray] = {}
        self._counts: dict[str, int] = {}
        rows, columns = (plda.dim, plda.dim) if transform is None else transform.shape
        self.columns = columns if mean is None else len(mean)
        if rows != plda.dim or columns not in (self.columns, self.columns + 1):
            raise ShapeError(
                f"LDA {rows} x {columns} with a mean of {self.columns} elements and PLDA of"
                f" {plda.dim}"
            )

    @classmethod
    def train(
        cls,
        vectors: Mapping[str, Iterable[Vector]],
        lda_dim: int = 0,
        iterations: int = 10,
    ) -> Speakers:
        """What compares vectors, of vectors of many speakers, who are not enrolled by this.

        Args:
            vectors: some for each speaker.
            lda_dim: elements after LDA; 0: there is no LDA.
            iterations: of the estimation of PLDA.

        Raises:
            FormatError: there are too few vectors, or no speaker has two.
            ShapeError: they have different numbers of elements.
        """
        groups = [_rows(each) for each in vectors.values()]
        groups = [each for each in groups if len(each)]
        if not groups or len({each.shape[1] for each in groups}) > 1:
            raise ShapeError("vectors of one number of elements are wanted, for some speakers")
        rows = np.concatenate(groups)
        mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        transform = None
        if lda_dim:
            numbers = repeated(np.arange(len(groups)), list(map(len, groups)))
            transform = speaker_lda(rows - mean, numbers, lda_dim)[0]
        prepared = [_prepared(each, mean, transform) for each in groups]
        return cls(estimate_plda(prepared, iterations), mean, transform)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Speakers:
        """Read `plda`, and `mean.vec` and `transform.mat` where they are, from a folder.

        Raises:
            FormatError: a file is missing or damaged. ShapeError: they do not go together.
        """
        path = Path(path_text(folder))
        mean = transform = None
        if (path / _MEAN).is_file():
            mean = Reader(str(path / _MEAN)).read_vector(np.float32)
        if (path / _TRANSFORM).is_file():
            transform = Reader(str(path / _TRANSFORM)).read_matrix(np.float32)
        return cls(Plda.read(Reader(str(path / _PLDA))), mean, transform)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the files that `load` reads; enrolled speakers are not among them.

        Raises:
            SaveError: the folder cannot be written.
        """
        path = Path(path_text(folder))
        path.mkdir(parents=True, exist_ok=True)
        writer = Writer()
        self.plda.write_to(writer)
        writer.save(path / _PLDA)
        for name, values in ((_MEAN, self.mean), (_TRANSFORM, self.transform)):
            if values is not None:
                writer = Writer()
                write = writer.write_vector if values.ndim == 1 else writer.write_matrix
                write(np.asarray(values, np.float32))
                writer.save(path / name)

    @property
    def names(self) -> list[str]:
        """The enrolled speakers."""
        return list(self._sums)

    def enroll(self, name: str, vectors: Vector | Iterable[Vector]) -> None:
        """Add vectors of a speaker, who may be enrolled already.

        Args:
            vectors: one, [columns], or several.

        Raises:
            ShapeError: they have another number of elements. FormatError: there are none.
        """
        rows = self._checked(vectors)
        if not len(rows):
            raise FormatError(f"there are no vectors to enroll {name} with")
        self._sums[name] = self._sums.get(name, 0.0) + rows.sum(axis=0, dtype=np.float64)
        self._counts[name] = self._counts.get(name, 0) + len(rows)

    def forget(self, name: str) -> None:
        """Enroll a speaker no longer. Raises OpscopeError: the speaker is not enrolled."""
        self._known(name)
        del self._sums[name], self._counts[name]

    def scores(self, vector: Vector) -> list[Match]:
        """How well a vector fits each enrolled speaker, the best first.

        Raises:
            ShapeError: it has another number of elements.
        """
        return sorted(self._matches(self.names, vector), key=lambda match: -match.score)

    def verify(self, name: str, vector: Vector, threshold: float = 0.0) -> bool:
        """Whether a vector is of an enrolled speaker: whether its score is above a threshold.

        Raises:
            OpscopeError: the speaker is not enrolled. ShapeError: as `scores`.
        """
        self._known(name)
        (match,) = self._matches([name], vector)
        return match.score > threshold

    def identify(self, vector: Vector, threshold: float = 0.0) -> str | None:
        """The enrolled speaker whom a vector fits best, or None for a stranger.

        Raises:
            ShapeError: as `scores`.
        """
        best = self.scores(vector)[:1]
        return best[0].name if best and best[0].score > threshold else None

    def _matches(self, names: list[str], vector: Vector) -> list[Match]:
        """How well a vector fits some of the enrolled speakers."""
        tested = self._compared(self._checked(vector), np.ones(1))
        if not names:
            return []
        counts = np.array([self._counts[name] for name in names], np.float64)
        means = np.stack([self._sums[name] for name in names]) / counts[:, None]
        found = self.plda.ratios(self._compared(means, counts), counts[:, None], tested)
        return [Match(name, float(each)) for name, each in zip(names, found, strict=True)]

    def _known(self, name: str) -> None:
        if name not in self._sums:
            known = ", ".join(self._sums) or "none"
            raise OpscopeError(f"{name} is not enrolled; known are {known}")

    def _checked(self, vectors: Vector | Iterable[Vector]) -> np.ndarray:
        rows = _rows(vectors)
        if rows.shape[1] != self.columns:
            raise ShapeError(f"vectors of {rows.shape[1]} elements: {self.columns} are wanted")
        return rows

    def _compared(self, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Vectors, means of `counts` others, in the space of PLDA."""
        prepared = _prepared(rows, self.mean, self.transform)
        return self.plda.transformed(prepared, counts, PldaOptions())[0]


def _rows(vectors: Vector | Iterable[Vector]) -> np.ndarray:
    """Vectors as rows, [some, columns]."""
    if isinstance(vectors, SpeakerVector):
        vectors = vectors.values
    if isinstance(vectors, np.ndarray) and vectors.ndim < 3:
        return np.atleast_2d(vectors)
    values = [each.values if isinstance(each, SpeakerVector) else each for each in vectors]
    return np.stack(values) if values else np.empty((0, 0), np.float32)


def _prepared(
    rows: np.ndarray, mean: np.ndarray | None, transform: np.ndarray | None
) -> np.ndarray:
    """Vectors less the mean, projected, with the length sqrt(dim)."""
    wide = rows.astype(np.float64)
    if mean is not None:
        wide = wide - mean
    if transform is not None:
        wide = projected(wide, transform)
    return normalized(wide)


def normalized(rows: np.ndarray) -> np.ndarray:
    """Vectors scaled to the length sqrt(dim); zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True) / np.sqrt(rows.shape[1])
    return rows / np.where(lengths > 0, lengths, 1.0)
