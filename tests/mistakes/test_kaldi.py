"""Mistakes with nnet3's configs, models, programs and calls: each is told in one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kaldi_models import call_main
from mistakes.kaldi import COMMANDS, CONFIGS, GOOD, TYPED
from mistakes.test_newcomer import holds
from opscope import OpscopeError, nnet3
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3 import (
    ChunkComputer,
    ChunkOptions,
    LoopedComputer,
    LoopedOptions,
    Utterance,
)
from opscope.nnet3.language.nodes import warnings_to
from opscope.nnet3.network.config_check import config_problems
from opscope.nnet3.network.nnet import Nnet

IVECTOR = GOOD.replace("input-dim=12", "input-dim=14").replace(
    "Offset(input, 1))", "Offset(input, 1), ReplaceIndex(ivector, t, 0))"
)
POOLING = """input-node name=input dim=4
component name=aff type=AffineComponent input-dim=12 output-dim=5
component name=e type=StatisticsExtractionComponent input-dim=5 include-variance=false
component name=p type=StatisticsPoolingComponent input-dim=6 left-context=100 right-context=100
component-node name=aff component=aff input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=e component=e input=aff
component-node name=p component=p input=e
output-node name=output input=p
"""
UNUSED = """component name=spare type=RectifiedLinearComponent dim=5
component-node name=lonely component=relu input=aff
"""


def replaced(number: int, line: str) -> str:
    lines = GOOD.splitlines()
    lines[number - 1] = line
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """A folder with models, and an utterance `one` of a single frame."""
    monkeypatch.chdir(tmp_path)
    nnet = Nnet.from_config_text(GOOD, 1)
    nnet.write("good.raw")
    diverged(nnet).write("nan.raw")
    Nnet.from_config_text(f"input-node name=ivector dim=2\n{IVECTOR}", 1).write("ivector.raw")
    pooling = Nnet.from_config_text(POOLING, 1)
    pooling.write("pooling.raw")
    diverged(pooling).write("nanpool.raw")
    with warnings_to(lambda line: None):
        Nnet.from_config_text(GOOD + UNUSED, 1).write("unused.raw")
    Path("mixed.config").write_text("input-node name=input dim=4\ncomponnt name=relu dim=5\n")
    Path("good.config").write_text(GOOD)
    Path("empty.config").write_text("# nothing\n")
    Path("archived.raw").write_bytes(b"one " + Path("good.raw").read_bytes())
    Path("rates").write_text("set-learning-rate name=af learning-rate=0.5\n")
    Path("net.xconfig").write_text("input name=input dim=4\noutput-layer name=output dim=3\n")
    Path("bad.xconfig").write_text(
        "input name=input dim=4\nrelu-layr name=a dim=5\nrelu-layer name=b dimm=5\n"
        "output-layer name=output dim=3 input=Append(a, c)\n"
    )
    nnet.write("text.raw", binary=False)
    text = Path("text.raw").read_text()
    for old, new in (
        ("component=relu", "component=rellu"),
        ("objective=linear", "objective=lin"),
        ("<Dim> 5", "<Dimm> 5"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    Path("bad.raw").write_text(text)
    bad = np.ones((5, 4))
    bad[2, 1], bad[4, 0] = np.nan, np.inf
    for name, array in (("x", np.ones((1, 4))), ("narrow", np.ones((1, 3))), ("nan", bad)):
        with TableWriter(f"ark:{name}.ark", "matrix") as table:
            table.write("one", array.astype(np.float32))
    with TableWriter("ark:other.ark", "vector") as table:
        table.write("two", np.ones(2, np.float32))
    return tmp_path


def diverged(nnet: Nnet) -> Nnet:
    found = nnet.copy()
    found.components["aff"].linear_params[0, 0] = np.nan  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(("number", "line", "words"), CONFIGS, ids=[row[1][:70] for row in CONFIGS])
def test_config(number: int, line: str, words: str, folder: Path) -> None:
    Path("bad.config").write_text(replaced(number, line))
    code, out, err = call_main("verify", "bad.config")
    text = out.decode()
    assert not holds(text, words), text
    assert code == (1 if words.startswith("error") else 0)
    assert (code == 1) == ("error" in err) and "Traceback" not in err
    assert all(len(told) <= 500 for told in text.splitlines())


@pytest.mark.parametrize(("typed", "words"), COMMANDS, ids=[row[0][:70] for row in COMMANDS])
def test_command(typed: str, words: str, folder: Path) -> None:
    code, out, err = call_main(*typed.split())
    text = out.decode("utf-8", "replace") + err
    assert not holds(text, words), text
    assert code == (0 if "no error" in words or words.startswith("WARNING") else 1), text
    told = [line for line in text.splitlines() if line.startswith(("ERROR", "error"))]
    assert all(len(line) <= 500 for line in told)


@pytest.mark.parametrize(("typed", "words"), TYPED, ids=[row[0][:70] for row in TYPED])
def test_typed(typed: str, words: str) -> None:
    nnet = Nnet.from_config_text(GOOD, 1)
    names = {
        **{name: getattr(nnet3, name) for name in nnet3.__all__},
        "nnet": nnet,
        "diverged": diverged(nnet),
        "rows": [[0, t, 0] for t in (-1, 0, 1)],
        "np": np,
        "Io": nnet3.IoSpecification,
        "Request": nnet3.ComputationRequest,
        "request": nnet3.simple_request(nnet, 3),
        "net": nnet3.compile_request(nnet, nnet3.simple_request(nnet, 3)),
    }
    with pytest.raises(OpscopeError) as caught:
        exec(compile(typed, "typed.py", "exec"), names)
    message = str(caught.value)
    assert not holds(message, words), message
    assert len(message) <= 500 and "\n" not in message


def test_the_good_config_is_good(folder: Path) -> None:
    Path("good.config").write_text(GOOD)
    code, out, err = call_main("verify", "good.config")
    told = "good.config: 8 nodes, 3 components, 83 parameters, no error\n"
    assert (code, out.decode(), err) == (0, told, "")


def test_every_mistake_of_a_config_is_told_of(folder: Path) -> None:
    lines = GOOD.splitlines()
    for number, line, words in CONFIGS[:3] + CONFIGS[5:6]:
        assert words.startswith("error") and line
        lines[number - 1] = line
    lines[7] = "output-node name=output input=Sum(relu, input)"
    Path("bad.config").write_text("\n".join(lines))
    places = [problem.message.split(": ")[0] for problem in config_problems("bad.config")]
    assert places == [f"bad.config:{number}" for number in (2, 3, 7, 8)]


def test_many_mistakes_in_the_order_of_lines(folder: Path) -> None:
    Path("bad.config").write_text(
        "\n".join(
            [
                "input-node name=input dim=4",
                "component name=a type=AffineComponent input-dim=12 output-dim=5",
                "component name=b type=AffineComponent input-dim=5",
                "component-node name=a component=a input=Append(Offset(input, -1), input)",
                "component-node name=b component=b input=a_input",
                "component-node name=c component=d input=Sum(a input)",
                "output-node name=output input=Sum(a, input)",
                "output-node name=output2 input=bb",
            ]
        )
    )
    found = config_problems("bad.config")
    places = [problem.message.split(": ")[0] for problem in found]
    assert places == [f"bad.config:{number}" for number in (3, 4, 5, 6, 6, 7, 8)]
    assert {problem.severity for problem in found} == {"error"}


def test_verbose_programs_explain_rows_that_cannot_be_computed(folder: Path) -> None:
    options = "--verbose=1", "--min-chunk-size=1"
    code, _, err = call_main(
        "nnet3-xvector-compute", *options, "pooling.raw", "ark:x.ark", "ark:out.ark"
    )
    assert code == 1 and "VLOG[1]" in err and "is kNotComputable, dependencies:" in err


def test_readers_warn_as_the_check_of_kaldi(folder: Path) -> None:
    told: list[str] = []
    with warnings_to(told.append):
        Nnet.read("unused.raw")
    assert told == [
        "Component spare is never used by any node.",
        "Node lonely is never used to compute any output.",
    ]


def test_nan_in_features_is_told_of_once_for_each_utterance() -> None:
    """With its key and frame, however many chunks read it; what is computed is computed."""
    nnet = Nnet.from_config_text(GOOD, 1)
    bad = np.ones((40, 4), np.float32)
    bad[7] = np.nan
    bad[20:, 1] = np.inf
    utterances = [Utterance(key, rows) for key, rows in (("a", bad[:7]), ("b", bad), ("c", bad))]
    wanted = [
        f"{key}: features: 21 of 40 frames hold nan or infinite numbers, the first of them frame 7;"
        " what is computed from them is also nan or infinite"
        for key in "bc"
    ]
    for computer in (
        ChunkComputer(nnet, ChunkOptions(frames_per_chunk=5)),
        LoopedComputer(nnet, LoopedOptions(frames_per_chunk=5)),
    ):
        told: list[str] = []
        with warnings_to(told.append):
            outputs = dict(computer.compute_all(utterances))
        assert told == wanted
        assert np.isfinite(outputs["a"]).all() and np.isfinite(outputs["b"][:6]).all()
        assert not np.isfinite(outputs["b"][6:9]).any()


def test_nan_given_to_streams_and_single_computations() -> None:
    nnet = Nnet.from_config_text(GOOD, 1)
    rows = np.ones((5, 4), np.float32)
    bad = rows.copy()
    bad[3, 0] = np.inf
    told: list[str] = []
    with warnings_to(told.append):
        stream = LoopedComputer(nnet).stream()
        stream.accept(rows)
        stream.accept(bad)
        request = nnet3.simple_request(nnet, 3)
        computer = nnet3.NnetComputer(nnet3.compile_request(nnet, request), nnet)
        computer.accept_input("input", rows)
        computer.accept_input("input", bad)
        computer.accept_input("input", bad, quiet=True)
    assert [line.partition(";")[0] for line in told] == [
        "stream: features: 1 of 5 frames hold nan or infinite numbers, the first of them frame 8",
        "the input 'input': 1 of 5 rows hold nan or infinite numbers, the first of them row 3",
    ]
