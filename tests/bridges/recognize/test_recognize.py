"""What files are: reference files of all kinds without their names, facts, errors."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from kaldi_data import need
from opscope import FormatError
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.recognize.kinds import KINDS
from opscope.bridges.recognize.recognizing import kind_of
from opscope.python_api.cli.main import commands, main
from reference_folders import CNTK, DATA

KALDI_FILES = {
    "formats/final.mdl": "acoustic model",
    "formats/final.txt.mdl": "acoustic model",
    "formats/tree": "tree",
    "formats/topo": "topology",
    "formats/feats.cm2.ark": "archive",
    "formats/feats.text.ark": "archive",
    "formats/egs.ark": "archive",
    "formats/post.ark": "archive",
    "formats/feats.float.scp": "script file",
    "trained/tdnn/model.raw": "nnet3",
    "trained/tdnn/model.txt": "nnet3",
    "trained/tdnn/final.config": "config",
    "trained/tdnn/network.xconfig": "xconfig",
    "trained/tdnn/lda.mat": "value",
    "random_nets/case_0001/request.txt": "request",
}
CNTK_FILES = {
    "04_mel_edit/case.cntk": "cntk config",
    "04_mel_edit/edit.mel": "mel",
    "04_mel_edit/net.ndl": "ndl",
    "04_mel_edit/macros.ndl": "ndl",
    "02_ndl_macros_dnn/net.ndl": "ndl",
    "33_nodes/net.bs": "brainscript",
    "03_bs_language_dnn/net.bs": "brainscript",
    "01_simplebuilder_dnn/case.cntk": "cntk config",
    "01_simplebuilder_dnn/final.model": "model",
    "data/simple.train.ctf": "ctf",
}
OTHER_FILES = {
    "cntk/slu.forward.cmf": "model",
    "cntk/atis.test.ctf": "ctf",
    "speech/htk/test.mlf": "mlf",
    "speech/htk/test.scp": "htk list",
    "speech/htk/test/george-0-00.fea": "htk features",
}


def _known(path: Path, kind: str, tmp_path: Path) -> None:
    """A file is of a kind under its own name and, as it is told by its content, without one."""
    assert kind_of(str(path)) == kind
    bare = tmp_path / "file"
    shutil.copy(path, bare)
    assert kind_of(str(bare)) == kind


@pytest.mark.parametrize("name", KALDI_FILES)
def test_files_of_kaldi(name, tmp_path):
    _known(need(*name.split("/")), KALDI_FILES[name], tmp_path)


@pytest.mark.parametrize("name", CNTK_FILES)
def test_files_of_cntk(name, tmp_path):
    if not (CNTK / name).exists():
        pytest.skip(f"no reference results of CNTK: {CNTK / name} is missing")
    _known(CNTK / name, CNTK_FILES[name], tmp_path)


def _data(name: str) -> Path:
    if not (DATA / name).exists():
        pytest.skip(f"no reference data: {DATA / name} is missing")
    return DATA / name


@pytest.mark.parametrize("name", OTHER_FILES)
def test_other_files(name, tmp_path):
    _known(_data(name), OTHER_FILES[name], tmp_path)


def test_a_network_of_kaldi(tmp_path):
    """Facts as Kaldi's nnet3-info prints them."""
    folder = need("trained", "tdnnf")
    told = dict(
        line.split(": ", 1)
        for line in (folder / "info.txt").read_text().splitlines()
        if line.startswith(("left-", "right-", "num-parameters"))
    )
    info = opscope.open(folder / "model.raw")
    assert info.context == (int(told["left-context"]), int(told["right-context"]))
    assert info.parameters == int(told["num-parameters"])
    assert info.version == "binary" and info.subsampling is None
    assert [port.name for port in info.inputs] == ["input"]
    count = (folder / "info.txt").read_text().count("component name=")
    assert sum(info.types.values()) == count
    shutil.copy(folder / "model.raw", tmp_path / "model.raw")
    (tmp_path / "frame_subsampling_factor").write_text("3\n")
    assert opscope.open(tmp_path / "model.raw").subsampling == 3
    (tmp_path / "frame_subsampling_factor").write_text("many\n")
    with pytest.raises(FormatError, match="frame_subsampling_factor: 'many' is no whole number"):
        opscope.open(tmp_path / "model.raw")


def test_the_folder_of_a_vosk_model(tmp_path):
    (tmp_path / "am").mkdir()
    (tmp_path / "conf").mkdir()
    shutil.copy(need("formats", "final.mdl"), tmp_path / "am")
    (tmp_path / "conf" / "model.conf").write_text("--beam=10.0\n--frame-subsampling-factor=3\n")
    (tmp_path / "conf" / "mfcc.conf").write_text("--num-ceps=40\n")
    info = opscope.open(tmp_path)
    assert (info.kind, info.subsampling) == ("vosk", 3)
    assert info.parameters == opscope.open(tmp_path / "am" / "final.mdl").parameters
    assert dict(info.facts)["features"] == "MFCC num-ceps 40"
    assert opscope.view(tmp_path).html.startswith("<!")
    (tmp_path / "conf" / "model.conf").write_text("--frame-subsampling-factor=0\n")
    with pytest.raises(FormatError, match=r"model.conf: '0' is no whole number from 1"):
        opscope.open(tmp_path)


def test_a_model_of_cntk():
    info = opscope.open(_data("cntk/slu.forward.cmf"))
    assert info.version.startswith("CNTK binary model")
    assert "memories" in dict(info.facts)["recurrent"]
    assert [port.shape for port in info.inputs] == [(943,), (129,)]
    assert info.outputs[0].shape == (129,)


def test_a_config_whose_files_are_missing_is_told(tmp_path):
    path = tmp_path / "net.config"
    path.write_text("component name=lda type=FixedAffineComponent matrix=lda.mat\n")
    info = opscope.open(path)
    assert info.kind == "config" and "lda.mat: No such file" in info.unusual[0]


def test_onnx(tmp_path):
    g = Graph("g")
    w = g.constant(np.ones((3, 4)), "w", np.float32)
    y = g.node("MatMul", [g.input("x", np.float32, ["N", 3]), w], "y")
    g.output(y, np.float32, ["N", 4])
    path = tmp_path / "file"
    path.write_bytes(model_bytes(g))
    info = opscope.open(path)
    assert info.kind == "onnx" and "opset 17" in info.version
    assert str(info.inputs[0]) == "x [N, 3], float32"
    assert (info.parameters, info.types, info.unusual) == (12, {"MatMul": 1}, [])
    g.node("Unheard", [y], "z")
    path.write_bytes(model_bytes(g))
    assert "not supported here" in opscope.open(path).unusual[0]


def _saved(folder: Path) -> Path:
    b = opscope.NetBuilder("small")
    b.softmax(b.fc(b.input("x", [-1, 4]), size=3), name="y")
    scope = opscope.Scope()
    b.run(scope, feed={"x": np.ones((2, 4))}, fetch=["y"], need_backward=False)
    opscope.save(b, scope, folder / "small.pb")
    return folder / "small.pb"


def test_what_opscope_saves(tmp_path):
    path = _saved(tmp_path)
    info = opscope.open(path)
    assert (info.kind, info.parameters) == ("net", 15)
    arrays = opscope.open(tmp_path / "small.safetensors")
    assert arrays.kind == "safetensors" and dict(arrays.facts)["net"] == str(path)
    data = (tmp_path / "small.safetensors").read_bytes()
    (tmp_path / "small.safetensors").write_bytes(data[:-4])
    assert opscope.open(path).unusual
    shutil.copy(path, tmp_path / "bare")
    assert kind_of(str(tmp_path / "bare")) == "net"


def test_fsts(tmp_path):
    text = tmp_path / "a"
    text.write_text("0\t1\t3\t3\t0.5\n1\t2\t4\t5\n2\t0.25\n")
    info = opscope.open(text)
    assert info.kind == "fst" and dict(info.facts)["what"] == "transducer"
    assert dict(info.facts)["size"] == "3 states (1 final), 2 arcs"
    other = tmp_path / "b"
    name = lambda word: struct.pack("<i", len(word)) + word  # noqa: E731
    header = struct.pack("<iiQqqq", 4, 3, 0, 0, 7, 9)
    other.write_bytes(b"\xd6\xfd\xb2\x7e" + name(b"edit") + name(b"standard") + header)
    info = opscope.open(other)
    assert dict(info.facts)["header"] == "7 states, 9 arcs"
    assert info.unusual == ["FSTs of type edit are not read here"]


def test_lattices_of_htk(tmp_path):
    path = tmp_path / "a"
    path.write_text("VERSION=1.0\nN=2 L=1\nI=0 t=0\nI=1 t=1\nJ=0 S=0 E=1 a=-1 l=0\n")
    info = opscope.open(path)
    assert info.kind == "htk lattice" and dict(info.facts)["size"] == "2 nodes, 1 links"


def test_unknown_files_say_what_was_looked_for(tmp_path):
    path = tmp_path / "text"
    path.write_text("hello\n")
    with pytest.raises(
        FormatError, match=r"(?s)text: a file .* no known kind; looked for:.*NetDesc"
    ):
        opscope.open(path)
    (tmp_path / "empty").touch()
    with pytest.raises(FormatError, match="empty: the file is empty"):
        opscope.open(tmp_path / "empty")
    with pytest.raises(FormatError, match="a folder that is of no known kind"):
        opscope.open(tmp_path)
    with pytest.raises(FormatError, match="No such file"):
        opscope.open(tmp_path / "missing")
    with pytest.raises(opscope.VariableError, match="want the name of a file"):
        opscope.open(3)  # type: ignore[arg-type]
    result = CliRunner().invoke(main, ["open", str(path)])
    assert result.exit_code == 1 and "looked for" in result.output
    assert "[...]" not in result.output and "\n  Vosk model folder: " in result.output


def test_objects_of_kaldi_that_are_not_read(tmp_path):
    path = tmp_path / "final.dubm"
    path.write_bytes(b"\0B<DiagGMM> <GCONSTS> FV \4\0\0\0\0")
    with pytest.raises(FormatError, match="<DiagGMM> is an object of Kaldi's that is not read"):
        opscope.open(path)


def test_damaged_models_name_the_place(tmp_path):
    path = tmp_path / "a.raw"
    path.write_bytes(need("trained", "tdnn", "model.raw").read_bytes()[:5000])
    with pytest.raises(FormatError, match=r"a.raw: .*byte"):
        opscope.open(path)


def test_every_kind_is_told_and_its_commands_exist():
    for kind in KINDS.values():
        assert callable(kind.function("tells"))
        assert not kind.opens or callable(kind.function("opens"))
        for command in kind.commands:
            assert command.startswith("opscope ") and command.split()[1] in commands()


def test_the_command_tells_several_files(tmp_path):
    path = str(_saved(tmp_path))
    result = CliRunner().invoke(main, ["open", path, path.replace(".pb", ".safetensors")])
    assert result.exit_code == 0, result.output
    assert result.output.count("kind   ") == 2 and "opscope net\n" in result.output


def test_a_language_that_the_name_does_not_tell(tmp_path):
    """It is told, and no command takes it for a config."""
    path = tmp_path / "net.txt"
    path.write_text("run = net\nnet = [\n x = Input(2)\n y = Times(x, x)\n]\n")
    info = opscope.open(path)
    assert info.kind == "ndl" and "networks are built of files NAME.ndl" in info.unusual[0]
    with pytest.raises(FormatError, match=r"net.txt: .*by its content: .* files NAME.ndl"):
        opscope.view(path)
    result = CliRunner().invoke(main, ["show", str(path)])
    assert result.exit_code == 1 and "files NAME.ndl" in result.output


def test_commands_say_what_a_file_is_that_they_do_not_read(tmp_path):
    path = tmp_path / "a"
    path.write_text('#!MLF!#\n"a.lab"\n0 100 x\n.\n')
    result = CliRunner().invoke(main, ["show", str(path)])
    assert result.exit_code == 1 and "HTK master label file: it holds no net" in result.output
    with pytest.raises(FormatError, match="HTK master label file: it holds no net to look at"):
        opscope.view(path)


def test_contexts_that_take_long_are_not_looked_for(tmp_path):
    """Statistics of x-vector networks read 10,000 frames."""
    path = tmp_path / "a.config"
    path.write_text(
        "input-node name=input dim=2\n"
        "component name=e type=StatisticsExtractionComponent input-dim=2\n"
        "component name=p type=StatisticsPoolingComponent input-dim=5 left-context=0"
        " right-context=9000\n"
        "component-node name=e component=e input=input\n"
        "component-node name=p component=p input=e\noutput-node name=output input=p\n"
    )
    info = opscope.open(path)
    assert info.context is None
    assert dict(info.facts)["context"] == "not looked for: p reads very many frames"


def test_the_command_tells_of_all_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", np.zeros((2, 3)))
    np.savez("some.npz", a=np.zeros(3), b=np.arange(4))
    Path("none.dat").write_bytes(b"\xff\xfe\x00\x00")
    done = CliRunner().invoke(main, ["open", "one.npy", "none.dat", "lost.raw", "some.npz"])
    assert done.exit_code == 1
    assert "float64 [2, 3]" in done.stdout and "b int64 [4]" in done.stdout
    assert "none.dat: a file that is of no known kind" in done.stderr
    assert "lost.raw: No such file" in done.stderr


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ndl", "# a layer\nLayer(dim, x)\n[\n  W = Parameter(dim, 3)\n  z = Times(W, x)\n]\n"),
        ("ndl", "Dim=3\nW=Parameter(Dim, Dim)\nx=Input(Dim)\nz=Times(W, x)\nOutputNodes=(z)\n"),
        ("ndl", "FF(X, W) = Times(W, X)\nload=ndlMacros\nrun=net\n"),
        ("brainscript", "train = new TrainAction [\n  modelPath = 'a'\n]\nprecision = 'float'\n"),
        ("brainscript", "Dense {dim} = {\n  apply (x) = x\n}.apply\n"),
        ("brainscript", "Twice (f) = x => f (f (x))\n"),
        ("mel", "# edit\nm = LoadModel(a.dnn)\nSaveModel(m, b.dnn)\n"),
        ("cntk config", "command = Train\nTrain = [\n  action = train\n]\n"),
    ],
)
def test_texts_of_cntk_without_a_suffix(kind, text, tmp_path):
    (tmp_path / "text").write_text(text)
    assert kind_of(str(tmp_path / "text")) == kind
