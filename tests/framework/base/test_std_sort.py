"""The order of equal elements: that in which OpenFst's `fstarcsort` leaves arcs."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from opscope.framework.base.algorithms.std_sort import std_argsort

# elements, different keys, the digest of what fstarcsort of OpenFst 1.7.9 made of such arcs
CASES = [
    (16, 3, "bd88d20876a1b3bf"),
    (17, 3, "5553ef3c689d6c80"),
    (600, 40, "ceccb96014a9eab9"),
    (5000, 900, "5004bf45ee4170cc"),
    (5000, 2, "75512fa2aaa431d5"),
]


def keys_of(count: int, different: int) -> np.ndarray:
    """Keys in an order as if drawn."""
    place = np.arange(count, dtype=np.int64)
    return place * place * 7919 % 10007 % different + 1


@pytest.mark.parametrize(("count", "different", "digest"), CASES)
def test_equal_elements_stand_as_openfst_leaves_them(
    count: int, different: int, digest: str
) -> None:
    keys = keys_of(count, different)
    order = std_argsort(keys)
    assert np.array_equal(keys[order], np.sort(keys))
    assert hashlib.sha256(order.astype("<i4").tobytes()).hexdigest()[:16] == digest


def test_elements_that_differ() -> None:
    keys = np.random.default_rng(0).permutation(3000)
    assert np.array_equal(std_argsort(keys), np.argsort(keys))
