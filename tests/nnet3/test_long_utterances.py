"""The first run of a recurrent network over one long utterance grows as the utterance does.

What grows faster is found by counting the lines of Python that run, not by measuring time.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope import nnet3
from opscope.framework.runtime.plans.memory import FreeBlocks
from opscope.nnet3.compiler.locations import split_locations
from opscope.nnet3.index.spans import Spans

_LAYERS = """
input name=input dim=4
relu-renorm-layer name=tdnn dim=6 input=Append(-1,0,1)
lstmp-layer name=lstm cell-dim=6 recurrent-projection-dim=3 non-recurrent-projection-dim=3 delay={}
output-layer name=output dim=5
"""


def _first_run(nnet: nnet3.Nnet, frames: int, derivatives: bool) -> None:
    request = nnet3.simple_request(nnet, frames=frames, derivatives=derivatives)
    computer = nnet3.NnetComputer(nnet3.compile_request(nnet, request), nnet)
    computer.accept_input("input", np.zeros((len(request.inputs[0].indexes), 4)))
    computer.run()
    if derivatives:
        computer.accept_input("output", np.ones((frames, 5)))
        computer.run()


def _lines(nnet: nnet3.Nnet, frames: int, derivatives: bool) -> Counter:
    """How many lines ran, by function."""
    counts: dict[int, list[Any]] = {}  # by the identity of a code, whose hash reads all of it

    def trace(frame, event, arg):
        count = counts.setdefault(id(frame.f_code), [frame.f_code, 0])
        count[1] += 1

        def follow(frame, event, arg):
            count[1] += 1
            return follow

        return follow

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        _first_run(nnet, frames, derivatives)
    finally:
        sys.settrace(before)
    lines: Counter = Counter()
    for code, count in counts.values():
        lines[f"{code.co_filename}:{code.co_name}"] += count
    return lines


@pytest.mark.parametrize(("delay", "derivatives"), [(-1, True)])
def test_twice_the_frames_run_at_most_a_little_more_than_twice_the_lines(delay, derivatives):
    nnet = nnet3.Nnet.from_config_text(nnet3.xconfig_to_config(_LAYERS.format(delay)), 0)
    nnet3.prepare_for_test(nnet)
    for frames in (50, 100):
        _first_run(nnet, frames, derivatives)  # compiled loops and other things made once
    short, long = (_lines(nnet, frames, derivatives) for frames in (50, 100))
    assert long.total() <= 2.2 * short.total()
    steeper = {
        name: (short[name], count)
        for name, count in long.items()
        if Path(name).parent.name in ("compiler", "optimize")
        and count > 20000
        and count > 2.8 * short[name]
    }
    assert steeper == {}


def test_locations_are_counted_without_the_numbers_between_them():
    """Numbers of sub-matrices grow with the utterance; counting must not need memory up to them."""
    huge = 2**31 - 1
    for rows in (1, 40):
        sub = np.tile(np.array([[huge, huge - 1]], np.int32), (rows, 1))
        row = np.zeros((rows, 2), np.int32)
        found = split_locations(sub, row)
        assert sorted(int(subs[0]) for subs, _ in found) == [huge - 1, huge]


def test_the_nearest_free_block_is_that_of_a_search_through_all():
    random = np.random.default_rng(0)
    free, listed, sizes = FreeBlocks(), [], {}
    for number in range(2000):
        if random.random() < 0.6:
            sizes[number] = int(random.integers(0, 30))
            free.add(number, sizes[number])
            listed.append(number)
            continue
        size = int(random.integers(0, 35))
        best = min(listed, key=lambda block: abs(sizes[block] - size), default=None)
        if best is not None:
            listed.remove(best)
        assert free.take(size) == best


def test_spans_find_what_overlaps_and_look_at_little_else():
    random = np.random.default_rng(0)
    spans, kept = Spans(), []
    for _ in range(500):
        first = int(random.integers(0, 4000))
        kept.append((first, first + int(2 ** random.uniform(0, 5))))
        spans.add(*kept[-1])
    assert len(spans) == 500
    for first in range(0, 4000, 37):
        for length in (1, 3, 100, 5000):
            end = first + length
            overlapping = [i for i, (b, e) in enumerate(kept) if b < end and first < e]
            near = spans.near(first, end)
            assert near == sorted(near)
            assert set(overlapping) <= set(near)
            assert all(kept[i][1] > first - 64 and kept[i][0] < end + 64 for i in near)
