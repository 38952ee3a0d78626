"""Recognizers against Vosk: its results for three sentences, and the program itself beside."""

from __future__ import annotations

import importlib.util
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from opscope.framework.base.errors import FormatError, OpscopeError
from opscope.python_api.cli.main import main
from opscope.speech import (
    EndpointerMode,
    KaldiRecognizer,
    Model,
    Recognizer,
    read_audio,
    recognized,
    resample,
    transcribe,
)
from speech_data import SENTENCES, reference, undithered, vosk_model
from vosk_beside import vosk_beside


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model without dither, as the reference was computed."""
    return undithered(tmp_path_factory.mktemp("vosk") / "model")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return Model(folder)


def samples(name: str) -> np.ndarray:
    return read_audio(reference(f"{name}.wav")).channel().astype(np.int16)


def results(recognizer: Any, audio: np.ndarray, block: int) -> tuple[list[dict], list[str]]:
    """What a recognizer of ours or of Vosk's gives, and the partial results."""
    data, found, partial = audio.tobytes(), [], []
    for begin in range(0, len(data), block):
        if recognizer.AcceptWaveform(data[begin : begin + block]):
            found.append(json.loads(recognizer.Result()))
        else:
            partial.append(json.loads(recognizer.PartialResult())["partial"])
    return [*found, json.loads(recognizer.FinalResult())], partial


def assert_equal_words(ours: list[dict], theirs: list[dict], confidence: float | None) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one["text"] == other["text"]
        rows = zip(one.get("result", []), other.get("result", []), strict=True)
        for mine, wanted in rows:
            assert mine.keys() == wanted.keys()
            assert mine["word"] == wanted["word"]
            assert mine["start"] == pytest.approx(wanted["start"], abs=1e-3)
            assert mine["end"] == pytest.approx(wanted["end"], abs=1e-3)
            if confidence is not None and "conf" in wanted:
                assert mine["conf"] == pytest.approx(wanted["conf"], abs=confidence)


@pytest.mark.parametrize("kind", ["whole", "chunk"])
@pytest.mark.parametrize("name", SENTENCES)
def test_words_times_and_confidences_are_vosks(name: str, kind: str, model: Model) -> None:
    recognizer = KaldiRecognizer(model, 16000)
    recognizer.SetWords(True)
    block = 8000 if kind == "chunk" else 1 << 30
    found, _ = results(recognizer, samples(name), block)
    wanted = json.loads(reference(f"{name}.{kind}.json").read_text())
    assert_equal_words(found, wanted, 1e-3)
    assert all(each["result"] for each in found)


def test_the_folder_as_it_comes_gives_the_words_of_vosk_without_dither() -> None:
    """Nothing of what is heard hangs on random numbers, unless the folder asks for these."""
    files = [str(reference(f"{name}.wav")) for name in SENTENCES]
    found = CliRunner().invoke(main, ["transcribe", str(vosk_model()), *files])
    assert found.exit_code == 0, found.output
    for name in SENTENCES:
        assert json.loads(reference(f"{name}.whole.json").read_text())[0]["text"] in found.output


def test_digital_silence_is_dithered() -> None:
    """Vosk gives these words behind zeros, in each run, with the dither that it has by default."""
    audio = np.concatenate([np.zeros(32000, np.int16), samples("u1")])
    words = {
        dither: transcribe(audio, Model(vosk_model(), dither=dither)).text for dither in (0, 1)
    }
    assert transcribe(audio, Model(vosk_model())).text == words[1] != words[0]


@pytest.mark.parametrize("name", SENTENCES)
def test_alternatives_are_vosks(name: str, model: Model) -> None:
    recognizer = KaldiRecognizer(model, 16000)
    recognizer.SetWords(True)
    recognizer.SetMaxAlternatives(3)
    (found,), _ = results(recognizer, samples(name), 1 << 30)
    wanted = json.loads(reference(f"{name}.nbest.json").read_text())
    assert_equal_words(found["alternatives"], wanted["alternatives"], None)
    for mine, theirs in zip(found["alternatives"], wanted["alternatives"], strict=True):
        assert mine["confidence"] == pytest.approx(theirs["confidence"], abs=3e-3)


@pytest.mark.parametrize("name", SENTENCES)
def test_log_likelihoods_with_weights_of_silence(name: str, model: Model, monkeypatch) -> None:
    """The decoder's own tracebacks tell what is silence: best paths, and the tokens on them."""
    recognizer, taken = Recognizer(model, 16000), []
    take = recognizer._decoder.accept
    monkeypatch.setattr(
        recognizer._decoder, "accept", lambda likes: (taken.append(likes), take(likes))
    )
    recognizer.accept(samples(name))
    assert recognizer.finish().frames == sum(map(len, taken))
    with np.load(reference(f"{name}.npz")) as arrays:
        wanted = arrays["weighted_loglikes"]
    made = np.concatenate(taken)
    assert made.shape == wanted.shape and np.abs(made - wanted).max() < 3e-3


def with_silences(rate: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    parts = [rng.normal(0, 3, rate // 2)]
    for name, seconds in (("u1", 1.2), ("u2", 2.2)):
        parts.append(np.asarray(resample(samples(name), 16000, rate), np.float64))
        parts.append(rng.normal(0, 3, int(seconds * rate)))
    return np.concatenate(parts).round().clip(-32768, 32767).astype(np.int16)


@pytest.mark.parametrize("rate", [8000, 44100])
def test_endpoints_rates_and_partial_results_beside_vosk(rate, folder, model) -> None:
    audio = with_silences(rate)
    both = []
    with vosk_beside() as vosk:
        for recognizer in (
            KaldiRecognizer(model, rate),
            vosk.KaldiRecognizer(vosk.Model(str(folder)), rate),
        ):
            recognizer.SetWords(True)
            recognizer.SetMaxAlternatives(1)
            both.append(results(recognizer, audio, rate // 2))
    (ours, our_partials), (theirs, their_partials) = both
    for one, other in zip(ours, theirs, strict=True):
        (mine,), (wanted,) = one["alternatives"], other["alternatives"]
        assert_equal_words([mine], [wanted], None)
        assert mine["confidence"] == pytest.approx(wanted["confidence"], abs=5e-3)
    assert our_partials == their_partials
    assert len(ours) == 3 and len(set(our_partials)) > 5


def test_grammar_beside_vosk(folder: Path, model: Model) -> None:
    grammar = json.dumps(["오후 시 하죠", "아 유영 봐왔 으니"], ensure_ascii=False)
    audio = with_silences(16000)
    ours = KaldiRecognizer(model, 16000, grammar)
    found, partials = results(ours, audio, 8000)
    with vosk_beside() as vosk:
        beside = vosk.KaldiRecognizer(vosk.Model(str(folder)), 16000, grammar)
        wanted, their_partials = results(beside, audio, 8000)
    assert [each["text"] for each in found] == [each["text"] for each in wanted]
    assert partials == their_partials
    assert found[0]["text"] == "아 유영 봐왔 으니"


def test_the_life_of_a_recognizer(model: Model) -> None:
    empty = {"text": ""}
    recognizer = KaldiRecognizer(model, 16000)
    assert json.loads(recognizer.Result()) == empty == json.loads(recognizer.FinalResult())
    assert json.loads(recognizer.PartialResult()) == empty
    data = samples("u1").tobytes()
    assert recognizer.AcceptWaveform(b"") == 0
    assert json.loads(recognizer.PartialResult()) == {"partial": ""}
    assert recognizer.AcceptWaveform(data) == 0
    recognizer.SetPartialWords(True)
    partial = json.loads(recognizer.PartialResult())
    assert partial == {"partial": ""}  # 60 frames must wait before a chunk has words
    with pytest.raises(OpscopeError, match="utterance is under way"):
        recognizer.SetGrammar('["아"]')
    recognizer.Reset()
    assert json.loads(recognizer.FinalResult()) == empty
    recognizer.AcceptWaveform(data)  # goes on in the signal whose beginning was dropped
    assert json.loads(recognizer.FinalResult())["text"]
    recognizer.AcceptWaveform(data)
    first = json.loads(recognizer.FinalResult())["text"]
    recognizer.AcceptWaveform(data)  # another signal
    assert json.loads(recognizer.FinalResult())["text"] == first == "아 유영 봐왔 으니"
    recognizer.SetGrammar('["아"]')
    recognizer.AcceptWaveform(data)
    assert set(json.loads(recognizer.FinalResult())["text"].split()) <= {"아"}
    recognizer.SetGrammar("[]")
    recognizer.SetMaxAlternatives(1)
    recognizer.AcceptWaveform(data)
    assert json.loads(recognizer.FinalResult())["alternatives"][0]["text"] == first
    assert json.loads(recognizer.Result())["alternatives"][0]["text"] == ""


def test_endpointer_modes(model: Model) -> None:
    recognizer = KaldiRecognizer(model, 16000)
    silences = []
    for mode in EndpointerMode:
        recognizer.SetEndpointerMode(mode)
        rules = recognizer._recognizer.endpoint.rules
        silences.append([rule.min_trailing_silence for rule in rules])
    assert silences[0] == [5, 0.5, 1, 2, 0] and silences[3] == [5, 2, 4, 8, 0]
    recognizer.SetEndpointerDelays(3, 0.2, 10)
    rules = recognizer._recognizer.endpoint.rules
    assert [rule.min_trailing_silence for rule in rules] == [3, 0.2, 0.7, 1.2, 0]
    assert rules[4].min_utterance_length == 10


def test_the_same_words_however_the_signal_is_cut(model: Model) -> None:
    rng = np.random.default_rng(0)
    part, silence = samples("u1"), rng.normal(0, 3, 24000).astype(np.int16)
    audio = np.concatenate([part, silence, part])
    made = [
        list(recognized(np.split(audio, cuts), model, 16000, phones=True))
        for cuts in ([], range(777, len(audio), 1000))
    ]
    assert made[0] == made[1]
    assert len(made[0]) == 2
    assert [phone.start for phone in made[0][0].phones] == sorted(
        phone.start for phone in made[0][0].phones
    )


def test_transcribe(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    path = reference("u1.wav")
    found = transcribe(path, model, alternatives=2)
    assert found.text == "아 유영 봐왔 으니"
    assert found == transcribe(path, model, alternatives=2)
    assert found.words[0].confidence == pytest.approx(1, abs=1e-3)
    assert len(found.utterances[0].alternatives) == 2
    assert transcribe(samples("u1"), model).words == found.words
    with caplog.at_level(logging.WARNING):
        assert transcribe(np.zeros(16000, np.int16), model).text == ""
        assert transcribe(np.zeros(0, np.int16), model).text == ""
        assert transcribe(np.full(100, 0.5), model).words == []
    assert caplog.text.count("no words in") == 3
    assert "on the scale of 16-bit integers" in caplog.text
    with pytest.raises(OpscopeError, match="NaN"):
        transcribe(np.full(16000, np.nan), model)
    with pytest.raises(OpscopeError, match="one channel are needed"):
        transcribe(np.zeros((2, 100)), model)
    with pytest.raises(OpscopeError, match="recordings have their own"):
        transcribe(path, model, rate=8000)
    with caplog.at_level(logging.WARNING):
        assert transcribe(path, model, grammar=["qwrtz"]).text == ""
    assert "qwrtz" in caplog.text and "no word of the model" in caplog.text


def test_the_command(folder: Path, tmp_path: Path) -> None:
    run = CliRunner()
    first, second = str(reference("u1.wav")), str(reference("u2.wav"))
    made = run.invoke(main, ["transcribe", str(folder), first, "--format", "json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["text"] == "아 유영 봐왔 으니"
    raw = samples("u1").tobytes() + b"x"
    made = run.invoke(main, ["transcribe", str(folder), "-"], input=raw)
    assert made.stdout == "아 유영 봐왔 으니\n" and "last byte is left out" in made.stderr
    (tmp_path / "cut.wav").write_bytes(Path(first).read_bytes()[:40])
    names = [first, second, str(tmp_path / "cut.wav"), str(tmp_path / "none.wav")]
    out = tmp_path / "out"
    made = run.invoke(main, ["transcribe", str(folder), *names, "--format", "srt", "-o", str(out)])
    assert made.exit_code == 1
    assert sorted(path.name for path in out.iterdir()) == ["u1.srt", "u2.srt"]
    assert "-->" in (out / "u1.srt").read_text(encoding="utf-8")
    assert "cut.wav" in made.stderr and "none.wav" in made.stderr
    for words, told in (
        ([first, second, "--format", "srt"], "give -o FOLDER"),
        ([first, "--rate", "8000"], "--rate is for raw samples"),
        ([first, "--stream", "--format", "ctm"], "a stream goes with"),
        ([first, "--phones"], "--phones are listed"),
        ([first, "--alternatives", "2"], "--alternatives are listed"),
        ([first, first, "-o", str(out)], "would both go to"),
    ):
        made = run.invoke(main, ["transcribe", str(folder), *words])
        assert made.exit_code == 2 and told in made.stderr


def spoiled(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to, symlinks=True)
    return to


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("am/final.mdl", "looked for am/final.mdl and conf/model.conf"),
        ("conf/model.conf", "conf/model.conf missing"),
        ("conf/mfcc.conf", "looked for conf/mfcc.conf, conf/fbank.conf"),
        ("ivector/final.ie", "looked for ivector/final.ie"),
        ("ivector/final.mat", "final.mat missing"),
        ("graph/Gr.fst", "Gr.fst is missing"),
    ],
)
def test_folders_that_lack_files(name: str, told: str, folder: Path, tmp_path: Path) -> None:
    made = spoiled(folder, tmp_path / "model")
    (made / name).unlink()
    with pytest.raises(FormatError, match=told):
        Model(made)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("conf/mfcc.conf", "--num-ceps=13\n", "13 features, but the network"),
        ("conf/model.conf", "--beem=3\n", "invalid option --beem .did you mean beam"),
        ("conf/model.conf", "--minimize=true\n", "--minimize must be false"),
        ("conf/model.conf", "--beam=-3\n", "model.conf: beam=-3"),
        ("conf/pitch.conf", "", "43 features, but the network"),
        ("conf/pitch.conf", "--frame-shift=20\n", "every 20 ms, of the other features every 10 ms"),
        ("graph/phones/word_boundary.int", "1 nonword\n", "phone 2 of the network's model"),
    ],
)
def test_folders_whose_files_do_not_go_together(name, text, told, folder, tmp_path) -> None:
    made = spoiled(folder, tmp_path / "model")
    (made / name).unlink(missing_ok=True)
    (made / name).write_text(text)
    with pytest.raises(OpscopeError, match=told):
        Model(made)


def test_what_is_not_used_is_told(folder: Path, tmp_path: Path, caplog) -> None:
    made = spoiled(folder, tmp_path / "model")
    (made / "rnnlm").mkdir()
    (made / "rnnlm" / "final.raw").write_bytes(b"")
    config = made / "conf" / "model.conf"
    text = config.read_text()
    config.unlink()
    config.write_text(text + "--hash-ratio=3\n")
    (made / "graph" / "phones" / "word_boundary.int").unlink()
    caplog.set_level(logging.WARNING)
    model = Model(made)
    assert "G.carpa is missing: rnnlm is not used" in caplog.text
    assert "without effect here: --hash-ratio" in caplog.text
    assert "word_boundary.int is missing" in caplog.text
    assert transcribe(reference("u1.wav"), model).text == "아 유영 봐왔 으니"
    with pytest.raises(OpscopeError, match="to allow upsampling"):
        KaldiRecognizer(_without_upsampling(made), 8000)


def _without_upsampling(folder: Path) -> Model:
    config = folder / "conf" / "mfcc.conf"
    config.write_text(config.read_text().replace("--allow-upsample=true", ""))
    return Model(folder)


def test_the_example_writes_subtitles(folder: Path, tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "examples" / "speech" / "subtitles.py"
    spec = importlib.util.spec_from_file_location("subtitles", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(str(folder), str(reference("u1.wav")), str(tmp_path / "u1.srt"))
    assert (tmp_path / "u1.srt").read_text(encoding="utf-8") == (
        "1\n00:00:00,000 --> 00:00:01,170\n아 유영 봐왔 으니\n"
    )
