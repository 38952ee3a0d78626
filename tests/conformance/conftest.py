"""What a conformance test says about its comparison; `tests/conftest.py` makes the table of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest


@pytest.fixture
def within(record_property) -> Callable[[Mapping[str, float], float], None]:
    """A function (errors by what was compared, tolerance) that notes the errors and checks them."""

    def check(errors: Mapping[str, float], tolerance: float) -> None:
        record_property("error", float(max(errors.values())))
        record_property("tolerance", tolerance)
        beyond = {name: error for name, error in errors.items() if not error < tolerance}
        assert not beyond

    return check


@pytest.fixture
def remark(record_property) -> Callable[[str], None]:
    """A function that notes a reason why a case is compared in another way than the rest."""
    return lambda text: record_property("remark", text)
