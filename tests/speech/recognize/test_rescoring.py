"""Folders with larger language models: what is heard is Vosk's, and mistakes in such folders."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.lattices.lattice import ONE, Arc, CompactLattice
from opscope.nnet3.programs.base.graphs import save_fst
from opscope.nnet3.programs.base.saving import save, write_model
from opscope.speech import KaldiRecognizer, Model, read_audio
from opscope.speech.fst.graph_folder import load_graph
from opscope.speech.language_model.const_arpa import const_arpa
from opscope.speech.language_model.model import NgramModel
from opscope.speech.recognize.rescoring import Rescoring
from speech_data import reference, undithered
from vosk_beside import vosk_beside

GOLDEN = Path(__file__).parents[2] / "golden" / "rescoring"
FEATURES, COLUMNS = 5, 6


def write_rescoring(folder: Path, words: int) -> None:
    """G.fst and G.carpa: costs at random, for words that follow themselves or a neighbor, too."""
    (folder / "rescore").mkdir()
    rng = np.random.default_rng(1)
    labels = np.arange(1, words)
    loops = np.zeros(len(labels), np.int64)
    costs = rng.uniform(4, 8, len(labels))
    fst = Fst.of_arcs(loops, labels, costs, loops, np.full(1, 1.5))
    save_fst(fst, str(folder / "rescore" / "G.fst"))
    vocabulary = [str(label) for label in labels]
    rows = np.arange(len(labels))
    pairs = np.concatenate([np.stack((rows, rows), 1), np.stack((rows[:-1], rows[1:]), 1)])
    orders = [
        (rows[:, None], -rng.uniform(2, 5, len(rows)), -rng.uniform(0, 1, len(rows))),
        (pairs, -rng.uniform(0, 2, len(pairs)), np.zeros(len(pairs))),
    ]
    model, _ = NgramModel.of_rows(vocabulary, orders)
    carpa = const_arpa(model, words - 2, words - 1, -1)
    write_model(carpa, str(folder / "rescore" / "G.carpa"), True)


def write_recurrent(folder: Path, words: int) -> None:
    """rnnlm: a small recurrent network, and features of words at random."""
    (folder / "rnnlm").mkdir()
    shutil.copy(GOLDEN / "rnn.raw", folder / "rnnlm" / "final.raw")
    rng = np.random.default_rng(2)
    lines = [
        f"{label} {first} {value:.3f} {FEATURES - 1} 0.5\n"
        for label, (first, value) in enumerate(
            zip(rng.integers(0, FEATURES - 1, words), rng.normal(size=words), strict=True)
        )
    ]
    (folder / "rnnlm" / "word_feats.txt").write_text("".join(lines))
    writer = Writer()
    writer.write_matrix(rng.normal(size=(FEATURES, COLUMNS)).astype(np.float32))
    save(writer, str(folder / "rnnlm" / "feat_embedding.final.mat"))
    options = f"--bos-symbol={words - 2}\n--eos-symbol={words - 1}\n--brk-symbol={words}\n"
    (folder / "rnnlm" / "special_symbol_opts.conf").write_text(options)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The small model of Vosk's; with an n-gram model to rescore with; with a recurrent one."""
    place = tmp_path_factory.mktemp("rescoring")
    made = {"plain": undithered(place / "plain")}
    words = len(load_graph(made["plain"] / "graph").words)
    for name in ("ngram", "recurrent"):
        made[name] = Path(shutil.copytree(made["plain"], place / name, symlinks=True))
        write_rescoring(made[name], words)
    write_recurrent(made["recurrent"], words)
    return made


def heard(recognizer: Any, alternatives: int) -> dict:
    recognizer.SetWords(True)
    recognizer.SetMaxAlternatives(alternatives)
    samples = read_audio(reference("u2.wav")).channel().astype(np.int16)
    recognizer.AcceptWaveform(samples.tobytes())
    return json.loads(recognizer.FinalResult())


def test_what_is_heard_is_vosks(folders: dict[str, Path]) -> None:
    plain = heard(KaldiRecognizer(Model(folders["plain"]), 16000.0), 5)["alternatives"]
    costs = {plain[0]["confidence"]}
    with vosk_beside() as vosk:
        for kind in ("ngram", "recurrent"):
            model, beside = Model(folders[kind]), vosk.Model(str(folders[kind]))

            def both(count: int, model: Any = model, beside: Any = beside) -> tuple[dict, dict]:
                ours, theirs = (
                    KaldiRecognizer(model, 16000.0),
                    vosk.KaldiRecognizer(beside, 16000.0),
                )
                return heard(ours, count), heard(theirs, count)

            found, wanted = both(0)
            assert found["text"] == wanted["text"] != plain[0]["text"]
            for one, other in zip(found["result"], wanted["result"], strict=True):
                assert one["word"] == other["word"]
                assert one["conf"] == pytest.approx(other["conf"], abs=5e-3)
            found, wanted = (each["alternatives"] for each in both(5))
            for one, other in zip(found, wanted, strict=True):
                assert one["text"] == other["text"]
                assert one["confidence"] == pytest.approx(other["confidence"], abs=2e-2)
            costs.add(found[0]["confidence"])
    assert len(costs) == 3  # each model has a say


WORDS = 14


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rescoring(tmp_path, WORDS)
    write_recurrent(tmp_path, WORDS)
    return tmp_path


def test_what_a_folder_is_rescored_with(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = Rescoring.of_folder(folder)
    ngrams = "2-grams of rescore/G.carpa in place of rescore/G.fst"
    assert known is not None
    assert known.text == f"{ngrams}, half of them by rnnlm (14 words, 6 columns)"
    (folder / "rnnlm" / "final.raw").unlink()
    known = Rescoring.of_folder(folder)
    assert known is not None and known.text == ngrams
    shutil.copy(GOLDEN / "rnn.raw", folder / "rnnlm" / "final.raw")
    (folder / "rescore" / "G.carpa").unlink()
    caplog.set_level(logging.WARNING)
    assert Rescoring.of_folder(folder) is None and "rnnlm is not used" in caplog.text


def test_lattices_without_a_known_word(folder: Path) -> None:
    known = Rescoring.of_folder(folder)
    lattice = CompactLattice(0, [[Arc(WORDS + 5, ONE, 1)], []], [None, ONE])
    assert known is not None and known.rescored(lattice) is None


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("rescore/G.fst", None, "G.fst: No such file"),
        ("rescore/G.carpa", b"", "G.carpa: a const-ARPA file is binary"),
        ("rescore/G.carpa", b"\0B<ConstArpaLm> <LmInfo> ", "G.carpa: "),
        ("rnnlm/word_feats.txt", None, "word_feats.txt: No such file"),
        ("rnnlm/word_feats.txt", b"0 0 1\n", "--bos-symbol=12 is none of the labels of the 1"),
        ("rnnlm/feat_embedding.final.mat", b"\0BFM ", "feat_embedding.final.mat: "),
        ("rnnlm/special_symbol_opts.conf", b"--bos=1\n", "invalid option --bos"),
        ("rnnlm/final.raw", b"", "final.raw: "),
    ],
)
def test_folders_whose_parts_are_damaged(
    name: str, content: bytes | None, told: str, folder: Path
) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(OpscopeError, match=re.escape(told)):
        Rescoring.of_folder(folder)
