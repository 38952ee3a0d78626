"""`opscope convert`: every entry of the table on small nets, what is lost, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from opscope import FormatError, OpscopeError, RunError, SaveError
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.recognise.recognising import kind_of
from opscope.cntk.models.v1 import read_model, write_model
from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.htk_files import HtkFile, write_htk
from opscope.cntk.readers.htk.mlf import read_mlf
from opscope.nnet3.files.kaldi_io import Reader, Writer
from opscope.nnet3.files.transition_model import HmmState, TransitionModel
from opscope.nnet3.inference.saved import load_nnet
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.tables.tables import TableWriter, read_table
from opscope.python_api.cli.main import main
from opscope.python_api.formats import converting
from opscope.python_api.formats.sources import KINDS_OF
from opscope.python_api.formats.table import TABLE_OF, table_lines

TDNN = """
input-node name=input dim=4
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=6 max-change=0.5
component name=r type=RectifiedLinearComponent dim=6
component name=d type=DropoutComponent dim=6 dropout-proportion=0.2
component name=o type=NaturalGradientAffineComponent input-dim=6 output-dim=3
component name=s type=LogSoftmaxComponent dim=3
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 2))
component-node name=r component=r input=a
component-node name=d component=d input=r
component-node name=o component=o input=d
component-node name=s component=s input=o
output-node name=output input=s
"""
USED: set[tuple[str, str]] = set()


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _note_entries(monkeypatch):
    """Which entries of the table have run; see the last test."""
    for key, entry in TABLE_OF.items():

        def function(job, key=key, own=entry.function):
            own(job)
            USED.add(key)

        noted = type(entry)(entry.source, entry.to, function, entry.lost, entry.options)
        monkeypatch.setitem(TABLE_OF, key, noted)


def nnet3(path="a.raw", text=TDNN) -> Nnet:
    nnet = Nnet.from_config_text(text, 0)
    nnet.write(path)
    return nnet


def transitions(pdfs=3) -> TransitionModel:
    states = [HmmState(n, n, [(n, 0.5), (n + 1, 0.5)]) for n in range(pdfs)]
    tuples = np.array([(1, n, n) for n in range(pdfs)], np.int32)
    probs = np.full(1 + 2 * pdfs, np.log(0.5), np.float32)
    return TransitionModel([1], [-1, 0], [[*states, HmmState()]], "<Triples>", tuples, probs)


def acoustic(path="a.mdl") -> AmNnetSimple:
    writer = Writer(True, header=False)
    transitions().write_to(writer)
    model = AmNnetSimple(Nnet.from_config_text(TDNN, 0), writer.getvalue(), True)
    model.set_context()
    model.set_priors(np.array([0.5, 0.25, 0.25], np.float32))
    model.write(path)
    return model


def cntk(path="a.dnn") -> Network:
    rng, network = np.random.default_rng(0), Network("small")
    x = network.add("InputValue", "features", shape=4, tags=["feature"])
    labels = network.add("InputValue", "labels", shape=3, tags=["label"])

    def parameter(name, *shape):
        node = network.add("LearnableParameter", name, shape=shape)
        node.value = np.asfortranarray(rng.normal(size=shape), np.float32)
        return node

    hidden = network.add(
        "Plus", "h", [network.add("Times", "t", [parameter("w", 5, 4), x]), parameter("b", 5, 1)]
    )
    hidden = network.add("Dropout", "drop", [network.add("Sigmoid", "act", [hidden])])
    z = network.add(
        "Plus",
        "z",
        [network.add("Times", "u", [parameter("v", 3, 5), hidden]), parameter("c", 3, 1)],
    )
    network.add_to_group("output", z)
    ce = network.add("CrossEntropyWithSoftmax", "ce", [labels, z])
    network.add_to_group("criterion", ce)
    network.validate()
    write_model(network, path)
    return network


def net(path="n.pb", trained=False):
    b = opscope.NetBuilder("small")
    hidden = b.fc(b.input("x", [-1, 4]), size=5, activation="relu")
    y = b.softmax(b.fc(hidden, size=3), name="y")
    scope = opscope.Scope()
    if trained:
        loss = b.mean(b.square(y), name="loss")
        b.backward_from(loss)
        b.add_optimization(0.1, "sgd")
        b.run(scope, feed={"x": np.ones((2, 4))})
    else:
        b.run(scope, feed={"x": np.ones((2, 4))}, fetch=["y"], need_backward=False)
    opscope.save(b, scope, path)


def onnx(path="g.onnx"):
    g, rng = Graph("g"), np.random.default_rng(1)
    w = g.constant(rng.normal(size=(3, 4)), "w", np.float32)
    y = g.node("MatMul", [g.input("x", np.float32, ["N", "T", 3]), w], "m")
    g.output(g.node("Tanh", [y], "y"), np.float32, ["N", "T", 4])
    Path(path).write_bytes(model_bytes(g))


def checked(report):
    """A report of a conversion that was compared, and what it lost."""
    assert report.error is not None and report.error <= 1e-5, str(report)
    assert Path(report.target).exists()
    return "; ".join(report.lost)


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


def test_kaldi_to_cntk_and_back():
    acoustic()
    lost = checked(opscope.convert("a.mdl", "b.dnn"))
    assert "the transition model" in lost and "dropout and random masks of 1 component" in lost
    assert "settings of natural gradient of 2 components" in lost and "priors" not in lost
    report = opscope.convert("b.dnn", "c.mdl", context={"": (1, 2)}, transition_model="a.mdl")
    assert report.cases == 3 and "other outputs" in checked(report)
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
    with pytest.raises(OpscopeError, match="give the shape"):
        opscope.convert("q.onnx", "r.pb")
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
    report = opscope.convert("a.mdl", "folder/")
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
    assert torch is not None


# -- CNTK


def test_cntk_to_its_own_forms():
    network = cntk()
    assert checked(opscope.convert("a.dnn", "b.cmf")) == ""
    assert Path("b.cmf").read_bytes() != b"" and len(read_model("b.cmf")) == len(network)
    with pytest.raises(FormatError, match="does not tell what is wanted: --to net.*--to operators"):
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
    assert "criteria: ce" in lost and "labels: labels" in lost and "dropout of 1 node" in lost
    checked(opscope.convert("a.dnn", "o.onnx"))
    checked(opscope.convert("a.dnn", "o.py"))
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    wanted = opscope.load("o.pb").predict({"features": x})["z"]
    found = opscope.from_onnx("o.onnx").run({"features": x})["z"]
    assert np.abs(wanted - found).max() < 1e-6
    names: dict = {}
    exec(compile(Path("o.py").read_text(), "o.py", "exec"), names)
    b, scope = names["build"](), opscope.Scope()
    names["load"](scope)
    rows = b.run(
        scope, feed={"features": x, "labels": np.zeros((5, 3))}, fetch=["z"], need_backward=False
    )["z"]
    assert np.abs(rows - wanted).max() < 1e-6


def test_cntk_to_kaldi_and_back():
    cntk()
    report = opscope.convert("a.dnn", "k.raw", context={"": (1, 0)})
    assert report.cases == 3 and "criteria: ce" in checked(report)
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


# -- data


def features(count=3, rank=2):
    rng = np.random.default_rng(0)
    shapes = [(5 + n, 4)[:rank] for n in range(count)]
    return {f"utt-{n}": rng.normal(size=shape).astype(np.float32) for n, shape in enumerate(shapes)}


def archive(path, arrays, kind="matrix"):
    with TableWriter(f"ark:{path}", kind) as writer:
        for key, array in arrays.items():
            writer.write(key, array)


def test_tables_of_matrices_go_around():
    wanted = features()
    archive("f.ark", wanted)
    path = "f.ark"
    for target in ("f.npz", "g.ark", "f.safetensors", "h.ark", "htk/"):
        assert checked(opscope.convert(path, target)) == ""
        path = target
    assert HtkFile.open("htk/utt-1.fea").read().shape == (6, 4)
    lost = checked(opscope.convert("htk/list.scp", "last.ark", text=True))
    assert "period of 10 ms" in lost
    found = dict(read_table("ark:last.ark", "matrix"))
    assert list(found) == list(wanted)
    for key, array in wanted.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-6)


def test_single_values():
    wanted = features(1)
    archive("one.ark", wanted)
    assert checked(opscope.convert("one.ark", "x.npy")) == "the key utt-0"
    checked(opscope.convert("x.npy", "x.fea"))
    assert "kind USER" in checked(opscope.convert("x.fea", "y.npz"))
    assert np.array_equal(np.load("y.npz")["x"], wanted["utt-0"])
    archive("two.ark", features(2))
    with pytest.raises(FormatError, match="holds 2 arrays, .npy one"):
        opscope.convert("two.ark", "z.npy")
    with pytest.raises(FormatError, match="holds 2 utterances"):
        opscope.convert("two.ark", "z.fea")
    archive("compressed.ark", features(1), "compressed_matrix")
    assert "compression" in checked(opscope.convert("compressed.ark", "c.npz"))


def test_numbers_that_do_not_fit_are_refused():
    np.savez("wide.npz", a=np.array([[1e300, 1.0]]), b=np.zeros((2, 2), np.float32))
    with pytest.raises(RunError, match="not written: 'a' would differ by inf"):
        opscope.convert("wide.npz", "wide.ark")
    np.savez("ints.npz", a=np.array([1 << 40]))
    with pytest.raises(FormatError, match="integers beyond 32 bits"):
        opscope.convert("ints.npz", "ints.ark")
    np.savez("cube.npz", a=np.zeros((2, 2, 2)))
    with pytest.raises(FormatError, match=r"an archive holds matrices or vectors.*a \[2, 2, 2\]"):
        opscope.convert("cube.npz", "cube.ark")
    assert not list(Path().glob("*.ark"))


def test_labels_and_alignments():
    Path("states").write_text("sil\nah\noh\n")
    wanted = {"a": np.array([0, 0, 1, 2, 2], np.int32), "b": np.array([2], np.int32)}
    archive("ali.ark", wanted, "int_vector")
    assert checked(opscope.convert("ali.ark", "ali.mlf", states="states")) == ""
    assert Path("ali.mlf").read_text().splitlines()[1:3] == ['"a.lab"', "0 200000 sil"]
    assert "names of states" in checked(opscope.convert("ali.mlf", "b.ark", states="states"))
    found = dict(read_table("ark:b.ark", "int_vector"))
    assert all(np.array_equal(found[key], states) for key, states in wanted.items())
    assert read_mlf("ali.mlf", {"sil": 0, "ah": 1, "oh": 2}).keys() == wanted.keys()
    with pytest.raises(OpscopeError, match="--states wants a file"):
        opscope.convert("ali.ark", "x.mlf")
    Path("states").write_text("sil\n")
    with pytest.raises(FormatError, match="a: states 0 to 2; states names 1"):
        opscope.convert("ali.ark", "x.mlf", states="states")


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
    real = converting.TABLE_OF["nnet3", "cntk"].function.__globals__
    assert real is not None
    from opscope.python_api.formats import of_nnet3

    def wrong(nnet, priors=None):
        network, context = TO_CNTK(nnet, priors)
        node = next(n for n in network.nodes.values() if n.value is not None)
        node.value = node.value + 0.01
        return network, context

    TO_CNTK = of_nnet3.to_cntk
    monkeypatch.setattr(of_nnet3, "to_cntk", wrong)
    with pytest.raises(RunError, match="old.dnn: not written: 's' would differ by"):
        opscope.convert("a.raw", "old.dnn")
    assert Path("old.dnn").read_text() == "old"


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
    assert "checked: maximum error" in done.output and "on 3 random inputs" in done.output
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
        (["g.onnx", "d.pb", "--shape", "x=a"], "want integers"),
        (["--list", "a.raw"], "--list goes without files"),
    ):
        done = run(main, ["convert", *words])
        assert done.exit_code != 0 and told in done.output, done.output


def test_the_table_names_forms_and_kinds():
    text = "\n".join(table_lines())
    assert text.count("\n  ") == len(TABLE_OF)
    assert {source for source, _ in TABLE_OF} == set(KINDS_OF)


def test_every_entry_of_the_table_has_run():
    """Stands last: the tests above have run all entries (alone it says nothing)."""
    if len(USED) < 5:
        pytest.skip("the tests of the entries did not run")
    for module in ("onnxruntime", "torch"):
        pytest.importorskip(module)
    assert not set(TABLE_OF) - USED
