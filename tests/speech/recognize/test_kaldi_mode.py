"""The mode "kaldi": whole recordings, beside Kaldi's online2-wav-nnet3-latgen-faster."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kaldi_models import call_main, done
from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.lattices.lattice import CompactLattice
from opscope.kaldi.lattices.operations import best_path
from opscope.kaldi.tables.tables import read_table
from opscope.python_api.cli.main import main
from opscope.speech import Audio, Model, Recognizer, read_audio, recognized, transcribe
from opscope.speech.recognize.whole import whole_utterance
from speech_data import korean_model, reference
from speech_decoding import MFCC, recordings, write_decoding

GRAMMAR = ["아 유영 봐왔 으니", "오후 시 하죠", "아 시 봐왔", "유영 하죠", "오후 으니 시"]
# Words, frames, graph and acoustic cost of a frame, as Kaldi's program printed them for this
# grammar, composed to a static graph, with --online=false and --lattice-beam=2; then states and
# arcs of the lattice.
KALDIS = {
    "u1": ("아 유영 봐왔 으니", 55, 0.851705, -2.64971, 5, 4),
    "u2": ("오후 아 오후 아 하죠 하죠 으니 으니", 96, 1.10957, -2.23359, 17, 21),
    "u3": (
        *("아 유영 시 봐왔 유영 봐왔 으니 시 오후 아 유영 봐왔 으니 으니", 178),
        *(1.02398, -1.88532, 18, 19),
    ),
}


def costs(lattice: CompactLattice) -> tuple[list[int], float, float, int]:
    """Words, graph and acoustic cost and frames of the best path."""
    best = best_path(lattice)
    arcs = [arc for group in best.arcs for arc in group]
    end = best.final[-1]
    assert end is not None
    weights = [arc.weight for arc in arcs] + [end]
    return (
        [arc.label for arc in arcs if arc.label],
        sum(weight.graph for weight in weights),
        sum(weight.acoustic for weight in weights),
        sum(len(weight.ids) for weight in weights),
    )


@pytest.fixture(scope="module")
def model() -> Model:
    return korean_model()


@pytest.mark.parametrize("name", KALDIS)
def test_words_costs_and_lattices_are_kaldis(name: str, model: Model) -> None:
    text, frames, graph, acoustic, states, arcs = KALDIS[name]
    samples = read_audio(reference(f"{name}.wav")).channel()
    lattice = whole_utterance(model, samples, 16000, GRAMMAR).lattice()
    assert lattice is not None
    found = costs(lattice)
    assert " ".join(model.words[label] for label in found[0]) == text
    assert found[3] == frames
    # look-ahead rounds costs to 1/1024, which the static graph that Kaldi searched has exactly
    assert found[1] / frames == pytest.approx(graph, abs=3e-4)
    assert found[2] / frames == pytest.approx(acoustic, abs=5e-4)
    assert (lattice.states, lattice.num_arcs) == (states, arcs)


def test_modes_of_transcribe(model: Model) -> None:
    path = reference("u1.wav")
    texts = [transcribe(path, model, mode=mode).text for mode in ("steady", "vosk", "kaldi")]
    assert texts[0] == texts[1] == "아 유영 봐왔 으니" != texts[2]
    assert transcribe(path, model, mode="kaldi", grammar=GRAMMAR).text == "아 유영 봐왔 으니"
    with pytest.raises(OpscopeError, match="mode 'offline': want one of steady, vosk, kaldi"):
        transcribe(path, model, mode="offline")
    with pytest.raises(OpscopeError, match="the mode 'kaldi' is for whole recordings"):
        Recognizer(model, 16000, mode="kaldi")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder as Vosk's, of the small model; the current folder has its files for Kaldi."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    write_decoding()
    made = tmp_path / "model"
    for part in ("am", "conf", "graph", "ivector"):
        (made / part).mkdir(parents=True)
    shutil.copy("final.mdl", made / "am")
    for name in ("HCLG.fst", "words.txt"):
        shutil.copy(name, made / "graph")
    for name in ("final.dubm", "final.ie", "final.mat", "global_cmvn.stats"):
        shutil.copy(name, made / "ivector")
    for name in ("online_cmvn.conf", "splice.conf"):
        shutil.copy(name, made / "ivector")
    (made / "conf" / "mfcc.conf").write_text(MFCC)
    lines = "--acoustic-scale=1.0", "--lattice-beam=1.5", "--frames-per-chunk=6"
    (made / "conf" / "model.conf").write_text("\n".join(lines) + "\n")
    return made


def heard(name: str) -> Audio:
    return recordings()[name]


def test_the_lattice_is_that_of_the_program(folder: Path) -> None:
    Path("spk2utt").write_text("a a\nb b\nc c\n")
    config = Path("ivector_extractor.conf")
    files = [line for line in config.read_text().splitlines() if "=final" in line or "=g" in line]
    files += ["--cmvn-config=online_cmvn.conf", "--splice-config=splice.conf", "--max-count=100"]
    config.write_text("\n".join(files) + "\n")
    options = "--mfcc-config=mfcc.conf", f"--ivector-extraction-config={config}", "--online=false"
    scales = "--acoustic-scale=1.0", "--lattice-beam=1.5", "--frames-per-chunk=6"
    names = "final.mdl", "HCLG.fst", "ark:spk2utt", "scp:wav.scp", "ark:o.lat"
    done(call_main("online2-wav-nnet3-latgen-faster", *options, *scales, *names))
    model = Model(folder)
    for key, wanted in read_table("ark:o.lat", "compact_lattice"):
        audio = heard(key)
        lattice = whole_utterance(model, audio.samples[0], 16000).lattice()
        assert lattice is not None
        assert lattice.arcs == wanted.arcs and lattice.final == wanted.final


def test_blocks_do_not_matter(folder: Path) -> None:
    model, samples = Model(folder), heard("c").samples[0]
    made = [
        list(recognized(np.split(samples, cuts), model, 16000, mode="kaldi", alternatives=2))
        for cuts in ([], range(300, len(samples), 777))
    ]
    assert made[0] == made[1] and len(made[0]) == 1
    assert made[0][0].start == 0 and made[0][0].end == pytest.approx(0.61, abs=0.02)
    found = transcribe(heard("c"), model, mode="kaldi", alternatives=2)
    assert found.utterances == made[0]
    # graph costs count in full, as in Kaldi
    lattice = whole_utterance(model, samples, 16000).lattice()
    assert lattice is not None
    words, graph, acoustic, _ = costs(lattice)
    best = made[0][0].alternatives[0]
    assert best.text.split() == [f"w{word}" for word in words]
    assert best.log_likelihood == pytest.approx(-graph - acoustic, abs=1e-3)


def test_little_or_bad_input(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Model(folder)
    for samples in (np.empty(0, np.float32), np.ones(100, np.float32)):
        assert transcribe(samples, model, mode="kaldi").utterances == []
    assert list(recognized([], model, 16000, mode="kaldi")) == []
    with pytest.raises(OpscopeError, match="NaN"):
        transcribe(np.full(9000, np.nan), model, mode="kaldi")
    with pytest.raises(OpscopeError, match="samples at 8000 Hz"):
        list(recognized([np.ones(9000)], model, 8000, mode="kaldi"))


def test_the_command(folder: Path) -> None:
    names = str(folder), "b.wav"
    data = Path("wav.ark").read_bytes()
    Path("b.wav").write_bytes(data[data.index(b"b RIFF") + 2 : data.index(b"c RIFF")])
    wanted = transcribe("b.wav", Model(folder), mode="kaldi").text
    made = CliRunner().invoke(main, ["transcribe", *names, "--mode", "kaldi"])
    assert made.exit_code == 0 and made.stdout == wanted + "\n", made.stderr
    made = CliRunner().invoke(main, ["transcribe", *names, "--mode", "kaldi", "--stream"])
    assert made.exit_code == 2 and "there is no stream of them" in made.stderr


def test_names_in_their_earlier_spelling_are_answered() -> None:
    import opscope.speech as speech

    assert speech.Recogniser is speech.Recognizer
    assert speech.recognised is speech.recognized
    assert speech.determinised is speech.determinized
