"""Fixtures of the framework's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from toy_ops import toy_operators


@pytest.fixture(autouse=True, scope="module")
def toys() -> Iterator[None]:
    """Every module here sees the toy operators, and leaves the registry as it was."""
    with toy_operators():
        yield


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests always verify between passes."""
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
