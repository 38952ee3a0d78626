"""A small model folder as Vosk has them, which recognizes words of tones, and such words."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ivector_models import write_model
from kaldi_models import one_state_model
from opscope.kaldi.files.kaldi_io import Writer
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.speech import KaldiRecognizer, Mfcc, Model
from speech_graphs import Row, arc_fst, const_bytes, lookahead_bytes, vector_bytes

RATE = 16000
PHONE = 0.2  # seconds of each
PITCHES = {"sil": 0.0, "a": 300.0, "b": 1100.0, "c": 3200.0}
PHONES = ("sil", "a_B", "a_E", "b_B", "b_E", "c_S")
"""From 1 on."""
KINDS = ("nonword", "begin", "end", "begin", "end", "singleton")
WORDS = {0: "<eps>", 1: "ab", 2: "ba", 3: "c", 4: "[unk]", 5: "mute"}
PRONUNCIATIONS = {1: (2, 5), 2: (4, 3), 3: (6,), 4: (4, 5)}
"""Phones of words; the last word has none."""
_FINAL_LABEL = 9
_MFCC = """--use-energy=false
--num-mel-bins=23
--num-ceps=3
--dither=0
--allow-upsample=true
"""
_MODEL = """--beam=12
--max-active=100
--min-active=5
--lattice-beam=4
--acoustic-scale=1
--frames-per-chunk=20
--endpoint.silence-phones=1
"""
_NETWORK = """input-node name=input dim=3
input-node name=ivector dim=4
component name=a type=FixedAffineComponent matrix={matrix}
component name=s type=LogSoftmaxComponent dim=4
component-node name=a component=a input=Append(input, ReplaceIndex(ivector, t, 0))
component-node name=s component=s input=a
output-node name=output input=s
"""


def tone(phone: str, seconds: float = PHONE, rate: float = RATE) -> np.ndarray:
    """The samples of a phone."""
    count = round(seconds * rate)
    noise = np.random.default_rng(len(phone) + count).normal(0, 3, count)
    pitch = PITCHES[phone.split("_")[0]]
    return 4000 * np.sin(2 * np.pi * pitch * np.arange(count) / rate) + noise


def speech(text: str, rate: float = RATE) -> np.ndarray:
    """A text, its words parted by silence, [count], int16."""
    spelled = {word: PRONUNCIATIONS[label] for label, word in WORDS.items() if 0 < label < 5}
    parts = [tone("sil", rate=rate)]
    for word in text.split():
        parts += [tone(PHONES[phone - 1], rate=rate) for phone in spelled[word]]
        parts.append(tone("sil", rate=rate))
    return np.concatenate(parts).round().astype(np.int16)


def recording(text: str, rate: int = RATE, seconds: float = 0) -> bytes:
    """A WAV file of a text, and so many seconds of zeros after it."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((1, 2, rate, 0, "NONE", "NONE"))
        written.writeframes(speech(text, rate).tobytes() + bytes(2 * int(seconds * rate)))
    return file.getvalue()


def heard(model: Model, *words: str, grammar: str | None = None) -> str:
    """What is recognized of words, given by their phones."""
    parts = [tone("sil")]
    for phones in words:
        parts += [*(tone(phone) for phone in phones.split()), tone("sil")]
    samples = np.concatenate(parts).round().astype(np.int16)
    recognizer = KaldiRecognizer(model, RATE, *([] if grammar is None else [grammar]))
    recognizer.AcceptWaveform(samples.tobytes())
    return json.loads(recognizer.FinalResult())["text"]


def _discriminant() -> np.ndarray:
    """An affine map from features and iVectors to log-likelihoods of four outputs."""
    rows = []
    for phone in PITCHES:
        features = Mfcc(num_ceps=3, use_energy=False, dither=0).compute(tone(phone, 0.5), RATE)
        mean = features.mean(axis=0) * np.array([0.05, 1, 1])
        weights = mean * np.array([0.05, 1, 1])
        rows.append([*weights, 0, 0, 0, 0, -0.5 * mean @ mean])
    return np.array(rows, np.float32) * np.float32(0.05)


def network(folder: Path) -> AmNnetSimple:
    """The acoustic model; `folder` takes a file of its matrix."""
    writer = Writer()
    writer.write_matrix(_discriminant())
    path = folder / "discriminant.mat"
    path.write_bytes(writer.getvalue())
    pdfs = [0, 1, 1, 2, 2, 3]
    text = one_state_model(len(PHONES), -0.1, -2.35)
    for at, pdf in reversed(list(enumerate(pdfs))):
        text = text.replace(f"\n{at + 1} 0 {at}\n", f"\n{at + 1} 0 {pdf}\n")
    nnet = Nnet.from_config_text(_NETWORK.format(matrix=path), 1)
    model = AmNnetSimple(nnet, text.encode(), binary=False)
    model.set_context()
    return model


def lexicon_rows() -> list[list[Row]]:
    """The lexicon with transitions: a way from state 0 back to it for silence and each word."""
    rows: list[list[Row]] = [[]]

    def chain(at: int, phone: int, word: int) -> int:
        rows.append([])
        rows[at].append((2 * phone, word, 0.5, len(rows) - 1))
        rows[-1].append((2 * phone - 1, 0, 0.1, len(rows) - 1))
        return len(rows) - 1

    for word, phones in ((0, (1,)), *PRONUNCIATIONS.items()):
        at = 0
        for place, phone in enumerate(phones):
            at = chain(at, phone, word if not place else 0)
        rows[at].append((0, 0, 0.25, 0))
    return [sorted(row, key=lambda arc: arc[1]) for row in rows]


def small_files(folder: Path, *, static: bool = False) -> dict[str, bytes]:
    """The files of the model by their paths in its folder.

    Args:
        folder: for files that are made on the way. static: HCLG.fst in place of two FSTs.
    """
    ivectors = folder / "ivector"
    ivectors.mkdir(parents=True, exist_ok=True)
    write_model(ivectors)
    network(folder).write(folder / "final.mdl")
    lexicon = arc_fst(lexicon_rows(), {0: 0.0})
    said = {label: word for label, word in WORDS.items() if label}
    grammar = arc_fst([[(label, label, 1.5, 0) for label in said]], {0: 1.0})
    files = {
        "am/final.mdl": (folder / "final.mdl").read_bytes(),
        "conf/model.conf": _MODEL.encode(),
        "conf/mfcc.conf": _MFCC.encode(),
        "graph/phones.txt": "".join(
            f"{name} {at}\n" for at, name in enumerate(("<eps>", *PHONES))
        ).encode(),
        "graph/phones/word_boundary.int": "".join(
            f"{at} {kind}\n" for at, kind in enumerate(KINDS, 1)
        ).encode(),
        **{
            f"ivector/{path.name}": path.read_bytes()
            for path in sorted(ivectors.iterdir())
            if path.name != "ivector_extractor.conf"
        },
    }
    if static:
        files["graph/HCLG.fst"] = const_bytes(lexicon)
        files["graph/words.txt"] = "".join(f"{w} {n}\n" for n, w in WORDS.items()).encode()
    else:
        files["graph/HCLr.fst"] = lookahead_bytes(lexicon, _FINAL_LABEL)
        files["graph/Gr.fst"] = vector_bytes(grammar, WORDS)
        files["graph/disambig_tid.int"] = b"13\n"
    return files


def write_files(files: dict[str, bytes], folder: Path) -> Path:
    """The folder with these files."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def lexicon_lines(words: Sequence[int] = tuple(PRONUNCIATIONS)) -> bytes:
    """An `align_lexicon.int` of the model."""
    rows = ["0 0 1", *(f"{w} {w} {' '.join(map(str, PRONUNCIATIONS[w]))}" for w in words)]
    return "\n".join(rows).encode() + b"\n"
