"""Networks that CNTK built from NDL: nodes, shapes, parameters and random seeds of its logs."""

import re

import pytest

from cntk_data import cases, need
from opscope.cntk.config import commands, parse_command_line
from opscope.cntk.models.v1 import read_model
from opscope.cntk.ndl import build_ndl_section
from opscope.framework.base.errors import CycleError, UnknownOperatorError

NDL_CASES = [
    case for case in cases() if "NDLNetworkBuilder" in (need(case) / "case.cntk").read_text()
]


def sections(case, monkeypatch):
    folder = need(case)
    monkeypatch.chdir(folder)
    config = parse_command_line((folder / "command.txt").read_text().splitlines()[0].split())
    found = [c for c in commands(config) if "NDLNetworkBuilder" in c.parameters]
    return found, (folder / "log.txt").read_text()


@pytest.mark.parametrize("case", [c for c in NDL_CASES if not c.startswith("bad_")])
def test_the_network_is_that_of_the_log(case, monkeypatch):
    found, log = sections(case, monkeypatch)
    for command in found:
        network = build_ndl_section(command.parameters.section("NDLNetworkBuilder")).network
        part = log.split(f"# {command.name} command (train action)")[1]
        assert len(network) == int(re.search(r"Model has (\d+) nodes", part).group(1))
        count = int(re.search(r"Training (\d+) parameters", part).group(1))
        assert network.parameter_count() == count
        shapes = re.findall(
            r"Node '(\S+)' \(LearnableParameter operation\) : \[([\dx ]+)\]", part.split("Epoch")[0]
        )
        assert shapes
        for name, dims in shapes:
            assert network.find(name).shape == tuple(int(d) for d in dims.split(" x "))
        for key, group in (("Training criterion", "criterion"), ("Evaluation crit", "evaluation")):
            line = re.search(rf"{key}\w*:\s+(\S+) = (\w+)", part)
            assert [(n.name, n.operation) for n in network.groups[group]] == [line.groups()]


@pytest.mark.parametrize(
    ("case", "model"),
    [
        ("02_ndl_macros_dnn", "final.model"),
        ("04_mel_edit", "base.model"),
        ("09_htk_lstm_truncated_ndl", "final.model"),
    ],
)
def test_all_nodes_have_the_names_and_inputs_of_the_model(case, model, monkeypatch):
    found, _ = sections(case, monkeypatch)
    ours = build_ndl_section(found[0].parameters.section("NDLNetworkBuilder")).network
    theirs = read_model(need(case, model))
    assert {n.name: [i.name for i in n.inputs] for n in ours.nodes.values()} == {
        n.name: [i.name for i in n.inputs] for n in theirs.nodes.values()
    }


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        (
            "bad_15_undefined_macro_ndl",
            UnknownOperatorError,
            "net.ndl:5:9: Undefined function or macro 'MyLayer' in MyLayer(features, 2, 2)",
        ),
        ("bad_19_loop_without_delay_ndl", CycleError, "net.ndl:"),
    ],
)
def test_bad_networks_are_refused_with_a_place(case, error, message, monkeypatch):
    found, _ = sections(case, monkeypatch)
    with pytest.raises(error) as caught:
        build_ndl_section(found[0].parameters.section("NDLNetworkBuilder"))
    assert str(caught.value).startswith(message)
