"""Fixtures of the tests of the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kaldi_models import call_main, write_models


@pytest.fixture
def call(tmp_path, monkeypatch) -> Callable[..., Any]:
    """The command line, in a folder with small models of Kaldi's: see `call_main`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPSCOPE_PIPES", raising=False)
    write_models()
    return call_main
