"""One shard, from its description to its archive: what a job of a scoring does."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, OutsideError, RunError
from ...framework.base.files.atomic import atomic_file, write_atomically
from ...kaldi.tables.tables import ScriptLine, key_bytes, value_bytes
from .folder import Description, ScoreFolder
from .listing import Values
from .options import ScoreOptions
from .scorer import Keyed, Scorer, check_columns
from .scorers import model_digest, open_scorer

_TOLD_EVERY = 2.0  # seconds between two looks at how far a shard is


def run_shard(folder: ScoreFolder, number: int, model: str, options: ScoreOptions) -> None:
    """Compute a shard, unless it is finished: its archive first, then its record.

    An error of the input or of the disk, which would come again, goes into `parts/N.failed`.

    Raises:
        SaveError: there is no such shard, or not even that file can be written.
        FormatError: the file that says what the shard is says something else.
    """
    text, description = folder.description(number)
    if folder.finished(number) is not None:
        return
    folder.remove(folder.part(number, "failed"))
    try:
        folder.finish(number, text, _Shard(folder, number, description).compute(model, options))
    except OpscopeError as error:
        message = f"shard {number} of {description.shards}: {error}"
        write_atomically(folder.part(number, "failed"), message.encode("utf-8", "surrogateescape"))


class _Shard:
    def __init__(self, folder: ScoreFolder, number: int, description: Description) -> None:
        self._folder = folder
        self._number = number
        self._description = description
        self._entries: list[tuple[str, int, int]] = []
        self._skipped: list[tuple[str, str]] = []
        self._next_telling = time.monotonic() + _TOLD_EVERY

    def compute(self, model: str, options: ScoreOptions) -> dict[str, Any]:
        """Write the archive; returns the record."""
        if model_digest(model) != self._description.model:
            raise RunError(f"{model} has changed since the scoring began")
        scorer = open_scorer(model, options)
        values = Values(scorer.input_dim == 1)
        written = hashlib.sha256()
        offset = done = 0
        with atomic_file(self._folder.archive(self._number)) as file:
            for lines in self._description.groups:
                group = list(self._read(values, lines, scorer.input_dim))
                for key, data in self._scores(scorer, group):
                    head = key_bytes(key)
                    self._entries.append((key, offset + len(head), len(data)))
                    offset += self._put(file, written, head + data)
                done += len(lines)
                self._tell(done)
        self._skipped += scorer.skipped
        self._tell(done, at_end=True)
        return {
            "sha256": written.hexdigest(),
            "bytes": offset,
            "entries": self._entries,
            "skipped": self._skipped,
            "cpu_seconds": round(time.process_time(), 3),
        }

    def _put(self, file: BinaryIO, written: Any, data: bytes | bytearray) -> int:
        file.write(data)
        written.update(data)
        return len(data)

    def _read(
        self, values: Values, lines: Sequence[tuple[str, str, str | None, str]], input_dim: int
    ) -> Iterator[Keyed]:
        for line in lines:
            place = ScriptLine(*line)
            try:
                value = values.read(place)
            except FormatError as error:
                if not self._description.permissive or isinstance(error, OutsideError):
                    raise
                self._skipped.append((place.key, str(error)))
                continue
            if not len(value):
                self._skipped.append((place.key, "it has no frames"))
                continue
            check_columns(place.place, len(value), value.shape[1], input_dim)
            yield place.key, value

    def _scores(self, scorer: Scorer, group: list[Keyed]) -> Iterator[tuple[str, bytearray]]:
        """Keys and values of a group as they stand in an archive."""
        if not group:
            return
        binary = self._description.binary
        try:
            for key, score in scorer.score(group):
                kind = "vector" if np.ndim(score) == 1 else "matrix"
                yield key, value_bytes(kind, score, binary)
        except OpscopeError as error:
            if any(key in str(error) for key, _ in group):
                raise
            where = f"utterances {group[0][0]} to {group[-1][0]}"
            raise RunError(f"{where}: {error}") from error

    def _tell(self, done: int, at_end: bool = False) -> None:
        if at_end or time.monotonic() >= self._next_telling:
            self._next_telling = time.monotonic() + _TOLD_EVERY
            path = self._folder.part(self._number, "progress")
            write_atomically(path, str(done).encode())
