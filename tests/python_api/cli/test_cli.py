"""The command line: what it prints, writes and refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.files import saved
from opscope.framework.ir.registry import Slot, operator, unregister
from opscope.framework.runtime.initialize import initialize
from opscope.python_api.cli import kernels
from opscope.python_api.cli.files import number_or_text
from opscope.python_api.cli.main import commands, main
from opscope.python_api.train.training import train
from small_nets import classifier, data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved net with an optimizer, one without, a checkpoint, and arrays."""
    path = tmp_path_factory.mktemp("cli")
    for name, net in (("net", classifier()), ("bare", classifier(update=False))):
        scope = Scope()
        initialize(net.desc, scope, OpContext(seed=1))
        opscope.save(net, scope, path / name)
    batches = [data(8)]
    train(classifier(), batches, epochs=1, scope=Scope(), progress=False, checkpoint=path / "run")
    np.savez(path / "data.npz", **data())
    np.save(path / "x.npy", data(5)["x"])
    np.savez(path / "named.npz", points=data()["x"], label=data()["label"])
    (path / "arrays").mkdir()
    for name, array in data().items():
        np.save(path / "arrays" / f"{name}.npy", array)
    return path


@pytest.fixture
def call(folder, monkeypatch):
    """Run the command line in the folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(folder)

    def run(*args):
        result = CliRunner().invoke(main, [str(arg) for arg in args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    return run


def refused(result, code, *parts):
    """One line on stderr, nothing on stdout."""
    assert result[0] == code and result[1] == ""
    assert "Traceback" not in result[2]
    assert all(part in result[2] for part in parts), result[2]
    if code == 1:
        assert result[2].startswith("error: ") and result[2].count("\n") == 1


# -- show and verify -------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["net", "net.pb", "net.safetensors"])
def test_show(call, file):
    code, out, err = call("show", file)
    assert (code, err) == (0, "")
    assert out.startswith('net "classifier" PLAIN version 1\n')
    assert "parameter  w0" in out and "%0 affine(x=x, w=w0, b=b0) -> out=h0" in out
    assert "opscope.tensors" not in out and "small_nets.py" not in out


def test_show_of_a_checkpoint_with_locations(call):
    code, out, _ = call("show", "run.checkpoint", "--locations")
    assert code == 0 and "small_nets.py:" in out


def test_show_dot_and_svg(call, tmp_path):
    code, out, _ = call("show", "net", "--dot")
    assert code == 0 and out.startswith("digraph")
    code, out, _ = call("show", "net", "--svg", "-")
    assert code == 0 and "</svg>" in out
    code, printed, _ = call("show", "net", "--svg", tmp_path / "net.svg")
    assert (code, printed) == (0, "")
    assert (tmp_path / "net.svg").read_text() == out
    refused(call("show", "net", "--svg", tmp_path / "none" / "n.svg"), 1, "there is no folder")
    refused(call("show", "net", "--dot", "--svg", "a"), 2, "exclude each other")


def test_missing_and_damaged_files(call, tmp_path):
    refused(call("show", "nothing"), 1, "nothing: No such file or directory; looked for nothing.pb")
    refused(call("show", "nothing.checkpoint"), 1, "nothing.checkpoint: No such file or directory")
    (tmp_path / "n.pb").write_bytes(b"\xff" * 40)
    for command in ("show", "verify"):
        refused(call(command, tmp_path / "n.pb"), 1, "n.pb: 40 bytes are no NetDesc")


def test_verify(call):
    for file in ("net", "bare", "run.checkpoint"):
        code, out, err = call("verify", file)
        assert (code, err) == (0, ""), out
        assert "no error" in out


def test_verify_reads_the_net_once(call, monkeypatch):
    read: list[str] = []
    true = saved.parse_net
    monkeypatch.setattr(
        saved, "parse_net", lambda data, name: read.append(name) or true(data, name)
    )
    assert call("verify", "net")[0] == 0
    assert read == ["net.pb"]


def test_verify_tells_all_problems(call, folder, tmp_path):
    desc = opscope.load(folder / "bare").net.desc
    desc.ops[0].type = "afine"
    desc.ops[1].inputs[0].vars[0] = "nowhere"
    scope = opscope.load(folder / "bare").scope
    opscope.save(desc, scope, tmp_path / "n")
    stored = (folder / "bare.safetensors").read_bytes().replace(b'"w1"', b'"w7"')
    (tmp_path / "n.safetensors").write_bytes(stored)
    code, out, err = call("verify", tmp_path / "n")
    assert code == 1 and "Traceback" not in err
    assert "did you mean affine" in out and "'nowhere'" in out
    assert "lacks the variable 'w1'" in out
    (tmp_path / "n.safetensors").write_bytes(b"")
    assert "no whole safetensors file" in call("verify", tmp_path / "n")[1]


# -- ops and version -------------------------------------------------------------------------------


def topics(out):
    """Topic -> the names listed below it."""
    found = {}
    for line in out.splitlines():
        if not line.startswith(" "):
            names = found.setdefault(line.partition(":")[0], [])
        elif line.startswith("    "):
            names.append(line.split()[0])
    return found


def test_ops_lists_topics(call):
    code, out, _ = call("ops")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == (
        "builder: Layers, and other methods of NetBuilder that are more than one operator."
    )
    assert "  elementwise" in lines and "relu_grad" not in out and "nnet3." not in out
    relu = next(line for line in lines if line.startswith("    relu "))
    assert "Rectified linear unit" in relu
    assert all(len(line) <= 100 for line in lines)
    found = topics(out)
    assert {"lstm", "conv2d", "attention"} <= set(found["builder"])
    assert "adam" in found["optim"] and "relu" in found["math"]
    assert not {"gradients", "nnet3", "cntk"} & set(found)


def test_ops_lists_internals_where_asked_for(call):
    found = topics(call("ops", "--all")[1])
    assert "relu_grad" in found["gradients"] and "cntk.log_grad" in found["cntk"]
    assert "nnet3.copy_rows" in found["nnet3"]
    assert list(found)[-3:] == ["gradients", "nnet3", "cntk"]
    listed = [name for topic, names in found.items() if topic != "builder" for name in names]
    assert sorted(listed) == sorted(opscope.framework.ir.registry.operator_types())


def test_ops_tells_about_layers(call):
    code, out, _ = call("ops", "lstm")
    assert code == 0
    assert out.startswith("lstm  (method of NetBuilder, opscope.python_api.builder.")
    assert "b.lstm(\n" in out and "      size: int,\n      *,\n" in out and "Args:" in out
    both = call("ops", "fc")[1]
    assert both.startswith("fc  (method of NetBuilder, ") and "\nfc  (control.composite)\n" in both
    assert "b.unique_name(stem: str) -> str" in call("ops", "unique_name")[1]
    refused(call("ops", "lstmm"), 1, "no layer or operator 'lstmm' (did you mean lstm")


def test_ops_tells_all_about_one(call):
    code, out, _ = call("ops", "leaky_relu")
    assert code == 0
    assert out.startswith("leaky_relu  (math.elementwise)\n")
    assert "alpha  [float, >= 0, default 0.01]" in out
    assert "gradient: yes" in out and "source: " in out
    assert "gradient: none" in call("ops", "argmax")[1] or "none:" in call("ops", "argmax")[1]


def test_every_operator_can_be_told(call):
    for name in opscope.framework.ir.registry.operator_types():
        code, out, _ = call("ops", name)
        assert code == 0 and out.startswith(name)


def test_ops_of_a_third_party(call):
    try:
        entry = operator("cli_test_op", doc="Does little.", outputs=[Slot("out", "anything")])
        entry.kernel(lambda k: None)
        entry.module = "a_plugin.operators"
        assert topics(call("ops")[1])["a_plugin"] == ["cli_test_op"]
        assert "cli_test_op  (a_plugin.operators)" in call("ops", "cli_test_op")[1]
    finally:
        unregister("cli_test_op")


def test_ops_unknown(call):
    refused(
        call("ops", "leky_relu"), 1, "no layer or operator 'leky_relu' (did you mean leaky_relu"
    )


def test_version(call):
    code, out, _ = call("version")
    names = [line.split()[0] for line in out.splitlines()]
    assert code == 0
    assert names[:3] == ["opscope", "python", "numpy"] and "backends" in names
    assert opscope.__version__ in out and "cupy" in names


def test_version_of_kernels(call, monkeypatch, tmp_path):
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "_SECONDS", 0.0)
    code, out, _ = call("version", "--kernels")
    lines = out.splitlines()
    head, *rows = lines[lines.index("") + 1 :]
    assert code == 0 and len(rows) == len(kernels._SHAPES)
    assert {"plan", "own", "openblas"} <= set(head.split())
    assert all(float(number) > 0 for row in rows for number in row.split("x")[-1].split()[1:])
    assert call("version", "--kernels")[1] == out  # of the cache
    (kept,) = tmp_path.glob("*.kernels.json")
    kept.write_text("{}")
    assert call("version", "--kernels")[0] == 0 and kept.read_text() != "{}"


def test_no_command(call):
    refused(call("shw", "net"), 2, "no command 'shw' (did you mean show")
    assert "Train a saved net" in call("--help")[1]
    for command in ("show", "verify", "ops", "version", "run", "train"):
        assert call(command, "--help")[0] == 0


# -- run -------------------------------------------------------------------------------------------


def expected(folder, name="scores"):
    net, scope = opscope.load(folder / "net")
    scope.feed({**data(5)})
    net.run(scope, OpContext(train=False, live_out=[name]), 0, net.last_forward_op + 1)
    return scope.numpy(name)


def test_run_prints(call, folder):
    """Scores need no label, and dropout is off."""
    code, out, _ = call("run", "net", "--feed", "x=x.npy", "--fetch", "scores")
    assert code == 0
    assert out == f"scores float32[5, 3]\n{expected(folder)}\n"


def test_run_writes(call, folder, tmp_path):
    feed = ["--feed", "x=x.npy", "--fetch", "scores"]
    call("run", "net", *feed, "--out", tmp_path / "y.npy")
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected(folder))
    call("run", "net.pb", *feed, "--fetch", "h0", "--out", tmp_path / "y.npz")
    written = np.load(tmp_path / "y.npz")
    assert np.array_equal(written["h0"], expected(folder, "h0"))
    refused(call("run", "net", *feed, "--fetch", "h0", "--out", tmp_path / "z.npy"), 2, "npz")
    refused(call("run", "net", *feed, "--out", tmp_path / "no" / "z.npy"), 1, "no folder")


def test_run_feeds_from_npz_and_ignores_what_is_not_needed(call):
    feed = ["--feed", "x=data.npz:x", "--feed", "label=data.npz:label"]
    code, out, _ = call("run", "net", *feed, "--fetch", "scores")
    assert code == 0 and out.startswith("scores float32[60, 3]")
    assert "loss float32[]" in call("run", "net", *feed, "--fetch", "loss")[1]


def test_run_a_range(call):
    code, out, _ = call("run", "net", "--feed", "x=x.npy", "--fetch", "h1", "--range", "0:2")
    assert code == 0 and out.startswith("h1 float32[5, 8]")
    refused(call("run", "net", "--feed", "x=x.npy", "--fetch", "h1", "--range", "0:99"), 1, "0:99")
    refused(call("run", "net", "--fetch", "h1", "--range", "b"), 2, "want A:B")


def test_run_in_training_phase(call):
    feed = ["run", "net", "--feed", "x=x.npy", "--fetch", "h2", "--train-phase"]
    assert call(*feed, "--seed", 1)[1] == call(*feed, "--seed", 1)[1]
    assert call(*feed, "--seed", 1)[1] != call(*feed, "--seed", 2)[1]


def test_run_refuses(call, folder):
    feed = ["--feed", "x=x.npy"]
    refused(call("run", "net", "--fetch", "scores"), 1, "input 'x'", "is missing")
    refused(call("run", "net", *feed, "--fetch", "score"), 1, "did you mean scores")
    refused(call("run", "net", "--feed", "X=x.npy", "--fetch", "scores"), 1, "no variable 'X'")
    refused(call("run", "net", "--feed", "x", "--fetch", "scores"), 2, "want NAME=VALUE")
    refused(call("run", "net", *feed, *feed, "--fetch", "scores"), 2, "given twice")
    assert call("run", "net", *feed)[1].startswith("scores float32[5, 3]")
    refused(
        call("run", "net", "--feed", "x=no.npy", "--fetch", "h0"),
        1,
        "no.npy: No such file or directory",
    )
    refused(call("run", "net", "--feed", "x=net.pb", "--fetch", "h0"), 1, "net.pb: no NumPy file")
    refused(call("run", "net", "--feed", "x=data.npz", "--fetch", "h0"), 1, "say which")
    refused(call("run", "net", "--feed", "x=data.npz:xx", "--fetch", "h0"), 1, "no array 'xx'")
    refused(call("run", "net", *feed, "--fetch", "h0", "--device", "tpu"), 1, "'tpu' is no device")
    np.save(folder / "wide.npy", np.zeros((5, 9), np.float32))
    refused(call("run", "net", "--feed", "x=wide.npy", "--fetch", "h0"), 1, "'x'", "9")
    np.save(folder / "objects.npy", np.array([{}]), allow_pickle=True)
    refused(call("run", "net", "--feed", "x=objects.npy", "--fetch", "h0"), 1, "no NumPy file")


# -- train -----------------------------------------------------------------------------------------


def test_train_goes_on_with_the_nets_own_optimizer(call, tmp_path):
    options = ["--data", "data.npz", "--out", tmp_path / "n", "--epochs", 5, "--batch", 16]
    code, out, err = call("train", "net", *options, "--metric", "worst", "--hold-out", 0.25)
    assert code == 0 and out.startswith("epoch 5  loss ") and "eval_worst" in out
    assert len(err.splitlines()) == 5
    before, after = opscope.load("net").scope, opscope.load(tmp_path / "n").scope
    assert not np.array_equal(before.numpy("w0"), after.numpy("w0"))
    assert "saved" in out and "no error" in call("verify", tmp_path / "n")[1]


def test_train_adds_an_optimizer(call, tmp_path):
    data = ["--data", "arrays", "--out", tmp_path / "n", "--epochs", 4, "--quiet"]
    adam = ["--optimizer", "adam", "--lr", 0.05, "--set", "beta1=0.8"]
    code, _, err = call("train", "bare", *data, *adam, "--csv", tmp_path / "a.csv")
    assert (code, err) == (0, "")
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 5
    assert "adam(" in call("show", tmp_path / "n")[1]
    sgd = ["--optimizer", "sgd", "--lr", 0.5, "--set", "loss_scale=dynamic"]
    data[3] = tmp_path / "m"
    assert call("train", tmp_path / "n", *data, *sgd)[0] == 0
    shown = call("show", tmp_path / "m")[1]
    assert "sgd(" in shown and "adam" not in shown.lower()
    assert "loss_scale_update(" in shown
    rate = opscope.load(tmp_path / "m").scope.numpy("optimizer@LEARNING_RATE")
    assert rate == pytest.approx(0.5)


def test_train_feeds_by_other_names(call, tmp_path):
    options = ["--data", "named.npz", "--out", tmp_path / "n", "--epochs", 1]
    feed = ["--feed", "x=points", "--feed", "label=label"]
    assert call("train", "net", *options, *feed)[0] == 0
    held_out = ["--evaluate", "named.npz", "--plot", tmp_path / "a.png"]
    assert call("train", "net", *options, *feed, *held_out)[0] == 0
    assert (tmp_path / "a.png").exists()


def test_train_resumes(call, tmp_path):
    options = ["--data", "data.npz", "--checkpoint", tmp_path / "c", "--quiet", "--resume"]
    whole = ["--data", "data.npz", "--quiet", "--out", tmp_path / "a", "--epochs", 3]
    assert call("train", "net", *whole)[0] == 0
    for epochs in (2, 3):
        code, _, _ = call("train", "net", *options, "--epochs", epochs, "--out", tmp_path / "b")
        assert code == 0
    pairs = [(tmp_path / f"{name}.safetensors").read_bytes() for name in "ab"]
    assert pairs[0] == pairs[1]


def test_train_that_ctrl_c_ends_saves_and_tells_so(folder, tmp_path):
    words = [
        "train",
        "net",
        "--data",
        "data.npz",
        "--out",
        str(tmp_path / "n"),
        "--epochs",
        "99999",
    ]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "opscope", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "epoch" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        out = process.stdout.read()
    assert process.returncode == 130 and out.endswith("(interrupted)\n")
    assert opscope.load(tmp_path / "n").scope.numpy("w0").size


def test_train_resumes_with_another_optimizer(call, tmp_path):
    options = ["--data", "data.npz", "--checkpoint", tmp_path / "c", "--out", tmp_path / "b"]
    adam = ["--optimizer", "adam", "--lr", 0.01]
    assert call("train", "net", *options, *adam, "--epochs", 2)[0] == 0
    options += ["--optimizer", "adam", "--lr", 0.02, "--epochs", 3]
    refused(call("train", "net", *options, "--resume"), 1, "another net", "resume='weights'")
    code, _, told = call("train", "net", *options, "--resume-weights")
    assert code == 0 and "taken over after epoch 2: 4 parameters and 9 states" in told
    assert "rate 0.01 there and 0.02 here: optimizer@LEARNING_RATE" in told
    rate = opscope.load(tmp_path / "b").scope.numpy("optimizer@LEARNING_RATE")
    assert rate == np.float32(0.02)


def test_train_refuses(call, tmp_path):
    out = ["--out", tmp_path / "n", "--quiet"]
    data = ["--data", "data.npz", *out]
    refused(call("train", "bare", *data), 1, "holds no optimizer")
    refused(call("train", "net", *data, "--lr", 1), 2, "belong to --optimizer")
    refused(call("train", "net", *data, "--resume"), 2, "--resume needs --checkpoint")
    refused(call("train", "net", *data, "--resume-weights"), 2, "--resume-weights needs --check")
    refused(call("train", "net", *data, "--epochs", 0), 2, "--epochs")
    refused(call("train", "net", *data, "--evaluate", "a", "--hold-out", 0.1), 2, "exclude")
    refused(call("train", "net", "--data", "data.npz"), 2, "--out")
    refused(call("train", "net", *data, "--loss", "los"), 1, "did you mean loss")
    refused(call("train", "net", *data, "--feed", "x=y"), 1, "no array 'y'")
    refused(call("train", "net", "--data", "no.npz", *out), 1, "no.npz: No such file or directory")
    refused(call("train", "net", "--data", "x.npy", *out), 1, "one array without a name")
    refused(call("train", "bare", *data, "--optimizer", "adm"), 1, "did you mean adam")
    refused(call("train", "bare", *data, "--optimizer", "adam", "--loss", "los"), 1, "'los'")
    where = tmp_path / "none" / "n"
    refused(call("train", "net", "--data", "data.npz", "--out", where), 1, "there is no folder")
    (tmp_path / "empty").mkdir()
    refused(call("train", "net", "--data", tmp_path / "empty", *out), 1, "holds no arrays")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    refused(call("train", "net", "--data", tmp_path / "other.npz", *out), 1, "--feed INPUT=ARRAY")
    assert not (tmp_path / "n.pb").exists()


def test_number_or_text():
    texts = ["true", "false", "3", "0.5", "1e-3", "mean"]
    assert [number_or_text(text) for text in texts] == [True, False, 3, 0.5, 1e-3, "mean"]


# -- as a process ----------------------------------------------------------------------------------


def process(folder, *args):
    return subprocess.run(
        [sys.executable, "-m", "opscope", *map(str, args)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )


COMMANDS = {
    "show": ["show", "net"],
    "verify": ["verify", "net"],
    "ops": ["ops", "relu"],
    "run": ["run", "net", "--feed", "x=x.npy", "--fetch", "scores"],
    "train": ["train", "net", "--data", "data.npz", "--epochs", 1, "--out", "trained"],
    "version": ["version"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_in_a_process(folder, name):
    done = process(folder, *COMMANDS[name])
    assert done.returncode == 0, done.stderr
    assert done.stdout and "Traceback" not in done.stderr


def test_errors_in_a_process(folder):
    done = process(folder, "show", "nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: nothing: No such file or directory; looked for nothing.pb\n"
    assert process(folder, "show").returncode == 2
    debugged = process(folder, "--debug", "show", "nothing")
    assert debugged.returncode == 1 and "Traceback" in debugged.stderr


def test_starting_loads_nothing_heavy():
    code = "import sys, opscope.python_api.cli.main; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "google.protobuf", "safetensors", "tqdm", "matplotlib"}


def test_help_lists_programs_without_loading_them():
    code = (
        "import sys\nfrom opscope.python_api.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.startswith('opscope.nnet3.programs.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nnet3-am-copy" in done.stdout and done.stdout.endswith("\n[]\n")


def test_help_lists_every_command_once_by_what_it_is_for():
    text = CliRunner().invoke(main, ["--help"]).output
    groups = re.split(r"\n\n(?=\S)", text.strip())[2:]
    assert groups[0].startswith("Look at nets") and groups[-1].startswith("Kaldi's programs, ")
    listed = re.findall(r"^  (\S+)(?:  .*)?$", "\n".join(groups), re.MULTILINE)
    assert sorted(listed) == sorted(commands())
