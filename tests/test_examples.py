"""What README and examples/ promise: run as a reader would run it."""

from __future__ import annotations

import ast
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tokenize

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(*argv: object, cwd: pathlib.Path | None = None, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, argv)],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_digits_demo(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn")
    trained = run(ROOT / "examples/digits/train.py", "--out", tmp_path)
    accuracy = float(re.search(r"test accuracy ([0-9.]+)", trained)[1])
    assert accuracy >= 0.97
    for name in ("digits.pb", "digits.safetensors", "digits.csv", "digits.png"):
        assert (tmp_path / name).stat().st_size > 0
    again = run(ROOT / "examples/digits/predict.py", "--out", tmp_path)
    line = re.compile(r"first predictions: .*")
    assert line.search(again)[0] == line.search(trained)[0]
    assert f"{accuracy:.4f}" in again


def test_digits_with_convolutions(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn")
    out = run(ROOT / "examples/digits_conv/train.py", "--out", tmp_path, "--epochs", 4)
    assert float(re.search(r"test accuracy ([0-9.]+)", out)[1]) >= 0.93


BOTH = {"transformer": ROOT / "examples/transformer", "residual": ROOT / "examples/residual"}
"""Examples that are written for opscope and for PyTorch: train.py and pytorch.py."""


def accuracy_of(*argv: object) -> float:
    """The accuracy that a script prints at its end."""
    return float(re.search(r"test accuracy ([0-9.]+)", run(*argv))[1])


@pytest.mark.parametrize(
    ("name", "epochs", "wanted"), [("transformer", 4, 0.9), ("residual", 2, 0.93)]
)
def test_written_for_both(name: str, epochs: int, wanted: float) -> None:
    pytest.importorskip("sklearn")
    assert accuracy_of(BOTH[name] / "train.py", "--epochs", epochs) >= wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [("transformer", (), 0.97), ("residual", ("--epochs", 5), 0.98)],
)
def test_both_reach_the_same_accuracy(name: str, options: tuple, wanted: float) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    ours, theirs = (
        accuracy_of(BOTH[name] / script, *options) for script in ("train.py", "pytorch.py")
    )
    assert ours >= wanted and abs(ours - theirs) <= 0.015


def lines_of_code(path: pathlib.Path) -> int:
    """Lines that hold more than comments and the texts of documentation."""
    text = path.read_text()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    skipped = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node):
            skipped |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    used = [range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in blank and t.string]
    return len({number for span in used for number in span} - skipped)


@pytest.mark.parametrize("name", BOTH)
def test_no_more_lines_than_in_pytorch(name: str) -> None:
    ours, theirs = (lines_of_code(BOTH[name] / script) for script in ("train.py", "pytorch.py"))
    assert 15 < ours <= theirs


def test_trees(tmp_path: pathlib.Path) -> None:
    out = run(ROOT / "examples/trees/train.py", "--out", tmp_path, "--epochs", 4)
    tree, bag = (float(re.search(rf"{net}: ([0-9.]+)%", out)[1]) for net in ("LSTM", "tokens"))
    assert tree >= 85 and bag <= 45
    for name in ("trees.pb", "trees.safetensors", "trees.csv", "trees.png"):
        assert (tmp_path / name).stat().st_size > 0
    assert "-(2 + 3) = " in out


def test_the_decoder_of_an_autoencoder_runs_alone() -> None:
    out = run(ROOT / "examples/vae/train.py", "--epochs", 5)
    assert float(re.search(r"held out: ([0-9.]+)", out)[1]) < 30
    assert [len(line) for line in out.splitlines()[-8:]] == [6 * 8 + 5 * 3] * 8


def test_gpt(tmp_path: pathlib.Path) -> None:
    """Trained on a little text; it writes what was asked for, and a checked ONNX file."""
    small = ("--epochs", 1, "--updates", 40, "--width", 32, "--layers", 1)
    out = run(ROOT / "examples/gpt/train.py", "--out", tmp_path, *small, "--length", 60)
    assert float(re.search(r"held-out bits per byte ([0-9.]+)", out)[1]) < 6
    assert re.search(r"maximum error .* on 2 inputs", out)
    written = out[out.index("\nThe ") + 1 : out.rindex("\n", 0, -2)]
    assert len(written) == len("The ") + 60
    for name in ("gpt.pb", "gpt.safetensors", "gpt.onnx"):
        assert (tmp_path / name).stat().st_size > 0


def test_characters(tmp_path: pathlib.Path) -> None:
    """Trained on a little text, then sampled from the files in a process of its own."""
    folder = ROOT / "examples/char_rnn"
    small = ("--epochs", 6, "--hidden", 96, "--limit", 80000)
    trained = run(folder / "train.py", "--out", tmp_path, *small)
    assert float(re.search(r"held-out bits per character ([0-9.]+)", trained)[1]) < 4.0
    for name in ("char_rnn.pb", "char_rnn.safetensors", "char_rnn.csv", "char_rnn.png"):
        assert (tmp_path / name).stat().st_size > 0
    sample = (folder / "sample.py", "--out", tmp_path, "--length", 80, "--prompt", "The ")
    text = run(*sample)
    assert text.startswith("The ") and len(text) >= 80 and text == run(*sample)
    assert run(*sample, "--beam", 3) != text


def tagger_files(folder: pathlib.Path) -> pathlib.Path:
    """Sentences of words whose slot follows from the word before, as CNTK's text format."""
    rng = np.random.default_rng(0)
    for part, sentences in (("train", 300), ("test", 40)):
        with open(folder / f"atis.{part}.ctf", "w") as file:
            for number in range(sentences):
                before = 0
                for word in rng.integers(0, 4, size=rng.integers(1, 9)):
                    file.write(f"{number}\t|S0 {word}:1 |# w{word}\t|S2 {before}:1 |# s{before}\n")
                    before = word
    return folder


def word_error(printed: str) -> float:
    return float(re.search(r"test word error ([0-9.]+)%", printed)[1])


TAGGER = ROOT / "examples/tagger/train.py"


def test_tagger(tmp_path: pathlib.Path) -> None:
    small = ("--epochs", 8, "--batch", 8, "--embedding", 32, "--hidden", 64, "--rate", 0.03)
    printed = run(TAGGER, tagger_files(tmp_path), "--out", tmp_path, *small)
    assert word_error(printed) < 10
    for name in ("tagger.pb", "tagger.safetensors", "tagger.csv", "tagger.png"):
        assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 |S0 1:1 |S2 2:0.5\n", "atis.train.ctf:1: stream S2: want CLASS:1, not '2:0.5'"),
        ("0 |S0 1:1 |S2 2:1\nrubbish\n", "atis.train.ctf:2: want NUMBER |stream ..., not"),
        ("0 |S0 1:1\n", "atis.train.ctf: holds no stream 'S2'"),
    ],
)
def test_tagger_refuses_bad_files(tmp_path: pathlib.Path, text: str, said: str) -> None:
    (tmp_path / "atis.train.ctf").write_text(text)
    done = subprocess.run(
        [sys.executable, TAGGER, tmp_path, "--out", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 1 and said in done.stderr


@pytest.mark.slow
def test_tagger_on_atis(tmp_path: pathlib.Path) -> None:
    folder = os.environ.get("OPSCOPE_CNTK_DATA", ROOT.parent / "shared" / "data" / "cntk")
    if not pathlib.Path(folder, "atis.train.ctf").exists():
        pytest.skip(f"{folder} has no atis.train.ctf; set OPSCOPE_CNTK_DATA to its folder")
    fast = ("--epochs", 2, "--rate", 0.004)
    printed = run(TAGGER, folder, "--out", tmp_path, *fast)
    assert word_error(printed) <= 4.0


@pytest.mark.slow
def test_plugin_package(tmp_path: pathlib.Path) -> None:
    """The sample plug-in, built and installed into a folder of its own, passes its own tests."""
    site = tmp_path / "site"
    source = tmp_path / "plugin_operator"  # pip builds where the source is
    shutil.copytree(ROOT / "examples" / "plugin_operator", source)
    run("-m", "pip", "install", "--quiet", "--no-deps", "--target", site, source)
    out = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", source / "test_swish.py"),
        cwd=tmp_path,
        PYTHONPATH=os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]),
    )
    assert re.search(r"\d+ passed", out) and "failed" not in out


def test_cntk_config(tmp_path: pathlib.Path) -> None:
    """The lines of the README: data, check, training and test, NetBuilder code."""
    folder = ROOT / "examples/cntk"
    config = folder / "rings.cntk"
    run(folder / "make_data.py", tmp_path)
    program = ("-m", "opscope", "cntk")
    assert "354 parameters, 0 problems" in run(*program, "check", config, cwd=tmp_path)
    log = "stderr=log.txt"
    run(*program, f"configFile={config}", log, cwd=tmp_path)
    told = (tmp_path / "log.txt").read_text()
    assert float(re.search(r"Final Results: .*?err = ([0-9.]+)", told)[1]) <= 0.03
    assert (tmp_path / "rings.model").stat().st_size > 0
    assert "b.fc(" in run(*program, "to-python", config, cwd=tmp_path)


REDESIGNED = ROOT / "examples/redesigned"


def criteria(log: pathlib.Path, name: str) -> list[float]:
    """The criterion of this name after each epoch."""
    return [
        float(v) for v in re.findall(rf"Finished Epoch.*?\b{name} = ([0-9.]+)", log.read_text())
    ]


def test_the_notes_first_example(tmp_path: pathlib.Path) -> None:
    """Two trainings, then a layer is added to a model; the command line makes all of it smaller."""
    run(REDESIGNED / "make_data.py", tmp_path)
    folders = [f"{name}={tmp_path}" for name in ("ExpDir", "ScpDir", "MlfDir")]
    sizes = ("maxEpochs=2", "minibatchSize=64", "learningRatesPerMB=0.3")
    settings = [f"TIMIT_TrainSimple.optimizer.{size}" for size in sizes]
    config = f"configFile={REDESIGNED / 'timit.bs'}"
    small = ["TIMIT_TrainSimple.model.network.layerSizes=792:64:183"]
    small += [
        "TIMIT_TrainNDL.model.network.hiddenDim=64",
        "TIMIT_TrainNDL.model.network.numLayers=3",
    ]
    run("-m", "opscope", "cntk", config, *folders, "DeviceNumber=-1", *settings, *small)
    log = tmp_path / "TrainSimpleNetwork/log/log"
    for name in ("trainingCriterion", "CE"):
        first, last = criteria(log, name)
        assert last < first < np.log(183)
    assert "WARNING" not in log.read_text()
    told = (tmp_path / "TrainNDLNetwork/model/cntkSpeech.dnn.0.dump.txt").read_text()
    assert re.search(r"^outZ\.z\.PlusArgs\[0\]=Times \( outZ\.W , added\.Eh \)", told, re.MULTILINE)
    assert (tmp_path / "TrainNDLNetwork/model/cntkSpeech.dnn.0").stat().st_size > 0
    only = (*folders, "DeviceNumber=-1", "actions=TIMIT_TrainNDL", "--list")
    some = run("-m", "opscope", "cntk", "networks", config, *only)
    assert some == "TIMIT_TrainNDL: train\n"


def test_the_notes_second_example(tmp_path: pathlib.Path) -> None:
    run(REDESIGNED / "make_data.py", tmp_path)
    folders = [f"{name}={tmp_path}" for name in ("ExpDir", "ScpDir", "MlfDir")]
    network = "Train.model.network"
    small = ["Train.T=5", f"{network}.hiddenDim=16", f"{network}.numHiddenLayers=2"]
    run("-m", "opscope", "cntk", f"configFile={REDESIGNED / 'bidirectional.bs'}", *folders, *small)
    log = tmp_path / "TrainBidirectional/log/log"
    errors = criteria(log, "Err")
    assert len(errors) == 15 and errors[0] > 0.5 and errors[-1] < 0.1
    assert "WARNING" not in log.read_text()
    assert (tmp_path / "TrainBidirectional/model/cntkSpeech.dnn").stat().st_size > 0


def test_the_notes_corrections_are_told() -> None:
    """Each of the notes' mistakes has a comment where it is put right."""
    for name, count in (("timit", 14), ("bidirectional", 6)):
        assert (REDESIGNED / f"{name}.bs").read_text().count("// corrected:") >= count
