"""Loops that are compiled in the background once they are hot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opscope.framework.fusion import chains
from opscope.framework.fusion.compiled import compiler, native

pytestmark = pytest.mark.skipif(
    not (chains.available() and compiler.available()) or sys.platform == "win32",
    reason="there is no native library, or no C compiler",
)

_NET = """
import numpy as np, opscope, os, sys, time
from opscope.framework.fusion import chains
from opscope.framework.fusion.compiled import hot
chains.HOT_WORK = 1
b = opscope.NetBuilder("n")
y = b.tanh(b.scale(b.input("x", [-1, 50]), scale=1.73))
scope = opscope.Scope()
x = np.ones((100, 50), np.float32)
def run():
    return np.array(b.run(scope, feed={"x": x}, fetch=[y])[y.name])
first = run()
run()
"""


def run_net(end: str, tmp_path: Path, **environment: str) -> None:
    """Run a process that has a hot loop."""
    cache = {"OPSCOPE_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    env = {**os.environ, **cache, **environment}
    subprocess.run([sys.executable, "-c", _NET + end], env=env, check=True, timeout=250)


def test_a_hot_loop_is_compiled_and_gives_the_same_bits(tmp_path: Path) -> None:
    end = """
hot.background.thread.join()
assert [one.is_compiled for one in chains.programs()] == [True]
assert (run() == first).all()
hot.look()
hot.background.thread.join()
"""
    run_net(end, tmp_path)
    assert len(list((tmp_path / "cache").glob("*.so"))) == 1


@pytest.mark.parametrize("end", ["", "if os.fork() == 0: sys.exit(0)\nos.wait()\n"])
@pytest.mark.skipif(not native.is_built(), reason="the interpreter would be compiled")
def test_a_process_ends_while_a_loop_is_compiled(end: str, tmp_path: Path) -> None:
    """It ends long before the compiler does, also after a fork, and leaves nothing behind."""
    slow = tmp_path / "cc"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    slow.chmod(0o755)
    wait = f"while not os.path.exists('{tmp_path}/pid'): time.sleep(0.01)\n"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    run_net(wait + end, tmp_path, OPSCOPE_CC="", PATH=path)
    assert not list(tmp_path.glob("opscope-*"))
