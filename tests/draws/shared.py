"""Generators with a seed that the tests of a module share: for each test they begin anew.

What a test draws would otherwise follow from which tests the process has run before, which differs
from run to run where several processes share the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_States = list[tuple[Any, dict[str, Any]]]  # what draws for a generator, and where it stands
_of_tests: dict[str, _States] = {}
_of_helpers: _States = []


def note(folder: Path) -> None:
    """Note where the generators of all modules of a folder stand, once these are loaded."""
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "/")
        if not path.is_relative_to(folder):
            continue
        found = [value for value in vars(module).values() if isinstance(value, np.random.Generator)]
        states = [(one.bit_generator, one.bit_generator.state) for one in found]
        if path.name.startswith("test_"):
            _of_tests[name] = states
        else:
            _of_helpers.extend(states)


def begin(module: ModuleType | None = None) -> None:
    """Let generators begin anew: those of a module of tests, or all, and those of helpers."""
    if module is None:
        go_on(state for states in _of_tests.values() for state in states)
    else:
        go_on(_of_tests.get(module.__name__, ()))
    go_on(_of_helpers)


def state() -> _States:
    """Where all generators stand, for `go_on`."""
    noted = (one for states in (*_of_tests.values(), _of_helpers) for one, _ in states)
    return [(one, one.state) for one in noted]


def go_on(states: Iterable[tuple[Any, dict[str, Any]]]) -> None:
    """Let generators go on from where they stood."""
    for one, state in states:
        one.state = state
