"""All reference cases of CNTK: each section with a builder gives the network of its log."""

import math
import re
import shutil

import numpy as np
import pytest

from cntk_data import cases, need
from opscope.cntk.config import commands, parse_command_line
from opscope.cntk.mel import edit_section
from opscope.cntk.models.v1 import read_model
from opscope.cntk.run.build import Seeds, build_section_network, builder_of
from opscope.framework.base.errors import OpscopeError

# What the languages refuse, and a part of what CNTK said about it.
REFUSED = {
    "bad_01_unknown_function_bs": "unknown identifier 'Sigmiod'",
    "bad_03_unknown_operation": "'Sigmiod'",
    "bad_04_dims_times_bs": "z Times operation: ",
    "bad_12_syntax_bs": "operand expected",
    "bad_13_undefined_variable_bs": "unknown identifier 'hiddenDim'",
    "bad_15_undefined_macro_ndl": "Undefined function or macro 'MyLayer'",
    "bad_18_loop_without_delay": "circular reference",
    "bad_19_loop_without_delay_ndl": "a loop without delay",
    "bad_21_wrong_arguments_bs": "function expects 2 positional parameters",
}
REFUSED_BY_THE_CONFIG = (
    "bad_10_unbalanced_bracket",
    "bad_16_undefined_config_variable",
    "bad_27_unknown_command",
    "bad_34_newline_in_variable",
)


def open_case(case, monkeypatch):
    folder = need(case)
    monkeypatch.chdir(folder)
    line = (folder / "command.txt").read_text().splitlines()[0]
    return parse_command_line(line.split()), (folder / "log.txt").read_text()


def trained(network):
    """The number of elements of the parameters that a training of the first criterion changes."""
    below = network.below(network.groups["criterion"][:1])
    return sum(math.prod(n.shape) for n in below if n.is_parameter and n.learning_rate)


@pytest.mark.parametrize(
    "case", [c for c in cases() if c not in REFUSED and c not in REFUSED_BY_THE_CONFIG]
)
def test_nodes_and_parameters_are_those_of_the_log(case, monkeypatch):
    config, log = open_case(case, monkeypatch)
    seeds = Seeds()
    for command in commands(config):
        if not {"train", "edit"} & set(command.actions) or not builder_of(command.parameters):
            continue
        network = build_section_network(command.parameters, seeds).network
        part = re.split(rf"^# {command.name} command \(.*", log, flags=re.MULTILINE)
        part = part[1].split("command (")[0] if len(part) > 1 else ""
        nodes = re.search(r"Model (?:has|with) (\d+) nodes", part)
        if nodes:
            assert len(network) == int(nodes.group(1))
        parameters = re.search(r"Training (\d+) parameters", part)
        if parameters:
            assert trained(network) == int(parameters.group(1))
        shapes = re.findall(r"Node '(\S+)' \(LearnableParameter operation\) : \[([\dx ]+)\]", part)
        for name, dims in shapes:
            assert network.find(name).shape == tuple(int(d) for d in dims.split(" x "))


@pytest.mark.parametrize(("case", "message"), REFUSED.items())
def test_what_cntk_refuses_is_refused_with_a_place(case, message, monkeypatch):
    config, _ = open_case(case, monkeypatch)
    with pytest.raises(OpscopeError) as caught:
        build_section_network(commands(config)[0].parameters)
    assert message in str(caught.value)
    assert re.match(r"(case\.cntk|net\.ndl):\d+:\d+: ", str(caught.value))
    assert str(caught.value).splitlines()[2].lstrip() == "^"


def test_initial_values_of_ndl(tmp_path, monkeypatch):
    folder = need("38_param_init")
    (tmp_path / "data").symlink_to(need("data"))
    (tmp_path / "case").mkdir()
    for name in ("case.cntk", "make.mel", "empty.ndl"):
        shutil.copy(folder / name, tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    edit_section(parse_command_line(["configFile=case.cntk"]).section("CreateNdl"))
    ours, theirs = read_model("ndl.model"), read_model(folder / "ndl.model")
    assert sorted(ours.nodes) == sorted(theirs.nodes)
    for node in theirs.nodes.values():
        if node.is_parameter:
            assert np.array_equal(ours.find(node.name).value, node.value), node.name
