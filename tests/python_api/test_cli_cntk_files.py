"""`opscope show` and `opscope verify` on CNTK's models and checkpoints."""

import numpy as np
from click.testing import CliRunner

from opscope.cntk.models.checkpoint import Checkpoint, write_checkpoint
from opscope.cntk.models.v1 import write_model
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
    write_checkpoint(Checkpoint(1000, 0.5, 1.25, 32, [np.zeros((2, 3))], [7.0]), path)
    code, text = run("show", path)
    assert code == 0 and "smoothed gradient 0: 2 x 3, count 7" in text
    assert run("verify", path)[1] == f"{path}: CNTK checkpoint with 1 gradients, no error\n"
