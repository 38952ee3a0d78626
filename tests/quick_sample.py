"""Which tests `--quick` runs: enough of every file to notice most mistakes in about a minute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

SHARE = 6
"""Of so many test functions of a file one is taken."""


def sample(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Every sixth test function of each file, its first case, and all tests that are marked quick.

    Tests that are marked slow are left out.
    """
    seen: dict[str, list[str]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            continue
        path, _, name = item.nodeid.partition("::")
        function = name.partition("[")[0]
        functions = seen.setdefault(path, [])
        new = function not in functions
        if new:
            functions.append(function)
        if item.get_closest_marker("quick") or new and len(functions) % SHARE == 1:
            yield item
