"""`verify` of models and xconfigs: all problems at once, with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from damage import flips, truncations
from kaldi_data import need
from kaldi_models import TRANSITIONS, call_main
from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.files.kaldi_io import Reader
from opscope.nnet3.inference.saved import save_nnet
from opscope.nnet3.network.file_check import model_problems
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.xconfig import xconfig_to_config
from opscope.nnet3.xconfig.check import xconfig_problems

LAYERS = """# a comment
input name=input dim=4
relu-layer name=a dim=5

affine-layer name=b dim=5 input=a
output-layer name=output dim=3 input=Append(a, b@-1)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def verify(name: str, *told: str) -> None:
    """`opscope verify` tells this, each at the beginning of a line, and nothing more."""
    code, out, err = call_main("verify", name)
    lines = out.decode().splitlines()
    assert len(lines) == len(told), "\n".join(lines)
    for line, wanted in zip(lines, told, strict=True):
        assert line.startswith(wanted), line
        assert len(line) <= 500
    errors = sum(line.startswith("error: ") for line in lines)
    assert code == int(errors > 0)
    assert err == (f"{name}: {errors} error{'s' * (errors > 1)}\n" if errors else "")


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


# xconfigs


def test_a_right_xconfig() -> None:
    Path("net.xconfig").write_text(LAYERS)
    verify("net.xconfig", "net.xconfig: 12 nodes, 5 components, ")


def test_what_is_unusual_in_an_xconfig() -> None:
    text = changed(LAYERS, ("Append(a, b@-1)", "a"))
    Path("net.xconfig").write_text(text)
    verify("net.xconfig", "warning: net.xconfig: Node b is never used", "net.xconfig: 12 nodes")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            [
                "input name=input dim=4",
                "relu-layr name=a",
                "relu-layer name=b dmi=5 tgt-rms=3 input=c",
            ],
            [
                "x:2: no such layer type: relu-layr (did you mean relu-layer",
                "x:3: relu-layer 'b': dmi=5: no such option (did you mean dim",
                "x:3: relu-layer 'b': tgt-rms=3: no such option (did you mean target-rms",
                "x:3: relu-layer 'b': no layer before this one is named 'c'",
                "x:3: the last line, and there was no output layer",
            ],
        ),
        (  # what reads a wrong layer is right
            [
                "input name=input dim=4",
                "relu-layer name=a dim=five max-change=x",
                "lstm-layer name=l input=a@-1",
                "relu-layer name=b input=Sum([-1], input, l.c_t)",
                "output-layer name=output dim=3 input=b",
                "output-layer name=other dim=3 input=Append(b",
            ],
            [
                "x:2: relu-layer 'a': dim=five is no integer",
                "x:2: relu-layer 'a': max-change=x is no number",
                "x:6: output-layer 'other': expected ')' at the end of 'Append(b'",
            ],
        ),
        (
            [
                "input name=input dim=4",
                "relu-layer nam=a dim=5",
                "relu-layer name=b dim=5 max-change=a",
                "relu-layer name=b dim=7 input=[-1]",
                "relu-layer name=c dim=7 input=Sum(input, Append(input, input))",
                "output-layer name=output",
            ],
            [
                "x:2: relu-layer: name= is missing (did you mean nam?)",
                "x:3: relu-layer 'b': max-change=a is no number",
                "x:4: relu-layer: 'b': the name is taken by x:3",
                "x:5: relu-layer 'c': the parts of Sum(...) differ in dimension",
            ],
        ),
        (
            [
                "input name=input dim=4",
                'relu-layer name=a dim=5 ng-affine-options="max-chnge=2"',
                "tdnnf-layer name=b bottleneck-dim=2",
                "output-layer name=output dim=3 input=a",
            ],
            [
                "x:2: max-chnge=2 is not used here (did you mean max-change?): 'component name=a.",
                "x:3: tdnnf-layer 'b': dim= is missing",
            ],
        ),
        (
            [
                "input name=input dim=4",
                'relu-layer name=a dim=5 ng-affine-options="max-chnge=2"',
                'output-layer name=output dim=3 ng-affine-options="rank-in=0"',
            ],
            ["x:2: max-chnge=2 is not used here", "x:3: NaturalGradientAffineComponent: rank-in=0"],
        ),
        (
            ["input name=input dim=4", "output name=a.b", "input name=a dim=4", "output name=a.b2"],
            [],
        ),
        (
            ["input name=input dim=4", "delta-layer name=a", "delta-layer name=b input=input"],
            ["x:3: delta-layer 'b': dim-range-node name=input_copy1 is also written by x:2 in ref"],
        ),
    ],
)
def test_all_problems_of_an_xconfig(lines: list[str], told: list[str]) -> None:
    Path("x").write_text("\n".join(lines))
    found = [problem.message for problem in xconfig_problems("x") if problem.severity == "error"]
    assert len(found) == len(told), found
    for message, wanted in zip(found, told, strict=True):
        assert message.startswith(wanted), message


def test_long_lines_are_told_in_short() -> None:
    columns = ",".join(map(str, range(2000)))
    component = f"component name=p type=PermuteComponent column-mp={columns}"
    Path("bad.config").write_text(f"input-node name=input dim=2000\n{component}")
    verify(
        "bad.config",
        "error: bad.config:2: PermuteComponent wants column-map= (did you mean column-mp",
        "error: bad.config: a network needs an output-node",
    )


# Models


def model(binary: bool = False) -> bytes:
    """The file of a raw network of eleven nodes."""
    Nnet.from_config_text(xconfig_to_config(LAYERS), 0).write("good.raw", binary)
    return Path("good.raw").read_bytes()


def test_a_right_model() -> None:
    model()
    verify("good.raw", "good.raw: 12 nodes, 5 components, ")


def test_all_problems_of_the_lines_of_a_model() -> None:
    text = changed(
        model().decode(),
        ("component=a.relu input=a.affine", "component=a.rlu input=a.affine"),
        ("component=b input=a.relu", "component=b input=Append(a.relu, input)"),
        ("objective=linear", "objective=softmax"),
    )
    Path("bad.raw").write_text(text)
    verify(
        "bad.raw",
        "error: bad.raw:4: there is no component 'a.rlu' (did you mean a.relu",
        "error: bad.raw:8: objective=softmax: linear or quadratic",
    )
    Path("bad.raw").write_text(changed(text, ("a.rlu", "a.relu")))
    verify(
        "bad.raw",
        "error: bad.raw:5: reads Append(a.relu, input) of dimension 9, but its component 'b'",
        "error: bad.raw:8: objective=softmax: linear or quadratic",
    )


def test_all_damaged_components_and_numbers_of_a_model() -> None:
    parts = re.split("(?=<ComponentName>)", model().decode())
    assert len(parts) == 6
    parts[1] = re.sub(r"<RankIn> \d+", "<RankIn> x", parts[1])
    parts[2] = parts[2].replace("<Dim>", "<Dimm>")
    parts[3] = re.sub(r"\[\n *\S+", "[\n  nan", parts[3])
    parts[4] = parts[4].replace("AffineComponent>", "AfineComponent>", 1)
    Path("bad.raw").write_text("".join(parts))
    lines = "".join(parts).splitlines()
    where = [next(i for i, line in enumerate(lines, 1) if x in line) for x in ("> x", "<Dimm>")]
    code, out, err = call_main("verify", "bad.raw")
    told = out.decode().splitlines()
    assert code == 1 and err == "bad.raw: 4 errors\n"
    assert re.match(rf"error: bad.raw: an integer .* 'x' \(byte \d+, line {where[0]}\)$", told[0])
    assert re.match(rf"error: bad.raw: <Dim> .* '<Dimm>' \(byte \d+, line {where[1]}\)$", told[1])
    assert "unknown component '<NaturalGradientAfineComponent>' (did you mean" in told[2]
    assert told[3].startswith("error: bad.raw: component 'b': 1 of 25 numbers of linear_params")
    assert len(told) == 4


def test_a_model_that_ends_early() -> None:
    data = model(binary=True)
    for cut in np.linspace(10, len(data) - 1, 30, dtype=int):
        Path("cut.raw").write_bytes(data[:cut])
        found = [problem.message for problem in model_problems("cut.raw")]
        assert len(found) == 1, found  # not a component for each line that names it
        assert found[0].startswith("cut.raw"), found


def test_names_and_counts_of_components() -> None:
    text = changed(model().decode(), ("<NumComponents> 5", "<NumComponents> 6"))
    text = text.replace("<ComponentName> b ", "<ComponentName> a.relu ")
    Path("bad.raw").write_text(text)
    verify(
        "bad.raw",
        "error: bad.raw:5: there is no component 'b'",
        "error: bad.raw: two components are called 'a.relu'",
        "error: bad.raw: <NumComponents> is 6, and there are 5 (byte ",
    )


def test_all_problems_of_an_acoustic_model() -> None:
    AmNnetSimple(Nnet.read_from(Reader(model())), TRANSITIONS, binary=False).write("good.mdl")
    verify("good.mdl", "good.mdl: 12 nodes, 5 components, ")
    text = changed(
        Path("good.mdl").read_text(),
        ("<State> 1 </State>", "<Stat> 1 </State>"),
        ("component=a.relu input=a.affine", "component=a.relu input=a.afine"),
        ("<Priors>  [ ]", "<Priors>  [ 0.5 0.5 ]"),
    )
    Path("bad.mdl").write_text(text)
    line = text[: text.index("a.afine")].count("\n") + 1
    verify(
        "bad.mdl",
        "error: bad.mdl: <State> or </TopologyEntry> was expected here",
        f"error: bad.mdl:{line}: descriptor 'a.afine', column 1: there is no node 'a.afine'",
        "error: bad.mdl: 2 priors for an output of dimension 3 (byte",
    )


def test_numbers_of_a_saved_network() -> None:
    nnet = Nnet.read_from(Reader(model()))
    nnet.components["b"].learning_rate = 0.0  # type: ignore[attr-defined]
    save_nnet(nnet, "net.pb")
    rate = "warning: net.pb: Component b has the learning rate 0"
    verify("net.pb", rate, "net.pb: 12 nodes, 5 components, 88 parameters, no error")
    nnet.components["b"].linear_params[1] = np.inf  # type: ignore[attr-defined]
    save_nnet(nnet, "net.pb")
    verify("net.pb", "error: net.pb: component 'b': 5 of 25 numbers of linear_params are nan", rate)


@pytest.mark.parametrize("binary", [False, True])
def test_whatever_reading_refuses_is_told(binary: bool) -> None:
    """Of damaged files: something is found, and it is a problem, never another error."""
    data = model(binary)
    rng = np.random.default_rng(0)
    files = [*list(truncations(data))[::97], *list(flips(data, rng, 100))[::5]]
    refused = 0
    for damaged in files:
        Path("damaged.raw").write_bytes(damaged)
        try:
            Nnet.read("damaged.raw")
        except OpscopeError:
            refused += 1
            try:
                assert model_problems("damaged.raw")
            except OpscopeError as error:  # neither text nor binary
                assert "zero byte" in str(error)
    assert refused > 50


def test_kaldis_own_model() -> None:
    path = need("formats", "final.mdl")
    assert model_problems(path) == []
