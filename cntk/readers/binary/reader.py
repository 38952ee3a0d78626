"""BinaryReader: tables in CNTK's files of sections, and such files as the cache of UCIFastReader.

    reader = [ readerType = "BinaryReader" ; file = "features.bin,labels.bin" ]

Source: CNTK's `BinaryReader/BinaryReader.cpp`, `BinaryWriter.cpp`; for the cache
`UCIFastReader/UCIFastReader.cpp` (`InitCache`).
"""

from __future__ import annotations

import numpy as np

from ....framework.base.errors import FormatError
from ...config.parameters import ConfigParameters
from ...config.value import ConfigArray
from ..base.data import Samples, Stream
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.section_file import (
    CATEGORIES,
    CATEGORY,
    DATA,
    LABELS,
    MAPPING,
    REGRESSION,
    Section,
    read_sections,
    write_sections,
)
from ..base.table import TableMinibatches
from ..opening import Opening


def binary_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType BinaryReader.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    files = list(ConfigArray(config["file"], ","))
    partial = config.string("minibatchMode", "partial").lower() == "partial"
    ahead = config.bool("prefetch", True)
    paths = [str(file) for file in files]
    return Opening(lambda: cached(paths, partial=partial, ahead=ahead), files, light=True)


def cached(paths: list[str], *, partial: bool, ahead: bool) -> DataReader:
    """A reader of these files, whole, in their order.

    Raises:
        FormatError: a file is not as it should be, files differ in their records, or two sections
            have one name.
    """
    streams: list[Stream] = []
    data: list[Samples] = []
    names: dict[str, dict[int, str]] = {}
    for path in paths:
        for section in read_sections(path):
            stream_data = _stream(path, section, names)
            if stream_data is None:
                continue
            if stream_data[0].name in [stream.name for stream in streams]:
                raise FormatError(f"{path}: the section {stream_data[0].name!r} is there already")
            if data and len(stream_data[1].begin) != len(data[0].begin):
                raise FormatError(
                    f"{path}: {stream_data[0].name!r} has {len(stream_data[1].begin) - 1} records, "
                    f"{streams[0].name!r} {len(data[0].begin) - 1}"
                )
            streams.append(stream_data[0])
            data.append(stream_data[1])
    if not streams or len(data[0].begin) < 2:
        raise FormatError(f"{', '.join(paths)}: there are no records")
    packer = TableMinibatches(streams, data, 0, partial=partial)
    return PackedReader(packer, ahead=ahead, labels=names, legacy=True)


def _stream(
    path: str, section: Section, names: dict[str, dict[int, str]]
) -> tuple[Stream, Samples] | None:
    """The stream that a section of data or labels is, and its samples."""
    values = section.values
    if section.type not in (DATA, LABELS) or isinstance(values, list):
        return None
    for part in section.inside:
        if part.type == MAPPING and isinstance(part.values, list):
            names[section.name] = dict(enumerate(part.values))
    rows = np.arange(len(values) + 1)
    if section.type == LABELS and section.kind == CATEGORY:
        if values.size and int(values.max()) >= section.dim:
            raise FormatError(
                f"{path}: {section.name}: label {values.max()} is not below {section.dim}"
            )
        ones = np.ones(len(values), np.float32)
        stream = Stream(section.name, section.dim, True)
        return stream, Samples(rows, ones, values[:, 0].astype(np.int64), rows)
    values = values.astype(values.dtype.newbyteorder("="))
    return Stream(section.name, values.shape[1], dtype=values.dtype), Samples(rows, values)


def write_cache(
    path: str, streams: list[Stream], data: list[Samples], names: dict[str, dict[int, str]]
) -> None:
    """Write tables as a file of sections.

    Args:
        path: of the file.
        streams: the first of features, the second, if any, of labels.
        data: their samples, one for each record.
        names: of labels, where they are categories.

    Raises:
        SaveError: the file cannot be written; an older file is untouched.
    """
    features, *rest = zip(streams, data, strict=True)
    sections = [Section(features[0].name, DATA, features[1].values)]
    for stream, samples in rest:
        if not stream.sparse:
            sections.append(Section(stream.name, LABELS, samples.values, REGRESSION, stream.dim))
            continue
        mapping = list(names[stream.name].values())
        inside = [
            Section("mapping", MAPPING, mapping),
            Section("category", CATEGORIES, samples.dense(stream.dim)),
        ]
        assert samples.indices is not None
        numbers = samples.indices.astype(np.uint32)[:, None]
        sections.append(Section(stream.name, LABELS, numbers, CATEGORY, stream.dim, inside))
    write_sections(path, sections, len(data[0].begin) - 1)
