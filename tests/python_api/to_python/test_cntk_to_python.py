"""`opscope cntk to-python`: the code that is written builds the same net."""

import ast
import keyword
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cntk_data import need
from opscope import Scope
from opscope.cntk.models.open_model import open_model
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.network import Network
from opscope.cntk.programs.check import check_file
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.run.runtime import CntkNet
from opscope.framework.base.sequence import Sequences
from opscope.framework.ir.desc import INPUT
from opscope.python_api.cli.main import main
from opscope.python_api.to_python.cntk_to_python import to_python, write_values
from opscope.python_api.to_python.python_text import Names, flat, prose, string

LENGTHS = (3, 1, 5)

DNN = """command = Train
Train = [ action = "train" ; NDLNetworkBuilder = [ run = net ] ]
net = [
    Layer(x, inDim, outDim) = [
        W = Parameter(outDim, inDim, init=uniform, initValueScale=2)
        b = Parameter(outDim, 1, init=fixedValue, value=0.5)
        y = Sigmoid(Plus(Times(W, x), b)) ]
    features = Input(2, tag=feature)
    labels = Input(3, tag=label)
    h = Layer(features, 2, 4)
    W = Parameter(3, 4, init=gaussian)
    z = Times(W, h.y, tag=output)
    ce = CrossEntropyWithSoftmax(labels, z, tag=criterion)
]
"""
DNN_CODE = '''"""The network of net.cntk as NetBuilder code."""

from opscope import NetBuilder


def build() -> NetBuilder:
    """Results: ce, z."""
    b = NetBuilder()

    features = b.input("features", [-1, 2])
    labels = b.input("labels", [-1, 3])

    h_W = b.parameter("h.W", [2, 4], ("uniform", {"low": -0.1, "high": 0.1}))
    h_b = b.parameter("h.b", [4], 0.5)
    W = b.parameter("W", [4, 3], ("normal", {"std": 0.1}))

    h_y = b.fc(features, w=h_W, b=h_b, activation="sigmoid")
    z = b.matmul(h_y, W, name="z")
    b.add_op("cntk.cross_entropy_with_softmax", labels, z, name="ce")
    return b
'''

RNN = """command = Train
Train = [ action = "train" ; BrainScriptNetworkBuilder = {
    x = Input {3}
    W = ParameterTensor {4:3} ; R = ParameterTensor {4:4}
    h = Tanh (W * x + R * FutureValue (4, h, timeStep = 2))
    z = LogSoftmax (h)
    outputNodes = (z : h)
} ]
"""
RNN_CODE = '''"""The network of net.cntk as NetBuilder code."""

from opscope import NetBuilder


def build() -> NetBuilder:
    """Results: h, z."""
    b = NetBuilder()

    x = b.input("x", [-1, 3], levels=1)

    W = b.parameter("W", [3, 4], ("uniform", {"low": -0.05, "high": 0.05}))
    R = b.parameter("R", [4, 4], ("uniform", {"low": -0.05, "high": 0.05}))

    h_z_matmul = x @ W

    with b.recurrent("h", reverse=True) as step:
        h_z_matmul_t = step.input(h_z_matmul)
        h_before = step.memory(4, value=0.1, delay=2)
        h_z = h_z_matmul_t + h_before @ R
        h = b.tanh(h_z)
        step.update(h_before, h)
        h = step.output(h)

    b.log_softmax(h, name="z")
    return b
'''


def section_network(file):
    """The network of a config's first section with one."""
    return next(iter(check_file(file).networks.values()))


def random_minibatch(network, rng):
    """Sequences of random numbers for all inputs; one-hot where the input is sparse."""
    begin = np.cumsum([0, *LENGTHS])
    streams = {}
    for node in network.nodes.values():
        if not node.is_input:
            continue
        width = int(np.prod(node.shape))
        if node.operation == "SparseInputValue":
            indices = rng.integers(0, width, begin[-1])
            ones = np.ones(begin[-1], np.float32)
            streams[node.name] = Samples(begin, ones, indices, np.arange(begin[-1] + 1))
        elif node in network.groups["label"]:
            streams[node.name] = Samples(begin, np.eye(width)[rng.integers(0, width, begin[-1])])
        else:
            streams[node.name] = Samples(begin, rng.random((begin[-1], width)))
    return Minibatch(streams)


def built(code, tmp_path):
    """The builder that the code makes, and a scope with the values of the file it loads."""
    names = {}
    exec(compile(code.text, "generated.py", "exec"), names)  # noqa: S102
    scope = Scope()
    write_values(code, tmp_path / "net.safetensors")
    names["load"](scope, str(tmp_path / "net.safetensors"))
    return names["build"](), scope


def fed(builder, scope):
    """What the inputs of a net hold in a scope in which the runtime has run."""
    feed = {}
    for var in builder.desc.vars:
        if var.kind == INPUT:
            held = scope.get(var.name)
            rows = held.numpy()
            feed[var.name] = Sequences(rows, held.offsets) if var.sequence_levels else rows
    return feed


def check_same(network, tmp_path):
    """Compare the results of the code that is written with those of the runtime."""
    rng = np.random.default_rng(0)
    for node in network.nodes.values():
        if node.kind.precompute and node.value is None:
            node.value = rng.uniform(0.5, 2.0, node.shape).astype(np.float32)
    code = to_python(network, "net", "net.safetensors")
    assert max(map(len, code.text.splitlines())) <= 100
    net, minibatch = CntkNet(network), random_minibatch(network, rng)
    wanted = net.forward(minibatch, code.outputs)
    builder, scope = built(code, tmp_path)
    feed = fed(builder, net.scope)
    found = builder.run(scope, feed=feed, fetch=code.outputs.values(), need_backward=False)
    assert code.outputs
    for name, variable in code.outputs.items():
        ours, theirs = found[variable], wanted[name].data
        assert ours.size == theirs.size, name
        np.testing.assert_allclose(
            ours.reshape(theirs.shape), theirs, rtol=1e-5, atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize(
    "case",
    [
        "01_simplebuilder_dnn",
        "02_ndl_macros_dnn",
        "03_bs_language_dnn",
        "06_ctf_sparse_streams",
        "09_htk_lstm_truncated_ndl",
        "11_bidirectional_rnn",
        "12_atis_layers",
        "14_conv_pool_layers",
    ],
)
def test_configs(case, tmp_path, monkeypatch):
    monkeypatch.chdir(need(case))
    check_same(section_network("case.cntk"), tmp_path)


@pytest.mark.parametrize(
    "case", ["04_mel_edit", "11_bidirectional_rnn", "16_batchnorm_inference", "33_nodes"]
)
def test_models(case, tmp_path):
    check_same(open_model(need(case, "init.model")).network, tmp_path)


@pytest.mark.parametrize("case", ["02_ndl_macros_dnn", "11_bidirectional_rnn"])
def test_gradients(case, tmp_path):
    network = open_model(need(case, "init.model")).network
    (criterion,) = network.groups["criterion"]
    net, minibatch = CntkNet(network), random_minibatch(network, np.random.default_rng(0))
    net.forward_backward(minibatch, criterion)
    builder, scope = built(to_python(network, "net", "net.safetensors"), tmp_path)
    builder.backward_from(criterion.name)
    names = net.parameters()
    gradients = [builder.gradient(name) for name in names]
    found = builder.run(scope, feed=fed(builder, net.scope), fetch=gradients)
    for name, gradient in zip(names, gradients, strict=True):
        wanted = net.gradient(name).transpose().reshape(found[gradient].shape)
        np.testing.assert_allclose(found[gradient], wanted, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", ["bidirectional", "timit_ndl", "timit_simple"])
def test_the_redesigned_language(name, tmp_path):
    file = Path(__file__).parents[2] / "cntk" / "brainscript" / f"{name}.bs"
    folders = [f"{key}=x" for key in ("ExpDir", "ScpDir", "MlfDir")]
    ((_, network),) = check_file(file, extra=[*folders, "DeviceNumber=-1"]).networks.items()
    check_same(network, tmp_path)


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run `opscope cntk to-python` in a folder with a config: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(text, *args):
        (tmp_path / "net.cntk").write_text(text)
        result = CliRunner().invoke(main, ["cntk", "to-python", "net.cntk", *args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    return run


@pytest.mark.parametrize(("config", "code"), [(DNN, DNN_CODE), (RNN, RNN_CODE)])
def test_text(config, code, call):
    assert call(config) == (0, code, "")


def test_values_in_a_file(call, tmp_path):
    code, text, _ = call(DNN, "--params", "values.safetensors")
    assert code == 0
    assert 'def load(scope: Scope, path: str = "values.safetensors") -> None:' in text
    names = {}
    exec(text, names)  # noqa: S102
    scope = Scope()
    names["load"](scope)
    (builder, x) = names["build"](), np.ones((5, 2), np.float32)
    network = section_network("net.cntk")
    initialize(network)
    values = {name: network.find(name).value for name in ("h.W", "W")}
    h = 1 / (1 + np.exp(-(x @ values["h.W"].T + 0.5)))
    found = builder.run(scope, feed={"features": x}, fetch=["z"], need_backward=False)
    np.testing.assert_allclose(found["z"], h @ values["W"].T, rtol=1e-5)


def test_which_network(call):
    config = DNN.replace("command = Train", "command = Train:Other") + (
        'Other = [ action = "train" ; NDLNetworkBuilder = [ run = net ] ]\n'
    )
    code, _, err = call(config)
    assert code == 1
    assert "net.cntk: not one network; it has Train, Other" in err
    assert call(config, "--section", "train")[1] == DNN_CODE
    assert "no network 'Tain'" in call(config, "--section", "Tain")[2]
    code, _, err = call(DNN.replace("Times(W, x)", "Times(W, y)"))
    assert code == 1
    assert "error:" in err


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff is not installed")
@pytest.mark.parametrize("case", ["09_htk_lstm_truncated_ndl", "33_nodes"])
def test_layout_is_that_of_ruff(case, tmp_path):
    network = open_model(need(case, "init.model")).network
    (tmp_path / "net.py").write_text(to_python(network, "net", "net.safetensors").text)
    config = Path(__file__).parents[3] / "pyproject.toml"
    command = ["ruff", "format", "--check", "--config", str(config), str(tmp_path / "net.py")]
    assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("h1.W", "h1_W"),
        ("layers[1].act", "layers_1_act"),
        ("2x", "_2x"),
        ("if", "if_"),
        ("", "value"),
    ],
)
def test_python_names(name, wanted):
    names = Names()
    assert names.new(name) == wanted
    assert names.new(name) == f"{wanted}_2"
    assert wanted.isidentifier()


@given(st.lists(st.text(max_size=12), max_size=5))
@example(["\0"])
@settings(max_examples=50)
def test_any_names(texts):
    names = Names()
    found = [names.new(text) for text in texts]
    assert len(set(found)) == len(found)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in found)
    assert [ast.literal_eval(flat(string(text))) for text in texts] == texts
    module = ast.parse(f'"""{prose(" ".join(texts))}."""\n')
    assert len(module.body) == 1


def test_text_of_a_model_cannot_become_code():
    network = Network('a"""\nprint("a")')
    x = network.add("InputValue", "x", shape=2)
    network.add("Tanh", 'y"""\nraise SystemExit\n"""', [x], tags=["output"])
    network.validate()
    code = to_python(network, 'f"""\nraise SystemExit').text
    assert [type(part).__name__ for part in ast.parse(code).body] == [
        "Expr",
        "ImportFrom",
        "FunctionDef",
    ]
    names = {}
    exec(code, names)  # noqa: S102
    assert len(names["build"]().desc.ops) == 1
