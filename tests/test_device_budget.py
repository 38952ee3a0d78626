"""What a training step costs on a GPU beside its arithmetic: kernels that are started, and waits.

The stand-in of CuPy counts the calls that start a kernel, one each, and what is fetched from the
device within a run; both are the same on every machine. A change that lowers a number lowers it in
the table, which only falls.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from device_steps import STEPS
from opscope.framework.runtime.executor import Frame
from opscope.testing.device_double import UPLOADS, by_default, crossings, launches

_WARM, _COUNTED = 3, 8
"""Steps before it is steady; and steps of which the dearest counts: some work is not in each."""


class Cost(NamedTuple):
    """Kernels that are started, arrays that are fetched, and arrays that are sent."""

    launches: int
    fetched: int
    sent: int


BUDGET = {
    "mlp": Cost(32, 0, 0),
    "conv": Cost(102, 0, 0),
    "lstm": Cost(37, 0, 0),
    "step net": Cost(18, 0, 0),
    "transformer": Cost(144, 0, 0),
    "tdnn": Cost(292, 0, 0),
    "tdnn-f": Cost(491, 0, 0),
    "lstmp": Cost(1374, 0, 0),
    "lf-mmi": Cost(331, 0, 17),
    "cntk": Cost(26, 0, 0),
    "tree": Cost(358, 0, 11),
    "ctc": Cost(264, 0, 0),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_costs_no_more_than_its_budget(name, monkeypatch):
    assert cost_of(name, monkeypatch) == BUDGET[name], "if it is lower now, lower the table"


def cost_of(name: str, monkeypatch: pytest.MonkeyPatch) -> Cost:
    """What the runs of nets cost within a step; feeding and reading results is the caller's."""
    spent = [Cost(0, 0, 0)]
    run = Frame.run
    running = False

    def counted(frame, context):
        nonlocal running
        if running:  # a net within a net
            return run(frame, context)
        running = True
        launches.clear()
        crossings.clear()
        try:
            run(frame, context)
        finally:
            running = False
        sent = sum(one in UPLOADS for one in crossings)
        own = Cost(len(launches), len(crossings) - sent, sent)
        spent[-1] = Cost(*map(sum, zip(spent[-1], own, strict=True)))

    monkeypatch.setattr(Frame, "run", counted)
    with by_default():
        step = STEPS[name]()
        for _ in range(_WARM + _COUNTED):
            spent.append(Cost(0, 0, 0))
            step()
    return Cost(*map(max, zip(*spent[-_COUNTED:], strict=True)))
