"""The utterances of a corpus: where each lies, its size, and its value.

Sizes come from the headers of the values, so that a list of a million utterances is known before
any is computed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError, OutsideError
from ...kaldi.files.compressed import CompressedMatrix
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.matrix_io import read_matrix, read_matrix_shape
from ...kaldi.tables.kinds import Kind, cut_array, kind_of
from ...kaldi.tables.specifiers import ReadSpecifier, is_specifier
from ...kaldi.tables.streams import Files, is_stream
from ...kaldi.tables.tables import ScriptLine, read_script, script_value, streamed_entries
from ...speech.audio.wav import read_header, read_wav

_log = logging.getLogger(__name__)
_MATRIX = kind_of("matrix")


@dataclass(frozen=True)
class Entry:
    """An utterance of the list.

    Attributes:
        line: where its value is.
        rows, columns: of its value, -1 where only reading it would tell.
    """

    line: ScriptLine
    rows: int
    columns: int


def list_entries(source: str, takes_samples: bool) -> list[Entry]:
    """The utterances of a table, in their order, without those that have no rows.

    Args:
        source: `scp:feats.scp`, `ark:feats.ark`, or the name of such a file; an archive's name
            ends with `.ark`.
        takes_samples: whether the model takes the samples of WAV files.

    Raises:
        FormatError: the table or an entry cannot be read, or can be read only once.
    """
    if not is_specifier(source):
        source = f"{'ark' if source.endswith('.ark') else 'scp'}:{source}"
    specifier = ReadSpecifier.parse(source)
    if is_stream(specifier.name, pipes=True):
        raise FormatError(
            f"{source!r} can be read only once, and every shard reads its part; write it to a file"
        )
    if specifier.source == "ark":
        listed = _of_archive(specifier)
    else:
        listed = _of_script(specifier, takes_samples)
    entries = []
    for entry in listed:
        if entry.rows:
            entries.append(entry)
        else:
            _log.warning("%s: Zero-length utterance: passed over", entry.line.place)
    return entries


def _of_archive(specifier: ReadSpecifier) -> list[Entry]:
    entries = []
    for key, offset, (rows, columns) in streamed_entries(specifier, _STORED, None):
        name = f"{specifier.name}:{offset}"
        entries.append(
            Entry(ScriptLine(key, name, None, f"{specifier.name}: {key}"), rows, columns)
        )
    return entries


def _of_script(specifier: ReadSpecifier, takes_samples: bool) -> list[Entry]:
    files = Files()
    entries = []
    kind = _kind(_SHAPE.read_value, _wave_shape, takes_samples)
    for line in read_script(files, specifier.name):
        rows = columns = -1
        if not line.name.endswith("|"):  # a command would run twice
            try:
                rows, columns = script_value(line, kind, files).shape
            except FormatError as error:
                if not specifier.permissive or isinstance(error, OutsideError):
                    raise
                _log.warning("%s; the entry is passed over", error)
                continue
        entries.append(Entry(line, rows, columns))
    return entries


class Values:
    """Reads the values of entries, float32, [rows, columns].

    Args:
        takes_samples: as `list_entries` takes it.
    """

    def __init__(self, takes_samples: bool) -> None:
        self._files = Files()
        self._kind = _kind(_MATRIX.read_value, _wave_samples, takes_samples)

    def read(self, line: ScriptLine) -> np.ndarray:
        """The value of an entry. Raises FormatError: it cannot be read."""
        return script_value(line, self._kind, self._files)


# Reading of one value


def _kind(
    matrix: Callable[[Reader], np.ndarray],
    samples: Callable[[Reader], np.ndarray],
    takes_samples: bool,
) -> Kind:
    """Values that are matrices, or WAV files, which are recognized by their first bytes."""

    def read(reader: Reader) -> np.ndarray:
        if bytes(reader.data[reader.offset : reader.offset + 4]) != b"RIFF":
            return matrix(reader)
        if not takes_samples:
            raise FormatError(
                "this is a WAV file, and the model takes features; they are not computed here: give"
                " them as ark or scp, as Kaldi's compute-mfcc-feats writes them"
            )
        return samples(reader)

    return Kind("matrix", read, _MATRIX.write, cut_array, header=False)


def _stored_shape(reader: Reader) -> tuple[int, int]:
    """Rows and columns of a matrix that is passed over, and not decompressed."""
    if reader.binary and reader.peek_token().startswith("CM"):
        shape = CompressedMatrix.read(reader).elements.shape
    else:
        shape = read_matrix(reader).shape
    return shape[0], shape[1]


def _of_shape(rows: int, columns: int) -> np.ndarray:
    """An array without memory that ranges can be cut from."""
    return np.broadcast_to(np.float32(0), (rows, columns))


_STORED = Kind("matrix", _stored_shape, _MATRIX.write)
_SHAPE = Kind("matrix", lambda reader: _of_shape(*read_matrix_shape(reader)), _MATRIX.write)


def _sample_count(reader: Reader) -> int:
    """How many samples the WAV file has that begins here: of one channel, and not cut off."""
    start = reader.offset
    header = read_header(reader)
    if header.channels != 1:
        problem = f"16 bits and {header.channels} channels; 16 bits and 1 are wanted"
        raise reader.error(f"a WAV file of {problem}", start)
    left = reader.remaining() + reader.beyond
    size = left if header.bytes is None else header.bytes
    if size > left:
        problem = f"{left // 2} samples are there, {size // 2} are wanted"
        raise reader.error(f"the WAV file is cut off: {problem}", start)
    return size // 2


def _wave_shape(reader: Reader) -> np.ndarray:
    return _of_shape(_sample_count(reader), 1)


def _wave_samples(reader: Reader) -> np.ndarray:
    start = reader.offset
    _sample_count(reader)
    reader.offset = start
    return read_wav(reader).samples.T
