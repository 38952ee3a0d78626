"""A recurrent network frame by frame gives what it gives for the whole sequence."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, ShapeError
from opscope.nnet3 import ComputationRequest, Nnet, NnetComputer, compile_request
from opscope.nnet3.graph.request import IoSpecification
from opscope.nnet3.inference.stepwise import StepComputer

CONFIG = """input-node name=input dim=4
component name=a type=AffineComponent input-dim=8 output-dim=8
component-node name=a component=a input=Append(input, IfDefined(Offset(input, -2)))
component name=w type=AffineComponent input-dim=11 output-dim=12
component-node name=w component=w input=Append(a, IfDefined(Offset(p, -1)))
component name=l type=LstmNonlinearityComponent cell-dim=3
component-node name=l component=l input=Append(w, IfDefined(Offset(c, -1)))
dim-range-node name=c input-node=l dim-offset=0 dim=3
dim-range-node name=m input-node=l dim-offset=3 dim=3
component name=p type=AffineComponent input-dim=3 output-dim=3
component-node name=p component=p input=m
component name=o type=AffineComponent input-dim=6 output-dim=2
component-node name=o component=o input=Append(p, IfDefined(Offset(p, -3)))
output-node name=output input=o
"""


def rows(name: str, frames: int) -> IoSpecification:
    return IoSpecification(name, np.array([(0, t, 0) for t in range(frames)], np.int32))


def test_steps_are_the_sequence() -> None:
    nnet = Nnet.from_config_text(CONFIG, 3)
    rng = np.random.default_rng(2)
    nnet.unvectorize(rng.normal(size=nnet.num_parameters).astype(np.float32))
    frames = rng.normal(size=(9, 4)).astype(np.float32)
    request = ComputationRequest([rows("input", 9)], [rows("output", 9)])
    whole = NnetComputer(compile_request(nnet, request), nnet)
    whole.accept_input("input", frames)
    whole.run()
    wanted = whole.get_output("output")
    steps = StepComputer(nnet)
    states = [steps.start()]
    for frame, row in zip(frames, wanted, strict=True):
        output, state = steps.step(states[-1], frame)
        np.testing.assert_allclose(output, row, atol=1e-6)
        states.append(state)
    for place in (5, 2, 8):  # states are values: any of them may be gone back to
        output, _ = steps.step(states[place], frames[place])
        np.testing.assert_allclose(output, wanted[place], atol=1e-6)


@pytest.mark.parametrize(
    ("descriptor", "error", "told"),
    [
        ("Append(input, Offset(input, 1))", FormatError, "later frames, of 'input'"),
        ("Append(input, Round(input, 3))", FormatError, "another rule than fixed offsets"),
    ],
)
def test_what_has_no_steps(descriptor: str, error: type[Exception], told: str) -> None:
    text = CONFIG.replace("Append(input, IfDefined(Offset(input, -2)))", descriptor)
    with pytest.raises(error, match=told):
        StepComputer(Nnet.from_config_text(text, 1))


def test_other_inputs() -> None:
    text = CONFIG.replace("input-node name=input dim=4", "input-node name=x dim=4")
    text = text.replace("Append(input, IfDefined(Offset(input, -2)))", "Append(x, x)")
    with pytest.raises(ShapeError, match="an 'input' and an 'output' alone"):
        StepComputer(Nnet.from_config_text(text, 1))
