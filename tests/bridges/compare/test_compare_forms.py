"""Models of different forms and runtimes layer by layer: Kaldi, CNTK, ONNX, PyTorch."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from kaldi_data import need
from opscope import VariableError
from opscope.bridges.compare.arrays import apart, apart_in_layouts, equal_in_a_layout, scaled
from opscope.bridges.compare.layers import Layer
from opscope.bridges.compare.matching import made_up_for, match, scaled_of, type_of
from opscope.bridges.nnet3_cntk.from_nnet3 import to_cntk
from opscope.bridges.onnx.files.reading import read_model
from opscope.bridges.onnx.files.tensors import from_array, to_array
from opscope.cntk.models.v1 import write_model
from opscope.cntk.ndl.builder import build_ndl_file
from opscope.cntk.run.runtime import CntkNet
from opscope.nnet3 import Nnet
from opscope.nnet3.network.edits import apply_edits, parse_edits
from opscope.python_api.cli.main import main


def change(source: Path, target: Path, name: str) -> None:
    """Another weight in the second row of an array of an ONNX file."""
    model = read_model(source).model
    (tensor,) = [each for each in model.graph.initializer if each.name == name]
    array = to_array(tensor, ".", name)
    array[1] += 0.5
    tensor.CopyFrom(from_array(array, name))
    target.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("name", "layer"), [("tdnn", "tdnn3.affine"), ("tdnnf", "tdnnf3.affine"), ("cnn", "cnn2.conv")]
)
def test_kaldi_and_onnx(name, layer, tmp_path):
    """The export is the same, folded layers told; one changed weight is found behind them."""
    pytest.importorskip("onnxruntime")
    source, exported = need("trained", name, "model.raw"), tmp_path / "a.onnx"
    opscope.to_onnx(str(source), str(exported))
    found = opscope.compare(source, exported)
    states = {row.state for row in found.rows}
    assert found.same and found.largest < 2e-5 and states <= {"same", "scaled", "made up for"}
    assert sum(row.state == "same" for row in found.rows) >= 6
    assert found.rows[-1].name == found.rows[-1].other_name == "output"
    changed = tmp_path / "b.onnx"
    change(exported, changed, f"{layer}.weight")
    for pair in ((source, changed), (changed, source)):
        first = opscope.compare(*pair).first_divergence
        assert first is not None and first.name == first.other_name == layer
    found = opscope.compare(exported, changed)
    assert found.first_divergence is not None and found.first_divergence.name == layer


def test_types_in_the_words_of_all_forms():
    words = {"RectifiedLinearComponent": "relu", "Relu": "relu", "NaturalGradientAffine": "linear"}
    words |= {
        "LogSoftmaxComponent": "log_softmax",
        "Softmax": "softmax",
        "Max": "",
        "Gemm": "linear",
    }
    assert {word: type_of(word) for word in words} == words


def test_equal_values_beat_a_name_that_both_have():
    """`x` of one is `y` of the other, whose own `x` stands for something else."""
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 4, 3)).astype(np.float32)
    first = {"x": Layer("x", "A", two, ()), "y": Layer("y", "B", one, ("x",))}
    other = {"x": Layer("x", "A", one.T.copy(), ())}
    (pair,) = match(first, other, alike=False, tolerance=1e-4)
    assert (pair.first.name, pair.other.name, pair.how) == ("y", "x", "values")


def test_a_recurrent_network_and_onnx(tmp_path):
    pytest.importorskip("onnxruntime")
    source = need("trained", "lstmp", "model.raw")
    found = opscope.compare(source, runtimes=("opscope", "onnxruntime"))
    assert found.same and found.largest < 1e-5
    assert {"lstm1.rp", "lstm2.rp_t", "output"} <= {r.name for r in found.rows if r.state == "same"}
    with pytest.raises(VariableError, match="does not run in bfloat16"):
        opscope.compare(source, dtypes=("float32", "bfloat16"))


def test_runtimes_and_dtypes_of_onnx(tmp_path):
    pytest.importorskip("onnxruntime")
    source, exported = need("trained", "tdnn", "model.raw"), tmp_path / "a.onnx"
    opscope.to_onnx(str(source), str(exported))
    nodes = len(read_model(exported).model.graph.node)
    for other in ("onnxruntime", "onnx-reference", "plain"):
        found = opscope.compare(exported, runtimes=("opscope", other))
        assert found.same and len(found.rows) == nodes and found.largest < 2e-5, other
    single = opscope.compare(exported, dtypes=("float64", "float32")).largest
    assert 1e-8 < single < 2e-5
    half = opscope.compare(exported, dtypes=("float32", "float16"), runtimes=("onnxruntime",) * 2)
    assert 1e-4 < half.largest < 3e-2 and half.tolerance == 3e-2


def test_kaldi_and_cntk(tmp_path):
    """CNTK's network takes windows of the frames that Kaldi's takes one by one."""
    source, target = need("trained", "tdnn", "model.raw"), tmp_path / "a.dnn"
    network, context = to_cntk(Nnet.read(source))
    assert context == {"features": (6, 7)}
    write_model(network, target)
    found = opscope.compare(source, target)
    assert found.same and found.largest < 1e-5
    names = {row.name for row in found.rows}
    assert {"lda", "tdnn1.affine", "tdnn3.batchnorm", "output.log-softmax"} <= names
    network.nodes["output.affine.b"].value[0] += 0.25
    write_model(network, tmp_path / "b.dnn")
    found = opscope.compare(target, tmp_path / "b.dnn")
    assert found.first_divergence is not None
    assert found.first_divergence.name == "output.affine"
    assert found.first_divergence.error == pytest.approx(0.25, rel=0.5)
    first = opscope.compare(source, tmp_path / "b.dnn").first_divergence
    assert first is not None and first.name == "output.affine"


def test_cntk_and_onnx(tmp_path):
    pytest.importorskip("onnxruntime")
    source = Path(need("trained")).parents[1] / "cntk" / "slu.forward.cmf"
    if not source.exists():
        pytest.skip("shared/data/cntk is not there")
    for other in ("onnxruntime", "plain"):
        found = opscope.compare(source, runtimes=("opscope", other))
        assert found.same and found.rows[-1].name == "z"
        assert {"z.x.x.lstmState._.ht", "z.x"} <= {row.name for row in found.rows}
    found = opscope.compare(source, dtypes=("float32", "float64"))
    assert found.same and 1e-7 < found.largest < 1e-4
    with pytest.raises(VariableError, match="float32 or float64, not bfloat16"):
        opscope.compare(source, dtypes=("float32", "bfloat16"))


def test_pytorch(tmp_path):
    """A folder's source runs where that is allowed, and nowhere else."""
    source, folder = need("trained", "tdnn", "model.raw"), tmp_path / "module"
    opscope.to_torch(source, folder)
    mark = tmp_path / "was_run"
    text = (folder / "model.py").read_text()
    (folder / "model.py").write_text(f"{text}\nopen({str(mark)!r}, 'w').close()\n")
    with pytest.raises(VariableError, match="run only if you trust it and say so: --run-code"):
        opscope.compare(source, folder)
    result = CliRunner().invoke(main, ["compare", str(source), str(folder)])
    assert result.exit_code == 2 and "--run-code" in result.output and not mark.exists()
    pytest.importorskip("torch")
    found = opscope.compare(source, folder, run_code=True)
    assert mark.exists() and found.same and found.largest < 1e-5
    # What the module computes by functions, F.relu and the like, is no layer of it that has a name.
    assert [row.name for row in found.rows][:3] == ["lda", "tdnn1.affine", "tdnn2.affine"]
    functions = ["tdnn1.relu", "tdnn1.renorm", "tdnn2.relu", "tdnn3.relu", "output.log-softmax"]
    assert found.only == (functions, [])
    # In double precision the statistics remain that the module holds as scales in float32.
    told = {"run_code": True, "dtypes": ("float64", "float64")}
    double = opscope.compare(source, folder, tolerance=1e-9, **told).first_divergence
    assert double is not None and double.name == "tdnn2.batchnorm" and double.error < 1e-6
    assert opscope.compare(source, folder, **told).same
    import safetensors.numpy as st

    state = dict(st.load_file(folder / "model.safetensors"))
    name = next(name for name in state if name.startswith("tdnn3") and name.endswith("weight"))
    state[name][0] += 0.5
    st.save_file(state, folder / "model.safetensors", {"format": "pt"})
    first = opscope.compare(source, folder, run_code=True).first_divergence
    assert first is not None and first.name == "tdnn3.affine"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "feature_dim": "many"}))
    with pytest.raises(opscope.FormatError, match="not the config of a module"):
        opscope.compare(source, folder, run_code=True)
    shutil.rmtree(folder)


def test_a_renamed_network(tmp_path):
    """After an edit layers with other names are found, by values or, if they changed, by place."""
    source, target = need("trained", "tdnn", "model.raw"), tmp_path / "b.raw"
    nnet = Nnet.read(source)
    renames = ("tdnn2.relu", "second"), ("tdnn3.affine", "third")
    lines = [f"rename-node old-name={old} new-name={new}" for old, new in renames]
    apply_edits(nnet, parse_edits("\n".join(lines)))
    nnet.write(target)
    found = opscope.compare(source, target)
    pairs = {row.name: (row.other_name, row.matched) for row in found.rows}
    assert found.same and found.largest == 0 and found.only == ([], [])
    assert pairs["tdnn2.relu"] == ("second", "values")
    assert pairs["tdnn3.affine"] == ("third", "values")
    component = nnet.components["tdnn3.affine"]
    values = component.vectorize()
    values[5] += 1
    component.unvectorize(values)
    nnet.write(target)
    first = opscope.compare(source, target).first_divergence
    assert first is not None and first.matched == "place"
    assert first.title == "tdnn3.affine / third"


def save(path: Path, build: Callable[[opscope.NetBuilder], object], feed: dict) -> Path:
    b, scope = opscope.NetBuilder("net"), opscope.Scope()
    build(b)
    b.run(scope, feed=feed, need_backward=False, context=opscope.OpContext(seed=0))
    opscope.save(b, scope, path)
    return path


def recurrent(b: opscope.NetBuilder) -> None:
    h, *_ = b.lstm(b.input("x", [-1, 6], levels=1), size=5, name="h")
    b.fc(h, size=3, name="y")


def convolution(b: opscope.NetBuilder) -> None:
    h = b.conv2d(b.input("x", [-1, 3, 8, 8]), filters=4, kernel=3, activation="relu", name="c")
    b.fc(b.avg_pool2d(b.batch_norm(h, name="bn"), kernel=2, name="p"), size=3, name="y")


def words(b: opscope.NetBuilder) -> None:
    b.fc(b.embedding(b.input("x", [-1], dtype="int64"), size=[9, 4], name="e"), size=3, name="y")


@pytest.mark.parametrize(
    ("build", "feed", "layers"),
    [
        (recurrent, [np.ones((3, 6), "f")], ["h", "y"]),
        (convolution, np.ones((2, 3, 8, 8), "f"), ["c.linear", "c", "bn", "p", "y"]),
        (words, np.array([1, 8]), ["e", "y"]),
    ],
)
def test_saved_nets_in_other_runtimes(build, feed, layers, tmp_path):
    pytest.importorskip("onnxruntime")
    net = save(tmp_path / "a.pb", build, {"x": feed})
    for other in ("onnxruntime", "onnx-reference", "plain"):
        found = opscope.compare(net, runtimes=("opscope", other))
        assert found.same and [row.name for row in found.rows] == layers and found.largest < 1e-5


def test_labels_are_fed_where_they_are_taken(tmp_path):
    """The inference form has no labels; the net has, and both run."""
    pytest.importorskip("onnxruntime")

    def training(b: opscope.NetBuilder) -> None:
        y = b.softmax(b.fc(b.input("x", [-1, 4]), size=3, name="z"), name="y")
        b.cross_entropy(y, b.input("label", [-1], dtype="int64"), name="loss")

    feed = {"x": np.ones((2, 4), "f"), "label": np.array([0, 1])}
    net = save(tmp_path / "a.pb", training, feed)
    found = opscope.compare(net, runtimes=("opscope", "onnxruntime"))
    assert found.same and [row.name for row in found.rows] == ["z", "y"]
    assert found.only[0] == ["loss"]
    found = opscope.compare(net, runtimes=("onnxruntime", "plain"), inputs=feed)
    assert found.same and found.rows[0].shapes == ((2, 3), (2, 3))
    with pytest.raises(VariableError, match="no value of 'label' is given"):
        opscope.compare(net, runtimes=("opscope", "plain"), inputs={"x": feed["x"]})


def test_a_runtime_that_is_not_there(tmp_path, monkeypatch):
    net = save(tmp_path / "a.pb", words, {"x": np.array([1, 8])})
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(VariableError, match=r"ONNX Runtime is not installed .*opscope\[onnx\]"):
        opscope.compare(net, runtimes=("opscope", "onnxruntime"))


# -- layouts and pairs


def test_layouts():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(7, 12)).astype("f")
    turned = rows.T[None]  # [N, C, T]
    assert apart_in_layouts(rows, turned).largest == 0
    heights = rows.reshape(7, 3, 4).transpose(1, 2, 0)[None]  # [N, filters, heights, T]
    assert apart_in_layouts(rows, heights).largest == 0 and equal_in_a_layout(rows, heights, 0)
    more = rng.normal(size=(1, 12, 11)).astype("f")
    more[0, :, 2:9] = rows.T  # frames that the other one does not have
    assert apart_in_layouts(rows, more).largest == 0 and equal_in_a_layout(rows, more, 0)
    more[0, 3, 4] += 0.5
    found = apart_in_layouts(rows, more)
    assert found.largest == pytest.approx(0.5 / max(1, abs(rows[2, 3])), rel=1e-5)
    assert found.place == (2, 3) and not equal_in_a_layout(rows, more, 0.01)
    assert apart_in_layouts(rows, rng.normal(size=(5, 5))).largest == np.inf
    square = rng.normal(size=(4, 4))
    assert apart_in_layouts(square, square.T).largest == 0


def test_errors():
    a = np.array([[1.0, np.nan, np.inf, 200.0]])
    assert apart(a, a).largest == 0
    assert apart(a, np.array([[1.0, np.nan, np.inf, 210.0]])).largest == pytest.approx(0.05)
    assert apart(a, np.array([[1.0, 0.0, np.inf, 200.0]])).largest == np.inf
    assert apart(a, np.array([[1.0, np.nan, -np.inf, 200.0]])).largest == np.inf
    assert apart(a, a[:, :3]).largest == np.inf and apart(a[:0], a[:0]).largest == 0


def test_scaled_columns():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 5))
    factors = np.array([0.5, 2, 3, 1, 7])
    assert scaled(rows, (rows * factors).T[None], 1e-6)
    for wrong in (rows * -factors, rows + factors, rows * rng.normal(size=(9, 1))[:, [0] * 5] ** 2):
        wrong = np.array(wrong)
        wrong[0, 0] += 1e-3
        assert not scaled(rows, wrong, 1e-6)


def layers(*listed: tuple[str, str, np.ndarray, tuple[str, ...]]) -> dict[str, Layer]:
    last = listed[-1][0]
    return {name: Layer(name, kind, v, reads, name == last) for name, kind, v, reads in listed}


def test_pairs():
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.normal(size=(6, 5)) for _ in range(4))
    first = layers(
        ("in", "affine", a, ()), ("act", "relu", b, ("in",)), ("hid", "affine", c, ("act",)),
        ("out", "softmax", d, ("hid",)),
    )  # fmt: skip
    other = layers(
        ("in", "affine", a + 1, ()), ("renamed", "relu", b, ("in",)),
        ("h2", "affine", c + 1, ("renamed",)), ("y", "softmax", d, ("h2",)),
    )  # fmt: skip
    pairs = match(first, other, alike=True, tolerance=1e-9)
    found = {pair.first.name: (pair.other.name, pair.how) for pair in pairs}
    assert found == {
        "in": ("in", "name"),
        "act": ("renamed", "values"),
        "hid": ("h2", "place"),
        "out": ("y", "place"),
    }
    assert made_up_for(pairs, first, 1e-9) == {"in", "hid"}
    wrong = {**other, "y": Layer("y", "softmax", d + 1, ("h2",), True)}
    pairs = match(first, wrong, alike=True, tolerance=1e-9)
    assert made_up_for(pairs, first, 1e-9) == {"in"}


def test_a_normalization_behind_a_relu_put_before_it():
    """Its offsets may be anywhere but in the bias of the layer: that would cut elsewhere."""
    rng = np.random.default_rng(0)
    affine, factors, offsets = rng.normal(size=(9, 5)), np.arange(1.0, 6.0), rng.normal(size=5)
    relu = np.maximum(affine, 0)
    last = rng.normal(size=(9, 2))
    first = layers(
        ("a", "affine", affine, ()), ("r", "relu", relu, ("a",)), ("y", "softmax", last, ("r",)),
    )  # fmt: skip
    folded, moved = affine * factors + offsets, affine + offsets
    cases = ((np.maximum(folded, offsets), folded, True), (np.maximum(moved, 0), moved, False))
    for behind, before, expected in cases:
        other = layers(
            ("a", "Conv", before, ()), ("r", "Max", behind, ("a",)),
            ("y", "Softmax", last + 1, ("r",)),
        )  # fmt: skip
        for one, two in ((first, other), (other, first)):
            pairs = match(one, two, alike=False, tolerance=1e-9)
            assert (scaled_of(pairs, 1e-9) == {"a", "r"}) == expected


def test_a_network_of_cntk_and_its_module(tmp_path):
    pytest.importorskip("torch")
    text = """
    run = N
    N = [
        x = Input(6)
        y = Input(3)
        W = Parameter(4, 6)
        b = Parameter(4)
        R = Parameter(4, 4)
        before = PastValue(4, h, timeStep=1)
        up = Plus(Times(W, x), b)
        own = Times(R, before)
        sum = Plus(up, own)
        h = Tanh(sum)
        V = Parameter(3, 4)
        z = Times(V, h)
        ce = CrossEntropyWithSoftmax(y, z)
        FeatureNodes = (x)
        LabelNodes = (y)
        CriterionNodes = (ce)
        OutputNodes = (z)
    ]
    """
    (tmp_path / "n.ndl").write_text(text)
    network = build_ndl_file(str(tmp_path / "n.ndl")).network
    network.validate()
    CntkNet(network).save(str(tmp_path / "n.dnn"))
    folder = tmp_path / "module"
    opscope.to_torch(tmp_path / "n.dnn", folder)
    found = opscope.compare(tmp_path / "n.dnn", folder, run_code=True)
    assert found.same and found.rows[-1].name == "z" and found.rows[-1].error < 1e-6
    source = (folder / "model.py").read_text()
    (folder / "model.py").write_text(source.replace(".tanh()", ".sigmoid()"))
    found = opscope.compare(tmp_path / "n.dnn", folder, run_code=True)
    assert not found.same and found.first_divergence is not None
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"inputs": {"x": "6"}}))
    with pytest.raises(opscope.FormatError, match="'inputs' is no table of names and sizes"):
        opscope.compare(tmp_path / "n.dnn", folder, run_code=True)
