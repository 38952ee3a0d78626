"""Files of DBN.exe by their bytes: to networks, from networks, damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.models.dbn import dbn_of, read_dbn
from opscope.cntk.models.v1 import read_model
from opscope.cntk.network.network import Network
from opscope.cntk.run.runtime import CntkNet
from opscope.cntk.run.values import minibatch_of
from opscope.framework.base.errors import FormatError
from record_files import DEVIATION, HIDDEN, INPUTS, MEAN, PRIOR, WEIGHTS, dbn

RNG = np.random.default_rng(1)


def expected(x: np.ndarray) -> np.ndarray:
    """The output of the complete network before the prior."""
    h = (x - np.tile(MEAN, 3)) / np.tile(DEVIATION, 3)
    for number, (weight, bias) in enumerate(WEIGHTS):
        h = h @ weight.T + bias
        if number in (0, 2):
            h = 1 / (1 + np.exp(-h))
    return h


def act(action: str, settings: str = "") -> str:
    log: list[str] = []
    text = f"""command = C ; modelPath = m.dnn ; dbnModelPath = x.dbn
        C = [ action = {action} ; {settings} ]"""
    run_commands(parse_config(text, "t.cntk"), Run(say=log.append))
    return "".join(log)


CRITERIA = "trainingCriterion = crossEntropyWithSoftmax ; evalCriterion = errorPrediction"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("precision", ["float", "double"])
def test_there_and_back(precision):
    Path("x.dbn").write_bytes(dbn("made by hand"))
    act("convertdbn", f"{CRITERIA} ; precision = {precision}")
    network = read_model("m.dnn")
    assert network.precision == precision
    x = RNG.normal(size=(5, INPUTS)).astype(np.float32)
    net = CntkNet(network)
    found = net.forward(minibatch_of(network, {"features": x}), ["HLast", "ScaledLogLikelihood"])
    for name, wanted in (
        ("HLast", expected(x)),
        ("ScaledLogLikelihood", expected(x) - np.log(PRIOR)),
    ):
        np.testing.assert_allclose(found[name].data.reshape(5, -1), wanted, rtol=1e-5, atol=1e-5)
    assert [node.name for node in network.groups["output"]] == ["ScaledLogLikelihood"]
    act("exportdbn")
    assert Path("x.dbn").read_bytes() == dbn()


def test_pretrained_networks_get_outputs():
    Path("x.dbn").write_bytes(dbn(complete=False))
    act("convertdbn", f"{CRITERIA} ; outputLayerSize = 7 ; addDropoutNodes = true")
    network = read_model("m.dnn")
    assert network.find("labels").shape == (7,) and network.find("W3").shape == (7, HIDDEN)
    assert network.groups["output"][0].name == "HLast" and "Prior" not in network
    assert network.find("W1*H1").inputs[1].name == "DropH1"
    act("convertdbn", f"{CRITERIA} ; layerSizes = 6:7 ; needPrior = true")
    assert not read_model("m.dnn").find("Prior").attributes["hasComputed"]
    with pytest.raises(FormatError, match="the value of Prior is not known"):
        act("exportdbn")
    with pytest.raises(FormatError, match="Output layer size must be specified"):
        act("convertdbn", CRITERIA)


def test_products_become_two_layers():
    """What the action SVD leaves: a matrix that is a product."""
    net = Network()
    features, labels = (
        net.add("InputValue", "features", shape=4),
        net.add("InputValue", "l", shape=3),
    )
    values = {"U": (3, 2), "V": (2, 4), "b": (3, 1)}
    u, v, b = (net.add("LearnableParameter", name, shape=shape) for name, shape in values.items())
    for node in (u, v, b):
        node.value = RNG.normal(size=values[node.name])
    statistics = [net.add(kind, kind, [features]) for kind in ("Mean", "InvStdDev")]
    for node in statistics:
        node.value = np.float32([1, 2, 3, 4])
        node.attributes["hasComputed"] = True
    normal = net.add("PerDimMeanVarNormalization", "n", [features, *statistics])
    product = net.add("Times", "p", [net.add("Times", "uv", [u, v]), normal])
    out = net.add("Plus", "out", [product, b])
    net.add_to_group("evaluation", net.add("ClassificationError", "e", [labels, out]))
    net.validate()
    found = dbn_of(net)
    assert [layer.kind for layer in found.layers] == ["rbmisalinearbernoulli", "perceptron"]
    np.testing.assert_array_equal(found.layers[0].weight, v.value)
    np.testing.assert_array_equal(found.layers[1].weight, u.value)
    assert found.prior is None and len(found.mean) == 4
    net.rename(out, "still")
    other = net.add("Plus", "out", [net.add("Tanh", "t", [out]), b])
    net.connect(net.find("e"), [labels, other])
    net.validate()
    with pytest.raises(FormatError, match="out.* consume the times node"):
        dbn_of(net)


DAMAGE = [
    (0, b"X", "byte 0: a file of DBN.exe begins with 'DBN'"),
    (4, b"BDBX", "byte 4: did not find expected tag BDBN"),
    (12, struct.pack("<i", 0), "byte 12: 0 layers"),
    (20, b"gmeen", "expected name gmean, found name gmeen"),
    (26, struct.pack("<i", -1), "a matrix of -1 x 1"),
    (26, struct.pack("<i", 1 << 30), "the file ends within the matrix gmean"),
    (26, struct.pack("<i", 1), "tag EMAT"),
    (len(dbn()) - 4, b"X", "tag EDBN"),
]


@pytest.mark.parametrize(("at", "data", "message"), DAMAGE)
def test_damage(at, data, message):
    whole = dbn()
    Path("x.dbn").write_bytes(whole[:at] + data + whole[at + len(data) :])
    with pytest.raises(FormatError, match=f"x.dbn: .*{message}"):
        read_dbn("x.dbn")


def test_files_that_are_cut():
    whole = dbn()
    for length in range(0, len(whole), 7):
        Path("x.dbn").write_bytes(whole[:length])
        with pytest.raises(FormatError, match="x.dbn"):
            read_dbn("x.dbn")
