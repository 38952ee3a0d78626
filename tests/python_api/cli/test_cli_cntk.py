"""The command line for CNTK's configs and scripts."""

import re

import pytest
from click.testing import CliRunner

from opscope.python_api.cli.main import main

CONFIG = """command = Train:Test
Train = [ action = "train" ; NDLNetworkBuilder = [ run = Net ] ]
Test = [ action = "test" ]
Net = [ features = Input($dim$, tag=feature)
  y = Tanh(features, tag=output) ]
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run `opscope cntk` in a folder with a.cntk: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cntk").write_text(CONFIG)

    def run(*args):
        result = CliRunner().invoke(main, ["cntk", *args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    return run


def test_networks_of_a_command_line(call):
    code, out, _ = call("networks", "configFile=a.cntk", "dim=3")
    assert code == 0
    assert "Commands: Train Test" in out
    assert "# Train command (train action)" in out
    assert "y = Tanh (features) : [3 x *] -> [3 x *]" in out


def test_a_list_of_commands(call):
    assert call("networks", "--list", "configFile=a.cntk", "dim=3")[1].splitlines() == [
        "Commands: Train Test",
        "Train: train",
        "Test: test",
    ]


def test_errors_show_the_line_and_a_caret(call):
    code, _, err = call("networks", "configFile=a.cntk", "dim=three")
    assert code == 1
    assert "\n    dim=three\n" in err or "\n    Net = [" in err
    assert any(line.strip() == "^" for line in err.splitlines())


RUN = """Train = [ action = "train" ; modelPath = "m" ; deviceId = -1
  NDLNetworkBuilder = [ run = Net ]
  SGD = [ maxEpochs = 2 ; minibatchSize = 2 ; learningRatesPerSample = 0.1 ]
  reader = [ readerType = CNTKTextFormatReader ; file = data ; input = [
    x = [ dim = 2 ; format = dense ] ; y = [ dim = 1 ; format = dense ] ] ] ]
Net = [ x = Input(2, tag=feature) ; y = Input(1, tag=label)
  W = Parameter(1, 2) ; e = SquareError(y, Times(W, x), tag=criterion) ]
"""


def test_a_config_runs(call, tmp_path):
    (tmp_path / "run.cntk").write_text(RUN + "command = Train")
    (tmp_path / "data").write_text("|x 1 2 |y 1\n|x 0 1 |y 0\n")
    code, _, err = call("configFile=run.cntk", "Train=[SGD=[maxEpochs=3]]")
    assert code == 0
    assert err.count("[Training] e = ") == 3
    assert err.endswith("COMPLETED.\n")
    assert (tmp_path / "m").exists()
    code, _, err = call("run", "configFile=run.cntk", "command=Train:Tset")
    assert code == 1
    assert "did you mean Train" in err or "Tset" in err


def test_check(call, tmp_path):
    (tmp_path / "run.cntk").write_text(RUN + "command = Train")
    (tmp_path / "data").write_text("|x 1 2 |y 1\n|x 0 1 |y 0\n")
    code, out, _ = call("check", "run.cntk")
    assert (code, out) == (0, "run.cntk: Train: 5 nodes, 2 parameters, 0 problems\n")
    code, out, _ = call("check", "run.cntk", "Train=[SGD=[rms_gamma=0.9]]")
    assert code == 3
    assert out.startswith("warning: ") and "rms_gamma is not used" in out
    code, out, _ = call("check", "--parse-only", "a.cntk")
    assert code == 0
    code, out, _ = call("check", "a.cntk", "run.cntk")
    assert code == 1
    assert "No variable found with the name dim" in out
    assert "required parameter missing: a.cntk:Train:SGD" in out
    assert {path.name for path in tmp_path.iterdir()} == {"a.cntk", "run.cntk", "data"}


def test_format(call, tmp_path):
    code, out, _ = call("format", "a.cntk")
    assert out == CONFIG.replace("  y =", "    y =")
    assert call("format", "--in-place", "a.cntk")[:2] == (0, "")
    assert (tmp_path / "a.cntk").read_text() == out


def test_show_and_verify(call, tmp_path):
    (tmp_path / "b.cntk").write_text(CONFIG.replace("$dim$", "3"))
    (tmp_path / "m.ndl").write_text("A(x) = Tanh(x)\n")
    show = CliRunner().invoke(main, ["show", "b.cntk"])
    assert show.exit_code == 0
    assert "cntk.Tanh" in show.stdout
    assert CliRunner().invoke(main, ["show", "--dot", "b.cntk"]).stdout.startswith("digraph")
    assert CliRunner().invoke(main, ["show", "m.ndl"]).stdout == "A(x) = Tanh(x)\n"
    assert CliRunner().invoke(main, ["verify", "b.cntk"]).exit_code == 1
    (tmp_path / "b.cntk").write_text(RUN + "command = Train")
    (tmp_path / "data").write_text("|x 1 2 |y 1\n")
    assert CliRunner().invoke(main, ["verify", "b.cntk"]).exit_code == 0
    assert CliRunner().invoke(main, ["verify", "a.cntk"]).exit_code == 1


def test_nodes(call):
    code, out, _ = call("nodes")
    assert code == 0 and re.search(r"^  Times +The matrix product: ", out, re.MULTILINE)
    code, out, _ = call("nodes", "Delay")
    assert code == 0 and out.startswith("PastValue (x, initial)\n")
    code, out, err = call("nodes", "Tims")
    assert (code, out) == (1, "") and "did you mean Times" in err
