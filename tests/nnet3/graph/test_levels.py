"""Levels of the rows of loops, against following each row."""

from functools import cache
from types import SimpleNamespace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from opscope.nnet3.graph.levels import Levels
from opscope.nnet3.graph.units import Loop

TIMES = range(30, 90)


@st.composite
def loops(draw):
    """Some units that read each other in one direction of time, and mostly regular sets of rows."""
    count, sign = draw(st.integers(1, 4)), draw(st.sampled_from([-1, 1]))
    members = list(range(count))
    offsets = st.sampled_from([0, 1, 1, 2, 3, 3])
    reads = {}
    for unit in members:
        listed = draw(st.lists(st.tuples(st.sampled_from(members), offsets), max_size=3))
        reads[unit] = [(one, sign * t) for one, t in listed if t or one < unit]
    sets = st.builds(
        lambda begin, end, gaps: sum(1 << t for t in range(begin, end) if t not in gaps),
        *(st.integers(30, 40), st.integers(80, 90)),
        st.sets(st.sampled_from(TIMES), max_size=1),
    )
    needed = [draw(sets) for _ in members]
    used = {}
    for unit in members:
        if draw(st.booleans()):
            used[unit] = [draw(sets) for _ in reads[unit]]
    return reads, needed, used, draw(st.sets(st.sampled_from(members)))


def one_by_one(reads, needed, used, joined):
    def level(unit, t):
        highest = -1
        for number, (source, offset) in enumerate(reads[unit]):
            if unit in used and not used[unit][number] >> t & 1:
                continue
            if needed[source] >> t + offset & 1:
                highest = max(highest, cached(source, t + offset))
        return highest + 1 + (unit in joined)

    cached = cache(level)
    found = {}
    for unit, bits in enumerate(needed):
        for t in TIMES:
            if bits >> t & 1:
                place = cached(unit, t), unit
                found[place] = found.get(place, 0) | 1 << t
    return sorted((*place, bits) for place, bits in found.items())


def levels(reads, needed, used, joined):
    shifts = {
        unit: [(i, (one, max(-t, 0), max(t, 0))) for i, (one, t) in enumerate(listed)]
        for unit, listed in reads.items()
    }
    readers = {
        unit: [other for other in reads if unit in dict(reads[other])]
        for unit in range(len(needed))
    }
    units = SimpleNamespace(joined=list(joined), jumping=[])
    return Levels(units, Loop(list(reads), shifts, readers), needed, used, None)


ALL = (1 << 90) - (1 << 30)


@settings(max_examples=150, deadline=None)
@given(loops())
@example(({0: [(1, -1)], 1: [(0, 0), (1, -1)]}, [ALL] * 2, {1: [ALL ^ 1 << 60, ALL]}, set()))
@example(({0: [(1, 1)], 1: [(0, 0), (1, 1)]}, [ALL] * 2, {1: [ALL ^ 1 << 60, ALL]}, {0}))
@example(({0: [(1, -1)], 1: [(0, 0), (1, -1)]}, [ALL, ALL ^ 1 << 60], {}, {1}))
def test_levels(case):
    explored = levels(*case)
    assert explored.complete
    assert explored.levels == one_by_one(*case)


def test_a_long_recurrence_is_not_gone_through(monkeypatch):
    turns = []
    follow = Levels._ready
    monkeypatch.setattr(
        Levels, "_ready", lambda self, turn: turns.append(turn) or follow(self, turn)
    )
    reads = {0: [(0, -3), (1, -3)], 1: [(0, 0)]}
    case = reads, [(1 << 3000) - 1] * 2, {}, {0, 1}
    explored = levels(*case)
    assert explored.complete and len(turns) < 40
    assert explored.levels[:3] == [(1, 0, 7), (3, 1, 7), (5, 0, 56)]
    assert len(explored.levels) == 2000 and explored.levels[-1] == (3999, 1, 7 << 2997)


def test_rows_that_wait_for_each_other():
    assert not levels({0: [(1, 0)], 1: [(0, 0)]}, [7, 7], {}, set()).complete
