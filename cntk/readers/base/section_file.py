"""CNTK's files of sections, which BinaryWriter makes as a cache and BinaryReader reads.

A section is a header of at least 320 bytes (little-endian; see `_HEADER`), its elements, and
sections inside, whose places in the file the header lists. Records of data and of labels as vectors
are floats; labels are numbers of 32 bits, with their names in a section of zero-terminated strings.
Source: CNTK's `BinaryReader/BinaryReader.h` and `BinaryFile.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.files.atomic import PathLike, atomic_file
from .steady_file import SteadyFile

FILE, DATA, LABELS, MAPPING, STATISTICS, CATEGORIES = range(1, 7)
"""Types of sections."""

CATEGORY, REGRESSION = 1, 2
"""Kinds of labels."""

_MAGIC_FILE, _MAGIC_SECTION = 0xACE9, 0x4ACE
_VERSION = 0x0100
_SIZE = 320
_MOST_INSIDE = 6
_ALIGNMENT = 1 << 16
_DEEPEST = 8
_FLOATS, _STRINGS, _INTEGERS = 1, 2, 3
_AUXILIARY, _VARIABLE = 2, 4
_NUMBERS = {(_FLOATS, 4): "<f4", (_FLOATS, 8): "<f8", (_INTEGERS, 4): "<u4", (_INTEGERS, 8): "<u8"}

_HEADER = np.dtype(
    {
        "names": [
            *("magic", "version", "header", "inside", "type", "data", "element", "structure"),
            *("per_record", "flags", "count", "kind", "dim", "name", "size", "size_all", "places"),
        ],
        "formats": [*("<u2",) * 10, "<u8", "<u2", "<u2", "S128", "<u8", "<u8", (("<u8"), 6)],
        "offsets": [*range(0, 20, 2), 32, 40, 42, 128, 256, 264, 272],
        "itemsize": _SIZE,
    }
)


@dataclass(eq=False)
class Section:
    """A section.

    Attributes:
        name: the part of its description before the colon.
        type: one of the types above.
        values: [records, elements of a record]; of a mapping: the names, a list.
        kind, dim: of labels: which, and how many there are.
        inside: sections inside.
    """

    name: str
    type: int
    values: np.ndarray | list[str]
    kind: int = 0
    dim: int = 0
    inside: list[Section] = field(default_factory=list)


def read_sections(path: PathLike) -> list[Section]:
    """The sections of a file.

    Raises:
        FormatError: byte offset of a header that is not as it should be.
    """
    file = SteadyFile(path)
    try:
        return _Sections(file).read()
    finally:
        file.close()


class _Sections:
    """The sections of a file, each read once: they cannot share bytes."""

    def __init__(self, file: SteadyFile) -> None:
        self._file = file
        self._path = file.path
        self._size = file.size
        self._seen: set[int] = set()
        self._left = file.size - _SIZE  # bytes that no section has taken

    def read(self) -> list[Section]:
        return self._inside(0, self._header(0, _MAGIC_FILE), 0)

    def _error(self, at: int, text: str) -> FormatError:
        return FormatError(f"{self._path}: byte {at}: {text}")

    def _header(self, at: int, magic: int) -> np.void:
        if at + _SIZE > self._size:
            raise self._error(at, "a header was expected; the file ends")
        head = self._file.read(at, at + _SIZE).view(_HEADER)[0]
        if head["magic"] != magic or head["version"] < _VERSION:
            raise self._error(at, "this is no header of a section")
        if not _SIZE <= head["header"] < 2 * _SIZE or head["inside"] > _MOST_INSIDE:
            raise self._error(at, "the header is damaged")
        return head

    def _inside(self, at: int, head: np.void, depth: int) -> list[Section]:
        last = at
        sections = []
        for place in head["places"][: int(head["inside"])].tolist():
            # Each is after the one before, so that none can hold itself.
            if not last < place < self._size or depth == _DEEPEST:
                raise self._error(at + 272, "places of sections do not ascend")
            if place in self._seen:
                raise self._error(at + 272, f"the section at byte {place} is in two others")
            self._seen.add(place)
            sections.append(self._section(place, depth + 1))
            last = place
        return sections

    def _values(self, begin: int, size: int, name: str) -> np.ndarray:
        """The bytes of a section."""
        if not 0 <= size <= self._size - begin:
            raise self._error(begin, f"{name!r} needs {size} bytes; the file ends")
        self._left -= size + _SIZE
        if self._left < 0:
            raise self._error(begin, f"{name!r} has bytes of another section")
        return self._file.read(begin, begin + size)

    def _section(self, at: int, depth: int) -> Section:
        head = self._header(at, _MAGIC_SECTION)
        name = head["name"].decode("utf-8", "replace").partition(":")[0]
        begin = at + int(head["header"])
        count = int(head["count"])
        values: np.ndarray | list[str]
        if head["type"] == MAPPING:
            text = self._values(begin, int(head["size"]) - int(head["header"]), name).tobytes()
            values = [word.decode("utf-8", "replace") for word in text.split(b"\0")[:count]]
            if len(values) != count:
                raise self._error(begin, f"{count} names were expected")
        elif head["type"] == STATISTICS:
            values = np.zeros((0, 1))
        else:
            kind = _NUMBERS.get((int(head["data"]), int(head["element"])))
            per_record = max(int(head["per_record"]), 1)
            if kind is None or count % per_record:
                raise self._error(at, f"the elements of {name!r} are of an unknown kind")
            raw = self._values(begin, count * np.dtype(kind).itemsize, name)
            values = raw.view(kind).reshape(-1, per_record)
        inside = self._inside(at, head, depth)
        return Section(name, int(head["type"]), values, int(head["kind"]), int(head["dim"]), inside)


def write_sections(path: PathLike, sections: Sequence[Section], records: int) -> None:
    """Write a file of sections.

    Args:
        path: of the file.
        sections: the outer ones; at most six, and in each at most six.
        records: of data and labels.

    Raises:
        FormatError: there are too many sections.
        SaveError: the file cannot be written; an older file is untouched.
    """
    blocks: list[tuple[int, bytes]] = []
    head = np.zeros((), _HEADER)
    head["magic"], head["version"], head["header"] = _MAGIC_FILE, _VERSION, _SIZE
    head["type"], head["count"], head["name"] = FILE, records, b"Binary Data File"
    head["size"] = _SIZE
    _place(path, head, sections, _SIZE, blocks)
    with atomic_file(path) as file:
        file.write(head.tobytes())
        for place, block in blocks:
            file.seek(place)
            file.write(block)


def _place(
    path: PathLike, head: np.ndarray, sections: Sequence[Section], end: int, blocks: list
) -> int:
    """Gives places after `end` to sections; returns where the last one ends."""
    if len(sections) > _MOST_INSIDE:
        raise FormatError(f"{path}: {len(sections)} sections; {_MOST_INSIDE} are possible")
    for number, section in enumerate(sections):
        place = -(-end // _ALIGNMENT) * _ALIGNMENT
        own, body = _encoded(section)
        slot = len(blocks)
        blocks.append((place, b""))
        head["places"][number] = place
        end = _place(path, own, section.inside, place + _SIZE + len(body), blocks)
        own["size_all"] = end - place
        blocks[slot] = (place, own.tobytes() + body)
    head["inside"] = len(sections)
    head["size_all"] = end
    return end


def _encoded(section: Section) -> tuple[np.ndarray, bytes]:
    head = np.zeros((), _HEADER)
    head["magic"], head["version"], head["header"] = _MAGIC_SECTION, _VERSION, _SIZE
    head["type"], head["kind"], head["dim"] = section.type, section.kind, section.dim
    described = {DATA: "Data Section", LABELS: "Labels", MAPPING: "Label Map"}
    head["name"] = f"{section.name}:{described.get(section.type, 'Category Labels')}".encode()[:127]
    if isinstance(section.values, list):
        body = b"".join(word.encode() + b"\0" for word in section.values)
        head["data"], head["flags"] = _STRINGS, _AUXILIARY | _VARIABLE
        head["count"], head["per_record"] = len(section.values), 1
    else:
        values = section.values
        integers = values.dtype.kind in "iu"
        kind = "<u4" if integers else f"<f{values.dtype.itemsize}"
        body = values.astype(kind).tobytes()
        head["data"] = _INTEGERS if integers else _FLOATS
        head["element"], head["per_record"] = np.dtype(kind).itemsize, values.shape[1]
        head["count"] = values.size
    head["size"] = _SIZE + len(body)
    return head, body
