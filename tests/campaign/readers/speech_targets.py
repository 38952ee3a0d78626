"""The campaign's readers of audio, of configs of features, and of what iVectors are made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ivector_models import DIM, extractor, gaussians, matrix, write_model
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.speech import (
    AdaptationState,
    Audio,
    Fbank,
    IvectorModel,
    Mfcc,
    OnlineIvector,
    SpkModel,
    read_audio,
)
from opscope.speech.audio.segments import segmented
from opscope.speech.audio.wav import WAVE, write_wav
from speaker_models import write_speaker_model

from ..inputs import Target
from .mutate import BYTES, TEXT

_SAMPLES = (3000 * np.sin(np.arange(1600) ** 1.5 / 90)).astype(np.float32)
_CONFIG = b"""--use-energy=false
--num-mel-bins=40  # a comment
--num-ceps=40
--low-freq=20
--high-freq=7600
--snip-edges=false
--allow-upsample=true
--allow-downsample=true
"""
_FBANK = b"""--allow-upsample
--num-mel-bins=30
--window-type=hamming
--frame-shift=5
--use-energy=true
"""
_CMVN = b"# nothing\n--cmn-window=300\n--global-frames=100\n--norm-vars=true\n--skip-dims=1\n"
_SPLICE = b"--left-context=1\n--right-context=1\n"


def _waves(folder: Path) -> Sequence[bytes]:
    found = []
    for samples, rate in ((_SAMPLES[None], 16000.0), (np.stack((_SAMPLES, -_SAMPLES)), 8000.0)):
        writer = Writer()
        write_wav(writer, Audio(samples, rate))
        found.append(writer.getvalue().removeprefix(b"\0B"))
    return found


def _reads_wave(path: Path) -> None:
    """As a recognizer does: the samples, and features of them."""
    audio = read_audio(path)
    features = Mfcc(allow_upsample=True, allow_downsample=True)
    features.compute(audio.channel(), audio.rate)
    stream = features.stream(audio.rate)
    stream.accept(audio.channel(0))
    stream.finish()


def _tables(folder: Path) -> Sequence[bytes]:
    with TableWriter(f"ark:{folder / 'whole.ark'}", WAVE) as writer:
        for key in ("one", "two"):
            writer.write(key, Audio(_SAMPLES[None], 16000.0))
    return [(folder / "whole.ark").read_bytes()]


def _reads_table(path: Path) -> None:
    for _, audio in read_table(f"ark:{path}", WAVE):
        audio.channel()


def _reads_segments(path: Path) -> None:
    _tables(path.parent)
    list(segmented(f"ark:{path.parent / 'whole.ark'}", path))


def _reads_config(kind: type, path: Path) -> None:
    kind(config=path).compute(_SAMPLES, 8000.0)


def _model_part(name: str, whole: Callable[[], Sequence[bytes]]) -> Target:
    """A file of a model that is damaged among whole ones."""

    def read(path: Path) -> None:
        write_model(path.parent)
        (path.parent / name).write_bytes(path.read_bytes())
        _estimates(IvectorModel.from_folder(path.parent))

    return Target(f"iVectors: {name}", ".part", lambda _: whole(), read, (*BYTES, *TEXT))


def _estimates(model: IvectorModel, state: AdaptationState | None = None) -> None:
    ivectors = OnlineIvector(model, state)
    rows = np.tile(np.array([60.0, 1, 2], np.float32), (12, 1)) + np.arange(12)[:, None]
    ivectors.accept(rows[:, :DIM])
    ivectors.finish()
    ivectors.ivector()
    ivectors.adaptation_state()


def _reads_named(path: Path) -> None:
    """A config that names the files of a model: whole ones, or others."""
    write_model(path.parent)
    _estimates(IvectorModel.from_config(path))


def _named(folder: Path) -> Sequence[bytes]:
    write_model(folder)
    return [(folder / "ivector_extractor.conf").read_bytes()]


def _states(folder: Path) -> Sequence[bytes]:
    write_model(folder)
    model, found = IvectorModel.from_folder(folder), []
    for binary in (True, False):
        ivectors = OnlineIvector(model)
        ivectors.accept(np.full((9, DIM), 55, np.float32))
        ivectors.ivector()
        writer = Writer(binary)
        ivectors.adaptation_state().write(writer)
        found.append(writer.getvalue())
    return found


def _reads_state(path: Path) -> None:
    write_model(path.parent)
    state = AdaptationState.read(Reader(path))
    _estimates(IvectorModel.from_folder(path.parent), state)


_SPEAKER_FILES = ("mfcc.conf", "final.ext.raw", "mean.vec", "transform.mat")


def _speaker_model(name: str) -> Target:
    """A file of a speaker model that is damaged among whole ones."""

    def folder(above: Path) -> Path:
        made = above / "speakers"
        return made if made.is_dir() else write_speaker_model(made)

    def whole(above: Path) -> Sequence[bytes]:
        return [(folder(above) / name).read_bytes()]

    def read(path: Path) -> None:
        place = folder(path.parent)
        kept = (place / name).read_bytes()
        (place / name).write_bytes(path.read_bytes())
        try:
            stream = SpkModel(place).stream(16000.0, 10.0)
            stream.accept(np.tile(_SAMPLES, 6))
            stream.vector(np.arange(30), 2)
        finally:
            (place / name).write_bytes(kept)

    return Target(f"speakers: {name}", ".part", whole, read, (*BYTES, *TEXT))


def _both(make: Callable[[bool], bytes]) -> Callable[[], Sequence[bytes]]:
    return lambda: [make(True), make(False)]


def _lda(binary: bool) -> bytes:
    return matrix(np.ones((2, 10), np.float32), binary)


def _stats(binary: bool) -> bytes:
    return matrix(np.array([[1e3, 20, -30, 100], [1.1e4, 900, 700, 0]]), binary)


TARGETS = (
    Target("WAV", ".wav", _waves, _reads_wave, BYTES),
    Target("tables of WAV", ".ark", _tables, _reads_table, BYTES),
    Target(
        "segments",
        "",
        lambda _: [b"a one 0 0.05\nb two 0.02 -1 0\nc one 0 0.1\n"],
        _reads_segments,
        TEXT,
    ),
    Target("config of MFCC", ".conf", lambda _: [_CONFIG], lambda p: _reads_config(Mfcc, p), TEXT),
    Target("config of banks", ".conf", lambda _: [_FBANK], lambda p: _reads_config(Fbank, p), TEXT),
    Target("config of iVectors", ".conf", _named, _reads_named, TEXT),
    Target("state of iVectors", ".state", _states, _reads_state, (*BYTES, *TEXT)),
    _model_part("final.ie", _both(extractor)),
    _model_part("final.dubm", _both(gaussians)),
    _model_part("final.mat", _both(_lda)),
    _model_part("global_cmvn.stats", _both(_stats)),
    _model_part("online_cmvn.conf", lambda: [_CMVN]),
    _model_part("splice.conf", lambda: [_SPLICE]),
    *map(_speaker_model, _SPEAKER_FILES),
)
