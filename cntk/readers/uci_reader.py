"""UCIFastReader: the reader section of a config.

    reader = [
        readerType = "UCIFastReader" ; file = "train.txt" ; randomize = "none"
        features = [ start = 0 ; dim = 2 ]
        labels = [ start = 2 ; dim = 1 ; labelType = "category" ; labelDim = 2
                   labelMappingFile = "labels.txt" ]
    ]

Source: CNTK's `UCIFastReader/UCIFastReader.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...framework.atomic import write_atomically
from ...framework.errors import FormatError, RunError
from ..config import load_array
from ..config.parameters import ConfigParameters
from .crand import nearby_order
from .data import Samples, Stream
from .htk_reader import randomization
from .layout import frames
from .order import WHOLE_SWEEP
from .pack import Minibatch, Packer
from .reader import DataReader, PackedReader
from .sections import complaint, file_sections, precision
from .uci_format import Columns, read_table


def uci_fast_reader(config: ConfigParameters) -> DataReader:
    """The reader of a section with readerType UCIFastReader.

    Raises:
        FormatError: a parameter is missing or wrong, or a file is.
    """
    features, labels = file_sections(config)
    if not features:
        raise complaint(config, "the reader section has no stream with a dim")
    name, part = features[0]
    path = part.string("file")
    columns = [_columns(name, part)]
    kind = "none"
    if labels:
        label_name, label_part = labels[0]
        kind = label_part.string("labelType", "category").lower()
        if kind not in ("category", "regression", "none"):
            raise label_part["labelType"].error("labelType is category, regression or none")
        if kind != "none":
            if label_part.string("file", "") not in ("", path):
                raise label_part["file"].error("features and labels come from the same file")
            columns.append(_columns(label_name, label_part, words=kind == "category"))
    delimiter, point = (config.string(f"custom{n}", "")[:1] for n in ("Delimiter", "DecimalPoint"))
    if delimiter and delimiter == point:
        raise config["customDelimiter"].error("delimiter and decimal point are the same")
    found = read_table(path, columns, delimiter=delimiter, point=point)
    dtype = precision(config)
    values = found[0].astype(dtype)
    streams, data = [Stream(name, columns[0].count, dtype=dtype)], [_dense(values)]
    names: dict[str, Mapping[int, str]] = {}
    if kind == "category":
        mapping, numbers = _categories(label_part, found[1][:, 0], path)
        names[label_name] = dict(enumerate(mapping))
        dim = max(label_part.size("labelDim", 0), len(mapping))
        streams.append(Stream(label_name, dim, True, dtype))
        rows = np.arange(len(numbers) + 1)
        data.append(Samples(rows, np.ones(len(numbers), dtype), numbers, rows))
    elif kind == "regression":
        streams.append(Stream(label_name, columns[1].count, dtype=dtype))
        data.append(_dense(found[1].astype(dtype)))
    partial = config.string("minibatchMode", "partial").lower() == "partial"
    packer = TableMinibatches(streams, data, randomization(config), partial=partial)
    return PackedReader(packer, ahead=config.bool("prefetch", True), labels=names)


def _columns(name: str, part: ConfigParameters, *, words: bool = False) -> Columns:
    start, dim = part.size("start", 0), part.size("dim")
    if not 0 < dim < 1 << 31 or start >= 1 << 31:
        raise part["dim"].error(f"a record cannot have {dim} values from column {start} on")
    return Columns(name, start, dim, words)


def _dense(values: np.ndarray) -> Samples:
    return Samples(np.arange(len(values) + 1), values)


def _categories(
    part: ConfigParameters, words: np.ndarray, path: str
) -> tuple[list[str], np.ndarray]:
    """The labels in their order, and the number of that of each record, int64.

    With `allowMapCreation` a file of labels that is not there is written, in the order in which
    they appear.
    """
    found, where, inverse = np.unique(words, return_index=True, return_inverse=True)
    texts = [word.decode("utf-8", "surrogateescape") for word in found.tolist()]
    file = part.string("labelMappingFile")
    if Path(file).exists():
        names = load_array(file).strings()
    elif part.bool("allowMapCreation", False):
        names = [texts[place] for place in np.argsort(where)]
        text = "".join(f"{name}\n" for name in names)
        write_atomically(file, text.encode("utf-8", "surrogateescape"))
    else:
        raise part["labelMappingFile"].error(
            f"there is no file {file}; the action createLabelMap makes it"
        )
    number_of = {name: number for number, name in enumerate(names)}
    unknown = [place for place, text in enumerate(texts) if text not in number_of]
    if unknown:
        first = min(unknown, key=lambda place: where[place])
        raise FormatError(
            f"{path}: record {where[first] + 1}: the label {texts[first]!r} is not in {file}"
        )
    return names, np.array([number_of[text] for text in texts], np.int64)[inverse.reshape(-1)]


class TableMinibatches(Packer):
    """Minibatches of the records of a table, which stand in memory.

    Args:
        streams: what a record consists of.
        data: the samples of each stream, one for each record.
        window: records are exchanged within ranges of so many; 0: not at all; None: of an epoch.
        partial: whether a minibatch may be short: the last one of the epoch and of the data. If
            not, epochs are made of whole minibatches, and begin the data anew where they end.
    """

    def __init__(
        self,
        streams: list[Stream],
        data: list[Samples],
        window: int | None,
        *,
        partial: bool = True,
    ) -> None:
        self.streams, self._data = streams, data
        self._count = len(data[0].begin) - 1
        self._window, self._partial = window, partial
        self._position = self._end = self._size = 0
        self._order: tuple[int, int, np.ndarray] = (-1, 0, np.zeros(0, np.int64))

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`.

        Raises:
            FormatError: the window is no multiple of the minibatch, or the epoch none of it.
        """
        given = epoch_size
        length = self._count if given is None else given
        if not self._partial:
            unit = (self._window or size) if given is None else size
            length = -(-length // unit) * unit
        self._range = length
        if self._window not in (0, WHOLE_SWEEP):
            self._range = max(self._window, size)
            if self._range > length:
                self._range = length
            elif self._range % size or (given is not None and length % self._range):
                raise FormatError(
                    f"randomize = {self._window}: the range must be a multiple of the minibatch "
                    f"size {size}, and the epoch of {length} a multiple of it"
                )
        self._size, self._length = size, length
        self._position = self._begin = epoch * length
        self._end = self._begin + length

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        count = min(self._count, self._size, self._end - self._position)
        if self._partial:
            count = min(count, self._count - self._position % self._count)
        elif count < self._size:
            count = 0
        if count <= 0:
            return Minibatch(end_of_epoch=True)
        rows = self._rows(count)
        self._position += count
        layout = frames(count)
        names = [stream.name for stream in self.streams]
        return Minibatch(
            {name: part.take(rows) for name, part in zip(names, self._data, strict=True)},
            dict.fromkeys(names, layout),
            np.stack([np.zeros(count, np.int64), rows], axis=1),
            self._position >= self._end,
        )

    def records(self, stream: int, first: int, count: int) -> Samples:
        """See `Packer.records`."""
        if first < 0 or count < 1 or first + count > self._count:
            raise RunError(f"records {first} to {first + count} are wanted of {self._count}")
        return self._data[stream].take(np.arange(first, first + count))

    def _rows(self, count: int) -> np.ndarray:
        """The records of the next minibatch."""
        here = np.arange(self._position, self._position + count)
        if self._window == 0:
            return here % self._count
        sweep = self._position // self._range
        if self._order[:2] != (sweep, self._range):
            order = nearby_order(self._range, self._range // 2, sweep)
            self._order = (sweep, self._range, order)
        within = self._position % self._length
        moved = within - within % self._range + self._order[2][here % self._range]
        return (self._begin + moved % self._length) % self._count
