"""Files that opscope writes name no folders of the machine that wrote them, unless asked to."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.ir.messages import parse_net, serialize_net
from opscope.framework.ir.sources import relative_path

HERE = str(pathlib.Path(__file__).parent)


def net_with_inner_nets() -> NetBuilder:
    b = NetBuilder("n")
    x = b.input("x", [-1, 2], levels=1)
    with b.recurrent("loop") as step:
        row, state = step.input(x), step.memory(3)
        new = b.fc([row, state], size=3, activation="tanh")
        step.update(state, new)
        step.output(new)
    b.fc(x, size=2, name="out")
    return b


def initialized() -> tuple[NetBuilder, Scope]:
    b, scope = net_with_inner_nets(), Scope()
    b.initialize(scope)
    return b, scope


@pytest.mark.parametrize("inside", [True, False])
def test_saved_nets_hold_no_absolute_paths(tmp_path, monkeypatch, inside) -> None:
    b, scope = initialized()
    monkeypatch.chdir(pathlib.Path(HERE).parent if inside else tmp_path)
    opscope.save(b, scope, tmp_path / "net")
    data = (tmp_path / "net.pb").read_bytes()
    folder = pathlib.Path(HERE).name
    name = pathlib.Path(__file__).name
    assert HERE.encode() not in data and os.sep.encode() + name.encode() not in data.replace(
        f"{folder}/{name}".encode(), b""
    )
    files = {op.source.file for op in opscope.load(tmp_path / "net").net.desc.ops}
    assert files - {""} == {f"{folder}/{name}" if inside else name}
    assert any(op.source and op.source.file == __file__ for op in b.op_list.ops), "as before here"


def test_absolute_paths_are_saved_where_asked_for(tmp_path) -> None:
    opscope.save(*initialized(), tmp_path / "net", absolute_sources=True)
    assert __file__.encode() in (tmp_path / "net.pb").read_bytes()


def test_checkpoints_hold_no_absolute_paths(tmp_path) -> None:
    b = NetBuilder("n")
    cost = b.mean(b.square(b.fc(b.input("x", [-1, 2]), size=1)), name="loss")
    b.backward_from(cost)
    b.add_optimization(0.1)
    batches = [{"x": np.ones((2, 2))}]
    options = {"scope": Scope(), "checkpoint": tmp_path / "run", "progress": False}
    opscope.train(b, batches, epochs=1, **options)
    data = (tmp_path / "run.checkpoint").read_bytes()
    assert HERE.encode() not in data and pathlib.Path(__file__).name.encode() in data
    opscope.train(b, batches, epochs=2, resume=True, **options)


def test_the_command_line_writes_no_absolute_paths(tmp_path) -> None:
    b = NetBuilder("n")
    cost = b.mean(b.square(b.fc(b.input("x", [-1, 2]), size=1)), name="loss")
    b.backward_from(cost)
    b.add_optimization(0.1)
    b.initialize(scope := Scope())
    opscope.save(b, scope, tmp_path / "net", absolute_sources=True)
    np.savez(tmp_path / "data.npz", x=np.ones((4, 2), "float32"))
    command = [sys.executable, "-m", "opscope", "train", "net.pb", "--data", "data.npz"]
    subprocess.run([*command, "--out", "new", "--epochs", "1", "--quiet"], cwd=tmp_path, check=True)
    assert HERE.encode() not in (tmp_path / "new.pb").read_bytes()


def test_the_net_itself_is_not_changed() -> None:
    b, _ = initialized()
    desc = b.desc
    before = desc.SerializeToString(deterministic=True)
    again = parse_net(serialize_net(desc), "again")
    assert desc.SerializeToString(deterministic=True) == before != again.SerializeToString()


def test_paths_of_other_systems_and_without_a_file(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert relative_path(r"C:\users\me\net.py") == "net.py"
    assert relative_path(str(tmp_path / "a" / "net.py")) == "a/net.py"
    assert relative_path(str(tmp_path.parent / "net.py")) == "net.py"
    assert relative_path("a/net.py") == "a/net.py"
    assert relative_path("<stdin>") == "<stdin>"
