"""What a training step costs on a GPU beside its arithmetic: kernels that are started, and waits.

The stand-in of CuPy counts the calls that start a kernel, one each, and what is fetched from the
device within a run; both are the same on every machine. A change that lowers a number lowers it in
the table, which only falls.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from cuda_compiler import ARCHITECTURES, nvrtc, ptx_of
from device_steps import STEPS
from opscope import options
from opscope.framework.runtime.executor import Frame
from opscope.testing.device_double import UPLOADS, by_default, crossings, launches
from opscope.testing.device_raw import lanes, texts

_WARM, _COUNTED = 3, 8
"""Steps before it is steady; and steps of which the dearest counts: some work is not in each."""


class Cost(NamedTuple):
    """Kernels that are started, arrays that are fetched, and arrays that are sent."""

    launches: int
    fetched: int
    sent: int


BUDGET = {
    "mlp": Cost(25, 0, 0),
    "conv": Cost(40, 0, 0),
    "lstm": Cost(30, 0, 0),
    "step net": Cost(18, 0, 0),
    "transformer": Cost(81, 0, 0),
    "tdnn": Cost(140, 0, 0),
    "tdnn-f": Cost(244, 0, 0),
    "lstmp": Cost(272, 0, 0),
    "lf-mmi": Cost(115, 0, 1),
    "cntk": Cost(26, 0, 0),
    "tree": Cost(314, 0, 11),
    "ctc": Cost(12, 0, 0),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_costs_no_more_than_its_budget(name, monkeypatch):
    assert cost_of(name, monkeypatch) == BUDGET[name], "if it is lower now, lower the table"
    if nvrtc() is not None:
        for kernel in sorted({*launches} & texts.keys()):
            for text, architecture in product(texts[kernel], ARCHITECTURES):
                assert f".entry {kernel}(" in ptx_of(text, architecture)


@pytest.mark.skipif(nvrtc() is None, reason="no nvidia-cuda-nvrtc-cu12")
def test_the_head_of_an_update_is_computed_once(monkeypatch):
    """In double, for all elements: these compute in float32 alone."""
    cost_of("mlp", monkeypatch)
    (update,) = [name for name in {*launches} & texts.keys() if f"{name}_head" in launches]
    (text,) = [one for one in texts[update] if one.startswith("typedef float real")]
    ptx = ptx_of(text, 80)
    head, body = (ptx[ptx.index(f".entry {name}(") :] for name in (f"{update}_head", update))
    body, head = (part[: part.index("\n}")] for part in (body, head))
    assert ".f64" in head and ".f64" not in body


@pytest.mark.parametrize("name", ["ctc", "transformer"])
def test_blocks_of_several_threads_compute_the_same(name):
    """Sums of a block are in another order then."""
    values = []
    for count in (1, 4):
        with by_default(), options(graphs=False), lanes(count):
            step = STEPS[name]()
            values.append([float(value) for _ in range(2) for value in step().values()])
    np.testing.assert_allclose(*values, 1e-4)


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
    with by_default(), options(graphs=False):
        step = STEPS[name]()
        for _ in range(_WARM + _COUNTED):
            spent.append(Cost(0, 0, 0))
            step()
    return Cost(*map(max, zip(*spent[-_COUNTED:], strict=True)))
