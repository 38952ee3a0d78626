"""Networks that CNTK built from BrainScript: the validation of its logs, line by line."""

import re
from itertools import count

import numpy as np
import pytest

from cntk_data import FOLDER, cases, need
from opscope.cntk.brainscript.build import build_section
from opscope.cntk.config import commands, parse_command_line
from opscope.cntk.models.v1 import read_model
from opscope.cntk.network.initialize import initialize
from opscope.framework.base.errors import (
    FormatError,
    OpscopeError,
    ShapeError,
    UnknownOperatorError,
)

BUILDER = "BrainScriptNetworkBuilder"
BS_CASES = [case for case in cases() if BUILDER in (need(case) / "case.cntk").read_text()]
# These fail for reasons outside the network, after or before it is built.
READERS = ["bad_06", "bad_07", "bad_28", "bad_30", "bad_31"]


def sections(case, monkeypatch):
    folder = need(case)
    monkeypatch.chdir(folder)
    config = parse_command_line((folder / "command.txt").read_text().splitlines()[0].split())
    found = [c for c in commands(config) if BUILDER in c.parameters]
    return found, (folder / "log.txt").read_text()


def validation(lines):
    """The lines that say what was validated, and what came out."""
    # What initial values were drawn can stand before it, up to its closing parenthesis.
    stripped = (line.removeprefix(")").rstrip() for line in lines)
    kept = [line for line in stripped if line.startswith("Validating --> ")]
    # The reader's number of the layout is not the network's.
    return [re.sub(r"\*\d+\]", "*]", line) for line in kept]


def drawn_parameters(network):
    """(shape, kind, seed) of all parameters with random initial values."""
    found = set()
    for node in network.nodes.values():
        if node.is_parameter and node.attributes["randomSeed"] >= 0:
            shape = " x ".join(map(str, node.shape))
            kind = node.attributes["init"] or "uniform"
            found.add((shape, kind, str(node.attributes["randomSeed"])))
    return found


def log_of(command, log):
    part = log.split(f"# {command.name} command (", 1)[-1].split(" command (")[0]
    return part.split("Post-processing network complete")[0]


@pytest.mark.parametrize("case", [c for c in BS_CASES if not c.startswith("bad_")])
def test_nodes_and_shapes_are_those_of_the_log(case, monkeypatch):
    found, log = sections(case, monkeypatch)
    assert found
    seeds = count(1)
    for command in found:
        network = build_section(command.parameters, seeds=seeds)
        lines = []
        network.validate(lines.append)
        part = log_of(command, log)
        wanted = validation(part.splitlines())
        if not wanted:  # a section whose network is loaded from a model that was trained before
            continue
        assert validation(lines) == wanted
        whole = log.split(f"# {command.name} command (", 1)[-1]
        nodes = re.search(r"Model has (\d+) nodes", whole)
        if nodes:
            assert len(network) == int(nodes.group(1))
        drawn = re.findall(r"Parameter\[([\dx ]+)\] <- (\w+)\(seed=(\d+)", part)
        assert drawn_parameters(network) >= set(drawn)  # logged where shapes were inferred


@pytest.mark.parametrize(
    "case",
    [c for c in BS_CASES if FOLDER.joinpath(c, "init.model").exists() and not c.startswith("04")],
)
def test_initial_values_are_those_of_the_model(case, monkeypatch):
    """Which of equal layers gets which seed depends on the order of lazy evaluation."""
    found, _ = sections(case, monkeypatch)
    network = build_section(found[0].parameters)
    network.validate()
    initialize(network)
    model = read_model("init.model")
    parameters = [node for node in network.nodes.values() if node.is_parameter]
    assert parameters
    for node in parameters:
        np.testing.assert_array_equal(node.value, model.find(node.name).value, node.name)


@pytest.mark.parametrize(
    ("case", "error", "message", "place"),
    [
        ("bad_01_unknown_function_bs", FormatError, "unknown identifier 'Sigmiod'", "14:13"),
        ("bad_03_unknown_operation", UnknownOperatorError, "called 'Sigmiod'", "13:13"),
        ("bad_04_dims_times_bs", ShapeError, "left [2 x 4] and right [5]", "14:30"),
        ("bad_12_syntax_bs", FormatError, "operand expected", "13:32"),
        ("bad_13_undefined_variable_bs", FormatError, "unknown identifier 'hiddenDim'", "13:27"),
        ("bad_18_loop_without_delay", FormatError, "circular reference", "14:13"),
        ("bad_21_wrong_arguments_bs", FormatError, "function expects 2 positional", "14:13"),
    ],
)
def test_bad_networks_are_refused_with_a_place(case, error, message, place, monkeypatch):
    found, _ = sections(case, monkeypatch)
    with pytest.raises(error) as caught:
        build_section(found[0].parameters).validate()
    first, line, caret = str(caught.value).split("\n")[:3]
    assert f"case.cntk:{place}: " in first and message in first
    assert caret.strip() == "^" and len(caret) <= len(line)


@pytest.mark.parametrize("case", [c for c in BS_CASES if c[:6] in READERS])
def test_networks_of_cases_with_bad_data_build(case, monkeypatch):
    found, log = sections(case, monkeypatch)
    network = build_section(found[0].parameters)
    lines = []
    network.validate(lines.append)
    wanted = validation(log_of(found[0], log).splitlines())
    assert not wanted or validation(lines) == wanted


@pytest.mark.parametrize("case", [c for c in BS_CASES if c.startswith("bad_")])
def test_only_the_packages_errors(case, monkeypatch):
    try:
        found, _ = sections(case, monkeypatch)
        build_section(found[0].parameters).validate()
    except OpscopeError:
        pass
