"""Trainings of recognizers: from tones to words, interrupted and gone on with."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from opscope.framework.base.errors import ArgumentError, AttributeTypeError, SaveError
from opscope.python_api.cli.main import main
from opscope.speech import KaldiRecognizer, Model, make_graph, train, transcribe
from spoken_tones import SMALL
from tone_trainings import refine
from vosk_beside import vosk_beside

RESULTS = ("train/am/final.mdl", "graph/HCLG.fst", "decode/hyp.txt")
SECOND_RESULTS = (
    *("align/ali.ark", "tree/tree", "tree/den.fst", "extractor/final.ie", "ivectors/ivectors.ark"),
    "tdnnf-examples/train.ark",
    *("tdnnf-train/am/final.mdl", "graph/HCLG.fst", "decode/hyp.txt"),
)


def test_the_folder_recognizes(trained):
    model = Model(trained / "model")
    said = (trained / "data/cid/1.txt").read_text().strip()
    assert transcribe(trained / "data/cid/1.wav", model).text == said
    page = (trained / "model/report.html").read_text()
    assert "polyline" in page
    assert "held out: 4 utterances" in page


def test_two_passes_end_with_the_same_bits(trained, refined):
    """Killed in the middle of an epoch."""
    lines: list[str] = []

    def killed(line: str) -> None:
        lines.append(line)
        if line.startswith("epoch 2 "):
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        refine(trained, "again", killed, checkpoint_minutes=0.0)
    stages = [line for line in lines if line.startswith("stage")]
    assert stages[0] == "stage 8 of 19: align"
    assert stages[-1] == "stage 14 of 19: tdnnf-train"
    refine(trained, "again", lambda line: None)
    for name in SECOND_RESULTS:
        whole = (trained / "refined.work" / name).read_bytes()
        assert (trained / "again.work" / name).read_bytes() == whole, name


@pytest.mark.parametrize("name", ["model", "refined"])
def test_vosk_opens_the_folder(trained, refined, name):
    with vosk_beside() as vosk:
        recognizer = vosk.KaldiRecognizer(vosk.Model(str(trained / name)), 8000)
        recognizer.AcceptWaveform((trained / "data/cid/1.wav").read_bytes()[44:])
        said = (trained / "data/cid/1.txt").read_text().strip()
        assert json.loads(recognizer.FinalResult())["text"] == said


def test_vosk_takes_phrases_where_the_graph_has_two_parts(trained, tmp_path):
    """Gr.fst is an n-gram model of OpenFst's, and words have the labels of both parts."""
    work, folder = trained / "model.work", tmp_path / "model"
    shutil.copytree(trained / "model", folder)
    shutil.rmtree(folder / "graph")
    arpa = work / "language-model/lm.arpa"
    make_graph(work / "lang", folder / "am", folder / "graph", arpa=arpa, look_ahead=True)
    assert (folder / "graph/Gr.fst").read_bytes()[8:13] == b"ngram"
    samples = (trained / "data/cid/1.wav").read_bytes()[44:]
    said = (trained / "data/cid/1.txt").read_text().strip()
    grammar = json.dumps([said])
    with vosk_beside() as vosk:
        model = vosk.Model(str(folder))
        for recognizer in (
            vosk.KaldiRecognizer(model, 8000),
            vosk.KaldiRecognizer(model, 8000, grammar),
            KaldiRecognizer(Model(folder), 8000, grammar),
        ):
            recognizer.AcceptWaveform(samples)
            assert json.loads(recognizer.FinalResult())["text"] == said


def test_many_hours_want_two_passes(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("opscope.speech.training.train._MANY_HOURS", 0.0)
    data = trained / "data"
    lines: list[str] = []
    options = {"lexicon": str(data / "lexicon.txt"), "log": lines.append, "stop_after": "lang"}
    train(data, tmp_path / "model", **options)
    stages = [line for line in lines if line.startswith("stage")]
    assert stages == ["stage 1 of 12: data", "stage 2 of 17: lang"]
    lines.clear()
    train(data, tmp_path / "model", **options)
    assert lines == []


def test_an_interrupted_training_ends_with_the_same_bits(trained, tmp_path):
    """Stopped in one stage and killed in the middle of an epoch; features of two processes."""
    data = trained / "data"
    options = {**SMALL, "lexicon": str(data / "lexicon.txt"), "checkpoint_minutes": 0.0}

    def killed(line: str) -> None:
        if line.startswith("epoch 3 "):  # its last minibatch has a checkpoint, its end has none
            raise RuntimeError("killed")

    def quiet(line: str) -> None:
        pass

    model, work = tmp_path / "le modèle, à côté", tmp_path / "le modèle, à côté.work"
    assert train(data, f"{model}/", stop_after="features", log=quiet, jobs=2, **options) is None
    with pytest.raises(RuntimeError, match="killed"):
        train(data, model, log=killed, **options)
    assert (work / "train.part/3.raw").exists()
    went_on: list[str] = []
    train(data, model, log=went_on.append, **options)
    assert went_on[0] == "stage 7 of 12: train"
    for name in RESULTS:
        whole = (trained / "model.work" / name).read_bytes()
        assert (work / name).read_bytes() == whole, name
    (tmp_path / "said.txt").write_text("high mid low\nmid top\n")
    lines: list[str] = []
    options |= {"text": str(tmp_path / "said.txt"), "stop_after": "language-model"}
    train(data, model, log=lines.append, **options)
    assert lines[1:] == ["  3 words of the sentences count as unknown: 'mid' 'top'"]


def test_stages_are_done_again_where_settings_change(trained, tmp_path):
    data = trained / "data"
    words = ["train-recognizer", str(data), "--out", str(trained / "model"), "--list"]
    words += ["--lexicon", str(data / "lexicon.txt")]
    for name, value in SMALL.items():
        words += [f"--{name.replace('_', '-')}", str(value)]

    def to_do(*more: str) -> list[str]:
        result = CliRunner().invoke(main, [*words, *more], catch_exceptions=False)
        lines = [line.split(None, 1) for line in result.output.splitlines()]
        return [name for name, rest in lines if rest.startswith("to do")]

    rest = ["graph", "model", "decode", "report"]
    assert to_do() == []
    assert to_do("--order", "2") == ["language-model", *rest]
    assert to_do("--epochs", "7") == ["train", *rest]
    (tmp_path / "said.txt").write_text("high high high\n")
    assert to_do("--text", str(tmp_path / "said.txt")) == ["language-model", *rest]
    (tmp_path / "other.txt").write_text((data / "lexicon.txt").read_text() + "mid l i\n")
    assert len(to_do("--lexicon", str(tmp_path / "other.txt"))) == 12


@pytest.mark.parametrize(
    "options, error, message",
    [
        (
            {"begin": "feature"},
            ArgumentError,
            r"no stage 'feature' \(did you mean features\?\); they are",
        ),
        ({"epochs": -1}, ArgumentError, "epochs=-1 must not be negative"),
        ({"context": "right"}, ArgumentError, "context='right' is none of none, left"),
        ({"model": "lstm"}, ArgumentError, "model='lstm' is none of flat-start, tdnnf"),
        ({"body_rate": 0.5}, ArgumentError, "body_rate=0.5: no model is given that is tuned"),
        ({"ivectors": 5, "model": "flat-start"}, ArgumentError, "ivectors=5: the network of tdnnf"),
        ({"volumes": "2,1"}, ArgumentError, "volumes=2,1: two positive factors, rising"),
        ({"chunks": "90,x"}, AttributeTypeError, "num-frames='90,x' is no list of numbers"),
        ({"chunks": "90,0"}, AttributeTypeError, "num-frames and .* must be positive"),
        ({"chunks": "90,3"}, ArgumentError, "chunks=90,3: chunks of 4 frames or more"),
        ({"work": "data"}, SaveError, "was not made by a training"),
        ({"out": "data"}, SaveError, "data is there, and no model"),
        ({"out": "new/", "work": "new/work"}, SaveError, "cannot be or lie in"),
        ({"out": "new/model", "work": "new"}, SaveError, "cannot be or lie in"),
    ],
)
def test_what_is_refused(trained, tmp_path, monkeypatch, options, error, message):
    """Nothing of the user's is removed: a work folder may be any folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/data").mkdir(parents=True)
    (tmp_path / "data/data/kept").write_text("kept")
    settings = {"out": "model", "lexicon": str(trained / "data/lexicon.txt"), **options}
    with pytest.raises(error, match=message):
        train(trained / "data", settings.pop("out"), log=lambda line: None, **settings)
    assert (tmp_path / "data/data/kept").read_text() == "kept"
