"""`opscope show` and `opscope verify` on CNTK's models and checkpoints."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from opscope.cntk.models.checkpoint import Checkpoint, format_checkpoint
from opscope.cntk.models.v1 import format_model, read_model, write_model
from opscope.cntk.network.dialect import to_desc
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.network import Network
from opscope.framework.ir.messages import serialize_net
from opscope.python_api.cli.main import main


def network():
    net = Network("net")
    w = net.add("LearnableParameter", "w", shape=(4, 0))
    x = net.add("InputValue", "x", shape=3, tags=["feature"])
    net.add("Times", "z", [w, x], tags=["output"])
    net.validate()
    initialize(net)
    return net


def run(*arguments):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    return result.exit_code, result.output


def test_model(tmp_path):
    path = tmp_path / "a.model"
    write_model(network(), path)
    code, text = run("show", path)
    assert code == 0 and "cntk.Times(inputs=[w, x]) -> output=z" in text
    assert "output     z  float32[?, 4]" in text and "parameter  w  float32[3, 4]" in text
    code, text = run("verify", path)
    assert (code, text) == (
        0,
        f"{path}: CNTK binary model, float: 3 nodes, 12 parameters, no error\n",
    )
    path.write_bytes(path.read_bytes()[:200])
    code, text = run("verify", path)
    assert code == 1 and "a.model: byte" in text


def test_net_in_the_dialect(tmp_path):
    path = tmp_path / "a.pb"
    path.write_bytes(serialize_net(to_desc(network())))
    assert run("verify", path) == (0, f"{path}: 3 nodes, 12 parameters, no error\n")
    assert "cntk.Times" in run("show", path)[1]


def test_checkpoint(tmp_path):
    path = tmp_path / "a.ckp"
    state = Checkpoint(1000, 0.5, 1.25, 32, [np.zeros((2, 3))], [7.0])
    path.write_bytes(format_checkpoint(state))
    code, text = run("show", path)
    assert code == 0 and "smoothed gradient 0: 2 x 3, count 7" in text
    assert run("verify", path)[1] == f"{path}: CNTK checkpoint with 1 gradients, no error\n"


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """A model whose names hold halves of surrogate pairs, and one that looks like an escape."""
    monkeypatch.chdir(tmp_path)
    net = Network("net")
    x = net.add("InputValue", "x\udbff", shape=3, tags=["feature"])
    w = net.add("LearnableParameter", "w\ud800", shape=(2, 3))
    z = net.add("Times", "\\udc9b", [w, x])
    net.add("Sigmoid", "\udfff\ud83d", [z], tags=["output"])
    net.validate()
    initialize(net)
    write_model(net, "odd.dnn")
    # The writer takes escapes for halves: so this one is put in by hand.
    data = Path("odd.dnn").read_bytes()
    half, text = "\udc9b".encode("utf-16-le", "surrogatepass"), "\\udc9b".encode("utf-16-le")
    Path("odd.dnn").write_bytes(data.replace(half, text))
    return read_model("odd.dnn")


def test_halves_of_characters_in_names_are_escapes_until_they_are_written_back(odd):
    assert set(odd.nodes) == {"x\\udbff", "w\\ud800", "\\u005cudc9b", "\\udfff\\ud83d"}
    write_model(odd, "same.dnn")
    written = Path("same.dnn").read_bytes()
    for name in ("x\udbff", "w\ud800", "\\udc9b", "\udfff\ud83d"):
        assert name.encode("utf-16-le", "surrogatepass") + b"\0\0" in written
    assert format_model(read_model("same.dnn")) == written


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("show odd.dnn", r"parameter  w\ud800"),
        ("show --dot odd.dnn", r"w\\ud800"),
        ("open odd.dnn", r"input        x\udbff [3]"),
        ("verify odd.dnn", "no error"),
        ("view odd.dnn -o out.html", "out.html"),
        ("profile odd.dnn", r"\udfff\ud83d  (Sigmoid)"),
        ("compare odd.dnn --dtypes float32 float64", r"\u005cudc9b"),
        ("cntk to-python odd.dnn", r'b.parameter("w\\ud800"'),
        ("cntk to-python --params w.safetensors odd.dnn", r'b.parameter("w\\ud800"'),
        ("convert odd.dnn out.onnx", "checked: maximum error"),
        ("convert odd.dnn out.pb --to net", "checked: maximum error 0"),
        ("convert odd.dnn out.pb --to operators", "checked: maximum error 0"),
        ("convert odd.dnn out.py", "checked: maximum error"),
        ("convert odd.dnn out.raw", "checked: maximum error"),
        ("edit odd.dnn --dry-run --rename w*=v*", r"+ v\ud800 = LearnableParameter"),
        ("edit odd.dnn -o out.dnn --rename w*=v*", "wrote out.dnn"),
    ],
)
@pytest.mark.usefixtures("odd")
def test_commands_take_any_names(words, told):
    code, text = run(*words.split())
    assert code == 0 and told in text


@pytest.mark.parametrize("to", ["onnx", "net", "operators", "cntk", "raw"])
def test_names_of_files_that_are_no_text_become_names_of_nets(odd, to):
    """As escapes: the messages of nets hold text alone."""
    write_model(odd, "b\udce4d.dnn")
    code, text = run("convert", "b\udce4d.dnn", "out", "--to", to)
    assert code == 0, text
