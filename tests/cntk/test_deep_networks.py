"""Networks with thousands of nodes in a chain: nothing recurses, and no edit is quadratic."""

from __future__ import annotations

import copy
import time
from pathlib import Path

import numpy as np
import pytest

from cntk_runtime_nets import minibatch
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.models.dump import dump
from opscope.cntk.models.open_model import open_model
from opscope.cntk.models.v1 import write_model
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.network import Network
from opscope.cntk.run.runtime import CntkNet

DEPTH = 4000


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    network = Network()
    node = network.add("InputValue", "x", shape=2, tags=["feature"])
    weight = network.add("LearnableParameter", "w", shape=2, attributes={"value": 0.5})
    node = network.add("ElementTimes", "first", [weight, node])
    for number in range(DEPTH):
        node = network.add("Negate", f"n{number}", [node])
    network.add("SumElements", "total", [node], tags=["criterion"])
    network.validate()
    initialize(network)
    path = tmp_path_factory.mktemp("deep") / "m.dnn"
    write_model(network, path)
    return path


def test_described_copied_and_dumped(model):
    network = open_model(model).network
    lines: list[str] = []
    network.validate(lines.append)
    assert len(lines) > DEPTH and len(network.below([network.find("total")])) == DEPTH + 4
    twin = copy.deepcopy(network)
    assert twin.order[-1] is twin.find("total") is not network.find("total")
    assert twin.find("w").kind is network.find("w").kind and len(twin.nodes) == DEPTH + 4
    assert dump(network, None, False, True).count("Negate") == DEPTH


def test_computed(model):
    net = CntkNet(open_model(model).network)
    batch = minibatch(x=np.ones((3, 2), np.float32))
    found = net.forward(batch, ["total"])["total"].scalar
    assert found == pytest.approx(3 * net.get("w").sum(), rel=1e-5)


@pytest.mark.parametrize(
    "script",
    [
        "DeleteNode(m.n*)",
        "Rename(m.n*, m.k*)",
        "Copy(m.n*, m.k*, copy=all)",
        "CopySubTree(m.total, m.total, q., copy=all)",
        "SetPropertyForSubTree(m.total, learningRateMultiplier, 0)",
    ],
)
def test_edited(model, tmp_path, script):
    (tmp_path / "e.mel").write_text(
        f'm=LoadModel("{model}", format=cntk)\nSetDefaultModel(m)\n{script}\n'
    )
    config = f'command = E ; E = [ action = edit ; editPath = "{tmp_path}/e.mel" ]'
    began = time.process_time()
    run_commands(parse_config(config), Run(say=lambda line: None))
    assert time.process_time() - began < 7  # deleting one by one took a quarter of a minute
