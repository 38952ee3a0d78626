"""The configs of CNTK's reference cases against what CNTK logged about them."""

import re

import pytest

from cntk_data import cases, need
from opscope.cntk.config import commands, parse_command_line
from opscope.framework.base.errors import FormatError

REFUSED_BY_THE_CONFIG = {
    "bad_10_unbalanced_bracket": "no closing ] found in parameters",
    "bad_16_undefined_config_variable": "No variable found with the name NoSuchVar. Parsing of "
    "string failed: case.cntk:",
    "bad_27_unknown_command": "configparameters: required parameter missing: case.cntk:Trian",
    "bad_34_newline_in_variable": "Newline characters are not allowed in the value of a variable "
    "which is resolved using $varName$ feature",
}


def open_case(case, monkeypatch):
    folder = need(case)
    monkeypatch.chdir(folder)
    lines = (folder / "command.txt").read_text().splitlines()
    return parse_command_line(lines[0].split()), (folder / "log.txt").read_text()


@pytest.mark.parametrize("case", [c for c in cases() if c not in REFUSED_BY_THE_CONFIG])
def test_values_and_commands_are_those_of_the_log(case, monkeypatch):
    config, log = open_case(case, monkeypatch)
    want, rest = log.split("Resolution:\n\n")[1].split("\nCommands:")[:2]
    assert config.dump().strip() == want.strip()
    listed = [command.name for command in commands(config)]
    assert listed == rest.split("\n")[0].split()
    if case.startswith("bad_"):
        return
    ran = re.findall(r"^# (\S+) command \((\S+) action\)", log, re.MULTILINE)
    described = [(c.name, action) for c in commands(config) for action in c.actions]
    assert described[: len(ran)] == ran[: len(described)]


@pytest.mark.parametrize(("case", "message"), REFUSED_BY_THE_CONFIG.items())
def test_refused_with_cntks_message_and_a_place(case, message, monkeypatch):
    need(case)
    with pytest.raises(FormatError) as caught:
        config, _ = open_case(case, monkeypatch)
        config.dump()
        commands(config)
    assert message in str(caught.value)
    assert re.match(r"case\.cntk:\d+:\d+: ", str(caught.value))
    assert "^" in str(caught.value)


def test_a_bad_number_and_a_missing_parameter(monkeypatch):
    config, log = open_case("bad_25_bad_number", monkeypatch)
    with pytest.raises(FormatError, match="'fifty'") as caught:
        config.section("Train").section("SGD").array("minibatchSize").ints()
    assert log.strip().splitlines()[-1].split(": ", 1)[1] in str(caught.value)
    config, log = open_case("bad_22_missing_parameter", monkeypatch)
    with pytest.raises(FormatError) as caught:
        config.section("Train").section("SGD").array("maxEpochs")
    assert log.strip().splitlines()[-1].split(": ", 1)[1] in str(caught.value)
