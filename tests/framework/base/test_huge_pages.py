"""Memory in huge pages: which are asked for, and that values stay."""

import ctypes
import sys

import numpy as np
import pytest

from opscope.framework.base.machine import huge_pages

PAGE = 1 << 21


class Library:
    """The C library of a process, whose `madvise` notes what it is asked."""

    def __init__(self, results=()):
        self.asked = []
        self.results = list(results)

        def madvise(address, size, advice):
            self.asked.append((address, size, advice))
            return self.results.pop(0) if self.results else 0

        self.madvise = madvise


@pytest.fixture
def asked(monkeypatch):
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(sys, "platform", "linux")
    return library


def test_pages_that_arrays_fill_by_half_are_asked_for(asked):
    spans = [
        (3 * PAGE + PAGE // 2, PAGE // 2 + PAGE // 4),  # half of page 3, a quarter of page 4
        (4 * PAGE + PAGE // 2, PAGE // 4),  # with it page 4 is half full
        (6 * PAGE, PAGE // 2 - 1),  # a byte less
        (8 * PAGE, 2 * PAGE),
    ]
    assert huge_pages.gather(spans) == 4
    assert [address // PAGE for address, _, _ in asked.asked] == [3, 4, 8, 9]
    assert {(address % PAGE, size, advice) for address, size, advice in asked.asked} == {
        (0, PAGE, 25)
    }


def test_pages_that_the_system_refuses_do_not_count(asked):
    asked.results = [-1, 0]
    assert huge_pages.gather([(PAGE, 2 * PAGE)]) == 1


@pytest.mark.parametrize("spans", [[], [(PAGE, 0)], [(PAGE + 5, 1000)]])
def test_little_memory_stays(asked, spans):
    assert huge_pages.gather(spans) == 0
    assert asked.asked == []


def test_other_systems_are_not_asked(asked, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert huge_pages.gather([(PAGE, PAGE)]) == 0
    assert asked.asked == []


def test_values_stay():
    arrays = [np.arange(n, n + 100_000, dtype=np.int32) for n in range(0, 2_000_000, 100_000)]
    pages = huge_pages.gather((one.ctypes.data, one.nbytes) for one in arrays)
    assert 0 <= pages <= 5
    assert all(
        one[0] == n and one[-1] == n + 99_999
        for n, one in zip(range(0, 2_000_000, 100_000), arrays, strict=True)
    )
