"""Fine-tuning: a recognizer of tones learns tones of another pitch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from opscope.framework.base.errors import ArgumentError, FormatError, SaveError
from opscope.kaldi.files.sparse import to_dense
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.components import UpdatableComponent
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.speech import Model, train, transcribe
from opscope.speech.ivector.online import online_ivectors
from opscope.speech.training.report import scored
from opscope.speech.training.tuning import last_layers
from spoken_tones import write_corpus
from vosk_beside import vosk_beside

TUNING = {
    **{"copies": 3, "initial_lr": 0.01, "minibatch": "4,2,1", "epochs": 20},
    **{"test_speakers": "cid", "body_rate": 0.5, "chunks": "90,60"},
}
RESULTS = ("align/ali.ark", "tree/den.fst", "examples/train.ark", "train/am/final.mdl")


@pytest.fixture(scope="module")
def higher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of tones that are 15% higher: enough that any seed learns them."""
    return write_corpus(tmp_path_factory.mktemp("higher") / "data", 16, pitch=1.15)


@pytest.fixture(scope="module")
def tuned(trained: Path, higher: Path) -> Path:
    """The folder of the tuned model, beside its work folder."""
    target = higher.parent / "tuned"
    counts = train(higher, target, base=str(trained / "model"), log=lambda line: None, **TUNING)
    assert counts is not None
    before, _ = scored(str(target) + ".work/decode-before")
    assert before.words == counts.words
    assert counts.errors <= before.errors / 2, (before.errors, counts.errors)
    assert before.errors >= 4
    return target


def test_the_tuned_folder_is_the_model_with_another_network(trained, tuned):
    old, new = trained / "model", tuned
    for path in sorted(old.rglob("*")):
        inside = path.relative_to(old)
        if path.is_file() and inside.name not in ("final.mdl", "report.html"):
            assert (new / inside).read_bytes() == path.read_bytes(), inside
    before, after = (AmNnetSimple.read(each / "am/final.mdl") for each in (old, new))
    assert after.transition_model == before.transition_model
    assert after.nnet.config_lines() == before.nnet.config_lines()
    for name, component in before.nnet.components.items():
        other = after.nnet.components[name]
        if isinstance(component, UpdatableComponent):
            assert other.learning_rate_factor == component.learning_rate_factor
        if "batchnorm" in name:
            assert not other.test_mode
            np.testing.assert_array_equal(other.stats_sum, component.stats_sum)
    page = (new / "report.html").read_text()
    assert "before" in page


def test_vosk_opens_the_tuned_folder(tuned, higher):
    said = (higher / "ann/1.txt").read_text().strip()
    assert transcribe(higher / "ann/1.wav", Model(tuned)).text == said
    with vosk_beside() as vosk:
        recognizer = vosk.KaldiRecognizer(vosk.Model(str(tuned)), 8000)
        recognizer.AcceptWaveform((higher / "ann/1.wav").read_bytes()[44:])
        assert json.loads(recognizer.FinalResult())["text"] == said


def test_a_body_with_the_rate_0_stays(trained, tuned, higher):
    work = higher.parent / "frozen.work"
    shutil.copytree(f"{tuned}.work", work)
    options = {**TUNING, "epochs": 1, "body_rate": 0.0}
    lines: list[str] = []
    train(
        higher,
        higher.parent / "frozen",
        base=str(trained / "model"),
        log=lines.append,
        stop_after="train",
        **options,
    )
    stages = [line.split()[-1] for line in lines if line.startswith("stage")]
    assert stages == ["network", "examples", "train"]
    before, after = (
        AmNnetSimple.read(each).nnet
        for each in (trained / "model/am/final.mdl", work / "train/am/final.mdl")
    )
    last = last_layers(before)
    assert last == {"output.affine"}
    for name, component in before.components.items():
        if isinstance(component, UpdatableComponent):
            same = np.array_equal(after.components[name].vectorize(), component.vectorize())
            assert same == (name not in last), name


def test_killed_tuning_ends_with_the_same_bits(trained, tuned, higher):
    def killed(line: str) -> None:
        if line.startswith("epoch 3 "):
            raise RuntimeError("killed")

    out = higher.parent / "again"
    options = {**TUNING, "base": str(trained / "model"), "checkpoint_minutes": 0.0}
    with pytest.raises(RuntimeError, match="killed"):
        train(higher, out, log=killed, jobs=2, **options)
    train(higher, out, log=lambda line: None, **options | {"checkpoint_minutes": 5.0})
    for name in RESULTS:
        whole = Path(f"{tuned}.work", name).read_bytes()
        assert Path(f"{out}.work", name).read_bytes() == whole, name


def test_ivectors_are_those_of_the_model(refined, higher):
    out = higher.parent / "with ivectors"
    base, work = str(refined), Path(f"{out}.work")
    options = {**TUNING, "base": base, "stop_after": "examples", "copies": 1}
    assert train(higher, out, log=lambda line: None, **options) is None
    model = Model(base).ivectors
    assert model is not None
    ivectors = dict(read_table(f"ark:{work}/features/ivectors.ark", "matrix"))
    assert len(ivectors) == 32
    for key, features in read_table(f"ark:{work}/features/feats.ark", "general_matrix"):
        rows = -(-features.shape[0] // model.options.ivector_period)
        assert ivectors[key].shape == (rows, 5)
        # Features in the file are compressed.
        expected = online_ivectors(model, to_dense(features))
        np.testing.assert_allclose(ivectors[key], expected, atol=0.05)
    _, example = next(read_table(f"ark:{work}/examples/train.ark", "chain_example"))
    assert [each.name for each in example.inputs] == ["input", "ivector"]
    assert Model(base).network.ivector_dim == 5


def test_words_that_the_model_lacks_are_guessed_and_the_grammar_changes(trained, tmp_path):
    """A graph of one part takes new words with a grammar alone."""
    data = write_corpus(tmp_path / "data", 3)
    text = tmp_path / "said.txt"
    text.write_text("low high\nhigh low\nhilo low\n")
    (data / "ann/0.txt").write_text("hilo low\n")
    base, lines = str(trained / "model"), []
    options = {"base": base, "log": lines.append, "copies": 1, "stop_after": "base"}
    with pytest.raises(FormatError, match="wants a grammar of its own"):
        train(data, tmp_path / "out", **options)
    train(data, tmp_path / "out", text=str(text), **options)
    assert "  words that the model lacks: hilo" in lines
    guesses = [line for line in lines if line.startswith("  guessed pronunciations: hilo: ")]
    assert guesses
    lines.clear()
    (tmp_path / "ways.txt").write_text("hilo h i l o\nlow o o\n")
    lexicon = str(tmp_path / "ways.txt")
    train(data, tmp_path / "out", text=str(text), lexicon=lexicon, **options)
    assert not any("guessed" in line for line in lines)
    assert Model(tmp_path / "out.work/base/model").vosk_model_find_word("hilo") > 0


def test_last_layers_of_branches():
    nnet = Nnet.from_config_text(
        """
        input-node name=input dim=3
        component name=a type=AffineComponent input-dim=3 output-dim=4
        component name=b type=AffineComponent input-dim=4 output-dim=2
        component name=c type=LinearComponent input-dim=4 output-dim=2
        component name=s type=LogSoftmaxComponent dim=2
        component-node name=a component=a input=input
        component-node name=b component=b input=a
        component-node name=c component=c input=a
        component-node name=s component=s input=Append(c)
        output-node name=output input=b
        output-node name=output-xent input=s
        """,
        0,
    )
    assert last_layers(nnet) == {"b", "c"}


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"model": "tdnnf"}, ArgumentError, "model='tdnnf': a model that is tuned keeps"),
        ({"ivectors": 5}, ArgumentError, "ivectors=5: a model that is tuned keeps"),
        ({"look_ahead": True}, ArgumentError, "look_ahead=True: a model that is tuned keeps"),
        ({"rate": 16000}, ArgumentError, "rate=16000: a model that is tuned keeps"),
        ({"base": "out"}, SaveError, "out cannot be or lie in out: MODEL, --work and --from"),
        ({"base": "out.work/model"}, SaveError, "out.work/model cannot be or lie in out.work"),
        ({"work": "frames/work", "base": "frames"}, SaveError, "work cannot be or lie in frames"),
        ({"body_rate": -1.0}, ArgumentError, "body_rate=-1.0 must not be negative"),
        ({"base": "data"}, FormatError, "no folder of a model"),
        ({"base": "frames"}, FormatError, "an output for every 1 frames of 0.01 s; fine-tuning is"),
    ],
)
def test_what_is_refused(trained, tmp_path, monkeypatch, options, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    shutil.copytree(trained / "model", tmp_path / "frames")
    config = tmp_path / "frames/conf/model.conf"
    config.write_text(config.read_text().replace("subsampling-factor=3", "subsampling-factor=1"))
    settings = {"base": str(trained / "model"), "test_speakers": "cid", **options}
    with pytest.raises(error, match=message):
        train(trained / "data", "out", log=lambda line: None, **settings)
