"""Nets of operators as PyTorch modules: random and golden ones, loops, sequences, refusals."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner

import golden_nets
import opscope
from opscope import NetBuilder, Scope
from opscope.bridges.inference.cases import OwnRun
from opscope.bridges.inference.form import inference_form
from opscope.bridges.torch.folder import NotInTorchError
from opscope.bridges.torch.op_list.to_torch import NetWriter
from opscope.framework.base.errors import FormatError, OpscopeError, VariableError
from opscope.framework.ir.desc import make_op
from opscope.framework.passes.ranks.sync_batch_norm import SyncBatchNorm
from opscope.python_api.cli.main import main
from random_nets import random_net
from torch_texts import error_of, run_module

torch = pytest.importorskip("torch", reason="torch is not installed")
load_file = pytest.importorskip("safetensors.torch").load_file

BOUND = 1e-6
"""Of values above 1 relative to them."""


def module_of(made):
    """The module `model` of what was written."""
    module = ModuleType("written_net")
    sys.modules[module.__name__] = module
    exec(compile(made.source, "written_net", "exec"), module.__dict__)
    return module


def shaken(b: NetBuilder, seed: int = 0) -> Scope:
    """A scope whose parameters are all random, biases and norms too."""
    scope, rng = Scope(), np.random.default_rng(seed)
    b.initialize(scope)
    for var in b.op_list.vars:
        held = scope.find(var.name)
        if held is not None and held.array is not None and held.array.dtype.kind == "f":
            value = rng.normal(size=held.array.shape, scale=0.5)
            value = abs(value) if "variance" in var.name else value
            scope.var(var.name).set(value.astype(held.array.dtype))
    return scope


def check(b, tmp_path, *wanted, scope=None, **how):
    """Write a net, compare with what is recorded; its source holds what is `wanted`."""
    made = opscope.to_torch(b, tmp_path / "m", scope or shaken(b), **how)
    recorded = load_file(tmp_path / "m" / "check.safetensors")
    model = module_of(made).load(tmp_path / "m")
    for case in "01":
        with torch.no_grad():
            found = model(*(recorded[f"{case}.{name}"] for name in made.config["inputs"]))
        names = list(made.config["outputs"])
        found = found if isinstance(found, dict) else {names[0]: found}
        for name in names:
            output = recorded[f"{case}.output.{name}"]
            assert error_of(found[name].numpy(), output.numpy()) < BOUND
    for one in wanted:
        assert one in made.source, made.source
    return made


@pytest.mark.parametrize("seed", range(20))
def test_random_nets(seed):
    net = random_net(seed, dtype="float32")
    outputs = [name for name in net.results if name not in net.values]
    form = inference_form(net.desc, outputs)
    inputs = {var.name: net.values[var.name] for var in form.inputs}
    wanted = OwnRun(form, net.values)(inputs)
    found = run_module(NetWriter(form, net.values), inputs)
    for name, value in wanted.items():
        assert error_of(found[name], value) < BOUND


@pytest.mark.parametrize("make", [golden_nets.mlp, golden_nets.images, golden_nets.block])
def test_golden_nets(make, tmp_path):
    b = make()
    scope = shaken(b)
    check(b, tmp_path, scope=scope)


def layer(kind, how, boot=False):
    b = NetBuilder("net")
    x = b.input("x", [-1, 5], levels=1)
    if boot:
        h = b.input("h0", [-1, how.get("projection", 4)])
        how = how | {"initial": [(h, b.input("c0", [-1, 4]))] if kind == "lstm" else [h]}
    out, last = getattr(b, kind)(x, 4, name="layer", **how)
    states = [part for one in last for part in (one if isinstance(one, tuple) else (one,))]
    return b, [str(one) for one in (out, *states)]


@pytest.mark.parametrize("boot", [False, True])
@pytest.mark.parametrize(
    ("kind", "how", "wanted"),
    [
        ("lstm", {}, "self.layer = nn.LSTM(5, 4, batch_first=True)"),
        ("lstm", {"peepholes": True}, "def step(states, rows):"),
        ("lstm", {"projection": 3}, "def step(states, rows):"),
        ("gru", {}, "self.layer = nn.GRU(5, 4, batch_first=True)"),
        ("gru", {"reset_after": False, "reverse": True}, "backward=True"),
        ("gru", {"reverse": True}, ".flip(1)"),
        ("simple_rnn", {}, "self.layer = nn.RNN(5, 4, batch_first=True)"),
        ("simple_rnn", {"activation": "relu"}, 'nn.RNN(5, 4, nonlinearity="relu", '),
        ("simple_rnn", {"activation": "sigmoid"}, "def step(states, rows):"),
    ],
)
def test_recurrent_layers(tmp_path, kind, how, wanted, boot):
    b, outputs = layer(kind, how, boot)
    check(b, tmp_path, wanted, outputs=outputs)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_layers_in_both_directions(tmp_path, kind):
    b, outputs = layer(kind, {"layers": 2, "bidirectional": True, "dropout": 0.3})
    made = check(b, tmp_path, outputs=outputs)
    assert made.source.count(f"nn.{kind.upper()}(") == 4


def test_weights_that_two_layers_share_stay_one_parameter(tmp_path):
    b = NetBuilder("net")
    x = b.input("x", [-1, 5], levels=1)
    forward, _ = b.gru(x, 4, name="layer")
    op = b.op_list.ops[-1]
    slots = {slot: list(names) for slot, names in op.inputs.items() if names}
    b.append_desc(make_op("gru", slots, {"out": "backward"}, {**op.attrs, "reverse": True}))
    made = check(b, tmp_path, "def step(states, rows):", outputs=[str(forward), "backward"])
    assert sorted(made.config["parameters"].values()) == sorted(
        names[0] for slot, names in slots.items() if slot != "x"
    )


def test_loops_over_cells(tmp_path):
    b = NetBuilder("net")
    x = b.input("x", [-1, 5], levels=1)
    with b.recurrent() as steps:
        row, h = steps.input(x), steps.memory(4)
        after = b.rnn_cell(row, h, activation="relu", name="cell")
        steps.update(h, after)
        out = steps.output(after)
    made = check(b, tmp_path, "self.cell = nn.Linear(5, 4)", outputs=[str(out)])
    assert sorted(made.config["parameters"].values()) == ["cell.b", "cell.w_h", "cell.w_x"]


def test_batches_of_sequences_and_exporting(tmp_path):
    """N and T are free: sequences side by side are each what they are alone."""
    b, outputs = layer("lstm", {"peepholes": True})
    made = check(b, tmp_path, outputs=outputs[:1])
    model = module_of(made).load(tmp_path / "m")
    x = torch.randn(3, 7, 5)
    with torch.no_grad():
        both, alone = model(x), torch.cat([model(row[None]) for row in x])
    torch.testing.assert_close(both, alone)
    assert made.config["sequences"] == ["x", outputs[0]]


def test_losses_and_labels_fall_away_and_dropout_stays(tmp_path):
    b = NetBuilder("digits")
    x, label = b.input("image", [-1, 6]), b.input("label", [-1, 1], "int64")
    h = b.dropout(b.fc(x, size=8, activation="relu"), p=0.5)
    scores = b.fc(h, size=3, name="scores")
    b.mean(b.softmax_cross_entropy(scores, label))
    scope = shaken(b)
    made = check(b, tmp_path, "nn.Dropout(0.5)", "self.scores = nn.Linear(8, 3)", scope=scope)
    assert made.config["inputs"] == {"image": [-1, 6]}
    assert made.config["parameters"]["scores.weight"] == "scores.w"
    saved = str(tmp_path / "digits.pb")
    opscope.save(b, scope, saved)
    again = opscope.to_torch(saved, tmp_path / "again")
    assert again.config["outputs"] == made.config["outputs"]
    assert opscope.to_torch(opscope.load(saved), tmp_path / "third").source == made.source


def test_images(tmp_path):
    b = NetBuilder("net")
    x = b.input("x", [-1, 2, 9, -1])
    h = b.relu(b.batch_norm(b.conv2d(x, 4, 3, padding=1)))
    h = b.max_pool2d(h, kernel=2, stride=2, ceil_mode=True)
    h = b.adaptive_avg_pool2d(b.group_norm(h, groups=2), size=2)
    out = b.normalize(b.flatten(h), name="out")
    check(b, tmp_path, "nn.Conv2d(2, 4, 3, padding=1)", "nn.BatchNorm2d(4", outputs=[str(out)])


def test_transformers(tmp_path):
    b = NetBuilder("net")
    ids = b.input("ids", [-1, -1], "int64")
    x = b.positional_encoding(b.embedding(ids, size=[11, 8]))
    out = b.transformer_encoder(x, layers=2, heads=2, feedforward=12, causal=True)
    check(b, tmp_path, "nn.LayerNorm([8]", "nn.Embedding(11, 8)", outputs=[str(out)])


def test_sequences(tmp_path):
    b = NetBuilder("net")
    x = b.input("x", [-1, 3], levels=1)
    near = b.sequence_conv(x, 4, left=2, right=1)
    pooled = b.sequence_pool(near, pool_type="max")
    out = b.concat([near, b.sequence_expand(pooled, near), b.sequence_shift(x, by=-2)], axis=1)
    check(b, tmp_path, outputs=[str(out), str(pooled)])


def test_sequences_of_different_lengths(tmp_path):
    b = NetBuilder("net")
    x, y = b.input("x", [-1, 3], levels=1), b.input("y", [-1, 3], levels=1)
    b.add(x, b.sequence_expand(b.sequence_pool(y), x), name="both")
    check(b, tmp_path, "t_x = x.shape[1]", "t_y = y.shape[1]", scope=Scope(), outputs=["both"])


def test_synchronized_statistics_are_those_of_training(tmp_path):
    b = NetBuilder("net")
    b.batch_norm(b.input("x", [-1, 3]), name="norm")
    made = opscope.to_torch(SyncBatchNorm().apply(b.op_list), tmp_path / "m", shaken(b))
    assert "nn.BatchNorm1d(3, " in made.source


def test_refused_operators_are_all_named(tmp_path):
    b = NetBuilder("net")
    x = b.input("x", [-1, 3])
    one = x + b.uniform_random(shape=[1, 3])
    b.mul(one, b.gaussian_random(shape=[1, 3]), name="noisy")
    with pytest.raises(NotInTorchError) as caught:
        opscope.to_torch(b, tmp_path / "m", Scope(), outputs=["noisy"])
    text = str(caught.value)
    assert "2 operators cannot be written" in text and "feed them as an input" in text
    assert "(uniform_random) at " in text and "(gaussian_random) at " in text
    assert "which makes 'uniform_random_0': " in text and "test_torch_op_nets.py:" in text
    assert not list(tmp_path.iterdir())


def linear() -> NetBuilder:
    b = NetBuilder("net")
    b.fc(b.input("x", [-1, 3]), size=2, name="y")
    return b


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"outputs": ["z"]}, VariableError, "PyTorch: the net has no variable 'z'"),
        ({"outputs": "y"}, OpscopeError, "outputs is a list of names"),
        ({"whole": True}, OpscopeError, "whole has no meaning for a net of operators"),
        ({"scope": Scope()}, VariableError, "PyTorch: 'y.b' has no value: give the scope"),
    ],
)
def test_errors_leave_no_file(tmp_path, how, error, message):
    b = linear()
    scope = how.pop("scope", None) or shaken(b)
    with pytest.raises(error, match=message):
        opscope.to_torch(b, tmp_path / "m", scope, **how)
    assert not list(tmp_path.iterdir())


def test_states_that_go_on_and_nested_sequences_are_refused(tmp_path):
    b = NetBuilder("net")
    out, _ = b.lstm(b.input("x", [-1, 5], levels=1), 4, carry=2)
    with pytest.raises(NotInTorchError, match="PyTorch: .* is kept from run to run"):
        opscope.to_torch(b, tmp_path / "m", shaken(b), outputs=[str(out)])
    b = NetBuilder("net")
    b.sequence_pool(b.input("x", [-1, 3], levels=2), name="p")
    with pytest.raises(NotInTorchError, match="sequences of sequences"):
        opscope.to_torch(b, tmp_path / "m", Scope(), outputs=["p"])


def test_command(tmp_path):
    b = linear()
    saved, folder = str(tmp_path / "n.pb"), str(tmp_path / "m")
    opscope.save(b, shaken(b), saved)
    done = CliRunner().invoke(main, ["to-torch", saved, folder, "--output", "y"])
    assert done.exit_code == 0, done.output
    assert "lines of source, 8 parameters" in done.output
    done = subprocess.run(
        [sys.executable, tmp_path / "m" / "check.py"], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.count(", equal") == 2, done.stderr
    with pytest.raises(FormatError, match="a net of operators; a network of Kaldi's"):
        opscope.weights_from_torch(folder, saved, tmp_path / "back.pb")
