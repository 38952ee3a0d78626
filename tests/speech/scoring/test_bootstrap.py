"""Confidence intervals, and the random numbers of GNU's C library."""

import numpy as np
import pytest

from opscope.framework.base.algorithms.glibc_rand import GlibcRand, rand_r
from opscope.speech.scoring.bootstrap import Bootstrap


def test_random_numbers_are_those_of_the_c_library():
    random = GlibcRand(1)
    first = [1804289383, 846930886, 1681692777, 1714636915, 1957747793]  # printed by rand()
    assert random.rand(5).tolist() == first
    later = np.concatenate([random.rand(n) for n in (4091, 1, 5000)])
    assert np.array_equal(later, GlibcRand(1).rand(9097)[5:])
    again = [476707713, 1186278907, 505671508, 2137716191]  # printed by rand_r()
    assert rand_r(1, 4).tolist() == again


def test_an_interval_is_what_theory_says():
    random = np.random.default_rng(0)
    words = np.full(400, 10)
    errors = random.binomial(10, 0.2, 400)
    mean, half = Bootstrap(400, 2000).interval(errors, words)
    assert mean == pytest.approx(errors.sum() / 4000, abs=0.001)
    assert half == pytest.approx(1.96 * errors.std() / 10 / 20, rel=0.1)
    bootstrap = Bootstrap(400, 500)
    assert bootstrap.improvement(errors, errors) == 0
    assert bootstrap.improvement(errors, errors - 1) == 1
    assert Bootstrap(1, 7).interval(np.array([1]), np.array([2])) == (0.5, 0)
