"""Which machines the words of the command name."""

from __future__ import annotations

import pytest

from opscope.framework.fusion.compiled import native
from processors import __main__ as program
from processors.machine import Lacking


@pytest.mark.parametrize(("word", "count"), [("here", None), ("older", -1)])
def test_all_kinds_that_are_here_or_all_but_the_newest(
    word: str, count: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def lacking(name: str) -> None:
        raise Lacking(f"tools for {name}")

    kinds = ["none", *(one.name for one in native.kinds_here())]
    monkeypatch.setattr(program, "of_kind", lacking)
    assert program.main([word]) == 0
    told = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert told == kinds[:count]


def test_without_a_native_library_nothing_is_older(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(native, "kinds_here", list)
    assert program.main(["older"]) == 0
    assert not capsys.readouterr().out
