"""Whole nets as ONNX: recurrent ones, attention, convolutions; what falls away, what is refused."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.bridges.inference.form import ExportError
from opscope.bridges.onnx.files.reading import read_model
from opscope.framework.base.errors import FormatError, OpscopeError, VariableError
from opscope.framework.base.sequence import Sequences
from opscope.framework.passes.ranks.sync_batch_norm import SyncBatchNorm
from rnn_nets import simple

pytest.importorskip("onnxruntime")


def shaken(b: NetBuilder, seed: int = 0) -> Scope:
    """A scope whose parameters are all random, biases and norms too."""
    scope, rng = Scope(), np.random.default_rng(seed)
    b.initialize(scope)
    for var in b.op_list.vars:
        held = scope.find(var.name)
        if held is not None and held.array is not None and held.array.dtype.kind == "f":
            value = rng.normal(size=held.array.shape, scale=0.5)
            scope.var(var.name).set((abs(value) if "variance" in var.name else value).astype("f4"))
    return scope


def operators(path) -> list[str]:
    return [node.op_type for node in read_model(path).model.graph.node]


def names(path) -> tuple[list[str], list[str]]:
    graph = read_model(path).model.graph
    return [one.name for one in graph.input], [one.name for one in graph.output]


def export(b, tmp_path, *wanted, scope=None, **how):
    """Export all results of a net; the file's operators must be `wanted`, if it says any."""
    path = str(tmp_path / "m.onnx")
    check = opscope.to_onnx(b, path, scope or shaken(b), **how)
    assert check.error < 1e-4 and check.cases >= 2
    found = operators(path)
    for one in wanted:
        assert one in found, found
    return found, path


CELLS = [
    ("lstm", {}, "LSTM"),
    ("lstm", {"peepholes": True}, "LSTM"),
    ("lstm", {"projection": 3}, "Scan"),
    ("lstm", {"layers": 2, "bidirectional": True, "dropout": 0.3}, "LSTM"),
    ("gru", {}, "GRU"),
    ("gru", {"reset_after": False, "reverse": True}, "GRU"),
    ("gru", {"bidirectional": True}, "GRU"),
]


@pytest.mark.parametrize(("kind", "how", "wanted"), CELLS)
@pytest.mark.parametrize("boot", [False, True])
def test_recurrent_layers(tmp_path, kind, how, wanted, boot):
    b = NetBuilder("net")
    x = b.input("x", [-1, 5], levels=1)
    if boot:
        if how.get("layers") or how.get("bidirectional"):
            pytest.skip("one state is enough")
        h = b.input("h0", [-1, how.get("projection", 4)])
        how = how | {"initial": [(h, b.input("c0", [-1, 4]))] if kind == "lstm" else [h]}
    out, last = getattr(b, kind)(x, 4, name="layer", **how)
    states = [part for one in last for part in (one if isinstance(one, tuple) else (one,))]
    found, path = export(b, tmp_path, wanted, outputs=[str(one) for one in (out, *states)])
    assert {"LSTM", "GRU", "Scan"} & set(found) == {wanted}
    info = read_model(path).model.graph.input[0]
    assert [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim] == ["T", 5]
    assert len(found) < 24


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_simple_cells(tmp_path, activation):
    b = NetBuilder("net")
    x = b.input("x", [-1, 5], levels=1)
    with b.recurrent() as steps:
        row, h = steps.input(x), steps.memory(4)
        after = b.rnn_cell(row, h, activation=activation)
        steps.update(h, after)
        out = steps.output(after)
    found, _ = export(b, tmp_path, "RNN", outputs=[str(out)])
    assert "Scan" not in found


@pytest.mark.parametrize("delay", [1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_nets(tmp_path, delay, reverse):
    """A RecurrentNet by itself; one that looks three steps back is a Scan."""
    net = simple(memory={"delay": delay, "boot_value": 0.5}, reverse=reverse, dtype="float32")
    net.steps[0].net.vars.append(opscope.framework.ir.desc.make_var("x", [-1, 2], "float32"))
    scope, rng = Scope(), np.random.default_rng(0)
    scope.var("u").set(rng.normal(size=(2, 3)).astype("f4"))
    scope.var("w").set(rng.normal(size=(3, 3)).astype("f4"))
    path = str(tmp_path / "m.onnx")
    check = opscope.to_onnx(net, path, scope)
    assert check.error < 1e-5
    assert ("Scan" if delay > 1 else "RNN") in operators(path)
    assert names(path) == (["xs"], ["ys"])


def test_losses_labels_and_dropout_fall_away(tmp_path):
    b = NetBuilder("digits")
    x, label = b.input("image", [-1, 6]), b.input("label", [-1, 1], "int64")
    h = b.dropout(b.fc(x, size=8, activation="relu"), p=0.5)
    scores = b.fc(h, size=3, name="scores")
    b.mean(b.softmax_cross_entropy(scores, label))
    b.accuracy(b.softmax(scores), label)
    scope = shaken(b)
    found, path = export(b, tmp_path, scope=scope, outputs="scores")
    assert found == ["Gemm", "Relu", "Gemm"]
    assert names(path) == (["image"], ["scores"])
    arrays = {one.name for one in read_model(path).model.graph.initializer}
    assert {"scores.w", "scores.b"} <= arrays
    saved = str(tmp_path / "digits.pb")
    opscope.save(b, scope, saved)
    again = str(tmp_path / "again.onnx")
    opscope.to_onnx(saved, again)  # what the losses judge
    assert names(again)[1][0].startswith(("scores", "softmax"))
    opscope.to_onnx(opscope.load(saved), again, outputs=["scores"])
    assert operators(again) == found


def test_what_a_loss_judges_is_the_output(tmp_path):
    b = NetBuilder("net")
    x, label = b.input("x", [-1, 6]), b.input("label", [-1, 1], "int64")
    scores = b.fc(x, size=3, name="scores")
    b.mean(b.softmax_cross_entropy(scores, b.cast(label, dtype="int32")))
    _, path = export(b, tmp_path)
    assert names(path) == (["x"], ["scores"])


@pytest.mark.parametrize("opset", range(17, 23))
def test_images_in_every_opset(tmp_path, opset):
    b = NetBuilder("net")
    x = b.input("x", [-1, 2, 9, -1])
    h = b.conv2d(x, 4, 3, padding=1)
    h = b.relu(b.batch_norm(h))
    h = b.max_pool2d(h, kernel=2, stride=2, ceil_mode=True)
    h = b.group_norm(h, groups=2)
    h = b.adaptive_avg_pool2d(h, size=2)
    h = b.concat(
        [h, b.reduce_max(h, axes=[2, 3], keepdims=True) * b.fill_like(h, value=1.0)], axis=1
    )
    parts = b.split(b.reduce_sum(h, axes=[3]), axis=2, sections=[1, 1])
    h = b.reduce_mean(h, axes=[2]) + b.sum(parts)
    out = b.normalize(b.flatten(h), name="out")
    found, path = export(b, tmp_path, "BatchNormalization", outputs=[str(out)], opset=opset)
    assert read_model(path).opsets == {"": opset}


def test_transformers(tmp_path):
    b = NetBuilder("net")
    ids = b.input("ids", [-1, -1], "int64")
    x = b.embedding(ids, size=[11, 8])
    x = b.positional_encoding(x)
    out = b.transformer_encoder(x, layers=2, heads=2, feedforward=12, causal=True)
    _, path = export(b, tmp_path, "LayerNormalization", outputs=[str(out)])
    assert names(path)[0] == ["ids"]


def test_sequences_become_one(tmp_path):
    b = NetBuilder("net")
    x = b.input("x", [-1, 3], levels=1)
    near = b.sequence_conv(x, 4, left=2, right=1)
    pooled = b.sequence_pool(near, pool_type="max")
    out = b.concat([near, b.sequence_expand(pooled, near), b.sequence_shift(x, by=-2)], axis=1)
    real = {"x": np.random.default_rng(3).normal(size=(17, 3)).astype("f4")}
    export(b, tmp_path, outputs=[str(out), str(pooled)], inputs=real)


def test_sequences_of_different_lengths(tmp_path):
    b = NetBuilder("net")
    x, y = b.input("x", [-1, 3], levels=1), b.input("y", [-1, 3], levels=1)
    far = b.sequence_expand(b.sequence_pool(y), x)
    b.add(x, far, name="both")
    _, path = export(b, tmp_path, scope=Scope(), outputs=["both"])
    inputs = read_model(path).model.graph.input
    assert [one.type.tensor_type.shape.dim[0].dim_param for one in inputs] == ["T_x", "T_y"]
    real = {"x": np.ones((4, 3), "f4"), "y": np.ones((9, 3), "f4")}
    export(b, tmp_path, scope=Scope(), outputs=["both"], inputs=[real])


def test_synchronized_statistics_are_those_of_training(tmp_path):
    b = NetBuilder("net")
    b.batch_norm(b.input("x", [-1, 3]), name="norm")
    scope = shaken(b)
    net = SyncBatchNorm().apply(b.op_list)
    assert any(op.type == "batch_norm_apply" for op in net.ops)
    path = str(tmp_path / "m.onnx")
    opscope.to_onnx(net, path, scope)
    assert operators(path) == ["BatchNormalization"]


def test_refused_operators_are_all_told(tmp_path):
    b = NetBuilder("net")
    x = b.input("x", [-1, 3])
    one = x + b.uniform_random(shape=[1, 3])
    b.mul(one, b.gaussian_random(shape=[1, 3]), name="noisy")
    with pytest.raises(ExportError) as caught:
        opscope.to_onnx(b, tmp_path / "m.onnx", Scope(), outputs=["noisy"])
    text = str(caught.value)
    assert "2 operators cannot be exported" in text and "feed them as an input" in text
    assert "(uniform_random) at " in text and "(gaussian_random) at " in text
    assert "test_onnx_nets.py:" in text
    assert not list(tmp_path.iterdir())


def test_states_that_go_on_are_refused(tmp_path):
    b = NetBuilder("net")
    x = b.input("x", [-1, 5], levels=1)
    out, _ = b.lstm(x, 4, carry=2)
    with pytest.raises(ExportError, match="is kept from run to run"):
        opscope.to_onnx(b, tmp_path / "m.onnx", shaken(b), outputs=[str(out)])
    assert not list(tmp_path.iterdir())


def linear() -> NetBuilder:
    b = NetBuilder("net")
    b.fc(b.input("x", [-1, 3]), size=2, name="y")
    return b


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"outputs": ["z"]}, VariableError, "no variable 'z'"),
        ({"outputs": ["x"]}, VariableError, "no forward operator computes 'x'"),
        ({"opset": 16}, ExportError, "opset 16 cannot be written: 17 to 22"),
        ({"opset": 99}, ExportError, "opset 99"),
        ({"bound": 1e-12}, ExportError, r"at most 1e-12 is allowed"),
        ({"inputs": {"z": np.ones(3)}}, ExportError, "inputs to check with: 'z' is no input"),
        ({"inputs": [{}]}, ExportError, "inputs to check with: 'x' is missing"),
        ({"inputs": {"x": np.ones((2, 4))}}, ExportError, "inputs to check with"),
        ({"scope": Scope()}, VariableError, "has no value: give the scope"),
    ],
)
def test_errors_leave_no_file(tmp_path, how, error, message):
    b = linear()
    scope = how.pop("scope", None) or shaken(b)
    if "bound" in how:
        b.fc("y", size=400, name="z")
        b.fc("z", size=3, activation="tanh")
        scope = shaken(b)
    with pytest.raises(error, match=message):
        opscope.to_onnx(b, tmp_path / "m.onnx", scope, **how)
    assert not list(tmp_path.iterdir())


def test_files_that_are_none(tmp_path):
    (tmp_path / "a").write_text("hello")
    for name in ("a", "gone", "gone.pb"):
        with pytest.raises(FormatError, match=name):
            opscope.to_onnx(tmp_path / name, tmp_path / "m.onnx")


def test_external_arrays(tmp_path):
    b = NetBuilder("net")
    b.fc(b.input("x", [-1, 30]), size=40, name="y")
    opscope.to_onnx(b, tmp_path / "m.onnx", shaken(b), external=True)
    files = sorted(one.name for one in tmp_path.iterdir())
    assert files[1] == "m.onnx" and files[0].endswith(".data")


def test_int8(tmp_path):
    """Products become integer ones; what that costs is told, and is little."""
    b = NetBuilder("net")
    x = b.input("x", [-1, 1, 8, 8])
    h = b.relu(b.conv2d(x, 8, 3, padding=1))
    h = b.fc(b.flatten(h), size=64, activation="relu")
    h = b.fc(h, size=64, activation="tanh")
    b.fc(h, size=10, name="y")
    scope, rng = shaken(b), np.random.default_rng(0)
    real = [{"x": rng.normal(size=(50, 1, 8, 8)).astype("f4")} for _ in range(3)]
    how = {"outputs": ["y"], "inputs": real}
    plain = opscope.to_onnx(b, tmp_path / "plain.onnx", scope, **how)
    check = opscope.to_onnx(b, tmp_path / "m.onnx", scope, **how, int8=True)
    assert check.error == plain.error < 1e-4
    assert check.note.startswith("int8: 4 of 4 products, maximum error ")
    found = operators(tmp_path / "m.onnx")
    assert found.count("QuantizeLinear") == 4 and found.count("DequantizeLinear") == 12
    assert 2 * (tmp_path / "m.onnx").stat().st_size < (tmp_path / "plain.onnx").stat().st_size
    (ours,) = b.predict(real[0], ["y"], scope=scope).values()
    session = pytest.importorskip("onnxruntime").InferenceSession(str(tmp_path / "m.onnx"))
    (theirs,) = session.run(None, real[0])
    assert 1e-4 < np.linalg.norm(ours - theirs) / np.linalg.norm(ours) < 0.1
    assert "random inputs" in opscope.to_onnx(b, tmp_path / "r.onnx", scope, int8=True).note


def test_int8_wants_products(tmp_path):
    b = NetBuilder("net")
    b.relu(b.input("x", [-1, 3]), name="r")
    with pytest.raises(ExportError, match="no product with a constant matrix"):
        opscope.to_onnx(b, tmp_path / "m.onnx", Scope(), int8=True)
    assert not list(tmp_path.iterdir())


def test_names_are_kept_and_unique(tmp_path):
    """An output that is an input of another name, one that is a parameter's product, equal ones."""
    b = NetBuilder("net")
    x = b.input("x", [-1, 3])
    b.assign(x, name="same")
    b.assign(b.relu(x, name="r"), name="r2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, path = export(b, tmp_path, scope=Scope(), outputs=["same", "r", "r2"])
    assert names(path) == (["x"], ["same", "r", "r2"])
    graph = read_model(path).model.graph
    made = [name for node in graph.node for name in node.output]
    assert len(made) == len(set(made))


def test_command(tmp_path):
    from click.testing import CliRunner

    from opscope.python_api.cli.main import main

    b = linear()
    saved, path = str(tmp_path / "n.pb"), str(tmp_path / "m.onnx")
    opscope.save(b, shaken(b), saved)
    np.savez(tmp_path / "real.npz", x=np.ones((5, 3), np.float32))
    real = ["--inputs", str(tmp_path / "real.npz")]
    done = CliRunner().invoke(main, ["to-onnx", saved, path, "--output", "y", *real])
    assert done.exit_code == 0, done.output
    assert "m.onnx: 1 node, maximum error" in done.output and "on 4 inputs" in done.output
    done = CliRunner().invoke(main, ["to-onnx", saved, path, "--output", "nobody"])
    assert done.exit_code == 1 and "no variable 'nobody'" in done.output


def test_command_without_a_runtime(tmp_path, monkeypatch):
    """One line tells it, not a warning with a line of source as well."""
    from click.testing import CliRunner

    from opscope.python_api.cli.main import main

    b = linear()
    saved, path = str(tmp_path / "n.pb"), str(tmp_path / "m.onnx")
    opscope.save(b, shaken(b), saved)
    for name in ("onnxruntime", "onnx", "onnx.checker"):
        monkeypatch.setitem(sys.modules, name, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = CliRunner().invoke(main, ["to-onnx", saved, path, "--output", "y"])
    assert done.exit_code == 0 and "m.onnx: 1 node, not checked: neither" in done.output


def test_sequences_of_sequences_are_refused(tmp_path):
    b = NetBuilder("net")
    b.sequence_pool(b.input("x", [-1, 3], levels=2), name="p")
    with pytest.raises(OpscopeError, match="sequences of sequences"):
        opscope.to_onnx(b, tmp_path / "m.onnx", Scope(), outputs=["p"])
    assert Sequences.from_list([np.ones((1, 3))]).shape == (1, 3)


def test_a_net_with_its_loss_is_exported_by_what_the_loss_judges(tmp_path) -> None:
    b, scope = NetBuilder("n"), Scope()
    x, label = b.input("x", [-1, 4]), b.input("label", [-1], "int64")
    b.cross_entropy_loss(b.fc(x, size=3, name="scores"), label, weight=[1.0, 2.0, 1.0])
    b.initialize(scope)
    opscope.to_onnx(b, tmp_path / "net.onnx", scope)
    model = opscope.from_onnx(tmp_path / "net.onnx")
    assert [info.name for info in model.inputs] == ["x"]
    assert [info.name for info in model.outputs] == ["scores"]
