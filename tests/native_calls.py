"""The native calls that operators make while a test runs."""

from __future__ import annotations

from typing import Any

import pytest

from opscope.operators.direct.images import Work


def calls_noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the native functions that works get from now on, in order."""
    added: list[str] = []
    add = Work.add

    def noted(work: Work, file: str, name: str, *given: Any, **fields: Any) -> None:
        added.append(name)
        add(work, file, name, *given, **fields)

    monkeypatch.setattr(Work, "add", noted)
    return added
