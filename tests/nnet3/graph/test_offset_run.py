"""Candidates at many offsets, followed all at once."""

import numpy as np
import pytest

from opscope.nnet3.graph import offset_run
from opscope.nnet3.graph.graph import Graph
from opscope.nnet3.graph.offset_run import OffsetRun
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.network.nnet import Nnet

CASES = [(-40, 1, 41), (0, 1, 33), (-7, 3, 64), (5, 2, 40), (-300, 10, 61)]
_NETWORK = """input-node name=input dim=2
component name=sums type=StatisticsExtractionComponent input-dim=2 input-period={period} \
output-period={period}
component name=pool type=StatisticsPoolingComponent input-dim=5 input-period={period} \
left-context={left} right-context={right}
component-node name=sums component=sums input={input}
component-node name=pool component=pool input={sums}
output-node name=output input=Sum(pool, Offset(pool, {period}))
"""


def every(run: OffsetRun) -> list[int]:
    return [run.first + run.step * i for i in range(run.count)]


@pytest.mark.parametrize(("first", "step", "count"), CASES)
def test_runs_are_their_offsets(first: int, step: int, count: int) -> None:
    rng = np.random.default_rng(0)
    run = OffsetRun.of([(3, first + step * i, 0) for i in range(count)])
    assert run == OffsetRun(3, first, step, count)
    for density in (0.01, 0.5):
        flags = rng.random(2000) < density
        bits = sum(1 << int(at) for at in flags.nonzero()[0])
        for some in (bits, ~bits):
            readers = read = 0
            for offset in every(run):
                readers |= some << max(-offset, 0) >> max(offset, 0)
                read |= some << max(offset, 0) >> max(-offset, 0)
            assert run.readers(some) == readers
            assert run.read(some) == read


def test_what_is_no_run() -> None:
    even = [(1, at, 0) for at in range(32)]
    assert OffsetRun.of(even) is not None
    for other in (even[:31], even[:-1] + [(1, 40, 0)], even[:-1] + [(2, 31, 0)], even[::-1]):
        assert OffsetRun.of(other) is None
    assert OffsetRun.of([(1, at, 1) for at in range(32)]) is None


@pytest.mark.parametrize("left", [0, 40, 300])
@pytest.mark.parametrize("right", [0, 35, 2000])
@pytest.mark.parametrize("period", [1, 5])
def test_rows_are_those_of_candidates_one_by_one(
    left: int, right: int, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if left + right == 0:
        left = 100
    given = [0, 1, 2, 3, 7, 20, 21, 22, 23, 24, 25, *range(60, 130)]
    inputs = [IoSpecification("input", np.array([(0, t, 0) for t in given], np.int32))]
    output = IoSpecification("output", np.array([(0, t, 0) for t in (0, 20, 45)], np.int32))
    for sums, source in (("sums", "input"), (f"IfDefined(Round(sums, {period}))", "input")):
        text = _NETWORK.format(left=left, right=right, period=period, sums=sums, input=source)
        request, rows = ComputationRequest(inputs, [output]), []
        for least in (2, 1 << 30):
            monkeypatch.setattr(offset_run, "_LEAST", least)
            topology = Nnet.from_config_text(text, 0).topology()
            assert bool(topology.units.runs) == (least == 2)
            segment = Graph(topology, request).groups[0].segments[0]
            assert segment.times is not None
            rows.append({node: keys.tolist() for node, keys in segment.rows.items()})
        assert rows[0] == rows[1]
        assert len(rows[0]) > 3
