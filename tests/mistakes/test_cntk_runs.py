"""Mistakes that show when a CNTK config runs: devices, plug-ins, readers that give nothing."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from opscope.cntk.actions import common
from opscope.cntk.actions.common import Run, place_of
from opscope.cntk.actions.run import PLUGINS, add_action, run_commands
from opscope.cntk.config.files import parse_config
from opscope.cntk.network import catalog as nodes
from opscope.cntk.readers.base.data import Samples, Stream
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.readers.base.reader import DataReader
from opscope.framework.base.backend import CPUPlace, gpu_present
from opscope.framework.base.errors import DeviceError, OpscopeError, RunError
from opscope.framework.base.options import plugins
from opscope.python_api.cli.main import main

CONFIG = """command = C ; modelPath = m.dnn ; deviceId = -1 ; makeMode = false
C = [ action = {action}
    run = Net
    Net = [
        x = Input(2, tag = feature) ; y = Input(2, tag = label)
        W = Parameter(2, 2, init = uniform)
        ce = CrossEntropyWithSoftmax(y, Times(W, x), tag = criterion)
    ]
    NDLNetworkBuilder = [ run = Net ]
    reader = [ readerType = Mine ]
    SGD = [ maxEpochs = 2 ; minibatchSize = 2 ; learningRatesPerSample = 0.1 ]
]"""


class Mine(DataReader):
    """A reader of one's own that gives no minibatch."""

    def __init__(self, config: Any) -> None:
        self.streams = [Stream("x", 2), Stream("y", 2)]

    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        self.left = [None]

    def get_minibatch(self) -> Any:
        return self.left.pop()


class Faulty(Mine):
    def get_minibatch(self) -> Any:
        raise KeyError("row 7")


class Tuples(Mine):
    def get_minibatch(self) -> Any:
        return ({}, None)


class Rows(Mine):
    """One minibatch of two rows."""

    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        rows = Samples(np.arange(3), np.eye(2, dtype=np.float32))
        self.left = [None, Minibatch({"x": rows, "y": rows})]  # type: ignore[list-item]


def unbuildable(config: Any) -> Any:
    raise TypeError("no file")


class Point:
    """An entry point of another package."""

    def __init__(self, made: Any) -> None:
        self.name, self.value, self.load = "Mine", "mine:made", lambda: made


def commands(monkeypatch: Any, made: Any, action: str = "train") -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: [Point(made)])
    run_commands(parse_config(CONFIG.format(action=action)), Run(say=lambda line: None))


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)


class TestReaders:
    @pytest.mark.parametrize("action", ["train", "test"])
    def test_no_samples(self, monkeypatch, action):
        with pytest.raises(RunError, match="the reader gave no (samples|data)"):
            commands(monkeypatch, Mine, action)
        assert not Path("m.dnn").exists()

    @pytest.mark.parametrize("action", ["train", "test"])
    def test_a_fault_names_the_reader(self, monkeypatch, action):
        with pytest.raises(RunError, match=r"the reader \S+\.Faulty failed: KeyError: 'row 7'"):
            commands(monkeypatch, Faulty, action)

    def test_something_else_than_a_minibatch(self, monkeypatch):
        with pytest.raises(RunError, match=r"\.Tuples: minibatch 1 of epoch 1 is a tuple, not a M"):
            commands(monkeypatch, Tuples)

    def test_one_that_cannot_be_made(self, monkeypatch):
        message = "the reader type 'Mine' of another package .* failed: TypeError: no file"
        with pytest.raises(RunError, match=message):
            commands(monkeypatch, unbuildable)

    def test_one_that_works(self, monkeypatch):
        commands(monkeypatch, Rows)
        assert Path("m.dnn").exists()


class TestPlugins:
    """A plug-in without its module."""

    def test_of_readers(self, monkeypatch):
        point = EntryPoint("Mine", "no_such_module:reader", "opscope.readers")
        monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
        with pytest.raises(OpscopeError, match=r"'Mine' of the group opscope\.readers.*no_such_mo"):
            run_commands(parse_config(CONFIG.format(action="train")), Run(say=lambda line: None))

    def test_of_nodes(self, monkeypatch):
        point = EntryPoint("mine", "no_such_module", nodes.GROUP)
        monkeypatch.setattr(nodes, "entry_points", lambda group: [point])
        nodes.load_plugins.cache_clear()
        with pytest.raises(OpscopeError, match=r"'mine' of the group opscope\.nodes.*no_such_mod"):
            nodes.kind("Sigmoidd")
        nodes.load_plugins.cache_clear()

    def test_of_actions(self, monkeypatch):
        point = EntryPoint("mine", "no_such_module:act", "opscope.actions")
        monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
        with pytest.raises(OpscopeError, match=r"'mine' of the group opscope\.actions.*no_such_mo"):
            run_commands(parse_config("command = C ; C = [ action = mine ]"))

    def test_a_fault_of_an_action(self, monkeypatch):
        def act(given: Run, section: object) -> None:
            raise ZeroDivisionError("division by zero")

        add_action("mine", act)
        try:
            with pytest.raises(RunError, match="C: the action 'mine' failed: ZeroDivisionError"):
                commands(monkeypatch, Mine, "mine")
        finally:
            PLUGINS.remove("mine")


class TestDevices:
    @pytest.mark.skipif(gpu_present(), reason="there is a GPU")
    def test_a_gpu_that_is_not_there(self):
        for text in ("gpu", "0", "GPU"):
            with pytest.raises(DeviceError, match="a GPU was asked for"):
                place_of(parse_config(f"deviceId = {text}"))

    def test_auto_says_where_it_falls_back(self, monkeypatch):
        monkeypatch.setattr(common, "gpu_present", lambda: False)
        lines: list[str] = []
        assert place_of(parse_config("deviceId = auto"), lines.append) == CPUPlace()
        assert lines == ["deviceId = auto: there is no GPU, so this runs on the CPU\n"]
        assert place_of(parse_config(""), lines.append) == CPUPlace()
        assert len(lines) == 1  # nobody asked


class TestBlanksInArrays:
    def test_are_warned_of_once(self, caplog):
        config = parse_config("a = { one two three*2 }\nb = 1 2\nc = { x:y z }\nd = {one}\n")
        with caplog.at_level(logging.WARNING, "opscope.cntk"):
            assert config.array("a").strings() == ["one two three"] * 2  # as CNTK reads it
            for name in "abcd":
                config.array(name)
        (warning,) = [record.getMessage() for record in caplog.records]
        assert warning == (
            "<string>:1:5: blanks separate nothing: the array has 2 elements 'one two three';"
            " write 'one:two:three*2' for one element for each word"
        )


class TestBlanksBetweenParameters:
    def test_keep_the_meaning_and_are_warned_of_once(self, caplog):
        config = parse_config(
            'a = [ modelPath=m/q.dnn traceLevel=1 ]\nb = "p q=r"\nc = x(p q=r)\n'
            "d = [e = f; g = h]\ni = two words\n"
        )
        with caplog.at_level(logging.WARNING, "opscope.cntk"):
            for _ in range(2):
                assert config.section("a").string("modelPath") == "m/q.dnn traceLevel=1"
                assert not config.section("a").has("traceLevel")
            assert config.string("b") == "p q=r" and config.string("c") == "x(p q=r)"
            assert config.section("d").string("e") == "f" and config.string("i") == "two words"
        (warning,) = [record.getMessage() for record in caplog.records]
        assert warning == (
            "<string>:1:17: blanks separate nothing: the value is 'm/q.dnn traceLevel=1', and"
            " traceLevel is no parameter; write ';' before it, or quotes around the value"
        )

    def test_check_tells(self, tmp_path):
        path = tmp_path / "t.cntk"
        path.write_text("command=w\nw=[ action=write; modelPath=m.dnn traceLevel=1 ]\n")
        done = CliRunner().invoke(main, ["cntk", "check", str(path)])
        assert "t.cntk:2:29: " in done.output and "blanks separate nothing" in done.output
