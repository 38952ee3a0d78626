"""Computers of several threads that put their network's arrays into one scope."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from opscope.framework.base.scope import Scope
from opscope.nnet3.inference.looped import compile_looped, looped_requests
from opscope.nnet3.network.for_inference import for_inference
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.run.computer import NnetComputer
from opscope.nnet3.run.segment_computer import SegmentComputer

CONFIG = """input-node name=input dim=4
component name=a type=NaturalGradientAffineComponent input-dim=4 output-dim=3
component-node name=a component=a input=input
output-node name=output input=a
"""


def test_a_second_computer_waits_until_all_arrays_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nnet = for_inference(Nnet.from_config_text(CONFIG, 1))
    desc = compile_looped(nnet.topology(), looped_requests(5, *nnet.context()))
    shared, taking = Scope(), threading.Event()
    take = NnetComputer._take

    def slowly(self: NnetComputer, variable: object, array: np.ndarray) -> None:
        first = not taking.is_set()
        taking.set()
        if first:
            second.join(0.2)  # which would find the variable, and no value in it
        take(self, variable, array)  # type: ignore[arg-type]

    found: list[np.ndarray | Exception] = []

    def compute() -> None:
        taking.wait()
        try:
            computer = SegmentComputer(desc, nnet, shared=shared)
            computer.accept_input("input", np.ones((5, 4), np.float32))
            computer.run()
            found.append(computer.get_output("output"))
        except Exception as error:
            found.append(error)

    second = threading.Thread(target=compute)
    monkeypatch.setattr(NnetComputer, "_take", slowly)
    second.start()
    SegmentComputer(desc, nnet, shared=shared)
    second.join()
    assert isinstance(found[0], np.ndarray) and found[0].shape == (5, 3)
