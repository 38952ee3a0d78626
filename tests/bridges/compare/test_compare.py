"""Two models layer by layer: equal ones, where others part ways, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from kaldi_data import need
from opscope import FormatError, ShapeError, VariableError
from opscope.bridges.compare.layers import Layer
from opscope.bridges.compare.matching import match, rounded_in
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.nnet3 import Nnet
from opscope.python_api.cli.main import main


def save_net(path: Path, activation: str = "relu", size: int = 4, changed: bool = False) -> Path:
    b = opscope.NetBuilder("small")
    h = b.fc(b.input("x", [-1, size]), size=5, activation="tanh", name="first")
    h = b.fc(h, size=5, activation=activation, name="second")
    b.softmax(b.fc(h, size=3, name="scores"), name="y")
    scope = opscope.Scope()
    feed = {"x": np.ones((2, size), "f")}
    b.run(scope, feed=feed, need_backward=False, context=opscope.OpContext(seed=0))
    if changed:
        w = scope.get("scores.w").array
        w[0, 1] += 0.5
    opscope.save(b, scope, path)
    return path


def invoke(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["compare", *map(str, words)])
    return result.exit_code, result.output


def test_saved_nets(tmp_path):
    one, same = save_net(tmp_path / "a.pb"), save_net(tmp_path / "b.pb")
    found = opscope.compare(one, same)
    assert found.same and found.first_divergence is None and "no layer differs" in str(found)
    assert {row.error for row in found.rows} == {0.0} and found.only == ([], [])
    other = save_net(tmp_path / "c.pb", "sigmoid")
    found = opscope.compare(one, other)
    assert found.first_divergence is not None and found.first_divergence.name == "second"
    errors = found.numbers()
    assert errors["first"] == 0 and errors["second"] > 0.1 and errors["y"] > 0
    assert "<- first divergence" in found.table() and "part ways at second" in str(found)
    code, output = invoke(one, other, "--page", tmp_path / "p")
    assert code == 1 and "they part ways at second" in output
    assert "error" in (tmp_path / "p").read_text()
    assert invoke(one, same)[0] == 0


def test_one_weight(tmp_path):
    """The layer of the weight is the first that differs, by just what the weight makes."""
    one, other = save_net(tmp_path / "a.pb"), save_net(tmp_path / "b.pb", changed=True)
    x = np.random.default_rng(3).normal(size=(6, 4)).astype("f")
    found = opscope.compare(one, other, inputs=x)
    first = found.first_divergence
    assert first is not None and first.name.startswith("scores")
    h = opscope.load(one).predict({"x": x}, fetch=["second"])["second"]
    apart = np.abs(h[:, 0]) * 0.5
    scores = opscope.load(one).predict({"x": x}, fetch=["scores"])["scores"][:, 1]
    row = next(row for row in found.rows if row.name == "scores")
    assert np.isclose(row.error, (apart / np.maximum(1, np.abs(scores))).max(), atol=1e-6)
    assert row.place[1] == 1 and abs(row.values[1] - row.values[0]) > 0
    before = found.rows[: found.rows.index(first)]
    assert before and all(row.error == 0 for row in before)


def test_dtypes_and_plain_kernels(tmp_path):
    """Errors are of the size of the dtype's digits, and not zero."""
    net = save_net(tmp_path / "a.pb")
    for dtype, digits in (("float64", 1e-6), ("float16", 5e-3), ("bfloat16", 5e-2)):
        found = opscope.compare(net, dtypes=("float32", dtype))
        assert found.same and 0 < found.largest < digits, (dtype, found.largest)
        if dtype != "float64":
            assert found.largest > digits / 100
    found = opscope.compare(net, runtimes=("opscope", "plain"))
    assert found.same and found.largest < 1e-6 and len(found.rows) >= 4
    assert f"{net} (plain)" in found.titles
    code, output = invoke(net, "--dtypes", "float32", "float16", "--tolerance", "1e-9")
    assert code == 1 and "part ways" in output


@pytest.mark.parametrize("name", ["tdnn", "tdnnf", "lstmp", "cnn"])
def test_networks_of_kaldi(name, tmp_path):
    path = need("trained", name, "model.raw")
    found = opscope.compare(path, need("trained", name, "model.txt"), tolerance=1e-3)
    assert found.same and len(found.rows) > 5 and found.rows[-1].name == "output"
    changed, where = change_last_affine(path, tmp_path / "changed.raw")
    found = opscope.compare(path, changed)
    assert found.first_divergence is not None and found.first_divergence.name == where
    if name == "tdnn":
        page = opscope.view(path, numbers=found.numbers(), numbers_are="error")
        assert where in page.html
    found = opscope.compare(path, runtimes=("opscope", "plain"))
    assert found.same and found.largest < 3e-5  # each is as far from float64
    found = opscope.compare(path, dtypes=("float64", "float32"))
    assert found.same and 0 < found.largest < 3e-5


def test_recorded_outputs_of_kaldi(tmp_path):
    """Layers are computed on the frames that Kaldi's program computes the output from."""
    from opscope.bridges.compare.inputs import read_numbers
    from opscope.bridges.compare.layers import Wanted
    from opscope.bridges.compare.opening import open_form

    form = open_form(need("trained", "tdnn", "model.raw"), Wanted())
    feats, key = need("trained", "feats.ark"), None
    from opscope.kaldi.tables.tables import read_table

    wanted = dict(read_table(f"ark:{need('trained', 'tdnn', 'output.ark')}", "matrix"))
    key = next(iter(wanted))
    found = form.compute({"input": read_numbers(f"{feats}:{key}")}).layers["output"].value
    assert found.shape == wanted[key].shape and np.abs(found - wanted[key]).max() < 1e-4


def test_files_of_kaldis_values(tmp_path):
    """A matrix alone in a file: binary, compressed, as text; nothing may stand behind it."""
    from opscope.bridges.compare.inputs import read_numbers
    from opscope.kaldi.files.compressed import CompressedMatrix
    from opscope.kaldi.files.kaldi_io import Writer
    from opscope.kaldi.tables.kinds import kind_of

    matrix, path = np.eye(9, 4, dtype=np.float32), tmp_path / "m.mat"
    for binary in (True, False):
        writer = Writer(binary)
        writer.write_matrix(matrix)
        path.write_bytes(writer.getvalue())
        np.testing.assert_array_equal(read_numbers(str(path)), matrix)
    writer = Writer(True)
    CompressedMatrix.compress(matrix).write(writer)
    path.write_bytes(writer.getvalue())
    np.testing.assert_allclose(read_numbers(str(path)), matrix, atol=1e-2)
    path.write_bytes(writer.getvalue() + b"more")
    with pytest.raises(opscope.FormatError, match="something stands after the value"):
        read_numbers(str(path))
    writer = Writer(True)
    kind_of("int_vector").write(writer, np.arange(3, dtype=np.int32))
    path.write_bytes(writer.getvalue())
    with pytest.raises(opscope.FormatError, match="int_vector, no matrix or vector"):
        read_numbers(str(path))


def change_last_affine(path: Path, target: Path) -> tuple[Path, str]:
    """A network with one other weight in its last affine layer, and that layer's node."""
    nnet = Nnet.read(path)
    affine = [
        node
        for node in nnet.nodes
        if node.kind == "component" and "Affine" in nnet.components[node.component].type
    ][-1]
    component = nnet.components[affine.component]
    values = component.vectorize()
    values[0] += 1.0
    component.unvectorize(values)
    nnet.write(target)
    return target, affine.name


def onnx_file(path: Path, factor: float) -> Path:
    g = Graph("g")
    w = g.constant(np.full((4, 3), factor), "w", np.float32)
    g.output(g.node("MatMul", [g.input("x", np.float32, ["N", 4]), w], f"y{factor:g}"), np.float32)
    path.write_bytes(model_bytes(g))
    return path


def test_onnx_files(tmp_path):
    net = save_net(tmp_path / "a.pb")
    opscope.to_onnx(str(net), str(tmp_path / "a.onnx"))
    found = opscope.compare(net, tmp_path / "a.onnx", tolerance=1e-6)
    assert found.same and {"first", "second", "y"} <= set(found.numbers())
    one, two = onnx_file(tmp_path / "1.onnx", 1), onnx_file(tmp_path / "2.onnx", 2)
    assert opscope.compare(one, one).same
    found = opscope.compare(one, two)
    assert found.first_divergence is not None and found.first_divergence.title == "y1 / y2"


def test_given_inputs(tmp_path):
    """Each kind of file gives the same numbers as the array itself."""
    net, other = save_net(tmp_path / "a.pb"), save_net(tmp_path / "b.pb", "sigmoid")
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("f").round(3)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    np.savetxt(tmp_path / "x.txt", x)
    rows = "\n".join(" ".join(map(str, row)) for row in x)
    (tmp_path / "x.ark").write_text(f"one [ 1 2 3 4 ]\nutt [\n{rows} ]\n")
    want = opscope.compare(net, other, inputs={"x": x}).numbers()
    assert want != opscope.compare(net, other, rows=3).numbers()
    for name in ("x.npy", "x.npz", "x.npz:x", "x.txt", "x.ark:utt", "x.scp"):
        if name == "x.scp":
            (tmp_path / name).write_text(f"utt {tmp_path / 'x.ark'}:19\n")
        given = f"{tmp_path / name}"
        found = opscope.compare(net, other, inputs=given)
        assert found.numbers() == pytest.approx(want, abs=1e-6), name
    assert invoke(net, other, "--input", f"x={tmp_path / 'x.npy'}")[0] == 1
    with pytest.raises(VariableError, match="no input 'z'; there are x"):
        opscope.compare(net, other, inputs={"z": x})
    with pytest.raises(ShapeError, match=r"'x' is \[-1, 4\]; given was \[3, 3\]"):
        opscope.compare(net, other, inputs={"x": x[:, :3]})
    with pytest.raises(FormatError, match="no entry 'nobody'"):
        opscope.compare(net, other, inputs=f"{tmp_path / 'x.ark'}:nobody")
    (tmp_path / "words.txt").write_text("no numbers here")
    with pytest.raises(FormatError, match="lines of numbers"):
        opscope.compare(net, other, inputs=tmp_path / "words.txt")


def test_plot(tmp_path):
    import xml.etree.ElementTree as ET

    net, other = save_net(tmp_path / "a.pb"), save_net(tmp_path / "b.pb", "sigmoid")
    found = opscope.compare(net, other)
    found.plot(tmp_path / "p.svg")
    root = ET.fromstring((tmp_path / "p.svg").read_text())
    bars = [each for each in root.iter() if each.tag.endswith("rect")]
    assert len(bars) == len(found.rows)
    states = [row.state for row in found.rows]
    assert [bar.get("class") for bar in bars] == states and states[0] == "same"
    assert "differs" in states
    widths = [float(bar.get("width")) for bar in bars]
    assert max(widths) == widths[int(np.argmax([row.error for row in found.rows]))]
    code, _ = invoke(net, other, "--plot", tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert code == 1 and "<svg" in page and "first divergence" in page and "http-equiv" in page
    assert "src=" not in page and "href=" not in page
    with pytest.raises(VariableError, match=r"\.svg or \.html"):
        found.plot(tmp_path / "p.png")


def test_what_is_not_comparable_is_refused(tmp_path):
    one, other = save_net(tmp_path / "a.pb"), save_net(tmp_path / "b.pb", size=6)
    with pytest.raises(VariableError, match=r"takes x float32\[-1, 4\], .*x float32\[-1, 6\]"):
        opscope.compare(one, other)
    with pytest.raises(VariableError, match="the same inputs are wanted"):
        opscope.compare(one, need("trained", "tdnn", "model.raw"))
    with pytest.raises(FormatError, match="missing"):
        opscope.compare(one, tmp_path / "missing.pb")
    with pytest.raises(VariableError, match="rows from 1"):
        opscope.compare(one, one, rows=0)
    with pytest.raises(VariableError, match="one model is given"):
        opscope.compare(one)
    with pytest.raises(VariableError, match="no runtime 'onnxrun' .did you mean onnxruntime"):
        opscope.compare(one, runtimes=("opscope", "onnxrun"))
    with pytest.raises(VariableError, match="two are wanted"):
        opscope.compare(one, dtypes=["float32"])
    with pytest.raises(VariableError, match="int32 is no dtype of floats"):
        opscope.compare(one, dtypes=["float32", "int32"])
    with pytest.raises(VariableError, match="only nnet3 networks have a form in PyTorch"):
        opscope.compare(one, runtimes=["opscope", "torch"])
    for words in ([one], [one, tmp_path / "missing.pb"], [one, "--dtypes", "float32"]):
        code, output = invoke(*words)
        assert code == 2 and "rror" in output, words


def test_rounding_that_cancellation_shows_parts_no_models() -> None:
    """Errors that a later layer hides count where a layer adds them, not where it shows them."""
    tiny = np.full((1, 2), 0.3, np.float32)
    large = np.full((1, 2), 1e6, np.float32)

    def layers(**values: np.ndarray) -> dict[str, Layer]:
        reads = {"difference": ("large",), "y": ("difference",)}
        return {n: Layer(n, "add", v, reads.get(n, ()), n == "y") for n, v in values.items()}

    def rounded(mine: dict[str, Layer], theirs: dict[str, Layer]) -> set[str]:
        return rounded_in(match(mine, theirs, alike=True, tolerance=1e-4), mine, 1e-4)

    mine = layers(large=large, difference=tiny, y=tiny)
    cancelled = layers(large=large + np.float32(0.0625), difference=tiny + 0.0625, y=tiny)
    assert rounded(mine, cancelled) == {"difference"}
    changed = layers(large=large, difference=tiny + 5000, y=tiny)
    assert rounded(mine, changed) == set()
    assert rounded(mine, layers(large=large, difference=tiny + 1, y=tiny + 1)) == set()
