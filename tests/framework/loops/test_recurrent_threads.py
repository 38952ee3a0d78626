"""One recurrent net in several threads, whose step net comes with other numbers of sequences."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plans import plan
from rnn_nets import fill, packed, rnn


class _SlowForm(plan.Form):
    """A form that gives way to other threads once it seems to know all."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_specs" and value:
            time.sleep(0.005)


@pytest.mark.parametrize("scale", [2.0, 3.0, 4.0, 5.0])
def test_threads_look_at_one_form(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "Form", _SlowForm)
    step = [
        ("matmul", {"x": "p", "y": "w"}, {"out": "b"}),
        ("add", {"x": "x", "y": "b"}, {"out": "s"}),
        ("tanh", {"x": "s"}, {"out": "h"}),
        ("scale", {"x": "h"}, {"out": "h2"}, {"scale": scale}),
    ]
    memories = [{"state": "h", "previous": "p"}]
    net = Net.create(
        rnn(step, ins={"xs": "x"}, outs={"ys": "h2"}, statics={"w": "w"}, memories=memories,
            shapes={"p": [-1, 3]})
    )  # fmt: skip
    results: dict[int, np.ndarray] = {}
    all_here = threading.Barrier(6)

    def run(lengths: list[int]) -> None:
        scope = Scope()
        rows = packed(np.random.default_rng(0), lengths, 3)
        fill(scope, {"xs": rows, "w": np.eye(3)})
        net.run(scope, OpContext(live_out=["ys"]))
        results[len(lengths)] = scope.get("ys").numpy()[:4]

    def work(count: int) -> None:
        all_here.wait()
        run([4] * count)

    run([3, 2])
    threads = [threading.Thread(target=work, args=(count,)) for count in range(3, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [2, *range(3, 9)]  # none has failed
    for count in range(4, 9):
        np.testing.assert_array_equal(results[count], results[3])
