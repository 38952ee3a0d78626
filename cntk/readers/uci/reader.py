"""UCIFastReader: the reader section of a config.

    reader = [
        readerType = "UCIFastReader" ; file = "train.txt" ; randomize = "none"
        features = [ start = 0 ; dim = 2 ]
        labels = [ start = 2 ; dim = 1 ; labelType = "category" ; labelDim = 2
                   labelMappingFile = "labels.txt" ]
    ]

With `writerType = "BinaryWriter"` the table is written to `wfile`, and read from there once that is
there.

Source: CNTK's `UCIFastReader/UCIFastReader.cpp`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np

from ....framework.base.errors import FormatError, OpscopeError
from ....framework.base.files.atomic import write_atomically
from ...config import load_array
from ...config.parameters import ConfigParameters
from ..base.data import Samples, Stream
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import complaint, file_sections, precision
from ..base.table import TableMinibatches
from ..binary.reader import cached, write_cache
from ..htk.reader import randomization
from ..opening import Opening
from .format import Columns, line_of, read_table


def uci_fast_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType UCIFastReader.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    caches = config.has("writerType")
    config.only_if(caches, "there is no writerType, so nothing is cached", "wfile")
    cache = config.string("wfile", "") if caches else ""
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
    dtype = precision(config)
    window = randomization(config)
    partial = config.string("minibatchMode", "partial").lower() == "partial"
    ahead = config.bool("prefetch", True)
    streams = [Stream(name, columns[0].count, dtype=dtype)]
    files = part.files("file")
    categories: _Categories | None = None
    if kind == "category":
        categories = _Categories.of(label_part)
        if not categories.create:
            files += label_part.files("labelMappingFile")
        streams.append(Stream(label_name, categories.dim, True, dtype))
    elif kind == "regression":
        streams.append(Stream(label_name, columns[1].count, dtype=dtype))
    if cache and os.path.exists(cache):
        return Opening(lambda: cached([cache], partial=partial, ahead=ahead))

    def opened() -> DataReader:
        table = read_table(path, columns, delimiter=delimiter, point=point)
        data = [_dense(table[0].astype(dtype))]
        names: dict[str, dict[int, str]] = {}
        given = list(streams)
        if categories is not None:
            mapping, numbers = categories.find(table[1][:, 0], path)
            names[label_name] = dict(enumerate(mapping))
            given[1] = replace(streams[1], dim=max(categories.dim, len(mapping)), shape=())
            rows = np.arange(len(numbers) + 1)
            data.append(Samples(rows, np.ones(len(numbers), dtype), numbers, rows))
        elif kind == "regression":
            data.append(_dense(table[1].astype(dtype)))
        if cache:
            write_cache(cache, given, data, names)
        packer = TableMinibatches(given, data, window, partial=partial)
        return PackedReader(packer, ahead=ahead, labels=names, legacy=True)

    writes = bool(cache) or (categories is not None and categories.names is None)
    return Opening(opened, files, streams, light=not writes)


def _columns(name: str, part: ConfigParameters, *, words: bool = False) -> Columns:
    start = part.size("start", 0)
    dim = part.size("dim")
    if not 0 < dim < 1 << 31 or start >= 1 << 31:
        raise part["dim"].error(f"a record cannot have {dim} values from column {start} on")
    return Columns(name, start, dim, words)


def _dense(values: np.ndarray) -> Samples:
    return Samples(np.arange(len(values) + 1), values)


@dataclass(frozen=True)
class _Categories:
    """The labels of a section.

    Attributes:
        dim: how many labels there are at least.
        file: with the labels in their order.
        create: whether the file is written where it is not there, with the labels in the order in
            which they appear.
        names: of the file; None where it is not there.
        absent: what is wrong if the file is not there.
    """

    dim: int
    file: str
    create: bool
    names: list[str] | None = None
    absent: OpscopeError | None = None

    @classmethod
    def of(cls, part: ConfigParameters) -> _Categories:
        dim = part.size("labelDim", 0)
        create = part.bool("allowMapCreation", False)
        file = part.string("labelMappingFile")
        if os.path.isfile(file):
            names = load_array(file).strings()
            return cls(max(dim, len(names)), file, create, names)
        if create or not file:
            return cls(dim, file, create)
        absent = part["labelMappingFile"].error(
            f"there is no file {file}; the action createLabelMap makes it"
        )
        return cls(dim, file, create, None, absent)

    def find(self, words: np.ndarray, path: str) -> tuple[list[str], np.ndarray]:
        """The labels in their order, and the number of each record's label, int64."""
        if self.absent is not None:
            raise self.absent
        labels, where, inverse = np.unique(words, return_index=True, return_inverse=True)
        texts = [word.decode("utf-8", "surrogateescape") for word in labels.tolist()]
        names = self.names
        if names is None:
            names = [texts[place] for place in np.argsort(where)]
            text = "".join(f"{name}\n" for name in names)
            write_atomically(self.file, text.encode("utf-8", "surrogateescape"))
        number_of = {name: number for number, name in enumerate(names)}
        unknown = [place for place, text in enumerate(texts) if text not in number_of]
        if unknown:
            first = min(unknown, key=lambda place: where[place])
            line = line_of(path, int(where[first]) + 1)
            raise FormatError(f"{path}:{line}: the label {texts[first]!r} is not in {self.file}")
        return names, np.array([number_of[text] for text in texts], np.int64)[inverse.reshape(-1)]
