"""`opscope convert`: models. Every entry of the table, what is lost, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

import format_nets
import opscope
from format_nets import TDNN, acoustic, checked, cntk, net, nnet3, onnx
from kaldi_data import need
from opscope import FormatError, OpscopeError, RunError, SaveError
from opscope.bridges.recognize.recognizing import kind_of
from opscope.cntk.models.v1 import read_model
from opscope.cntk.readers.base.htk_files import write_htk
from opscope.kaldi.files.kaldi_io import Reader
from opscope.nnet3.inference.saved import load_nnet
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.cli.main import main
from opscope.python_api.formats import of_nets, of_nnet3
from opscope.python_api.formats.code_run import built
from opscope.python_api.formats.sources import KINDS_OF, LABELS, TABLE
from opscope.python_api.formats.table import TABLE_OF, table_lines
from reference_folders import DATA

USED: set[tuple[str, str]] = set()


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _note_entries(monkeypatch):
    """Which entries of the table have run; see the last test."""
    format_nets.note_entries(monkeypatch, USED)


# -- Kaldi


def test_kaldi_to_its_own_forms():
    nnet, model = nnet3(), acoustic()
    assert checked(opscope.convert("a.raw", "t.raw", text=True)) == ""
    assert Reader("t.raw").binary is False
    assert checked(opscope.convert("t.raw", "b.raw")) == ""
    assert Nnet.read("b.raw").config_lines() == nnet.config_lines()
    assert checked(opscope.convert("a.mdl", "t.mdl", text=True)) == ""
    assert checked(opscope.convert("t.mdl", "c.mdl")) == ""
    assert np.array_equal(AmNnetSimple.read("c.mdl").priors, model.priors)
    lost = checked(opscope.convert("a.mdl", "m.raw"))
    assert lost == "the transition model; priors of 3 outputs"
    checked(opscope.convert("a.raw", "r.mdl", transition_model="a.mdl"))
    assert AmNnetSimple.read("r.mdl").transition_model == model.transition_model
    assert checked(opscope.convert("a.raw", "s.pb")) == ""
    assert load_nnet("s.pb").config_lines() == nnet.config_lines()
    report = opscope.convert("s.pb", "again.raw")
    assert checked(report) == "" and Path("again.raw").read_bytes() == Path("a.raw").read_bytes()


def test_configs_become_networks():
    Path("net.config").write_text(TDNN.strip() + "\n")
    report = opscope.convert("net.config", "i.raw")
    assert checked(report) == "" and "its parameters are drawn" in str(report)
    assert kind_of("i.raw") == "nnet3"
    with pytest.raises(FormatError, match="Kaldi nnet3 config.* does not become NetBuilder code"):
        opscope.convert("net.config", "net.py")


def test_networks_become_configs():
    nnet3()
    report = opscope.convert("a.raw", "a.config")
    assert report.error is None and "it holds no numbers" in str(report)
    assert report.lost[0] == "all 99 parameters: a config draws new ones"
    text = Path("a.config").read_text()
    assert "type=DropoutComponent dim=6 dropout-proportion=0.2" in text
    assert "max-change=0.5" in text and kind_of("a.config") == "config"
    opscope.convert("a.config", "b.raw")
    one, two = Nnet.read("a.raw"), Nnet.read("b.raw")
    assert one.config_lines() == two.config_lines()
    assert [c.type for c in one.components.values()] == [c.type for c in two.components.values()]
    assert {k: a.shape for k, a in one.arrays().items()} == {
        k: a.shape for k, a in two.arrays().items()
    }
    opscope.convert("b.raw", "c.config")
    assert Path("c.config").read_text() == text


def test_what_config_lines_cannot_describe_is_refused(monkeypatch):
    nnet3()
    real = Nnet.from_config_text
    monkeypatch.setattr(
        Nnet, "from_config_text", lambda text, rng: real(text.replace("change=0.5", "change=2"), 0)
    )
    with pytest.raises(OpscopeError, match=r"component 'a' .* set otherwise: max-change=0.5, max-"):
        opscope.convert("a.raw", "a.config")
    assert not Path("a.config").exists()


def test_kaldi_to_cntk_and_back():
    acoustic()
    lost = checked(opscope.convert("a.mdl", "b.dnn"))
    assert "the transition model" in lost and "dropout and random masks of 1 component" in lost
    assert "settings of natural gradient of 2 components" in lost and "priors" not in lost
    report = opscope.convert("b.dnn", "c.mdl", context={"": (1, 2)}, transition_model="a.mdl")
    assert report.cases == 2 and "other outputs" in checked(report)
    assert np.allclose(AmNnetSimple.read("c.mdl").priors, [0.5, 0.25, 0.25])
    checked(opscope.convert("c.mdl", "d.cmf"))
    one, two = read_model("b.dnn"), read_model("d.cmf")
    assert one.parameter_count() == two.parameter_count()


def test_kaldi_through_onnx():
    """Kaldi -> .pb -> ONNX -> .pb of operators -> ONNX: the same rows all the way."""
    pytest.importorskip("onnxruntime")
    nnet3()
    checked(opscope.convert("a.raw", "p.pb"))
    lost = checked(opscope.convert("p.pb", "q.onnx"))
    assert "objectives of outputs (output linear)" in lost and "learning rates" in lost
    checked(opscope.convert("q.onnx", "any.pb"))  # any number of rows and frames
    report = opscope.convert("q.onnx", "r.pb", shapes={"input": (-1, 9, 4)})
    assert "dimensions that may vary: of input" in checked(report)
    checked(opscope.convert("r.pb", "s.onnx"))
    x = np.random.default_rng(3).normal(size=(2, 9, 4)).astype(np.float32)
    values = [
        opscope.from_onnx("q.onnx").run({"input": x})["output"],
        opscope.load("r.pb").predict({"input": x}, batch_size=None)["output"],
        opscope.from_onnx("s.onnx").run({"input": x})["output"],
    ]
    assert np.abs(values[0] - values[1]).max() < 1e-6
    assert np.array_equal(values[1], values[2]) or np.abs(values[1] - values[2]).max() < 1e-6


def test_outputs_that_onnx_leaves_out_are_told():
    pytest.importorskip("onnxruntime")
    nnet3(text=TDNN + "output-node name=other input=o\n")
    lost = checked(opscope.convert("a.raw", "a.onnx"))
    assert "other outputs: other" in lost
    assert checked(opscope.convert("a.raw", "b.raw")) == ""


def test_a_vosk_folder_becomes_onnx():
    pytest.importorskip("onnxruntime")
    Path("vosk/am").mkdir(parents=True)
    Path("vosk/conf").mkdir()
    acoustic("vosk/am/final.mdl")
    Path("vosk/conf/model.conf").write_text("--frame-subsampling-factor=3\n")
    report = opscope.convert("vosk", "v.onnx")
    assert "one row of output for 3 frames of input" in str(report)
    checked(report)
    x = np.zeros((1, 10, 4), np.float32)
    assert opscope.from_onnx("v.onnx").run({"input": x})["output"].shape == (1, 4, 3)
    checked(opscope.convert("vosk", "w.onnx", frame_subsampling_factor=1))


def test_kaldi_to_pytorch_and_back():
    torch = pytest.importorskip("torch")
    acoustic()
    with opscope.confined("."):
        report = opscope.convert("a.mdl", "folder/")
    assert not [name for name in os.listdir() if name.startswith(".")]
    assert "by check.py in PyTorch" in str(report) and report.cases == 2
    checked(report)
    assert kind_of("folder") == "torch" and opscope.open("folder").kind == "torch"
    with pytest.raises(OpscopeError, match="--original wants the model file"):
        opscope.convert("folder", "b.mdl")
    back = opscope.convert("folder", "b.mdl", original="a.mdl")
    checked(back)
    assert Path("b.mdl").read_bytes() == Path("a.mdl").read_bytes()
    nnet3()
    opscope.convert("a.raw", "other", "torch")
    checked(opscope.convert("other", "c.raw", original="a.raw"))
    with pytest.raises(FormatError, match=r"a\.mdl is a Kaldi nnet3 acoustic model .*NAME\.mdl"):
        opscope.convert("folder", "c.raw", original="a.mdl", overwrite=True)
    assert not [name for name in os.listdir() if name.startswith(".")]
    assert torch is not None


def test_cntk_to_pytorch_and_back():
    pytest.importorskip("torch")
    cntk()
    report = opscope.convert("a.dnn", "folder/")
    checked(report)
    assert "by check.py in PyTorch" in str(report) and "--original a.dnn" in str(report)
    held = load_file("folder/model.safetensors")
    name = next(name for name, array in held.items() if array.dtype == np.float32)
    held[name] = held[name] + np.float32(0.5)
    save_file(held, "folder/model.safetensors")
    back = opscope.convert("folder", "b.dnn", original="a.dnn")
    checked(back)
    assert "1 parameters have other weights than a.dnn" in str(back)
    assert Path("b.dnn").read_bytes() != Path("a.dnn").read_bytes()
    nnet3()
    with pytest.raises(FormatError, match="model_type is 'cntk', but a.raw is a Kaldi nnet3"):
        opscope.convert("folder", "c.raw", original="a.raw")
    with pytest.raises(OpscopeError, match="no meaning for CNTK model -> PyTorch module"):
        opscope.convert("a.dnn", "other/", frame_subsampling_factor=3)


# -- CNTK


def test_cntk_to_its_own_forms():
    network = cntk()
    assert checked(opscope.convert("a.dnn", "b.cmf")) == ""
    assert Path("b.cmf").read_bytes() != b"" and len(read_model("b.cmf")) == len(network)
    with pytest.raises(FormatError, match="does not say what is wanted: --to net.*--to operators"):
        opscope.convert("a.dnn", "c.pb")
    assert checked(opscope.convert("a.dnn", "c.pb", "net")) == ""
    checked(opscope.convert("c.pb", "d.dnn"))
    for name, node in network.nodes.items():
        if node.value is not None:
            assert np.array_equal(read_model("d.dnn").find(name).value, node.value)


def test_cntk_to_operators_onnx_and_code():
    pytest.importorskip("onnxruntime")
    cntk()
    lost = checked(opscope.convert("a.dnn", "o.pb", "operators"))
    assert "criteria: ce" in lost and "labels: labels" in lost and "dropout" not in lost
    assert "dropout" in [op.type for op in opscope.load("o.pb").net.op_list.ops]
    assert "dropout of 1 node" in checked(opscope.convert("a.dnn", "o.onnx"))
    checked(opscope.convert("a.dnn", "o.py"))
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    wanted = opscope.load("o.pb").predict({"features": x})["z"]
    found = opscope.from_onnx("o.onnx").run({"features": x})["z"]
    assert np.abs(wanted - found).max() < 1e-6
    cntk("b.dnn", dropout=False)
    checked(opscope.convert("b.dnn", "o.py", overwrite=True))
    names: dict = {}
    exec(compile(Path("o.py").read_text(), "o.py", "exec"), names)
    b, scope = names["build"](), opscope.Scope()
    names["load"](scope)
    rows = b.run(
        scope, feed={"features": x, "labels": np.zeros((5, 3))}, fetch=["z"], need_backward=False
    )["z"]
    assert np.abs(rows.reshape(5, 3) - wanted.reshape(5, 3)).max() < 1e-6


def test_cntk_to_kaldi_and_back():
    cntk()
    report = opscope.convert("a.dnn", "k.raw", context={"": (1, 0)})
    assert report.cases == 2 and "criteria: ce" in checked(report)
    checked(opscope.convert("k.raw", "back.dnn"))
    assert read_model("back.dnn").parameter_count() == read_model("a.dnn").parameter_count()
    checked(opscope.convert("a.dnn", "n.raw", outputs=["act"]))
    assert Nnet.read("n.raw").output_dim("output") == 5


def test_descriptions_of_cntk_become_models():
    Path("net.ndl").write_text(
        "load=ndlMacros\nrun=ndl\nndlMacros=[\n]\nndl=[\nf=Input(3,tag=feature)\n"
        "W=Parameter(2,3)\nz=Times(W,f,tag=output)\n]\n"
    )
    report = opscope.convert("net.ndl", "net.dnn")
    assert "its parameters are drawn" in str(report)
    checked(report)


# -- nets and ONNX


def test_nets_of_operators():
    pytest.importorskip("onnxruntime")
    net(trained=True)
    lost = checked(opscope.convert("n.pb", "i.pb", "operators", outputs="y"))
    assert "update operators" in lost and "gradient operators" in lost
    checked(opscope.convert("i.pb", "i.onnx"))
    checked(opscope.convert("i.pb", "i.py"))
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    wanted = opscope.load("n.pb").predict({"x": x}, "y")["y"]
    assert np.array_equal(opscope.load("i.pb").predict({"x": x})["y"], wanted)
    names: dict = {}
    exec(compile(Path("i.py").read_text(), "i.py", "exec"), names)
    scope = opscope.Scope()
    names["load"](scope)
    rows = names["build"]().run(scope, feed={"x": x}, fetch=["y"], need_backward=False)["y"]
    assert np.abs(rows - wanted).max() < 1e-6


def test_onnx_models():
    onnx()
    checked(opscope.convert("g.onnx", "g.pb", shapes={"x": (-1, 2, 3)}))
    report = opscope.convert("g.onnx", "g.py", shapes={"x": (-1, 2, 3)})
    assert report.cases == 3
    checked(report)


# -- trained networks


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        (("trained", "tdnnf", "model.raw"), ("a.dnn", "a.config", "a.pb")),
        (("trained", "cnn", "model.raw"), ("a.dnn", "a.config")),
        (("trained", "lstmp", "model.raw"), ("a.config", "a.raw")),
        (("formats", "final.mdl"), ("a.cmf", "a.mdl")),
    ],
)
def test_trained_networks_of_kaldi(source, targets):
    path = need(*source)
    for target in targets:
        report = opscope.convert(path, target)
        assert target.endswith("config") or report.error <= 1e-5, str(report)


def test_a_trained_network_of_cntk():
    path = DATA / "cntk" / "slu.forward.cmf"
    if not path.exists():
        pytest.skip(f"no reference data: {path} is missing")
    for target, to in (("a.cmf", None), ("a.pb", "operators"), ("a.py", None)):
        assert opscope.convert(path, target, to).error <= 1e-5
    with pytest.raises(OpscopeError, match="PastValue operation: cannot become nnet3"):
        opscope.convert(path, "a.raw")


# -- refusals


def test_names_that_do_not_tell_are_refused_with_the_choices():
    nnet3()
    with pytest.raises(FormatError, match=r"must tell the form.*raw \(.raw\); mdl .*torch"):
        opscope.convert("a.raw", "out")
    with pytest.raises(FormatError, match=r"no form 'onx' .did you mean onnx"):
        opscope.convert("a.raw", "out", "onx")
    with pytest.raises(FormatError, match="does not become Kaldi archive"):
        opscope.convert("a.raw", "out.ark")
    with pytest.raises(FormatError, match="files of this kind are not converted"):
        Path("t.mel").write_text("m=LoadModel(a.dnn)\n")
        opscope.convert("t.mel", "out.raw")


def test_options_without_effect_are_refused():
    nnet3()
    for given, told in (
        ({"outputs": ["r"]}, "--output"),
        ({"context": {"": (1, 1)}}, "--context"),
        ({"states": "x"}, "--states|--state"),
        ({"shapes": {"x": (1,)}}, "--shape"),
    ):
        with pytest.raises(OpscopeError, match=f"({told}) has no meaning for"):
            opscope.convert("a.raw", "b.raw", **given)
    assert os.listdir() == ["a.raw"]


def test_what_is_there_is_not_overwritten_unasked():
    nnet3()
    Path("b.raw").write_text("older")
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    Path("n.safetensors").write_text("other numbers")
    for target in ("b.raw", "full/", "n.pb"):
        told = "n.safetensors" if target == "n.pb" else target
        with pytest.raises(SaveError, match=f"^{told} is there already: overwrite=True, or --over"):
            opscope.convert("a.raw", target, "net" if target == "n.pb" else None)
    assert Path("b.raw").read_text() == "older" and os.listdir("full") == ["notes.txt"]
    done = CliRunner().invoke(main, ["convert", "a.raw", "b.raw"])
    assert done.exit_code == 1 and "b.raw is there already" in done.stderr
    done = CliRunner().invoke(main, ["convert", "a.raw", "b.raw", "--overwrite"])
    assert done.exit_code == 0, done.stderr
    assert Path("b.raw").read_bytes() == Path("a.raw").read_bytes()


def test_the_source_is_never_overwritten():
    nnet3()
    before = Path("a.raw").read_bytes()
    os.symlink("a.raw", "link.raw")
    for target in ("a.raw", "link.raw", "./a.raw"):
        with pytest.raises(SaveError, match="it is read here; nothing is overwritten"):
            opscope.convert("a.raw", target, text=True)
    net()
    with pytest.raises(SaveError, match="n.safetensors: it is read here|n.pb"):
        opscope.convert("n.pb", "n.pb")
    acoustic()
    with pytest.raises(SaveError):
        opscope.convert("a.raw", "a.mdl", transition_model="a.mdl")
    assert Path("a.raw").read_bytes() == before


def test_a_result_that_computes_something_else_is_not_written(monkeypatch):
    nnet3()
    Path("old.dnn").write_text("old")
    real = of_nnet3.to_cntk

    def wrong(nnet, priors=None):
        network, context = real(nnet, priors)
        node = next(n for n in network.nodes.values() if n.value is not None)
        node.value = node.value + 0.01
        return network, context

    monkeypatch.setattr(of_nnet3, "to_cntk", wrong)
    with pytest.raises(RunError, match="old.dnn: not written: 's' would differ by"):
        opscope.convert("a.raw", "old.dnn", overwrite=True)
    assert Path("old.dnn").read_text() == "old"


def test_code_that_computes_something_else_is_not_written(monkeypatch):
    net()
    real = of_nets.saved_to_python

    def wrong(net, arrays, *others):
        return real(net, {name: array + 0.5 for name, array in arrays.items()}, *others)

    monkeypatch.setattr(of_nets, "saved_to_python", wrong)
    with pytest.raises(RunError, match="n.py: not written: 'y' would differ by"):
        opscope.convert("n.pb", "n.py")
    monkeypatch.setattr(of_nets, "saved_to_python", real)
    monkeypatch.setattr(of_nets, "built", lambda text, name: built(f"import os\n{text}", name))
    with pytest.raises(RunError, match="line 1 of the code would hold something else"):
        opscope.convert("n.pb", "n.py")
    assert not Path("n.py").exists() and not list(Path().glob("*.values.*"))


@pytest.mark.parametrize(
    "line",
    ["b.__class__", "np.load('x')", "__import__('os')", "open('x')", "[x for x in b]", "lambda: 0"],
)
def test_only_calls_that_build_are_run(line):
    text = f"def build():\n    b = NetBuilder('n')\n    {line}\n    return b\n"
    with pytest.raises(RunError, match="not written"):
        built(text, "n.py")


def test_loops_are_refused_by_name():
    text = TDNN.replace("input=a\n", "input=Sum(a, IfDefined(Offset(r, -1)))\n")
    nnet3(text=text)
    with pytest.raises(OpscopeError, match="component-node 'r'"):
        opscope.convert("a.raw", "b.dnn")
    assert not Path("b.dnn").exists()


# -- the command


def test_the_command():
    nnet3()
    write_htk("u.fea", np.ones((3, 2), np.float32))
    run = CliRunner().invoke
    done = run(main, ["convert", "a.raw", "b.dnn"])
    assert done.exit_code == 0 and "contextWindow = 1:2 of 4" in done.output
    assert "lost: learning rates of 2 components" in done.output
    assert "checked: maximum error" in done.output and "on 2 random inputs" in done.output
    done = run(main, ["convert", "b.dnn", "c.raw", "--context", "1:2", "--text"])
    assert done.exit_code == 0, done.output
    done = run(main, ["convert", "u.fea", "u.ark"])
    assert done.exit_code == 0 and "lost: kind USER and period of 10 ms" in done.output
    done = run(main, ["convert", "--list"])
    assert done.exit_code == 0 and done.output.splitlines() == table_lines()
    for words, told in (
        (["a.raw"], "SOURCE and TARGET"),
        (["none.raw", "b.raw"], "none.raw: No such file"),
        (["a.raw", "no/b.raw"], "there is no folder"),
        (["a.raw", "b.onnx", "--bound=0"], "0"),
        (["b.dnn", "d.raw", "--context", "2"], "odd number"),
        (["g.onnx", "d.pb", "--shape", "x=1.5"], "want sizes, and names of those"),
        (["--list", "a.raw"], "--list goes without files"),
    ):
        done = run(main, ["convert", *words])
        assert done.exit_code != 0 and told in done.output, done.output


def test_the_table_names_forms_and_kinds():
    text = "\n".join(table_lines())
    assert text.count("\n  ") == len(TABLE_OF)
    assert {source for source, _ in TABLE_OF} == set(KINDS_OF)


def test_every_entry_of_the_table_has_run(tmp_path, monkeypatch):
    """By the tests above, which run again here where another process has run them."""
    for module in ("onnxruntime", "torch"):
        pytest.importorskip(module)
    entries = {key for key in TABLE_OF if key[0] not in (TABLE, LABELS)}
    format_nets.use(entries, USED, globals(), tmp_path, monkeypatch)
    assert entries <= USED
