"""The limit `cpu`: a command that a file drives ends where its processor time is used up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from opscope import OpscopeError
from opscope.framework.base.untrusted.limits import SWITCH
from opscope.python_api.cli.cpu_budget import cpu_budget

resource = pytest.importorskip("resource", reason="this system keeps no account of a process")


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def test_a_command_ends_once_its_budget_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "cpu=1")
    before = resource.getrlimit(resource.RLIMIT_CPU), signal.getsignal(signal.SIGXCPU)
    told = pytest.raises(OpscopeError, match=r"show: 1 seconds of processor .*cpu=NUMBER")
    with told, cpu_budget("show"):
        work(60)
    assert (resource.getrlimit(resource.RLIMIT_CPU), signal.getsignal(signal.SIGXCPU)) == before


def test_an_error_that_somebody_swallows_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "cpu=1")
    swallowed = 0
    with pytest.raises(OpscopeError, match="cpu=NUMBER"), cpu_budget("run"):
        try:
            work(60)
        except OpscopeError:
            swallowed += 1
        work(60)
    assert swallowed == 1


def test_threads_other_than_the_main_one_are_not_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "cpu=0")
    ended: list[bool] = []

    def look() -> None:
        with cpu_budget("show"):
            work(0.1)
        ended.append(True)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert ended


LOOP = """
import numpy as np, onnx
from onnx import TensorProto as T, helper as h
info = h.make_tensor_value_info
body = h.make_graph(
    [h.make_node("MatMul", ["c", "c"], ["c2"]), h.make_node("Identity", ["go"], ["on"])], "body",
    [info("i", T.INT64, []), info("go", T.BOOL, []), info("c", T.FLOAT, [300, 300])],
    [info("on", T.BOOL, []), info("c2", T.FLOAT, [300, 300])])
graph = h.make_graph(
    [h.make_node("Loop", ["n", "", "x"], ["y"], body=body)], "g",
    [info("x", T.FLOAT, [300, 300])], [info("y", T.FLOAT, [300, 300])],
    [h.make_tensor("n", T.INT64, [], [90_000])])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
onnx.save(model, "loop.onnx")
"""


def test_a_loop_within_its_rounds_ends_by_it(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    subprocess.run([sys.executable, "-c", LOOP], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "opscope", "compare", "loop.onnx", "loop.onnx"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {SWITCH: "cpu=2"}, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "2 seconds of processor time are used up" in done.stderr
    assert "Traceback" not in done.stderr
