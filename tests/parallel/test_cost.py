"""Costs of exchanges against values worked out by hand, and the fit of a link to times."""

import json

import numpy as np
import pytest

from mpi_runs import run_ranks
from opscope.framework.base.errors import OpscopeError
from opscope.framework.parallel.cost import ALGORITHMS, exchange_cost
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.parallel.link import Link
from opscope.framework.parallel.measure import Measured, fit_link, measure_all_reduce

BY_HAND = {
    # two exchanges of half the vector: to and fro
    ("ring", 2): (2, 1.0),
    ("ring", 4): (6, 1.5),
    ("ring", 6): (10, 10 / 6),
    ("tree", 2): (2, 2.0),
    ("tree", 4): (4, 4.0),
    ("tree", 6): (6, 6.0),
    ("halving", 2): (2, 1.0),
    ("halving", 4): (4, 1.5),
    ("halving", 8): (6, 1.75),
    # two of six hand theirs over, four halve and double, two get the sums
    ("halving", 6): (6, 3.5),
    ("halving", 1024): (20, 2 * 1023 / 1024),
}


@pytest.mark.parametrize("algorithm, ranks", BY_HAND)
def test_sums_by_hand(algorithm, ranks):
    assert exchange_cost("all_reduce", ranks, algorithm) == BY_HAND[algorithm, ranks]


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast", "all_gather", "exchange"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_rank_costs_nothing(kind, algorithm):
    assert exchange_cost(kind, 1, algorithm) == (0, 0.0)


def test_other_exchanges_by_hand():
    assert exchange_cost("broadcast", 5) == (3, 3.0)
    assert exchange_cost("all_gather", 5) == exchange_cost("exchange", 5) == (4, 4.0)


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_more_ranks_never_cost_less(algorithm):
    costs = [exchange_cost("all_reduce", ranks, algorithm) for ranks in range(1, 70)]
    for few, many in zip(costs, costs[1:], strict=False):
        assert few.messages <= many.messages and few.volume <= many.volume


def test_halving_is_never_worse_than_a_ring_or_a_tree_where_ranks_are_a_power_of_two():
    for power in range(1, 12):
        best = exchange_cost("all_reduce", 1 << power, "halving")
        for other in ("ring", "tree"):
            cost = exchange_cost("all_reduce", 1 << power, other)
            assert best.messages <= cost.messages and best.volume <= cost.volume


def test_a_link_takes_the_ring():
    link = Link(latency=1e-3, bandwidth=1000.0)
    assert link.seconds("all_reduce", 400, 4) == pytest.approx(6e-3 + 0.6)
    assert link.seconds("all_reduce", 400, 1) == 0
    assert Link().seconds("all_reduce", 400, 4) == 0


def test_bad_input():
    with pytest.raises(OpscopeError, match="at least one rank, not 0"):
        exchange_cost("all_reduce", 0)
    with pytest.raises(OpscopeError, match="no algorithm 'rinng' of all_reduce .did you mean ring"):
        exchange_cost("all_reduce", 2, "rinng")


# -- measured times --------------------------------------------------------------------------------

SIZES = (1000, 100_000, 10_000_000)


def times(link, ranks, noise=1.0):
    return [Measured(p, n, link.seconds("all_reduce", n, p) * noise) for p in ranks for n in SIZES]


def test_a_fit_finds_the_link_that_made_the_times():
    link = Link(latency=2e-5, bandwidth=3e9)
    fit = fit_link(times(link, (2, 4)))
    assert fit.link.latency == pytest.approx(2e-5) and fit.link.bandwidth == pytest.approx(3e9)
    assert list(fit.errors) == [2, 4]
    np.testing.assert_allclose(list(fit.errors.values()), 0, atol=1e-9)


def test_the_error_of_a_fit_is_told():
    link = Link(latency=1e-5, bandwidth=1e9)
    slow = times(link, (2,)) + times(link, (4,), noise=2.0)
    fit = fit_link(slow)
    for ranks, noise in ((2, 1.0), (4, 2.0)):
        gaps = [
            fit.link.seconds("all_reduce", n, ranks)
            / (noise * link.seconds("all_reduce", n, ranks))
            - 1
            for n in SIZES
        ]
        mean, most = fit.errors[ranks]
        assert mean == pytest.approx(np.sqrt(np.mean(np.square(gaps)))) and mean > 0.05
        assert most == pytest.approx(np.abs(gaps).max())


def test_a_latency_below_zero_is_not_fitted():
    fit = fit_link([Measured(2, 1000, 1e-6), Measured(2, 2000, 3e-6)])
    assert fit.link.latency == 0 and fit.link.bandwidth > 0


def test_times_that_no_link_has():
    with pytest.raises(OpscopeError, match="of at least two sizes"):
        fit_link([Measured(2, 1000, 1.0)])
    with pytest.raises(OpscopeError, match="of at least two sizes"):
        fit_link(times(Link(1e-5, 1e9), (1,)) + [Measured(2, 8, 1.0)])
    with pytest.raises(OpscopeError, match="do not grow with the size"):
        fit_link([Measured(2, 1000, 2.0), Measured(2, 2000, 1.0)])


def test_ranks_measure_the_same():
    found = DryWorld(2).run(lambda c: measure_all_reduce(c, (64, 128), repeats=3))
    assert found[0] == found[1]
    assert [(one.ranks, one.nbytes) for one in found[0]] == [(2, 64), (2, 128)]
    assert all(one.seconds > 0 for one in found[0])


def test_processes_measure(tmp_path):
    program = """
        import sys
        from opscope.framework.parallel.measure import measure_all_reduce
        from opscope.framework.parallel.mpi import MpiCommunicator
        import json
        with MpiCommunicator() as c:
            found = measure_all_reduce(c, (4096, 65536), repeats=2)
            if c.rank == 0:
                print(json.dumps([[one.ranks, one.nbytes, one.seconds] for one in found]))
    """
    done = run_ranks(2, program, tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row[:2] for row in rows] == [[2, 4096], [2, 65536]]
    assert all(row[2] > 0 for row in rows)
