"""Vectors that tell speakers apart, beside Vosk itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from opscope.framework.base.errors import FormatError, OpscopeError
from opscope.kaldi.files.kaldi_io import Writer
from opscope.speech import Audio, KaldiRecognizer, Model, SpeakerVector, SpkModel, transcribe
from opscope.speech.audio.wav import write_wav
from opscope.speech.features.vad import VadOptions
from opscope.speech.recognize.command import transcribe as command
from opscope.speech.recognize.speaker_model import LEAST_FRAMES
from own_sentences import Case
from speaker_models import DIM, INPUTS, MFCC, XVECTOR, array_file, write_speaker_model
from speech_data import korean_model, undithered
from speech_models import RATE, small_files, speech, write_files
from vosk_beside import vosk_beside

CASES = {
    "whole": Case(("u1",), block=1 << 20),
    "utterances": Case(("u1", 1.5, "u2", 1.5, "u3", 0.3), block=8000),
    "44.1 kHz": Case(("u3", 0.5), rate=44100, block=8000),
}
TEXT = "ab c ba c ab"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A speaker model."""
    return write_speaker_model(tmp_path_factory.mktemp("speakers") / "model")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A small recognizer's model."""
    made = tmp_path_factory.mktemp("small")
    return Model(write_files(small_files(made / "work"), made / "model"))


def heard(recognizer: Any, case: Case) -> list[dict]:
    data, found = case.samples().tobytes(), []
    for begin in range(0, len(data), case.block):
        if recognizer.AcceptWaveform(data[begin : begin + case.block]):
            found.append(json.loads(recognizer.Result()))
    return [*found, json.loads(recognizer.FinalResult())]


@pytest.fixture(scope="module")
def beside(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What makes recognizers of Vosk's, for a rate, with the same models."""
    path = undithered(tmp_path_factory.mktemp("vosk") / "model")
    with vosk_beside() as vosk:
        model, speakers = vosk.Model(str(path)), vosk.SpkModel(str(folder))
        yield lambda rate: vosk.KaldiRecognizer(model, rate, speakers)


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_vosks(name: str, folder: Path, beside: Any) -> None:
    case = CASES[name]
    ours = heard(KaldiRecognizer(korean_model(), case.rate, SpkModel(folder)), case)
    theirs = heard(beside(case.rate), case)
    assert len(ours) == len(theirs) == sum(isinstance(part, str) for part in case.parts)
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        assert one["spk_frames"] == other["spk_frames"]
        assert one["spk"] == pytest.approx(other["spk"], abs=1e-5)


def values(recognizer: KaldiRecognizer, samples: np.ndarray, block: int = 1600) -> dict:
    for begin in range(0, len(samples), block):
        recognizer.AcceptWaveform(samples[begin : begin + block])
    return json.loads(recognizer.FinalResult())


def test_results_tell_speakers_when_asked(folder: Path, small: Model) -> None:
    samples, speakers = speech(TEXT), SpkModel(folder)
    recognizer = KaldiRecognizer(small, RATE)
    assert "spk" not in values(recognizer, samples)
    recognizer.SetSpkModel(speakers)
    found = values(recognizer, samples)
    assert found["text"] == TEXT
    assert found["spk_frames"] >= 50
    assert len(found["spk"]) == DIM
    assert np.linalg.norm(found["spk"]) == pytest.approx(np.sqrt(DIM), rel=1e-5)
    again = values(KaldiRecognizer(small, RATE, speakers), samples, 4000)
    assert again["spk_frames"] == found["spk_frames"]
    assert again["spk"] == pytest.approx(found["spk"], abs=1e-4)
    assert "spk" not in values(recognizer, speech("c"))  # 20 frames of speech are too few
    recognizer.SetMaxAlternatives(2)
    assert values(recognizer, samples)["spk"] == found["spk"]


def test_vectors_of_whole_recordings(folder: Path, tmp_path: Path) -> None:
    speakers, samples = SpkModel(folder), np.asarray(speech(TEXT), np.float32)
    audio = Audio(np.stack((samples, np.zeros_like(samples))), RATE)
    found = speakers.of_recording(audio, channel=0)
    assert found is not None and LEAST_FRAMES <= found.frames <= len(samples) / RATE * 100
    assert np.linalg.norm(found.values) == pytest.approx(np.sqrt(DIM), rel=1e-5)
    writer = Writer(header=False)
    write_wav(writer, Audio(samples[None], RATE))
    writer.save(tmp_path / "one.wav")
    again = speakers.of_recording(tmp_path / "one.wav")
    assert again is not None and found.distance(again) < 1e-6
    none = VadOptions(energy_threshold=1e6)
    assert speakers.of_recording(tmp_path / "one.wav", vad=none) is None


def test_no_speaker_model_while_an_utterance_is_under_way(folder: Path, small: Model) -> None:
    recognizer = KaldiRecognizer(small, RATE)
    recognizer.AcceptWaveform(speech("ab"))
    with pytest.raises(OpscopeError, match="while an utterance is under way"):
        recognizer.SetSpkModel(SpkModel(folder))
    recognizer.FinalResult()
    recognizer.SetSpkModel(SpkModel(folder))
    assert values(recognizer, speech(TEXT))["spk_frames"] >= 50
    with pytest.raises(TypeError, match="an SpkModel, not 'folder'"):
        recognizer.SetSpkModel("folder")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["steady", "vosk", "kaldi"])
def test_transcripts_tell_speakers(mode: str, folder: Path, small: Model) -> None:
    known = transcribe(speech(TEXT), small, rate=RATE, mode=mode, speakers=folder).utterances
    assert [each.text for each in known] == [TEXT]
    speaker = known[0].speaker
    assert speaker is not None
    assert speaker.values.shape == (DIM,)
    assert speaker.distance(speaker) == pytest.approx(0, abs=1e-6)
    assert speaker.distance(SpeakerVector(-speaker.values, 50)) == pytest.approx(2)
    without = transcribe(speech(TEXT), small, rate=RATE, mode=mode).utterances
    assert [each.speaker for each in without] == [None]


def test_the_command_tells_speakers(folder: Path, tmp_path: Path) -> None:
    made = write_files(small_files(tmp_path / "work"), tmp_path / "model")
    run, wav, writer = CliRunner(), tmp_path / "talk.wav", Writer(header=False)
    write_wav(writer, Audio(speech(TEXT)[None].astype(np.float32), RATE))
    wav.write_bytes(writer.getvalue())
    asked = [str(made), str(wav), "--speakers", str(folder)]
    found = run.invoke(command, [*asked, "--format", "json"], catch_exceptions=False)
    speaker = json.loads(found.output.splitlines()[-1])["utterances"][0]["speaker"]
    assert speaker["frames"] >= 50
    assert len(speaker["vector"]) == DIM
    streamed = run.invoke(command, [*asked, "--format", "json", "--stream"])
    assert len(json.loads(streamed.output.splitlines()[-1])["speaker"]["vector"]) == DIM
    refused = run.invoke(command, asked)
    assert refused.exit_code == 2
    assert "--speakers are written in --format=json alone" in refused.output


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("mean.vec", None, "no speaker model: mean.vec not found"),
        (
            "mean.vec",
            array_file(np.ones(9)),
            f"mean.vec: 9 elements, but x-vectors of .* have {XVECTOR}",
        ),
        ("mean.vec", b"\0B", "mean.vec"),
        (
            "transform.mat",
            array_file(np.ones((4, 7))),
            f"a matrix of 4 x 7, but x-vectors .* have {XVECTOR} el",
        ),
        ("final.ext.raw", b"\0B<Nnet3>", "final.ext.raw"),
        (
            "mfcc.conf",
            MFCC.replace(f"ceps={INPUTS}", "ceps=13").encode(),
            f"the network takes {INPUTS} features, .*mfcc.conf gives 13",
        ),
    ],
)
def test_folders_that_do_not_go_together(
    name: str, data: bytes | None, told: str, tmp_path: Path
) -> None:
    folder = write_speaker_model(tmp_path / "speakers")
    (folder / name).unlink()
    if data is not None:
        (folder / name).write_bytes(data)
    with pytest.raises(FormatError, match=told):
        SpkModel(folder)


def test_rates_and_frames_that_do_not_fit(small: Model, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OpscopeError, match="samples at 8000 Hz.*16000 Hz"):
        KaldiRecognizer(small, 8000, SpkModel(folder))
    other = write_speaker_model(tmp_path / "speakers", f"{MFCC}--frame-shift=20\n")
    with pytest.raises(OpscopeError, match="frames of 20 ms, but the recognizer's .* 10 ms"):
        KaldiRecognizer(small, RATE, SpkModel(other))


def test_vectors_of_no_length_stay_so(tmp_path: Path) -> None:
    folder = write_speaker_model(tmp_path / "speakers")
    (folder / "transform.mat").write_bytes(array_file(np.zeros((DIM, XVECTOR))))
    found = SpkModel(folder).vector(np.ones((60, INPUTS), np.float32))
    assert found.tolist() == [0.0] * DIM
    assert SpeakerVector(found, 60).distance(SpeakerVector(found, 60)) == 1.0


def test_the_korean_model_hears_speakers(folder: Path) -> None:
    found: list[SpeakerVector] = []
    for name in ("u1", "u1", "u2"):
        spoken = transcribe(Case((name,)).samples(), korean_model(), speakers=folder).utterances[0]
        assert spoken.speaker is not None
        found.append(spoken.speaker)
    first, same, other = found
    assert first.distance(same) == pytest.approx(0, abs=1e-6)
    assert first.distance(other) > 1e-3
