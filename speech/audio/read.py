"""Recordings: WAV by our own reader, other formats by soundfile where that is installed."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.limits import check_limit
from ...framework.base.untrusted.opener import path_text, read_file
from ...kaldi.files.kaldi_io import Reader
from .wav import Audio, OtherFormatError, read_wav

_SCALE = 32768.0  # from samples between -1 and 1 to samples of 16 bits
_BLOCK = 1 << 20  # samples that are decoded at once


def read_audio(path: str | os.PathLike[str], *, pipes: bool = True) -> Audio:
    """A recording; of a WAV file of 16-bit PCM that is cut off what is there, with a warning.

    Formats other than 16-bit PCM in WAV want `pip install opscope[speech]`, which brings
    soundfile: FLAC, Ogg, MP3, other kinds of WAV.

    Args:
        pipes: whether it may be a pipe, which is waited for: not where a file or folder names it.

    Raises:
        FormatError: the file cannot be read, is no audio, has no samples, or none that are
            numbers; or it wants soundfile, which is missing.
    """
    return audio_of(read_file(path, pipes=pipes), path_text(path))


def audio_of(data: bytes, name: str) -> Audio:
    """A recording from the bytes of its file; see `read_audio`.

    Args:
        name: of it, for messages.
    """
    if not data:
        raise FormatError(f"{name}: the file is empty")
    if data[:4] in (b"RIFF", b"RIFX"):
        try:
            return read_wav(Reader(data, name=name, binary=True))
        except OtherFormatError as error:
            problem = str(error)
    else:
        problem = f"{name}: no WAV file"
    return _decoded(name, data, problem)


def _decoded(name: str, data: bytes, problem: str) -> Audio:
    """A recording that soundfile reads."""
    try:
        import soundfile
    except ImportError:
        raise FormatError(
            f"{problem}; other formats want the package soundfile (pip install opscope[speech])"
        ) from None
    parts: list[np.ndarray] = []
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            channels = int(file.channels)
            rate = float(file.samplerate)
            check_limit("unpack", int(file.frames) * channels * 4, f"{name}: the samples")
            parts = list(_blocks(name, file, max(_BLOCK // max(channels, 1), 1)))
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError, OverflowError) as error:
        problem = str(getattr(error, "error_string", error))  # else it names an object in memory
        raise FormatError(f"{name}: no audio that soundfile reads: {problem}") from None
    if not parts or not channels or not rate > 0:
        raise FormatError(f"{name}: a recording without samples")
    samples = np.concatenate(parts) * np.float32(_SCALE)
    if not np.isfinite(samples).all():
        raise FormatError(f"{name}: samples that are NaN or infinite")
    return Audio(np.ascontiguousarray(samples.T), rate)


def _blocks(name: str, file: Any, size: int) -> Any:
    """The samples of an open file, [count, channels], block by block, within the limit."""
    total = 0
    while len(block := file.read(size, dtype="float32", always_2d=True)):
        total += block.nbytes
        check_limit("unpack", total, f"{name}: the samples")
        yield block
