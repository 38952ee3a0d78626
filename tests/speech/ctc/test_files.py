"""CTC models from ONNX files and folders: what they hear, and what is wrong with them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from ctc_models import (
    RATE,
    Given,
    of_outputs,
    tone,
    write_linear,
    write_tones,
)
from opscope.framework.base.errors import (
    ArgumentError,
    FormatError,
    NotFiniteError,
    OpscopeError,
    ShapeError,
)
from opscope.python_api.cli.main import main
from opscope.speech import CtcModel, CtcTokens, Fbank, transcribe
from opscope.speech.ctc.acoustics import Acoustics
from opscope.speech.ctc.options import CtcOptions
from opscope.speech.recognize.transcript import opened_model
from spoken_tones import write_recording


def test_folder_of_raw_samples(tmp_path):
    """Samples, at another rate as well; then words of a lexicon beside the network."""
    folder = write_tones(tmp_path / "model")
    model = CtcModel(folder)
    assert model.rate == RATE and model.joins_tokens
    assert transcribe(tone("l o h i"), model, rate=RATE).text == "l o h i"
    assert transcribe(tone("l o o", 44100), model, rate=44100).text == "l o o"
    (folder / "lexicon.txt").write_text("low l o\nhigh h i\n")
    (folder / "lm.arpa").write_text(ARPA)
    (folder / "ctc.conf").write_text("--beam=12  # narrower\n--blank=<blk>\n")
    model = CtcModel(folder)
    assert model.search.beam == 12
    heard = transcribe(tone("h i l o"), model, rate=RATE)
    assert heard.text == "high low"
    second = heard.words[1]
    assert second.start == pytest.approx(0.35, abs=0.03)
    assert second.end == pytest.approx(0.6, abs=0.03)


ARPA = """\\data\\
ngram 1=4

\\1-grams:
-99 <s>
-0.6 </s>
-0.6 low
-0.6 high

\\end\\
"""


def test_transcribe_takes_folder_and_file(tmp_path):
    folder = write_tones(tmp_path / "model")
    (folder / "lexicon.txt").write_text("low l o\nhigh h i\n")
    recording = tmp_path / "a.wav"
    write_recording(recording, tone("h i l o"), RATE)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["transcribe", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    assert run(str(folder), str(recording)) == "high low\n"
    assert run(str(folder / "model.onnx"), str(recording)) == "h i l o\n"  # its tokens alone
    told = json.loads(run(str(folder), str(recording), "--format=json", "--alternatives=2"))
    assert told["utterances"][0]["alternatives"][0]["text"] == "high low"
    assert run(str(folder), "--stream", "--phrase=low", str(recording)).split() == ["low"]
    two = CliRunner().invoke(main, ["transcribe", str(folder), str(recording), "--mode=vosk"])
    assert "has no mode 'vosk'" in two.output and two.exit_code


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize(
    ("metadata", "shift"),
    [({}, True), ({"normalize_samples": "0"}, False), ({"model_type": "wenet_ctc"}, False)],
)
def test_filter_banks(batch, metadata, shift, tmp_path):
    """Networks of features get Kaldi's filter banks of samples from -1 to 1, or on their scale."""
    weights = np.zeros((40, 5), np.float32)
    weights[[3, 9, 20, 30, 39], range(5)] = 1
    path = write_linear(tmp_path / "a.onnx", weights, batch=batch, metadata=metadata)
    network = opscope.from_onnx(path)
    acoustics = Acoustics(network, 5, CtcOptions())
    samples = tone("l o h i")
    rows = acoustics.log_probabilities(samples, RATE)
    banks = Fbank(num_mel_bins=40, dither=0.0, snip_edges=False, high_freq=-400.0)
    scale = 32768.0 if shift else 1.0
    wanted = banks.compute(samples / np.float32(scale), RATE)[:, [3, 9, 20, 30, 39]]
    wanted = wanted - np.logaddexp.reduce(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, wanted, atol=2e-3)
    assert len(acoustics.log_probabilities(samples[:10], RATE)) in (0, 1)


def test_windows_give_the_same_frames(tmp_path):
    """A long recording is heard in windows that overlap; all frames are there once."""
    folder = write_tones(tmp_path / "model")
    samples = tone("l o h i " * 8)
    whole, cut = CtcModel(folder, window=0.0), CtcModel(folder, window=1.2)
    one, other = (each.acoustics.log_probabilities(samples, RATE) for each in (whole, cut))
    assert abs(len(one) - len(other)) <= 1
    text = " ".join(["l o h i"] * 8)
    assert transcribe(samples, cut, rate=RATE).text == text
    assert transcribe(samples, whole, rate=RATE).text == text


def test_outputs_of_any_kind():
    """Logits, their log-softmax, and probabilities are the same to the search."""
    logits = np.random.default_rng(0).normal(0, 3, (4, 3)).astype(np.float32)
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    rows = [
        of_outputs(each, ["_", "a", "b"]).acoustics.log_probabilities(np.zeros(9), RATE)
        for each in (logits, logs, np.exp(logs))
    ]
    np.testing.assert_allclose(rows[1], rows[0], atol=1e-5)
    np.testing.assert_allclose(rows[2], rows[0], atol=1e-5)


def test_samples_normalized():
    """As the feature extractor of wav2vec2 does it."""
    network = Given(2)
    network.inputs[0].shape = ("batch", "samples")
    heard = []
    network.run = lambda feed, fetch=None: heard.append(feed["x"]) or {"y": np.zeros((1, 1, 2))}
    network.outputs[0].shape = ("batch", "T", 2)
    acoustics = Acoustics(network, 2, CtcOptions(normalize=True))
    acoustics.log_probabilities(tone("l o"), RATE)
    assert heard[0].shape[0] == 1
    assert abs(heard[0].mean()) < 1e-5 and heard[0].std() == pytest.approx(1, abs=1e-3)


# What is wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no token"),
        ("<blk> 0\na\n", "tokens.txt: line 2: 'a': a token and its number are wanted"),
        ("<blk> 0\na b 1\n", "line 2"),
        ("<blk> 0\na x\n", "line 2: 'x'"),
        ("<blk> 0\na -1\n", "line 2"),
        ("<blk> 0\na 0\n", "line 2: 'a' has the number of '<blk>'"),
        ("<blk> 0\na 1\na 2\n", "line 3: the token 'a' also is number 1"),
        ("<blk> 0\na 2\n", "no token has the number 1, of 2 tokens"),
        ("x 0\na 1\n", "no blank: none of the tokens is <blk>"),
    ],
)
def test_wrong_tokens(text, message, tmp_path):
    (tmp_path / "tokens.txt").write_text(text)
    with pytest.raises(FormatError, match=message):
        CtcTokens.read(tmp_path / "tokens.txt")


def test_blank_named(tmp_path):
    (tmp_path / "tokens.txt").write_text("x 0\na 1\n  2\n")
    assert CtcTokens.read(tmp_path / "tokens.txt", "a").blank == 1
    assert CtcTokens.read(tmp_path / "tokens.txt", 0).texts == ("x", "a", " ")
    with pytest.raises(FormatError, match="tokens.txt: no blank 'b'"):
        CtcTokens.read(tmp_path / "tokens.txt", "b")
    with pytest.raises(FormatError, match="the blank 3 is none of 3 tokens"):
        CtcTokens.read(tmp_path / "tokens.txt", 3)
    (tmp_path / "vocab.json").write_text('{"<pad>": 0, "a": 1}')
    assert CtcTokens.read(tmp_path / "vocab.json").texts == ("<pad>", "a")
    for text, message in (("[]", "an object"), ("{", "no JSON"), ('{"a": "b"}', "has the number")):
        (tmp_path / "vocab.json").write_text(text)
        with pytest.raises(FormatError, match=message):
            CtcTokens.read(tmp_path / "vocab.json")


def test_tokens_that_do_not_fit(tmp_path):
    path = write_linear(tmp_path / "a.onnx", np.zeros((40, 5)))
    message = "a.onnx: the network has 5 outputs, but there are 2 tokens"
    with pytest.raises(FormatError, match=message):
        CtcModel(path, ["<blk>", "a"])
    network = Given(2)
    network.outputs[0].shape = None  # known at the first run
    model = CtcModel(network, ["<blk>", "a"], features=lambda *_: np.zeros((4, 3)))
    with pytest.raises(FormatError, match="has 3 outputs, but there are 2 tokens"):
        transcribe(np.zeros(RATE), model, rate=RATE)


@pytest.mark.parametrize(
    ("lexicon", "message"),
    [
        ({"ab": "a c"}, "words: line 1: the unit 'c' of the word 'ab' is no token"),
        ({"ab": "a <blk>"}, "the unit '<blk>' of the word 'ab' is the blank"),
        ({"xyz": None}, "the word 'xyz' has no units, and the tokens of tokens do not spell it"),
        ({}, "there is no word"),
        ({"#0": "a"}, "reserved"),
    ],
)
def test_wrong_lexicon(lexicon, message):
    with pytest.raises(FormatError, match=message):
        CtcModel(Given(3), ["<blk>", "a", "b"], lexicon=lexicon, features=lambda *_: None)


def test_words_that_cannot_be_added():
    tokens = ["<blk>", "a", "b"]
    plain = of_outputs(np.zeros((2, 3), np.float32), tokens)
    with pytest.raises(OpscopeError, match="without a lexicon"):
        plain.add_words({"ab": "a b"})
    model = of_outputs(np.zeros((2, 3), np.float32), tokens, lexicon={"ab": "a b"})
    with pytest.raises(FormatError, match="the model has the word ab so"):
        model.add_words({"ab": "a b"})
    with pytest.raises(FormatError, match="is no token"):
        model.add_words({"ac": "a c"})
    assert model.words.find("ac") is None


def test_wrong_files(tmp_path):
    with pytest.raises(ArgumentError, match="wants tokens"):
        CtcModel(Given(2))
    with pytest.raises(FormatError, match="no tokens: tokens.txt and vocab.json are missing"):
        CtcModel(write_linear(tmp_path / "a.onnx", np.zeros((40, 2))))
    with pytest.raises(FormatError, match="no tokens: tokens.txt and vocab.json are missing"):
        opened_model(tmp_path)
    (tmp_path / "final.mdl").touch()
    with pytest.raises(FormatError, match="no folder of a model"):
        opened_model(tmp_path)
    (tmp_path / "tokens.txt").write_text("<blk> 0\na 1\n")
    (tmp_path / "b.onnx").write_bytes(b"nothing")
    with pytest.raises(FormatError, match="one network is wanted.*a.onnx, b.onnx"):
        CtcModel(tmp_path)
    with pytest.raises(FormatError, match="b.onnx"):
        CtcModel(tmp_path / "b.onnx")
    with pytest.raises(FormatError, match="no network of a kind that is known here"):
        CtcModel(tmp_path / "tokens.txt")
    (tmp_path / "b.onnx").unlink()
    (tmp_path / "ctc.conf").write_text("--beam=12\n--bean=1\n")
    with pytest.raises(FormatError, match=r"ctc.conf:2: invalid option --bean \(did you mean beam"):
        CtcModel(tmp_path)
    (tmp_path / "ctc.conf").write_text("--window=0.5\n")
    with pytest.raises(OpscopeError, match="ctc.conf: window=0.5: 0, or 1 second at least"):
        CtcModel(tmp_path)


def test_networks_that_are_none_of_ctc():
    network = Given(2)
    network.inputs[0].shape = ("N", "C", "H", 2)
    with pytest.raises(FormatError, match="its inputs are x"):
        CtcModel(network, ["_", "a"])
    network = Given(2)
    network.outputs[0].shape = ("N",)
    with pytest.raises(FormatError, match="no output \\[frames, tokens\\] among y"):
        CtcModel(network, ["_", "a"])
    with pytest.raises(FormatError, match="NeMo's models"):
        CtcModel(Given(2, model_type="EncDecCTCModelBPE"), ["_", "a"])
    with pytest.raises(OpscopeError, match="no option 'bean'"):
        CtcModel(Given(2), ["_", "a"], bean=3)


def test_outputs_that_are_no_numbers():
    wrong = of_outputs(np.full((2, 2), np.nan, np.float32), ["_", "a"])
    with pytest.raises(NotFiniteError, match="is not finite"):
        transcribe(np.zeros(RATE), wrong, rate=RATE)
    with pytest.raises(OpscopeError, match="infinite"):
        transcribe(np.full(RATE, np.nan), wrong, rate=RATE)
    with pytest.raises(ShapeError):
        transcribe(np.zeros((2, RATE)), wrong, rate=RATE)
