"""The campaign's readers from a model folder and a recording to words, and from a text to times."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np

from opscope.kaldi.files.kaldi_io import Writer
from opscope.speech import Audio, KaldiRecognizer, Model, align, resample, transcribe
from opscope.speech.alignment.text import SpokenText
from opscope.speech.audio.wav import write_wav
from speech_models import RATE, lexicon_lines, small_files, speech, write_files

from ..inputs import Target
from .mutate import BYTES, TEXT

_SAID = "ab c"
_GRAPH = "opscope.speech.fst.graph_cache.cache_folder"


@cache
def _files(folder: Path, static: bool) -> dict[str, bytes]:
    """The files of a whole model."""
    files = small_files(folder / f"parts-{static}", static=static)
    return files | {"graph/phones/align_lexicon.int": lexicon_lines()}


def _folder(path: Path, changed: dict[str, bytes | None], *, static: bool = False) -> Path:
    """A model with files that are others, or none."""
    folder = path.parent / f"model-{static}"
    files = _files(path.parent, static)
    if not folder.is_dir():
        write_files(files, folder)
    for name, data in changed.items():
        if data is None:
            (folder / name).unlink(missing_ok=True)
        else:
            write_files({name: data}, folder)
    return folder


def _model(path: Path, changed: dict[str, bytes | None], *, static: bool = False) -> Model:
    folder = _folder(path, changed, static=static)
    try:
        with patch(_GRAPH, return_value=None):  # a cache of damaged graphs serves nobody
            return Model(folder)
    finally:
        whole = _files(path.parent, static)
        write_files({name: whole[name] for name in changed}, folder)


def _recognizes(model: Model, which: int) -> None:
    """One of the things that are asked of a model, with a short recording."""
    audio = speech("c")[2400:8000]
    if which % 3 == 0:
        transcribe(audio, model, alternatives=2, phones=True)
    elif which % 3 == 1:
        align(audio, "c", model)
    else:
        recognizer = KaldiRecognizer(model, RATE)
        recognizer.SetPartialWords(True)
        recognizer.AcceptWaveform(audio[:3200].tobytes())
        recognizer.PartialResult()
        recognizer.FinalResult()


def _packed(static: bool) -> Callable[[Path], Sequence[bytes]]:
    """The files of a model, each behind its name."""
    return lambda folder: [
        name.encode() + b"\n" + data for name, data in _files(folder, static).items()
    ]


def _reads_folder(static: bool, path: Path) -> None:
    """A folder in which one file is another; without bytes it is missing."""
    name, _, data = path.read_bytes().partition(b"\n")
    names = sorted(_files(path.parent, static))
    if name.decode("latin-1") in names:
        chosen = name.decode()
    else:  # the damage is in the name: a file is gone, or has what belongs to another
        chosen = names[zlib.crc32(name) % len(names)]
    _recognizes(_model(path, {chosen: data or None}, static=static), zlib.crc32(data))


@cache
def _whole(folder: Path) -> Model:
    return _model(folder / "any", {})


def _waves(folder: Path) -> Sequence[bytes]:
    found = []
    for channels, rate in ((1, RATE), (2, 8000), (1, 44100)):
        samples = np.asarray(resample(speech("c").astype(np.float32), RATE, rate), np.float32)
        writer = Writer()
        write_wav(writer, Audio(np.tile(samples[rate // 8 : rate // 3], (channels, 1)), rate))
        found.append(writer.getvalue().removeprefix(b"\0B"))
    floats = np.zeros(800, "<f4").tobytes()
    for size, kind, data in ((4, 3, floats), (1, 7, floats), (3, 1, floats[:2400])):
        head = kind.to_bytes(2, "little") + b"\1\0" + (16000).to_bytes(4, "little")
        head += (16000 * size).to_bytes(4, "little") + bytes((size, 0, 8 * size, 0))
        chunks = b"WAVEfmt " + len(head).to_bytes(4, "little") + head
        chunks += b"data" + len(data).to_bytes(4, "little") + data
        found.append(b"RIFF" + len(chunks).to_bytes(4, "little") + chunks)
    return found


def _reads_wave(path: Path) -> None:
    transcribe(path, _whole(path.parent), phones=True)


def _texts(folder: Path) -> Sequence[bytes]:
    return [_SAID.encode(), b"ab\nc\n", b"\xef\xbb\xbfab [unk]  c\r\n", "ab 한국\n".encode()]


def _reads_text(path: Path) -> None:
    align(speech(_SAID)[2400:], SpokenText.read(path), _whole(path.parent), unknown="[unk]")


def _reads_lexicon(path: Path) -> None:
    model = _model(
        path,
        {
            "graph/phones/word_boundary.int": None,
            "graph/phones/align_lexicon.int": path.read_bytes(),
        },
    )
    folder = path.parent / "model-False" / "graph" / "phones"
    (folder / "align_lexicon.int").write_bytes(path.read_bytes())
    align(speech(_SAID)[2400:], _SAID, model)


TARGETS = (
    Target("model folder", ".dat", _packed(False), lambda p: _reads_folder(False, p), BYTES + TEXT),
    Target("model folder HCLG", ".dat", _packed(True), lambda p: _reads_folder(True, p), BYTES),
    Target("WAV of a transcript", ".wav", _waves, _reads_wave, BYTES),
    Target("text of an alignment", ".txt", _texts, _reads_text, TEXT),
    Target(
        "lexicon of an alignment", ".int", lambda _: [lexicon_lines()], _reads_lexicon, TEXT + BYTES
    ),
)
