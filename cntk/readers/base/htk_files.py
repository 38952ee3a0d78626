"""HTK parameter files, and the lists (scp) that name them.

A file has a header of 12 bytes (frames, period in 100 ns, bytes a frame, kind) and then frames of
float32, or with the qualifier `_C` of int16 with a scale and an offset for each dimension. With the
qualifier `_K` a checksum follows. Byte order is big-endian as HTK writes, or little-endian: the
period tells. An entry of a list is `path`, `name=path`, or `name=path[first,last]`. Sources: The
HTK Book, chapter 5.10; HTK's `HParm.c` for the checksum, which CNTK does not look at; CNTK's
`HTKMLFReader/htkfeatio.h`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import PurePosixPath
from typing import BinaryIO

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.files.atomic import PathLike, write_atomically
from ....framework.base.untrusted.opener import open_file
from ....framework.base.untrusted.roots import current
from ....framework.base.untrusted.values import shown
from ...base.text import read_text

KINDS = {6: "MFCC", 7: "FBANK", 9: "USER", 11: "PLP", 12: "USER"}
USER = 9
_STREAM = 12  # without qualifiers: an identifier of 16 bytes follows the header
_QUALIFIERS = {  # as the name of a kind shows them, in this order
    0o100: "E",
    0o400: "D",
    0o200: "N",
    0o1000: "A",
    0o100000: "T",
    0o4000: "Z",
    0o20000: "0",
}
CHECKED = 0o10000
"""The bit of a kind for a checksum."""

_COMPRESSED, _QUANTIZED = 0o2000, 0o40000
_BASE = 0o77
_HEADER = 12
_COMPRESSION_ROWS = 4  # so many frames are counted for scales and offsets
_MODULUS = 36897
_BLOCK = 1 << 14  # words of a checksum that are summed at once
_IDX = re.compile(r"-ubyte$")
_IDX_MAGIC = 2051
_RANGE = re.compile(r"(?P<path>[^\[]*)\[(?P<first>[0-9]{1,10}),(?P<last>[0-9]{1,10})\]\s*")


@dataclass(frozen=True)
class HtkPath:
    """An entry of a list.

    Attributes:
        name: of the utterance, without extension.
        path: of the file.
        first, last: the frames of it that are meant, both included; None: all.
        line: of the list; 0: it stands in none.
    """

    name: str
    path: str
    first: int = 0
    last: int | None = None
    line: int = field(default=0, compare=False)

    @property
    def frames(self) -> int | None:
        """How many frames; None if only the file tells."""
        return None if self.last is None else self.last - self.first + 1


def parse_path(text: str, place: str = "") -> HtkPath:
    """An entry of a list.

    Raises:
        FormatError: brackets do not hold two numbers, or the first is above the second; `place` is
            put before the message.
    """
    name, equals, rest = text.strip().partition("=")
    if not equals:
        return HtkPath(_without_extension(name), name)
    if "[" not in rest:
        return HtkPath(_without_extension(name), rest)
    match = _RANGE.fullmatch(rest)
    if match is None:
        raise FormatError(f"{place}'name=path[first,last]' was expected, but this is {shown(text)}")
    first, last = int(match["first"]), int(match["last"])
    if first > last:
        raise FormatError(
            f"{place}the first frame {first} is after the last one, {last}: {shown(text)}"
        )
    return HtkPath(_without_extension(name), match["path"], first, last)


def read_script(path: PathLike, prefix: str = "", most: int | None = None) -> list[HtkPath]:
    """The entries of a list.

    Args:
        path: of the list. The first `...` of an entry is replaced by its folder.
        prefix: is put before the paths of files. Entries without a name of their own have it in
            their name, too.
        most: how many entries are wanted; None: all.

    Raises:
        FormatError: the list cannot be read, or an entry is malformed.
    """
    text = read_text(path)
    folder = str(PurePosixPath(str(path)).parent)
    before = prefix.replace("\\", "/").rstrip("/")
    entries = []
    confinement = current()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if len(entries) == most:
            break
        if before:
            name, equals, rest = line.strip().partition("=")
            line = f"{name}={before}/{rest}" if equals else f"{before}/{name}"
        elif not prefix:
            line = line.replace("...", folder, 1)
        entry = replace(parse_path(line, f"{path}:{number}: "), line=number)
        if confinement is not None:
            confinement.check(entry.path, f"{path}:{number}")
        entries.append(entry)
    return entries


def _without_extension(name: str) -> str:
    """A path without the extension of its last part."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + (last.rpartition(".")[0] or last)


@dataclass(eq=False)
class HtkFile:
    """A parameter file: `read` gives its frames.

    Attributes:
        path: of the file.
        kind: as HTK names it, such as `MFCC_D_A_0`.
        frames, dim: how many there are, and numbers in each.
        period: from frame to frame, in units of 100 ns.
    """

    path: str
    kind: str
    frames: int
    dim: int
    period: int
    _begin: int
    _dtype: np.dtype
    _scale: np.ndarray | None = None
    _offset: np.ndarray | None = None
    _sum: int | None = None  # the checksum before the frames; None: there is none

    @classmethod
    def open(cls, path: PathLike) -> HtkFile:
        """Read the header.

        Raises:
            FormatError: it is no parameter file, or of a kind that is not known, or its size and
                its header do not agree.
        """
        path = str(path)
        try:
            with _opened(path) as file:
                head = file.read(_HEADER + 16)
                size = file.seek(0, 2)
                if len(head) < _HEADER:
                    raise FormatError(
                        f"{path}: a header of {_HEADER} bytes was expected, not of {size}"
                    )
                return _open_idx(path, head, size) if _IDX.search(path) else _open(path, file, head)
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror}") from error

    def read(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Frames, float32, [frames, dim].

        Args:
            first, last: both included; None: up to the end.

        Raises:
            FormatError: the file has fewer frames; or all frames were read and do not fit the
                checksum.
        """
        last = self.frames - 1 if last is None else last
        if last >= self.frames:
            raise FormatError(f"{self.path}: frame {last} is wanted of {self.frames}")
        count = last - first + 1
        begin = self._begin + first * self.dim * self._dtype.itemsize
        try:
            with _opened(self.path) as file:
                raw = np.fromfile(file, self._dtype, count * self.dim, offset=begin)
        except OSError as error:
            raise FormatError(f"{self.path}: {error.strerror}") from error
        if len(raw) < count * self.dim:
            raise FormatError(
                f"{self.path}: the file ends within frame {first + len(raw) // self.dim} "
                f"(byte {begin + raw.nbytes})"
            )
        if self._sum is not None and count == self.frames:
            self._check(raw, begin + raw.nbytes)
        if raw.dtype.newbyteorder("=") == np.float32:
            # In place, while it is in the cache.
            frames = raw if raw.dtype.isnative else raw.byteswap(inplace=True).view(np.float32)
        else:
            frames = raw.astype(np.float32)
        values = frames.reshape(count, self.dim)
        if self._scale is not None and self._offset is not None:
            values += self._offset
            values /= self._scale
        return values

    def _check(self, raw: np.ndarray, place: int) -> None:
        words = np.dtype("u2").newbyteorder(self._dtype.byteorder)
        with _opened(self.path) as file:
            checksum = np.fromfile(file, words, 1, offset=place)
        wanted = _checksum(raw.view(words), self._sum or 0)
        if not len(checksum) or checksum[0] != wanted:
            what = f"is {checksum[0]}" if len(checksum) else "is missing"
            raise FormatError(
                f"{self.path}: the checksum {what} (byte {place}), but the frames have {wanted}:"
                " the file is damaged"
            )


def _opened(path: str) -> BinaryIO:
    """A file that a list names."""
    return open_file(path)


def _checksum(words: np.ndarray, start: int = 0) -> int:
    """HTK's checksum: all words of 16 bits as one number, modulo 36897.

    Args:
        start: the checksum of the words in front.
    """
    powers = _powers()
    for begin in range(0, len(words), _BLOCK):
        block = words[begin : begin + _BLOCK].astype(np.int64)
        lead = int(powers[-len(block)]) * 65536 % _MODULUS
        start = (start * lead + int(block @ powers[-len(block) :])) % _MODULUS
    return start


@cache
def _powers() -> np.ndarray:
    """Powers of 65536 modulo 36897, the highest first, int64 [_BLOCK]."""
    return np.array([pow(65536, n, _MODULUS) for n in range(_BLOCK - 1, -1, -1)], np.int64)


def _open(path: str, file: BinaryIO, head: bytes) -> HtkFile:
    frames, period, size, code = struct.unpack(">iiHh", head[:_HEADER])
    order = ">"
    little = struct.unpack("<iiHh", head[:_HEADER])
    if little[1] % (1 << 32) <= period % (1 << 32):
        frames, period, size, code = little
        order = "<"
    code %= 1 << 16
    base = code & _BASE
    if base not in KINDS or code & _QUANTIZED:
        raise FormatError(f"{path}: parameter kind {code:#o} is not known (byte 10)")
    begin = _HEADER + (16 if code == _STREAM else 0)
    compressed = bool(code & _COMPRESSED)
    dtype = np.dtype(f"{order}{'i2' if compressed else 'f4'}")
    if not size or size % dtype.itemsize:
        raise FormatError(
            f"{path}: a frame has {size} bytes, no multiple of {dtype.itemsize} (byte 8)"
        )
    dim = size // dtype.itemsize
    scale = offset = None
    total = 0 if code & CHECKED else None
    if compressed:
        file.seek(begin)
        raw = file.read(8 * dim)
        if len(raw) < 8 * dim:
            raise FormatError(f"{path}: the file ends within the scales (byte {begin})")
        table = np.frombuffer(raw, f"{order}f4")
        if total is not None:
            total = _checksum(table.view(f"{order}u2"))
        scale, offset = table[:dim].astype(np.float32), table[dim:].astype(np.float32)
        begin += 8 * dim
        frames -= _COMPRESSION_ROWS
    end = file.seek(0, 2) - (2 if code & CHECKED else 0)
    if frames < 0 or begin + frames * size > end:
        there = max(end - begin, 0) // size
        raise FormatError(
            f"{path}: the header says {frames} frames (byte 0), but there are {there}"
        )
    kind = "_".join([KINDS[base], *(q for bit, q in _QUALIFIERS.items() if code & bit)])
    return HtkFile(path, kind, frames, dim, period, begin, dtype, scale, offset, total)


def _open_idx(path: str, head: bytes, size: int) -> HtkFile:
    """Images in the format of the MNIST data: a frame is an image, its pixels bytes."""
    magic, count, rows, columns = struct.unpack(">4i", head[:16].ljust(16, b"\0"))
    if magic != _IDX_MAGIC or min(count, rows - 1, columns - 1) < 0:
        raise FormatError(f"{path}: the header of an idx file was expected (byte 0)")
    if 16 + count * rows * columns > size:
        raise FormatError(f"{path}: the header says {count} images, the file has {size} bytes")
    return HtkFile(path, "USER", count, rows * columns, 0, 16, np.dtype("u1"))


def write_htk(path: PathLike, values: np.ndarray, period: int = 100000, kind: int = USER) -> None:
    """Write frames [frames, dim] as a big-endian file of float32.

    Args:
        period: from frame to frame, in units of 100 ns.
        kind: HTK's number of it; with `CHECKED` a checksum is written.

    Raises:
        FormatError: a frame is too long for the format, or the kind includes compression.
        SaveError: the file cannot be written; an older file is untouched.
    """
    frames, dim = values.shape
    if 4 * dim >= 1 << 16:
        raise FormatError(f"{path}: an HTK file cannot hold frames of {dim} numbers")
    if kind & (_COMPRESSED | _QUANTIZED):
        raise FormatError(f"{path}: frames of kind {kind:#o} are not numbers of 32 bits")
    data = np.ascontiguousarray(values, ">f4")
    checksum = b""
    if kind & CHECKED:
        checksum = struct.pack(">H", _checksum(data.reshape(-1).view(">u2")))
    header = struct.pack(">iiHH", frames, period, 4 * dim, kind)
    write_atomically(path, header + data.tobytes() + checksum)
