"""CNTK's model files: copies byte for byte, dumps, validation logs, standard networks.

Runs over the folder named by OPSCOPE_CNTK_CASES; skips where that is missing.
"""

import re

import numpy as np
import pytest

from cntk_data import FOLDER, need
from damage import check_damaged
from opscope.cntk.config import load_config
from opscope.cntk.models.dump import dump
from opscope.cntk.models.v1 import format_model, parse_model, read_model
from opscope.cntk.network.dialect import from_desc, parameter_arrays, to_desc
from opscope.cntk.network.initialize import initial_value, initialize
from opscope.cntk.network.network import Network
from opscope.cntk.network.standard.settings import SimpleNetworkSettings
from opscope.cntk.network.standard.simple_builder import build_simple_network
from opscope.framework.base.errors import OpscopeError
from opscope.framework.ir.messages import parse_net, serialize_net

MODELS = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.model"))
CASES = sorted({name.split("/")[0] for name in MODELS})
NONE = "no reference results of CNTK: see OPSCOPE_CNTK_CASES"

pytestmark = pytest.mark.skipif(not MODELS, reason=NONE)


def logged(case):
    """The validations in a case's log, each as its lines; numbers of axes depend on what the
    process did before and are left out."""
    found, lines = [], None
    for line in (FOLDER / case / "log.txt").read_text(errors="replace").splitlines():
        if line.startswith("Post-processing network complete"):
            found.append(shown(lines))
            lines = None
        elif line.startswith("Post-processing network..."):
            lines = []
        elif lines is not None:
            lines.append(line)
    return found


def shown(lines):
    wanted = re.compile(r"\d+ roots|\t|Loop\[|Validating")
    without = re.compile(r" x (\*|WhereNodeAxis|DynamicAxis)\d*(?=\])")
    return [without.sub(r" x \1", line) for line in lines if wanted.match(line)]


def validation(network):
    lines = []
    network.validate(lines.append)
    return shown(lines)


@pytest.mark.parametrize("name", MODELS)
def test_model_written_back_is_the_same_file(name):
    data = (FOLDER / name).read_bytes()
    network = parse_model(data, name)
    network.validate()
    assert format_model(network) == data


@pytest.mark.parametrize("name", MODELS)
def test_model_through_a_netdesc_is_the_same_file(name):
    data = (FOLDER / name).read_bytes()
    network = parse_model(data, name)
    network.validate()
    desc = parse_net(serialize_net(to_desc(network)))
    copy = from_desc(desc, parameter_arrays(network))
    copy.validate()
    assert format_model(copy) == data


@pytest.mark.parametrize(
    "name", [n for n in MODELS if (FOLDER / n.replace(".model", ".params.txt")).exists()]
)
def test_dump_is_that_of_dumpnode(name):
    wanted = (FOLDER / name.replace(".model", ".params.txt")).read_text()
    assert dump(read_model(FOLDER / name)) == wanted


@pytest.mark.parametrize("case", CASES)
def test_validation_is_that_of_the_log(case):
    found = logged(case)
    if not found or case == "38_param_init":  # its log has dimensions that are inferred only there
        pytest.skip("the log shows no network that was loaded")
    final = FOLDER / case / "final.model"
    network = read_model(final if final.exists() else FOLDER / case / "init.model", validate=False)
    assert validation(network) in found


TRAINING = re.compile(r"^Training (\d+) parameters in", re.MULTILINE)
TRAINED = [
    (case, int(counts[-1]))
    for case in CASES
    if (FOLDER / case / "init.model").exists()
    and (counts := TRAINING.findall((FOLDER / case / "log.txt").read_text()))
]


@pytest.mark.parametrize(("case", "count"), TRAINED)
def test_parameter_count_is_that_of_the_log(case, count):
    network = read_model(FOLDER / case / "init.model")
    assert network.parameter_count(network.groups["criterion"][0]) == count


def test_model_of_version_14():
    path = need("..", "cntk", "slu.forward.cmf")
    network = read_model(path)
    assert len(network) == 42 and network.parameter_count() == 722379
    assert format_model(network, version=14) == path.read_bytes()


def test_damaged_model():
    data = min((FOLDER / name for name in MODELS), key=lambda path: path.stat().st_size)
    check_damaged(data.read_bytes(), lambda raw: parse_model(raw, "damaged"))


SIMPLE = [
    case
    for case in CASES
    if (FOLDER / case / "case.cntk").exists()
    and "SimpleNetworkBuilder" in (FOLDER / case / "case.cntk").read_text()
]


@pytest.mark.parametrize("case", SIMPLE)
def test_standard_network_is_the_initial_model(case, monkeypatch):
    monkeypatch.chdir(FOLDER / case)
    config = load_config("case.cntk")
    section = config.section("Train").section("SimpleNetworkBuilder")
    network = build_simple_network(SimpleNetworkSettings.from_config(section))
    lines = validation(network)
    initialize(network)
    model = read_model("init.model")
    assert sorted(network.nodes) == sorted(model.nodes)
    for name, node in model.nodes.items():
        ours = network.find(name)
        assert ours.operation == node.operation and ours.shape == node.shape
        assert [i.name for i in ours.inputs] == [i.name for i in node.inputs]
        if node.is_parameter:
            np.testing.assert_array_equal(ours.value, node.value)
    for group, nodes in model.groups.items():
        assert [n.name for n in network.groups[group]] == [n.name for n in nodes]
    if case != "19_lu_reader_lstm":  # its log shows the loaded model only
        assert lines in logged(case)


# Parameter of case 38 -> its attributes; seeds count the random ones.
INITIAL = {
    "r1": {"init": "uniform", "randomSeed": 1},
    "r2": {"init": "gaussian", "randomSeed": 2},
    "r3": {"init": "uniform1", "initValueScale": 0.5, "randomSeed": 3},
    "r4": {"init": "normal", "initValueScale": 0.5, "randomSeed": 4},
    "r5": {"init": "xavier", "randomSeed": 5},
    "r6": {"init": "glorotUniform", "initValueScale": 2, "randomSeed": 6},
    "r7": {"init": "glorotNormal", "randomSeed": 7},
    "r8": {"init": "heUniform", "randomSeed": 8},
    "r9": {"init": "heNormal", "randomSeed": 9},
    "s2": {"init": "heUniform", "randomSeed": 77},
    "v1": {"randomSeed": 10},
    "k1": {"init": "heUniform", "initFilterRank": 2, "initOutputRank": -1, "randomSeed": 11},
    "k2": {"init": "glorotUniform", "initFilterRank": 2, "randomSeed": 12},
    "k3": {"init": "glorotUniform", "initOutputRank": 2, "randomSeed": 13},
    "v0": {"initValue": -1.5},
    "v2": {"init": "fixedValue", "value": 0.25},
    "v3": {"init": "fromFile", "initFromFilePath": "../data/param.txt"},
    "v4": {"init": "fromLiteral", "initFromLiteral": "1 2 3\n-4 5.5 6\n"},
}


@pytest.mark.parametrize("name", INITIAL)
def test_initial_values(name, monkeypatch):
    monkeypatch.chdir(need("38_param_init"))
    wanted = read_model("init.model").find(name)
    node = Network().add("LearnableParameter", name, shape=wanted.shape, attributes=INITIAL[name])
    node.shape = wanted.shape
    np.testing.assert_array_equal(initial_value(node, np.float32), wanted.value)


def test_missing_model():
    with pytest.raises(OpscopeError, match="no_such.model"):
        read_model("no_such.model")
