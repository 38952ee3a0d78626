"""What `opscope open` says can be done with a file: every command that it lists runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from format_nets import acoustic, cntk, net, nnet3, onnx
from opscope.bridges.recognize.recognizing import kind_of
from opscope.nnet3.inference.saved import save_nnet
from opscope.python_api.cli.main import main

NET = {"view", "show", "verify", "edit", "compare", "to-onnx", "convert"}
LISTED = {
    "a.raw": {*NET, "nnet3-info", "to-torch"},
    "a.mdl": {*NET, "nnet3-am-info", "to-torch"},
    "a.dnn": {*NET, "to-torch"},
    "n.pb": {*NET, "summary"},
    "kaldi.pb": NET,
    "cntk.pb": NET,
    "empty.pb": {"view", "show", "verify", "summary"},
    "bare.pb": {"view", "show", "verify", "summary"},
    "g.onnx": {"view", "show", "verify", "edit", "compare"},
    "x.npy": {"convert"},
    "x.npz": {"convert"},
    "x.ark": {"show", "verify", "convert"},
    "x.safetensors": {"convert"},
    "x.fea": {"convert"},
}
"""Files, and the commands of theirs that need no other files."""
_OTHERS = re.compile("[A-Z]{4,}|scp:FEATS|N,N,")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        save_nnet(nnet3(), "kaldi.pb")
        acoustic()
        cntk()
        net()
        onnx()
        opscope.convert("a.dnn", "cntk.pb", "net")
        opscope.save(opscope.NetBuilder("empty"), opscope.Scope(), "empty.pb")
        (path / "bare.pb").write_bytes((path / "n.pb").read_bytes())
        np.save("x.npy", np.ones((2, 3), np.float32))
        np.savez("x.npz", a=np.ones((2, 2), np.float32))
        for target in ("x.ark", "x.safetensors"):
            opscope.convert("x.npz", target)
        opscope.convert("x.npy", "x.fea")
    return path


@pytest.mark.parametrize("name", LISTED)
def test_commands_that_are_listed_run(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    ran = set()
    for command in opscope.open(name).commands:
        words = command.partition("  #")[0].split()
        words = [re.sub(r"^OUT\b", f"made_{name}", word) for word in words[1:]]
        words = [{"OTHER": name, "FOLDER": f"module_{name}"}.get(word, word) for word in words]
        if command.startswith("opscope ") and not any(map(_OTHERS.search, words)):
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 0, f"{command}: {done.output}"
            ran.add(words[0])
    assert ran == LISTED[name]


def test_a_command_that_wants_shapes_says_so(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert "opscope convert g.onnx OUT.pb --shape x=N,N,..." in opscope.open("g.onnx").commands
    done = CliRunner().invoke(main, ["convert", "g.onnx", "g.pb", "--shape", "x=-1,2,3"])
    assert done.exit_code == 0, done.output


def test_folders_of_modules(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for origin in ("a.mdl", "a.dnn"):
        opscope.to_torch(origin, "module")
        suffix = Path(origin).suffix
        first = opscope.open("module").commands[0]
        assert first == f"opscope from-torch module ORIGINAL{suffix} OUT{suffix}"
        words = first.replace("ORIGINAL", "a").replace("OUT", "back").split()[1:]
        assert CliRunner().invoke(main, words).exit_code == 0


def test_a_folder_tells_inputs_and_contexts(folder, monkeypatch):
    monkeypatch.chdir(folder)
    opscope.to_torch("a.raw", "of_kaldi", frame_subsampling_factor=3)
    info = opscope.open("of_kaldi")
    assert (str(info.inputs[0]), str(info.outputs[0])) == ("input [4]", "output [3]")
    assert (info.version, info.context, info.subsampling) == ("nnet3", (1, 2), 3)
    opscope.to_torch("a.dnn", "of_cntk")
    info = opscope.open("of_cntk")
    assert (str(info.inputs[0]), info.outputs[0].shape) == ("features [?, 4]", (None, 1, 3))
    assert (info.version, info.context, info.subsampling) == ("cntk", None, None)


@pytest.mark.parametrize(
    "line",
    [
        "to-onnx a.raw a.raw",
        "to-onnx a.dnn a.dnn",
        "to-onnx n.pb n.pb",
        "to-onnx n.pb n.safetensors",
        "view a.raw -o a.raw",
        "view a.mdl --against a.raw -o a.raw",
        "compare a.raw --dtypes float32 float64 --page a.raw",
        "compare a.dnn --dtypes float32 float64 --plot ./a.dnn",
    ],
)
def test_no_command_writes_over_what_it_reads(line, folder, monkeypatch):
    monkeypatch.chdir(folder)
    target = Path(line.split()[-1])
    before = target.read_bytes()
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code and "it is read here; nothing is overwritten" in done.output
    assert target.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "edit a.raw --remove-orphans --out new.dnn",
            "network (raw), and NAME.dnn",
        ),
        ("edit a.dnn --remove-orphans --out new.mdl", "is: CNTK model, and NAME.mdl"),
        ("to-onnx a.raw new.pb", "is: ONNX model, and NAME.pb is the name of: opscope net"),
        ("from-torch of_raw a.raw new.onnx", "and NAME.onnx is the name of: ONNX model"),
    ],
)
def test_names_of_other_kinds_are_refused(line, told, folder, monkeypatch):
    monkeypatch.chdir(folder)
    opscope.to_torch("a.raw", "of_raw")
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 1 and told in done.output
    assert "`opscope convert` makes other kinds" in done.output
    assert not Path(line.split()[-1]).exists()


def test_nets_without_variables_and_operators(folder, tmp_path):
    """Their fields are those that a model of ONNX may have, too."""
    data = (folder / "empty.pb").read_bytes()
    for name, kind in (("a.pb", "net"), ("a", "net"), ("a.onnx", "onnx")):
        (tmp_path / name).write_bytes(data)
        assert kind_of(str(tmp_path / name)) == kind
    assert dict(opscope.open(folder / "empty.pb").facts)["size"] == "0 operators, 0 variables"
