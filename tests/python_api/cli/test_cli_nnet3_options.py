"""How Kaldi's programs read command lines and config files, and what they print of them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import numpy as np
import pytest

import opscope
from kaldi_models import done, refused
from opscope.framework.base.errors import FormatError
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.programs.base.program import Option, print_line, quoted
from opscope.python_api.cli.main import kaldi_programs, main

FLAG, INT = Option("flag", False, "f"), Option("some-int", 3, "i")
FLOAT, TEXT = Option("rate", -1.0, "r"), Option("text", "", "t")


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        (FLAG, None, True),
        (FLAG, "TRUE", True),
        (FLAG, "1", True),
        (FLAG, "f", False),
        (FLAG, "0", False),
        (INT, "-12", -12),
        (INT, "+7", 7),
        (FLOAT, "1e-3", float(np.float32(0.001))),
        (FLOAT, ".5", 0.5),
        (FLOAT, "1e99", float("inf")),
        (TEXT, "", ""),
        (TEXT, "a=b", "a=b"),
    ],
)
def test_option_value(option, text, value):
    assert option.parse(text) == value and type(option.parse(text)) is type(value)


@pytest.mark.parametrize(
    ("option", "text", "part"),
    [
        (FLAG, "", "--flag= is neither true nor false"),
        (FLAG, "yes", "--flag=yes is neither"),
        (INT, None, "no integer"),
        (INT, "2.5", "no integer"),
        (INT, "2147483648", "no integer"),
        (FLOAT, None, "no number"),
        (FLOAT, "1.0x", "no number"),
        (TEXT, None, "--text wants a value"),
    ],
)
def test_option_refused(option, text, part):
    with pytest.raises(FormatError, match=part):
        option.parse(text)


def test_option_names_are_normalized(call):
    done(call("nnet3-copy", "--Learning_Rate=0.5", "--binary", "net.raw", "out.raw"))
    assert Nnet.read("out.raw").components["a"].learning_rate == 0.5


def test_config_option(call):
    Path("a.conf").write_text("# comment\n--binary=false  # text\n\n--scale=2\n")
    Path("b.conf").write_text("--learning-rate=0.5\n--scale=3\n")
    out = done(
        call("nnet3-copy", "--scale=4", "--config=a.conf", "--config=b.conf", "net.raw", "-")
    )
    assert out.startswith(b"<Nnet3> \n") and b"<LearningRate> 0.5 " in out
    Path("out.raw").write_bytes(out)
    old, new = Nnet.read("net.raw").vectorize(), Nnet.read("out.raw").vectorize()
    np.testing.assert_allclose(new, 4 * old, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("binary=false\n", "a.conf:1: 'binary=false' is no line like --name=value"),
        ("\n--binari=false\n", "a.conf:2: invalid option --binari=false (did you mean binary"),
        ("--scale=x\n", "a.conf:1: --scale=x is no number"),
    ],
)
def test_broken_config_option(call, text, part):
    Path("a.conf").write_text(text)
    refused(call("nnet3-copy", "--config=a.conf", "net.raw", "out.raw"), part)
    assert not os.path.exists("out.raw")


def test_missing_config_option(call):
    refused(call("nnet3-info", "--config=none.conf", "net.raw"), "none.conf: No such file")


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (
            ["--binari=false", "net.raw", "x"],
            "invalid option --binari=false (did you mean binary?)",
        ),
        (["--=3", "net.raw", "x"], "invalid option --=3"),
        (["net.raw"], "nnet3-copy wants <nnet-in> <nnet-out>, but 1 of these is given"),
        (["net.raw", "x", "y"], "but 3 of these"),
        (["net.raw", "x", "--binary=false"], "--binary=false must stand before the file names"),
        (["--scale", "net.raw", "x"], "--scale= is no number"),
    ],
)
def test_wrong_command_line(call, args, part):
    refused(call("nnet3-copy", *args), part)
    assert not os.path.exists("x")


def test_dimensions_that_differ_are_told_with_the_file(call):
    config = (
        "input-node name=input dim=4\n"
        "component name=a type=AffineComponent input-dim=5 output-dim=3\n"
        "component-node name=a component=a input=input\noutput-node name=output input=a\n"
    )
    with open("five.config", "w") as file:
        file.write(config)
    refused(call("nnet3-init", "five.config", "x"), "five.config: component-node 'a' reads input")
    with open("five.config", "w") as file:
        file.write(config.replace("Affine", "Afine"))
    told = call("nnet3-init", "five.config", "x")
    refused(told, "five.config:2: unknown component type 'AfineComponent'")
    assert "five.config: five.config" not in str(told)


@pytest.mark.parametrize("name", kaldi_programs())
def test_usage(call, name):
    out = done(call(name, "--help")).decode()
    assert f"Usage:  {name} [options] " in out
    assert "  --config                    : Configuration file to read" in out
    assert done(call(name, "a", "--help=true", "b")).decode() == out
    command = main.get_command(click.Context(main), name)
    if all(file.startswith("[") for file in command.files):
        return  # it needs no arguments, and reads standard input
    code, nothing, err = call(name)
    assert (code, nothing) == (1, b"") and err.endswith(out)


def test_usage_tells_defaults(call):
    out = done(call("nnet3-copy", "--help")).decode()
    assert "(bool, default = true)" in out and "(float, default = -1)" in out
    assert '(string, default = "")' in out


def test_commands_are_listed(call):
    out = done(call("--help")).decode()
    assert all(name in out for name in [*kaldi_programs(), "links"])


def test_double_dash_ends_the_options(call):
    Path("--net").write_bytes(Path("net.raw").read_bytes())
    done(call("nnet3-info", "--", "--net"))


def test_command_line_is_printed(call):
    err = call("nnet3-copy", "--edits=remove-orphans;", "net.raw", "out.raw")[2]
    assert err.startswith("nnet3-copy '--edits=remove-orphans;' net.raw out.raw \n")
    err = call("nnet3-info", "--print-args=false", "net.raw")[2]
    assert err == ""


@pytest.mark.parametrize(
    ("word", "typed"),
    [
        ("a-b_c=[1]", "a-b_c=[1]"),
        ("", "''"),
        ("a b", "'a b'"),
        ("it's", '"it\'s"'),
        ("$it's", "'$it'\\''s'"),
    ],
)
def test_quoted(word, typed):
    assert quoted(word) == typed


def test_log_lines(call):
    err = call("nnet3-copy", "--verbose=1", "net.raw", "out.raw")[2]
    version = opscope.__version__
    assert f"VLOG[1] (nnet3-copy[{version}]:main():nnet3-copy.cc:0) Read 12 nodes, 5 compon" in err
    assert err.endswith(
        f"LOG (nnet3-copy[{version}]:main():nnet3-copy.cc:0)"
        " Copied raw neural net from net.raw to out.raw\n"
    )


@pytest.mark.parametrize("kind", ["", "chain-"])
def test_lines_that_kaldis_scripts_read(kind, capsys):
    """The expressions are those of log_parse.py and train/common.py in steps/libs/nnet3."""
    objective = "for 'output' is -0.4 + -0.01 = -0.41 per frame, over 20000 frames."
    print_line(f"nnet3-{kind}compute-prob", "LOG", f"Overall log-likelihood {objective}")
    told = "compute_prob_train.7.log:" + capsys.readouterr().err
    found = re.search(
        r".*compute_prob_.*\.([0-9]+).log:LOG .nnet3.*compute-prob.*:PrintTotalStats..:"
        r"nnet.*diagnostics.cc:[0-9]+. Overall ([a-zA-Z\-]+) for "
        r"'output'.*is ([0-9.\-e]+) .*per frame",
        told,
    )
    assert found is not None and found.groups() == ("7", "log-likelihood", "-0.4")
    objective = "for 'output' is -1.5 over 3000 frames."
    print_line(f"nnet3-{kind}train", "LOG", f"Overall average objective function {objective}")
    found = re.search(
        r"LOG .* Overall average objective function for 'output' is ([0-9e.\-+= ]+) over"
        r" ([0-9e.\-+]+) frames",
        told := capsys.readouterr().err,
    )
    assert found is not None and found.groups() == ("-1.5", "3000")
    assert ":PrintTotalStats():nnet-training.cc:0) " in told
