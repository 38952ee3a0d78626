"""The bytes of a file, memory-mapped, from which readers take numbers and arrays in order."""

from __future__ import annotations

import errno
import mmap
import os
import struct
from typing import Any

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.opener import open_file
from ....framework.base.untrusted.values import shown
from .records import first_records

_LONGEST_STRING = 1 << 16


class ByteFile:
    """A cursor over bytes: whatever is taken lies inside of them, or an error names the place.

    Args:
        data: the bytes. name: of the file, for messages.
        before: bytes that stood before these, where they are a piece of something longer.
    """

    def __init__(self, data: Any, name: str, before: int = 0) -> None:
        self.data = np.frombuffer(data, np.uint8)
        self.name = name
        self.before = before
        self.offset = 0

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> ByteFile:
        """A file, memory-mapped; read where its file system maps no files.

        Raises:
            FormatError: it cannot be opened, is empty, or is no regular file.
        """
        name = os.fspath(path)
        with open_file(name) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise FormatError(f"{name}: the file is empty")
            try:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
                data = file.read()
            return cls(data, name)

    @property
    def remaining(self) -> int:
        """How many bytes lie after the cursor."""
        return len(self.data) - self.offset

    def error(self, text: str, offset: int | None = None) -> FormatError:
        """An error that names the file and a byte of it, by default that of the cursor."""
        place = self.offset if offset is None else offset
        return FormatError(f"{self.name}: {text} (byte {self.before + place})")

    def skip(self, size: int, what: str) -> int:
        """Step over bytes; returns where they begin."""
        if not 0 <= size <= self.remaining:
            raise self.error(f"{what} needs {size} bytes, the file has {self.remaining} more")
        start = self.offset
        self.offset += size
        return start

    def unpack(self, form: str, what: str) -> tuple[Any, ...]:
        """Numbers, as `struct` has them, with the lowest byte first."""
        form = f"<{form}"
        start = self.skip(struct.calcsize(form), what)
        return struct.unpack_from(form, self.data.data, start)

    def array(self, dtype: Any, count: int, what: str) -> np.ndarray:
        """`count` items, as a view of the file: [count]."""
        dtype = np.dtype(dtype)
        start = self.skip(count * dtype.itemsize if count >= 0 else -1, what)
        return np.frombuffer(self.data, dtype, count, start)

    def text(self, what: str) -> str:
        """A string after its length, as OpenFst writes it."""
        start = self.offset
        (length,) = self.unpack("i", what)
        if not 0 <= length <= _LONGEST_STRING:
            raise self.error(f"{what} of {length} bytes", start)
        return bytes(self.array(np.uint8, length, what)).decode("utf-8", "surrogateescape")

    def labeled_texts(self, count: int, most: int, what: str) -> dict[int, str]:
        """`count` strings as `text` takes them, each with its label after it, an int64.

        The same as `text` and `unpack` in turn, in a loop that takes a million in half a second.

        Args:
            most: the largest label. what: a string is, for errors.
        """
        lengths, labels = struct.Struct("<i").unpack_from, struct.Struct("<q").unpack_from
        at = self.offset
        size = len(self.data)
        data = self.data.data
        texts: dict[int, str] = {}
        for _ in range(count):
            length = lengths(data, at)[0] if at + 4 <= size else -1
            end = at + 4 + length
            if not 0 <= length <= _LONGEST_STRING or end + 8 > size:
                break
            (label,) = labels(data, end)
            if not 0 <= label <= most:
                break
            texts[label] = str(data[at + 4 : end], "utf-8", "surrogateescape")
            at = end + 8
        else:
            self.offset = at
            return texts
        self.offset = at
        text = self.text(what)
        (label,) = self.unpack("q", f"the label of {what}")
        raise self.error(f"{what}, {shown(text)}, has the label {label}", at)

    def record_starts(self, count: int, head: int, place: int, item: int, what: str) -> np.ndarray:
        """Where records of differing lengths begin, and the last ends; the cursor moves past them.

        A record has `head` bytes, in which an int64 at `place` counts the items of `item` bytes
        that it has besides.

        Returns:
            int64, [count + 1].
        """
        if count < 0 or count * head > self.remaining:
            raise self.error(f"{count} {what} cannot stand in {self.remaining} bytes")
        starts = np.empty(count + 1, np.int64)
        first = first_records(self.data, self.offset, count, head, place, item)
        known = len(first) - 1
        starts[: known + 1] = first
        at = int(first[-1])
        size = len(self.data)
        data = self.data.data
        unpack = struct.Struct("<q").unpack_from
        for i in range(known, count):
            starts[i] = at
            if at + head > size:
                raise self.error(f"the file ends in the {what}, at number {i} of {count}", at)
            items = unpack(data, at + place)[0]
            if not 0 <= items <= (size - at - head) // item:
                raise self.error(f"number {i} of the {what} has {items} items", at)
            at += head + items * item
        starts[count] = self.offset = at
        return starts
