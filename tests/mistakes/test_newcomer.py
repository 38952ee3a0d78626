"""A newcomer's mistakes: each gets one error of the package's, which says what to do."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from mistakes.newcomer import MISTAKES
from opscope import NetBuilder, OpContext, Scope
from opscope.python_api.cli.main import main

X, Y = np.zeros((2, 4), np.float32), np.zeros(2, np.int64)


def build(train: bool) -> NetBuilder:
    b = NetBuilder("net")
    x, label = b.input("x", [-1, 4]), b.input("label", [-1], "int64")
    scores = b.fc(x, size=3, name="scores")
    cost = b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    if train:
        b.backward_from(cost)
        b.add_optimization(0.1)
    return b


@pytest.fixture
def names(tmp_path: Path, monkeypatch: Any) -> dict[str, Any]:
    """What the typed line may use; the folder holds a saved net and an array."""
    monkeypatch.chdir(tmp_path)
    b, trained, scope = build(False), build(True), Scope()
    trained.initialize(scope)
    opscope.save(trained, scope, "net.pb")
    np.save("x.npy", X)
    np.savez("data.npz", x=X, lab=Y)
    Path("picture.pb").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    Path("pickle.pb").write_bytes(pickle.dumps({"w": X}))
    Path("notes.pb").write_text("a net of mine\n")
    found = {name: b.var(name) for name in ("x", "label", "scores", "cost")}
    found["image"] = b.input("image", [-1, 3, 8, 8])
    data = [{"x": X, "label": Y}]
    modules = {"opscope": opscope, "np": np, "NetBuilder": NetBuilder, "Scope": Scope}
    given = {"b": b, "trained": trained, "data": data, "X": X, "Y": Y, "OpContext": OpContext}
    return {**modules, **given, **found, "again": lambda: build(True)}


def holds(message: str, words: str) -> list[str]:
    """The words that are not in the message, in their order."""
    missing, at = [], 0
    for word in words.split():
        found = message.find(word, at)
        if found < 0:
            missing.append(word)
        else:
            at = found
    return missing


@pytest.mark.parametrize(("typed", "words"), MISTAKES, ids=[typed[:60] for typed, _ in MISTAKES])
def test_mistake(typed: str, words: str, names: dict[str, Any]) -> None:
    if typed.startswith("$ opscope "):
        done = CliRunner().invoke(main, typed.removeprefix("$ opscope ").split())
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code in (1, 2)
        message = done.stderr
    else:
        with pytest.raises((opscope.OpscopeError, AttributeError)) as caught:
            exec(compile(typed, "typed.py", "exec"), names)
        message = str(caught.value)
        misspelt_method = re.search(r"has no attribute '\w+'(;|:| \(did)", message)
        assert isinstance(caught.value, opscope.OpscopeError) or misspelt_method
    assert not holds(message, words), message
    assert len(message) < 700, message


def test_there_are_enough_of_them() -> None:
    assert len(MISTAKES) >= 35
    assert len({typed for typed, _ in MISTAKES}) == len(MISTAKES)


def test_a_checkpoint_of_another_net_says_how_to_go_on(tmp_path: Path) -> None:
    data = {"x": X, "label": Y}
    how = {"epochs": 1, "loss": "cost", "checkpoint": tmp_path / "run", "progress": False}
    opscope.train(build(True), [data], scope=Scope(), **how)
    other = NetBuilder("other")
    other.mean(other.fc(other.input("x", [-1, 4]), 2), name="cost")
    other.add_optimization(0.1)
    with pytest.raises(
        opscope.FormatError, match="of another net: .*resume='weights' .*; another checkpoint="
    ):
        opscope.train(other, [{"x": X}], scope=Scope(), resume=True, **how)
    with pytest.raises(opscope.FormatError, match="its shape: give the checkpoint of this net, or"):
        opscope.train(other, [{"x": X}], scope=Scope(), resume="weights", **how)


def test_a_dimension_may_be_none() -> None:
    b = NetBuilder()
    assert b.input("x", [None, 4]).shape == (-1, 4)
