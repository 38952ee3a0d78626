"""WAV files as Kaldi reads them, other formats, segments."""

from __future__ import annotations

import io
import logging
import struct
import sys
import wave

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, FormatError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.speech import Audio, read_audio, read_wav
from opscope.speech.audio.segments import Segment, read_segments, segmented
from opscope.speech.audio.wav import WAVE, write_wav


def header(size: int, *, channels=1, rate=16000, bits=16, kind=1, whole=None, end="<") -> bytes:
    """The header of a WAV file."""
    align = channels * bits // 8
    whole = size + 36 if whole is None else whole
    fields = (16, kind, channels, rate, rate * align, align, bits)
    tag = b"RIFF" if end == "<" else b"RIFX"
    return b"".join(
        (
            tag,
            struct.pack(f"{end}I", whole),
            b"WAVEfmt ",
            struct.pack(f"{end}IHHIIHH", *fields),
            b"data",
            struct.pack(f"{end}I", size),
        )
    )


def read(data: bytes) -> Audio:
    return read_wav(Reader(data, binary=True))


def test_channels_and_rate():
    data = np.arange(-6, 6, dtype="<i2").tobytes()
    audio = read(header(24, channels=2, rate=8000) + data)
    assert audio.rate == 8000 and audio.duration == 6 / 8000
    assert audio.samples.tolist() == [[-6, -4, -2, 0, 2, 4], [-5, -3, -1, 1, 3, 5]]
    assert audio.channel(1).tolist() == [-5, -3, -1, 1, 3, 5]
    with pytest.raises(FormatError, match="no channel 2, of 2"):
        audio.channel(2)


def test_first_channel_with_a_warning(caplog):
    audio = read(header(4, channels=2) + b"\1\0\2\0")
    with caplog.at_level(logging.WARNING):
        assert audio.channel().tolist() == [1]
    assert "2 channels, and none is named" in caplog.text


def test_as_python_writes_it():
    file, values = io.BytesIO(), np.array([1, -32768, 32767, 5], np.int16)
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(44100)
        out.writeframes(values.tobytes())
    assert read(file.getvalue()).samples.tolist() == [values.tolist()]


def test_big_endian_and_extensible():
    data = np.array([258, -3], ">i2").tobytes()
    assert read(header(4, end=">") + data).samples.tolist() == [[258, -3]]
    plain = header(4)
    guid = bytes.fromhex("0100000000001000800000aa00389b71")
    extra = struct.pack("<HHI", 22, 16, 0) + guid
    wide = plain[:16] + struct.pack("<IH", 40, 0xFFFE) + plain[22:36] + extra + plain[36:]
    assert read(wide + b"\1\0\2\0").samples.tolist() == [[1, 2]]
    with pytest.raises(FormatError, match="whose format is not PCM"):
        read(wide.replace(guid, b"\3" + guid[1:]) + b"\1\0\2\0")


def test_other_chunks_are_passed_over(caplog):
    plain = header(4)
    junk = b"JUNK" + struct.pack("<I", 6) + b"abcdef"
    listed = b"LIST" + struct.pack("<I", 2) + b"ab" + b"fact" + struct.pack("<I", 2) + b"xy"
    data = plain[:12] + junk + plain[12:36] + listed + plain[36:] + b"\1\0\2\0"
    with caplog.at_level(logging.WARNING):
        assert read(data).samples.tolist() == [[1, 2]]
    assert "a fact chunk of 2 bytes" in caplog.text and "40 bytes are announced" in caplog.text


@pytest.mark.parametrize("padding", [b"\0", b""])
def test_odd_chunks(padding, caplog):
    """RIFF pads them to an even size; those who forget it, as Kaldi does, are read as well."""
    odd = b"LIST" + struct.pack("<I", 3) + b"abc" + padding
    plain = header(4, whole=40 + 2 * len(odd))
    data = plain[:12] + odd + plain[12:36] + odd + plain[36:] + b"\1\0\2\0"
    with caplog.at_level(logging.WARNING):
        assert read(data).samples.tolist() == [[1, 2]]
    assert not caplog.text
    wide = data.replace(b"fmt \x10", b"fmt \x11")
    wide = wide.replace(b"\x10\0LIST", b"\x10\0x" + padding + b"LIST")
    assert read(wide).samples.tolist() == [[1, 2]]


def test_sources(tmp_path):
    data = header(4) + b"\1\0\2\0"
    (tmp_path / "x.wav").write_bytes(data)
    for source in (data, tmp_path / "x.wav", str(tmp_path / "x.wav"), Reader(data, binary=True)):
        assert read_wav(source).samples.tolist() == [[1, 2]]
    with pytest.raises(AttributeTypeError, match="path of a file: want a str or a PathLike or"):
        read_wav(7)
    with pytest.raises(FormatError, match="gone.wav: No such file"):
        read_wav(tmp_path / "gone.wav")


@pytest.mark.parametrize(
    ("size", "whole"), [(0, 36), (0xFFFFFFFF, 0xFFFFFFFF), (0x7FFFF000, 0x7FFFF024), (4, 0)]
)
def test_streams_go_to_the_end(size, whole, caplog):
    with caplog.at_level(logging.WARNING):
        audio = read(header(size, whole=whole) + np.arange(5, dtype="<i2").tobytes() + b"\7")
    assert audio.samples.tolist() == [[0, 1, 2, 3, 4]] and not caplog.text


def test_a_cut_file_is_read_as_far_as_it_goes(caplog):
    with caplog.at_level(logging.WARNING):
        audio = read(header(100) + b"\1\0\2\0\3")
    assert audio.samples.tolist() == [[1, 2]]
    assert "100 bytes of samples are announced, but there are 5" in caplog.text


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"RIFX", "4 bytes are wanted"),
        (b"OggS" + bytes(40), "RIFF or RIFX was expected here, not b'OggS'"),
        (b"RIFF\0\0\0\0AVI " + bytes(40), "WAVE was expected"),
        (header(4)[:30], "are wanted, but"),
        (header(4, channels=0), "0 channels"),
        (header(4, bits=8), "only samples of 16 bits are read, but these have 8"),
        (header(4, kind=3), "this is WAV format 3"),
        (header(4)[:28] + b"\0\0\0\0" + header(4)[32:], "do not go with 1 channels"),
        (header(4), "without samples"),
        (header(4)[:12] + b"JUNK\xff\xff\xff\x7f", "a chunk of a WAV file"),
    ],
)
def test_what_is_no_wav(data, part):
    with pytest.raises(FormatError, match=part):
        read(data)


def test_writing(caplog):
    writer = Writer()
    samples = np.array([[1.9, -1.9, 40000.0]], np.float32)
    with caplog.at_level(logging.WARNING):
        write_wav(writer, Audio(samples, 8000.0))
    assert "1 of 3 samples are beyond 16 bits" in caplog.text
    data = writer.getvalue().removeprefix(b"\0B")
    assert read(data).samples.tolist() == [[1, -1, 32767]]
    with wave.open(io.BytesIO(data)) as file:
        assert file.getparams()[:4] == (1, 2, 8000, 3)
    with pytest.raises(FormatError, match="no WAV file"):
        write_wav(Writer(), Audio(samples, 8000.5))


def test_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with TableWriter("ark,scp:wav.ark,wav.scp", WAVE) as writer:
        for key in "ab":
            writer.write(key, Audio(np.full((1, 40000), ord(key), np.float32), 16000.0))
    for name in ("ark:wav.ark", "scp:wav.scp"):
        found = {key: (audio.rate, audio.samples.sum()) for key, audio in read_table(name, WAVE)}
        assert found == {"a": (16000, 97 * 40000), "b": (16000, 98 * 40000)}


def test_other_formats(tmp_path, monkeypatch):
    path = tmp_path / "x.flac"
    path.write_bytes(b"fLaC" + bytes(50))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "soundfile", None)
        with pytest.raises(FormatError, match="no WAV file; other formats want.*opscope.speech"):
            read_audio(path)
    soundfile = pytest.importorskip("soundfile")
    with pytest.raises(FormatError, match="no audio that soundfile reads"):
        read_audio(path)
    values = np.array([[1, -2], [32767, -32768], [5, 6]], np.int16)
    soundfile.write(path, values, 22050)
    audio = read_audio(path)
    assert audio.rate == 22050 and np.array_equal(audio.samples, values.T)
    soundfile.write(tmp_path / "x.wav", values / 32768, 8000, subtype="FLOAT")
    assert np.array_equal(read_audio(tmp_path / "x.wav").samples, values.T)
    monkeypatch.setenv("OPSCOPE_LIMITS", "unpack=20")
    with pytest.raises(FormatError, match="beyond the limit of 20"):
        read_audio(path)


def test_read_audio_refuses(tmp_path):
    (tmp_path / "empty.wav").write_bytes(b"")
    with pytest.raises(FormatError, match="the file is empty"):
        read_audio(tmp_path / "empty.wav")
    with pytest.raises(FormatError, match="none.wav: No such file"):
        read_audio(tmp_path / "none.wav")


def test_segments(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    with TableWriter("ark:wav.ark", WAVE) as writer:
        ramp = np.arange(16000, dtype=np.float32)[None]
        writer.write("one", Audio(ramp, 16000.0))
        writer.write("two", Audio(np.concatenate((ramp, -ramp)), 16000.0))
    (tmp_path / "segments").write_text(
        "a one 0.25 0.5\nb two 0.5 -1 1\nc one 0.85 1.4\nd one 0.5 0.55\ne none 0 1\n"
        "f two 0 1\ng one 1.5 2\nh one 0 1.6\ni two 0 1 2\n"
    )
    with caplog.at_level(logging.WARNING):
        found = {key: part.samples[0] for key, part in segmented("ark:wav.ark", "segments")}
    assert list(found) == ["a", "b", "c"]
    assert found["a"][[0, -1]].tolist() == [4000, 7999]
    assert found["b"][[0, -1]].tolist() == [-8000, -15999]
    assert found["c"][[0, -1]].tolist() == [13600, 15999]
    for part in (
        "segment d: 0.05 s are too short",
        "Could not find recording none, skipping segment e",
        "segment f: two has 2 channels, and the segment names none",
        "segment g: 1.5 to 2 s of a recording of 1 s",
        "segment h",
        "channel 2 of 2 channels",
    ):
        assert part in caplog.text


@pytest.mark.parametrize(
    "line", ["a b 1", "a b x 2", "a b 2 1", "a b -1 2", "a b 0 nan", "a b 0 1 -1", "a b 0 1 x"]
)
def test_lines_that_are_no_segments(tmp_path, line):
    with pytest.raises(FormatError):
        Segment.parse(line)
    (tmp_path / "segments").write_text(f"a b 0 1\n\n{line}\n")
    with pytest.raises(FormatError, match="segments:3: "):
        read_segments(tmp_path / "segments")


def test_what_soundfile_refuses_names_no_object_in_memory(tmp_path):
    pytest.importorskip("soundfile")
    (tmp_path / "text.wav").write_text("hello there")
    with pytest.raises(
        FormatError, match=r"text.wav: no audio that soundfile reads: [A-Z]"
    ) as told:
        read_audio(tmp_path / "text.wav")
    assert "0x" not in str(told.value)
