"""Folders with a static graph and with filter banks, beside Vosk itself.

They are made of the Korean model: HCLG.fst is its HCLr.fst composed with a grammar, and the network
and the iVectors turn filter banks to cepstra themselves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ivector_models import matrix
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.kaldi_io import Reader
from opscope.nnet3.language.config import split_lines
from opscope.nnet3.network.model import AmNnetSimple
from opscope.speech import KaldiRecognizer, Mfcc, Model
from opscope.speech.features.mel import cosine_transform, lifter
from opscope.speech.fst.grammar import grammar_fst, phrase_labels
from opscope.speech.fst.graph import LookaheadGraph
from opscope.speech.fst.graph_folder import load_graph
from own_sentences import Case
from speech_data import undithered
from speech_graphs import const_bytes, expanded
from vosk_beside import skip_without_vosk, vosk_beside

PHRASES = ("오후 시 하죠", "아 유영 봐왔 으니", "하죠 유영 오후 시", "이유가 로이드 와 다")
_NODES = """input-node name=input dim={dim}
component name=cepstra type=FixedAffineComponent matrix={matrix}
component-node name=cepstra component=cepstra input=input
component-node name=lda component=lda input=Append(Offset(cepstra, -1), cepstra, \
Offset(cepstra, 1), ReplaceIndex(ivector, t, 0))
"""
_FBANK = """--use-energy=false
--num-mel-bins=40
--low-freq=20
--high-freq=7600
--allow-upsample=true
--dither=0
"""
_DYNAMIC = ("HCLr.fst", "Gr.fst", "disambig_tid.int")


def static_folder(folder: Path) -> Path:
    """The model with a static graph, without dither."""
    found = load_graph(undithered(folder) / "graph")
    for name in _DYNAMIC:
        (folder / "graph" / name).unlink()
    assert isinstance(found.graph, LookaheadGraph)
    labels = phrase_labels(PHRASES, found.words)
    graph = expanded(found.graph.with_grammar(grammar_fst(labels)))
    known = sorted({0, *(label for phrase in labels for label in phrase)})
    graph.arcs["olabel"] = np.searchsorted(known, graph.arcs["olabel"])
    (folder / "graph/HCLG.fst").write_bytes(const_bytes(graph))
    lines = "".join(f"{found.words[label]} {number}\n" for number, label in enumerate(known))
    (folder / "graph/words.txt").write_text(lines)
    return folder


def _put_in_front(folder: Path, affine: np.ndarray) -> None:
    """Put a matrix [inputs, inputs + 1], of which the last column is added, before the network."""
    written = folder / "cepstra.mat"
    written.write_bytes(matrix(affine.astype(np.float32)))
    model = AmNnetSimple.read(str(folder / "am/final.mdl"))
    lines = split_lines(_NODES.format(matrix=written, dim=affine.shape[1] - 1))
    model.nnet.add_config(lines, np.random.default_rng(0))
    model.set_context()
    (folder / "am/final.mdl").unlink()
    model.write(folder / "am/final.mdl")


def normalized(folder: Path) -> Path:
    """The folder, the network's features normalized; the network gets the mean of all again."""
    stats = Reader(str(folder / "ivector/global_cmvn.stats")).read_matrix(np.float64)
    (folder / "am/global_cmvn.stats").write_bytes(matrix(stats))
    means = stats[:1, :-1] / stats[0, -1]
    _put_in_front(folder, np.hstack((np.eye(means.size), means.T)))
    return folder


def with_banks(folder: Path) -> Path:
    """The folder, its features turned to filter banks."""
    known = Mfcc(config=str(folder / "conf/mfcc.conf")).options
    scales = lifter(known.cepstral_lifter, known.num_ceps)[:, None]
    cepstra = (scales * cosine_transform(known.num_ceps, known.num_mel_bins)).astype(np.float64)
    size = len(cepstra)
    (folder / "conf/mfcc.conf").unlink()
    (folder / "conf/fbank.conf").write_text(_FBANK)

    _put_in_front(folder, np.pad(cepstra, ((0, 0), (0, 1))))
    path = folder / "ivector/final.mat"
    lda = Reader(str(path)).read_matrix(np.float64)
    frames = lda.shape[1] // size
    turned = lda[:, : frames * size] @ np.kron(np.eye(frames), cepstra)
    path.unlink()
    path.write_bytes(matrix(np.hstack((turned, lda[:, frames * size :])).astype(np.float32)))

    path = folder / "ivector/global_cmvn.stats"
    stats = Reader(str(path)).read_matrix(np.float64)
    stats[0, :-1] = np.linalg.solve(cepstra, stats[0, :-1])
    stats[1, :-1] = stats[0, :-1] ** 2
    path.unlink()
    path.write_bytes(matrix(stats))
    return folder


def with_pitch(folder: Path) -> Path:
    """The folder, its network's features moved a little by the pitch."""
    (folder / "conf/pitch.conf").write_text(
        "--delta-pitch-noise-stddev=0\n--normalization-right-context=20\n--frames-per-chunk=10\n"
    )
    size = Mfcc(config=str(folder / "conf/mfcc.conf")).dim
    moved = np.zeros((size, 3))
    moved[:3] = [[2, 0, 0], [0, 4, 0], [0, 0, 1]]
    _put_in_front(folder, np.hstack((np.eye(size), moved, np.zeros((size, 1)))))
    return folder


def heard(kind: Any, model: Any, case: Case) -> list[dict]:
    recognizer = kind(model, case.rate)
    recognizer.SetWords(True)
    data, found = case.samples().tobytes(), []
    for begin in range(0, len(data), case.block):
        if recognizer.AcceptWaveform(data[begin : begin + case.block]):
            found.append(json.loads(recognizer.Result()))
    return [*found, json.loads(recognizer.FinalResult())]


def check_beside_vosk(folder: Path, case: Case) -> list[str]:
    """The texts that both hear, with equal times and confidences."""
    ours = heard(KaldiRecognizer, Model(folder), case)
    with vosk_beside() as vosk:
        theirs = heard(vosk.KaldiRecognizer, vosk.Model(str(folder)), case)
    texts = [each["text"] for each in ours]
    assert texts == [each["text"] for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for mine, wanted in zip(one.get("result", []), other.get("result", []), strict=True):
            for key in ("start", "end", "conf"):
                assert mine[key] == pytest.approx(wanted[key], abs=1e-3)
    return texts


def test_static_graphs_and_filter_banks_are_vosks(tmp_path: Path) -> None:
    skip_without_vosk()
    folder = static_folder(tmp_path / "model")
    case = Case(("u1", 1.2), block=8000)
    assert check_beside_vosk(folder, case)[0] == PHRASES[1]
    assert check_beside_vosk(with_banks(folder), case)[0] == PHRASES[1]


def test_pitch_is_vosks(tmp_path: Path) -> None:
    skip_without_vosk()
    folder = with_pitch(static_folder(tmp_path / "model"))
    assert Model(folder).pitch is not None
    assert check_beside_vosk(folder, Case(("u1", 1.2), block=8000))[0] == PHRASES[1]
    assert check_beside_vosk(folder, Case((1.5, "u1", 0.5), block=2400)) != [""]


def test_normalized_features_are_vosks(tmp_path: Path) -> None:
    skip_without_vosk()
    folder = normalized(static_folder(tmp_path / "model"))
    assert Model(folder).cmvn() is not None
    assert check_beside_vosk(folder, Case(("u1", 1.2), block=8000))[0] == PHRASES[1]
    assert check_beside_vosk(folder, Case((1.5, "u1", 0.5), block=2400)) != [""]


def test_statistics_of_other_features(tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "model")
    (folder / "am/global_cmvn.stats").write_bytes(matrix(np.ones((2, 14))))
    with pytest.raises(FormatError, match="statistics of 13 features, but there are 40"):
        Model(folder)
