"""Mistakes in CNTK's languages, data and models: one error each, which says where and what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mistakes.cntk import REDESIGNED
from mistakes.cntk_languages import LANGUAGES
from mistakes.test_newcomer import holds
from opscope import cntk
from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.experiment import read_experiment
from opscope.framework.base.errors import OpscopeError

SGD = "maxEpochs = 1 ; minibatchSize = 2 ; learningRatesPerSample = 0.1"
READER = (
    "readerType = CNTKTextFormatReader ; file = d.ctf ; input = ["
    " x = [ dim = 2 ; format = dense ] ; y = [ dim = 2 ; format = dense ] ]"
)
CONFIG = """command = {command} ; modelPath = m.dnn ; deviceId = -1 ; makeMode = false
Train = [ action = train
 Net = [ x = Input(2, tag = feature) ; y = Input(2, tag = label)
 W = Parameter(2, 2) ; z = Times(W, x)
 ce = CrossEntropyWithSoftmax(y, z, tag = criterion) ]
 {builder}
 SGD = [ {sgd} ]
 reader = [ {reader} ]
 {extra} ]"""


def train(
    sgd: str = SGD,
    reader: str = READER,
    builder: str = "NDLNetworkBuilder = [ run = Net ]",
    command: str = "Train",
    extra: str = "",
) -> None:
    """Run a config with these parts."""
    Path("d.ctf").write_text("|x 1 2 |y 1 0\n|x 0 3 |y 0 1\n")
    parts = {"sgd": sgd, "reader": reader, "builder": builder, "command": command, "extra": extra}
    Path("a.cntk").write_text(CONFIG.format(**parts))
    cntk.run_config("configFile=a.cntk", run=cntk.Run(say=lambda line: None))


def section(text: str) -> cntk.ConfigParameters:
    return cntk.parse_config(f"r = [ {text} ]").section("r")


def data(text: str) -> None:
    """Read all of a file in CNTK's text format."""
    Path("e.ctf").write_text(text)
    with cntk.create_reader(section(READER.replace("d.ctf", "e.ctf"))) as reader:
        reader.start_minibatch_loop(2, 0)
        while reader.get_minibatch() is not None:
            pass


def ndl(text: str, macros: str = "") -> None:
    """Build a network of an input x and further lines."""
    load = f"load = M\nM = [ {macros} ]\n" if macros else ""
    Path("n.ndl").write_text(f"Net = [ x = Input(2, tag = feature)\n {text} ]\nrun = Net\n{load}")
    cntk.build_ndl_file("n.ndl")


def mel(text: str) -> None:
    """Run a script on the network y = Tanh (W x)."""
    lines = "x = Input(2, tag=feature)\n W = Parameter(3, 2)\n z = Times(W, x)\n y = Tanh(z)"
    Path("n.ndl").write_text(f"Net = [ {lines} ]\nrun = Net")
    session = cntk.Session()
    session.open("m", cntk.build_ndl_file("n.ndl").network)
    cntk.run_script(session, cntk.parse_mel(text))
    assert session.default is not None
    session.settle(session.default).validate()


def brainscript(text: str) -> cntk.Network:
    """Build a network of an input x and further members."""
    network = cntk.build_network(f"{{ x = Input {{2}} ; {text} }}")
    network.validate()
    return network


def redesigned(top: str = "", optimizer: str = "", network: str = "") -> None:
    """Read a file of the redesigned language with these parts."""
    text = REDESIGNED.replace("STREAMS", "").replace("RATES", "0.8")
    if top:
        text = text.replace("actions = train", top)
    if optimizer:
        start = text.index("new SGDOptimizer")
        text = text[:start] + optimizer + text[text.index("]", start) + 1 :]
    if network:
        start = text.index("new SimpleNetworkBuilder")
        end = text.index("]\n    ]", start)
        text = text[:start] + network + text[end + 1 :]
    for action in read_experiment(Source("train.bs", text)).actions:
        action.network.validate()
        cntk.SgdOptions.of(action.config.section("SGD"))


def model() -> cntk.CntkNet:
    return cntk.CntkNet(brainscript("W = ParameterTensor {2:2} ; z = Pass (W * x, tag = 'output')"))


def file(name: str, content: bytes) -> str:
    Path(name).write_bytes(content)
    return name


def wide(text: str) -> bytes:
    return text.encode("utf-16-le")


def two_nodes(operation: str, attributes: dict[str, Any] | None = None) -> None:
    """A network of an input and a node that reads it."""
    network = cntk.Network()
    network.add("InputValue", "x", shape=2)
    network.add(operation, "z", ["x"], attributes)
    network.validate()


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model file of one product."""
    path = tmp_path_factory.mktemp("model") / "m.dnn"
    cntk.CntkNet(brainscript("W = ParameterTensor {2:2} ; z = W * x")).save(path)
    return path.read_bytes()


@pytest.mark.parametrize(("code", "words"), LANGUAGES, ids=[code[:70] for code, _ in LANGUAGES])
def test_mistake(
    code: str, words: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {**globals(), **{name: getattr(cntk, name) for name in cntk.__all__}, "MODEL": content}
    with pytest.raises(OpscopeError) as caught:
        exec(compile(code, "mistake.py", "exec"), names | {"np": np})
    message = str(caught.value)
    assert not holds(message, words), message
    assert message.count("\n") < 20 and all(len(line) <= 500 for line in message.splitlines())


def test_there_are_enough_of_each() -> None:
    counts = {
        kind: sum(code.startswith(kind) for code, _ in LANGUAGES)
        for kind in ("train", "data", "ndl", "mel", "brainscript", "redesigned", "load_model")
    }
    assert min(counts.values()) >= 4, counts
    assert len({code for code, _ in LANGUAGES}) == len(LANGUAGES) >= 100


def test_a_minus_sign_that_cntk_drops_is_warned_of(tmp_path: Path) -> None:
    """CNTK reads `Constant(-0.5)` as 0.5: a character behind a bracket becomes the separator."""
    path = tmp_path / "n.ndl"
    path.write_text("Net = [ x = Input(1, tag = feature)\n c = Constant(-0.5) ]\nrun = Net")
    built = cntk.build_ndl_file(path)
    assert built.network.find("c").attributes["value"] == 0.5
    (warning,) = built.warnings
    assert "n.ndl:2:6: CNTK takes a '-' right after a bracket for a separator" in warning
