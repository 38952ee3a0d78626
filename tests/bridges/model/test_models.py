"""One model behind all commands: networks of every kind in each; kinds of other packages."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from format_nets import TDNN, acoustic, cntk, net, nnet3, onnx
from opscope import FormatError, OpscopeError, VariableError
from opscope.bridges.model.net_models import NetModel
from opscope.bridges.model.opening import open_model
from opscope.bridges.recognize import kinds
from opscope.bridges.recognize.kinds import FileKind
from opscope.framework.base.options import plugins
from opscope.nnet3.inference.saved import save_nnet
from opscope.python_api.cli.main import main

NDL = """run = net
net = [
 features = Input(4)
 w = Parameter(3, 4)
 z = Times(w, features)
 OutputNodes=(z)
]
"""
XCONFIG = """input dim=4 name=input
relu-layer name=t1 dim=5 input=Append(-1,0,1)
output-layer name=output dim=3 input=t1
"""
SAVED = {
    "a.raw": ("input", "output"),
    "a.mdl": ("input", "output"),
    "vosk": ("input", "output"),
    "kaldi.pb": ("input", "output"),
    "a.dnn": ("features", "z"),
    "cntk.pb": ("features", "z"),
    "n.pb": ("x", "y"),
    "g.onnx": ("x", "y"),
}
"""Models with their numbers, an input and an output of theirs."""
DRAWN = {
    "a.config": ("input", "output"),
    "x.xconfig": ("input", "output"),
    "a.ndl": ("features", "z"),
}
"""Networks whose numbers are drawn."""
COMMANDS = {
    "open": "open FILE",
    "show": "show FILE",
    "dot": "show FILE --dot",
    "svg": "show FILE --svg made.svg",
    "view": "view FILE -o made.html",
    "profiled": "view FILE --profile -o made.html",
    "compare": "compare FILE --dtypes float32 float64",
    "profile": "profile FILE",
    "run": "run FILE --feed INPUT=ROWS.npy --fetch OUTPUT --out made.npy",
    "verify": "verify FILE",
    "convert": "convert FILE made_FILE.onnx --overwrite",
    "score": "score FILE ark:ROWS.ark ark:scores_FILE.ark",
    "edit": "edit FILE --remove-orphans -o edited_FILE",
}
OF_SAVED = ("score", "edit")
REFUSED = {("g.onnx", "convert")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        save_nnet(nnet3(), "kaldi.pb")
        acoustic()
        cntk()
        net()
        onnx()
        opscope.convert("a.dnn", "cntk.pb", "net")
        Path("a.config").write_text(TDNN)
        Path("x.xconfig").write_text(XCONFIG)
        Path("a.ndl").write_text(NDL)
        for each in ("vosk/am", "vosk/conf"):
            os.makedirs(each)
        acoustic("vosk/am/final.mdl")
        Path("vosk/conf/model.conf").write_text("--frame-subsampling-factor=2\n")
        opscope.to_torch("a.raw", "module")
        rows = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
        for name, array, shape in (("four", rows, (7, 4)), ("three", rows[:, :3], (1, 7, 3))):
            np.save(f"{name}.npy", array)
            opscope.convert(f"{name}.npy", f"{name}.ark")
            np.save(f"{name}.npy", array.reshape(shape))
    return path


def call(line: str) -> str:
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 0, f"{line}: {done.output}"
    return done.output


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", {**SAVED, **DRAWN})
def test_commands_take_networks_of_every_kind(name, command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    given, made = (SAVED | DRAWN)[name]
    line = COMMANDS[command].replace("FILE", name).replace("INPUT", given).replace("OUTPUT", made)
    line = line.replace("ROWS", "three" if name == "g.onnx" else "four")
    if (name, command) in REFUSED or (name in DRAWN and command in OF_SAVED):
        done = CliRunner().invoke(main, line.split())
        assert done.exit_code == 1 and name in done.output, done.output
        return
    call(line)
    if command == "run":
        rows = 4 if name == "vosk" else 1 if name == "g.onnx" else 7
        assert len(np.load("made.npy")) == rows


@pytest.mark.parametrize("name", SAVED)
def test_what_open_gives_is_the_model(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    info, (given, made) = opscope.open(name), SAVED[name]
    assert info.desc.ops and given in [port.name for port in info.inputs]
    assert made in [port.name for port in info.model.outputs]
    assert all(isinstance(array, np.ndarray) for array in info.arrays.values()) and info.arrays
    rows = np.load("three.npy" if name == "g.onnx" else "four.npy")
    found = info.run({given: rows})
    assert made in found and np.isfinite(found[made]).all()
    np.testing.assert_array_equal(info.run({given: rows}, [made])[made], found[made])
    with pytest.raises(OpscopeError, match="nothing_such"):
        info.run({given: rows, "nothing_such": rows}, [made])
    with pytest.raises(OpscopeError, match="nothing_such"):
        info.run({given: rows}, ["nothing_such"])
    info.save("saved.pb" if name.endswith(".pb") else f"saved{os.path.splitext(name)[1] or '.mdl'}")
    assert not info.edit().done


def test_inputs_and_outputs_of_cntk_are_told_with_their_roles(folder, monkeypatch):
    monkeypatch.chdir(folder)
    info = opscope.open("a.dnn")
    assert [str(port) for port in info.inputs] == ["features [4], feature", "labels [3], label"]
    assert [port.note for port in info.outputs] == ["output", "criterion"]


def test_a_net_may_be_named_by_its_arrays(folder, monkeypatch):
    monkeypatch.chdir(folder)
    opscope.edit("n.safetensors").save("of_arrays.pb")
    assert opscope.open("of_arrays.pb").parameters == opscope.open("n.pb").parameters


def test_networks_give_what_their_own_programs_give(folder, monkeypatch):
    monkeypatch.chdir(folder)
    rows = np.load("four.npy")
    call("nnet3-compute a.raw ark:four.ark ark:made.ark")
    opscope.convert("made.ark", "made_rows.npy", overwrite=True)
    np.testing.assert_array_equal(
        opscope.open("a.raw").run({"input": rows})["output"], np.load("made_rows.npy")
    )
    both = [opscope.open(name).run({"features": rows})["z"] for name in ("a.dnn", "cntk.pb")]
    np.testing.assert_array_equal(*both)
    wanted = opscope.load("n.pb").predict({"x": rows})["y"]
    np.testing.assert_array_equal(opscope.open("n.pb").run({"x": rows}, ["y"])["y"], wanted)
    inner = opscope.open("g.onnx").run({"x": np.load("three.npy")}, ["m", "y"])
    np.testing.assert_allclose(np.tanh(inner["m"]), inner["y"], rtol=1e-6)


@pytest.mark.parametrize("command", ["show", "view", "profile", "verify", "edit", "run", "score"])
def test_folders_of_pytorch_are_refused_with_the_reason(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    line = COMMANDS[command].replace("FILE", "module").replace("ROWS", "four")
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 1 and "PyTorch module folder" in done.output
    assert opscope.open("module").arrays


@pytest.mark.parametrize("option", ["--range 0:1", "--train-phase", "--seed 0", "--device cpu"])
def test_options_of_nets_of_operators(option, folder, monkeypatch):
    monkeypatch.chdir(folder)
    line = f"run a.raw --feed input=four.npy --fetch output {option}"
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 1 and f"{option.split()[0]} is for nets of operators" in done.output


def test_numbers_of_onnx_that_are_none(folder, tmp_path):
    data = (folder / "g.onnx").read_bytes()
    array = opscope.open(folder / "g.onnx").arrays["w"].tobytes()
    (tmp_path / "bad.onnx").write_bytes(data.replace(array[:4], np.float32(np.nan).tobytes(), 1))
    done = CliRunner().invoke(main, ["verify", str(tmp_path / "bad.onnx")])
    assert done.exit_code == 1 and "infinite or NaN in w" in done.output


# -- kinds of other packages


def opened(path, asked):
    """A file of `MINE n`: a net that multiplies by n."""
    b = opscope.NetBuilder("mine")
    b.scale(b.input("x", [-1, 2]), scale=float(Path(path).read_text().split()[1]), name="y")
    assert asked.kind == "mine"
    return NetModel(b.op_list, {}, path)


MINE = FileKind(
    "mine",
    "a file of mine",
    "MINE at its beginning",
    opens=opened,
    matches=lambda path, head: head.startswith(b"MINE "),
)


class Point:
    value, name, group = "package:kind", "mine", kinds.GROUP

    def __init__(self, kind):
        self.kind = kind

    def load(self):
        return self.kind


def brought(monkeypatch, *found):
    points = [Point(kind) for kind in found]
    monkeypatch.setattr(kinds, "entry_points", lambda group: points)


def test_kinds_of_other_packages(tmp_path, monkeypatch):
    brought(monkeypatch, MINE)
    monkeypatch.chdir(tmp_path)
    Path("a.file").write_text("MINE 3")
    np.save("x.npy", np.ones((2, 2), np.float32))
    info = opscope.open("a.file")
    assert (info.kind, info.title) == ("mine", "a file of mine")
    np.testing.assert_array_equal(info.run({"x": np.ones((1, 2))}, ["y"])["y"], [[3, 3]])
    assert "scale" in call("show a.file") and "no error" in call("verify a.file")
    for line in ("view a.file -o p.html", "profile a.file", "run a.file --feed x=x.npy --fetch y"):
        call(line)
    Path("b.file").write_text("other")
    with pytest.raises(FormatError, match="(?s)no known kind.*MINE at its beginning"):
        opscope.open("b.file")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((3,), "is no FileKind with `matches`"),
        ((FileKind("net", "a", "b", matches=lambda path, head: False),), "a kind 'net' already"),
        ((MINE, FileKind("mine", "a", "b", matches=MINE.matches)), "a kind 'mine' already"),
    ],
)
def test_kinds_that_do_not_fit(found, message, tmp_path, monkeypatch):
    brought(monkeypatch, *found)
    (tmp_path / "a").write_text("MINE 3")
    with pytest.raises(OpscopeError, match=message):
        opscope.open(tmp_path / "a")


def test_faults_of_other_packages_are_told(tmp_path, monkeypatch):
    def matches(path, head):
        raise KeyError("lost")

    brought(monkeypatch, FileKind("mine", "a file of mine", "b", matches=matches))
    (tmp_path / "a").write_text("MINE 3")
    with pytest.raises(plugins.RunError, match="a file of mine failed: KeyError"):
        opscope.open(tmp_path / "a")


def test_objects_are_models():
    with pytest.raises(VariableError, match="want a net"):
        open_model(3)
    with pytest.raises(VariableError, match="'a' is for files: int is one net"):
        open_model(3, network="a")
