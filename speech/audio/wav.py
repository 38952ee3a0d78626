"""WAV files, read as Kaldi reads them: 16-bit PCM, also from streams that do not say their length.

Source: Kaldi's `feat/wave-reader.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import PathLike
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.tables.kinds import Kind
from ...nnet3.language.nodes import warn

_PCM, _EXTENSIBLE = 1, 0xFFFE
_PCM_GUID = bytes.fromhex("0100000000001000800000aa00389b71")
_STREAMED = (0, 0xFFFFFFFF, 0x7FFFF000)  # sizes of those who did not know the length
_MOST = 1 << 31


@dataclass(frozen=True, eq=False)
class Audio:
    """Samples of a recording.

    Attributes:
        samples: float32, [channels, count], on the scale of 16-bit integers.
        rate: in Hz.
    """

    samples: np.ndarray
    rate: float

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.samples)

    @property
    def duration(self) -> float:
        """In seconds."""
        return self.samples.shape[1] / self.rate

    def channel(self, number: int = -1, name: str = "audio") -> np.ndarray:
        """The samples of one channel, [count].

        Args:
            number: from 0 on; -1: there is one, or the first is taken with a warning.
            name: of the recording, for messages.

        Raises:
            FormatError: there is no such channel.
        """
        if number == -1 and self.channels != 1:
            warn(f"{name}: {self.channels} channels, and none is named: the first is taken")
        if not -1 <= number < self.channels:
            raise FormatError(f"{name}: there is no channel {number}, of {self.channels} ones")
        return self.samples[max(number, 0)]


@dataclass(frozen=True)
class WavHeader:
    """What stands before the samples.

    Attributes:
        channels: how many there are.
        rate: in Hz.
        swapped: samples are big-endian.
        bytes: of the samples; None: up to the end.
    """

    channels: int
    rate: int
    swapped: bool
    bytes: int | None


class OtherFormatError(FormatError):
    """A WAV file whose samples are not 16-bit PCM."""


class _Chunks:
    """Fields of a WAV header at the place of a reader."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.swapped = False

    def tag(self) -> bytes:
        return self.reader.read_bytes(4)

    def number(self, size: int) -> int:
        return int.from_bytes(self.reader.read_bytes(size), "big" if self.swapped else "little")

    def skip(self, count: int) -> None:
        self.reader.check_left(count, "a chunk of a WAV file")
        self.reader.offset += count

    def skip_chunk(self, size: int) -> None:
        """Pass over the rest of a chunk, and over the zero that pads an odd one to an even size.

        No tag begins with a zero: so chunks that are not padded are read as well, as Kaldi, which
        knows no padding, wants them.
        """
        self.skip(size)
        reader = self.reader
        if size % 2 and reader.data[reader.offset : reader.offset + 1] == b"\0":
            reader.offset += 1


def read_header(reader: Reader) -> WavHeader:
    """The header of the WAV file at the place of a reader, which is moved to the samples.

    Raises:
        OtherFormatError: the samples are not 16-bit PCM.
        FormatError: it is no WAV file.
    """
    chunks = _Chunks(reader)
    start = reader.offset
    tag = chunks.tag()
    if tag not in (b"RIFF", b"RIFX"):
        raise reader.error(f"no WAV file: RIFF or RIFX was expected here, not {tag!r}", start)
    chunks.swapped = tag == b"RIFX"
    whole = chunks.number(4)
    if (form := chunks.tag()) != b"WAVE":
        raise reader.error(f"no WAV file: WAVE was expected here, not {form!r}", start + 8)
    while chunks.tag() != b"fmt ":
        chunks.skip_chunk(chunks.number(4))
    channels, rate = _read_format(reader, chunks)
    while (tag := chunks.tag()) != b"data":
        size = chunks.number(4)
        if tag == b"fact" and size != 4:
            warn(f"{reader.name}: a fact chunk of {size} bytes, not 4")
        chunks.skip_chunk(size)
    size = chunks.number(4)
    if whole in (0, 0xFFFFFFFF) or size in _STREAMED:
        return WavHeader(channels, rate, chunks.swapped, None)
    read = reader.offset - start - 8
    if abs(read + size - whole) > 1:
        warn(
            f"{reader.name}: {whole} bytes are announced, but the first data chunk ends after"
            f" {read} + {size} (several data chunks are not read)"
        )
    return WavHeader(channels, rate, chunks.swapped, size)


def _read_format(reader: Reader, chunks: _Chunks) -> tuple[int, int]:
    """Channels and sampling rate, of a `fmt ` chunk that must be one of 16-bit PCM."""
    start = reader.offset
    size = chunks.number(4)
    kind, channels, rate = chunks.number(2), chunks.number(2), chunks.number(4)
    byte_rate, align, bits = chunks.number(4), chunks.number(2), chunks.number(2)
    read = 16
    if kind == _EXTENSIBLE:
        if size < 40 or chunks.number(2) < 22:
            raise reader.error("a malformed WAVE_FORMAT_EXTENSIBLE header", start)
        chunks.skip(6)
        guid = reader.read_bytes(16)
        if chunks.swapped:
            numbers = np.frombuffer(guid, ">u4").astype("<u4")
            guid = numbers.tobytes()
        if guid != _PCM_GUID:
            raise _other(reader, "a WAVE_FORMAT_EXTENSIBLE file whose format is not PCM", start)
        read = 40
    elif kind != _PCM:
        raise _other(reader, f"only PCM is read, but this is WAV format {kind}", start)
    if size < read:
        raise reader.error(f"a fmt chunk of {size} bytes, where {read} are wanted", start)
    chunks.skip_chunk(size - read)
    if not channels or not rate:
        raise reader.error(f"{channels} channels at {rate} Hz", start)
    if bits != 16:
        raise _other(reader, f"only samples of 16 bits are read, but these have {bits}", start)
    if byte_rate != rate * 2 * channels or align != 2 * channels:
        raise reader.error(
            f"{byte_rate} bytes a second in blocks of {align} do not go with {channels} channels"
            f" at {rate} Hz",
            start,
        )
    return channels, rate


def _other(reader: Reader, message: str, place: int) -> OtherFormatError:
    return OtherFormatError(str(reader.error(message, place)))


def read_wav(source: Reader | PathLike | bytes) -> Audio:
    """A WAV file. Of one that is cut off, what is there is read, with a warning.

    Args:
        source: its path, its bytes, or a reader at its place, which is moved past it.

    Raises:
        OtherFormatError: its samples are not 16-bit PCM.
        FormatError: it is no WAV file, or has no samples.
    """
    reader = source if isinstance(source, Reader) else Reader(source, binary=True)
    header = read_header(reader)
    start = reader.offset
    block = 2 * header.channels
    if header.bytes is not None and header.bytes <= reader.remaining() + reader.beyond:
        count = header.bytes
    else:
        count = reader.remaining() + reader.beyond
        if header.bytes is not None:
            warn(
                f"{reader.name}: {header.bytes} bytes of samples are announced, but there are"
                f" {count}: is the file cut off?"
            )
    if not count:
        raise reader.error("a WAV file without samples", start)
    data = np.frombuffer(reader.read_bytes(count)[: count // block * block], np.uint8)
    values = data.view(">i2" if header.swapped else "<i2").reshape(-1, header.channels)
    return Audio(np.ascontiguousarray(values.T, np.float32), float(header.rate))


def write_wav(writer: Writer, audio: Audio) -> None:
    """Write a WAV file of 16-bit PCM; samples beyond its range are clipped, with a warning.

    Raises:
        FormatError: the rate is no whole number, or there are too many samples.
    """
    rate, (channels, count) = audio.rate, audio.samples.shape
    size = 2 * channels * count
    if int(rate) != rate or not 0 < rate < _MOST or not channels or size + 36 >= _MOST:
        raise FormatError(f"{channels} channels of {count} samples at {rate:g} Hz: no WAV file")
    values = np.trunc(audio.samples.T)
    clipped = int(np.count_nonzero((values < -32768) | (values > 32767)))
    if clipped:
        warn(f"{clipped} of {values.size} samples are beyond 16 bits and clipped")
    numbers = ((size + 36, 4), (16, 4), (_PCM, 2), (channels, 2), (int(rate), 4))
    numbers += ((int(rate) * 2 * channels, 4), (2 * channels, 2), (16, 2), (size, 4))
    fields = [number.to_bytes(length, "little") for number, length in numbers]
    head = [b"RIFF", fields[0], b"WAVEfmt ", *fields[1:8], b"data", fields[8]]
    writer.write_raw(b"".join(head) + np.clip(values, -32768, 32767).astype("<i2").tobytes())


WAVE = Kind("wave", read_wav, write_wav, header=False, own_header=True)
"""The kind of tables of recordings: `read_table("scp:wav.scp", WAVE)`."""
