"""Where natural gradient stands in components: with a preconditioner that changes nothing, what
they make of it is the plain gradient."""

import numpy as np
import pytest

from opscope.nnet3.inference.pipeline import compile_request
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.network.simple_request import simple_request
from opscope.nnet3.operators import natural_gradient
from opscope.nnet3.run.computer import NnetComputer

CASES = {  # component lines, input columns
    "affine": ("type=NaturalGradientAffineComponent input-dim=4 output-dim=3", 4),
    "linear": ("type=LinearComponent input-dim=4 output-dim=3", 4),
    "tdnn": ("type=TdnnComponent input-dim=4 output-dim=3 time-offsets=-1,2", 4),
    "tdnn without bias": (
        "type=TdnnComponent input-dim=4 output-dim=3 time-offsets=0 use-bias=false",
        4,
    ),
    "offset": ("type=PerElementOffsetComponent dim=6 block-dim=3", 6),
    "scale": ("type=NaturalGradientPerElementScaleComponent dim=4 param-stddev=0.5", 4),
    "scale and offset": ("type=ScaleAndOffsetComponent dim=6 block-dim=2", 6),
    "one column": ("type=PerElementOffsetComponent dim=4 block-dim=1", 4),
    "constant": ("type=ConstantFunctionComponent input-dim=4 output-dim=3", 4),
    "repeated": (
        "type=NaturalGradientRepeatedAffineComponent input-dim=6 output-dim=4 num-repeats=2",
        6,
    ),
    "convolution": (
        "type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=3 height-in=4"
        " height-out=4 height-offsets=-1,0,1 time-offsets=0,1 required-time-offsets=0",
        8,
    ),
    "lstm": ("type=LstmNonlinearityComponent cell-dim=3", 15),
    "gru": ("type=GruNonlinearityComponent cell-dim=3 recurrent-dim=2", 13),
    "gru without projection": ("type=GruNonlinearityComponent cell-dim=3 recurrent-dim=3", 12),
    "output gru": ("type=OutputGruNonlinearityComponent cell-dim=3 param-stddev=0.5", 9),
    "composite": (
        "type=CompositeComponent num-components=3"
        " component1='type=NaturalGradientAffineComponent input-dim=4 output-dim=5'"
        " component2='type=TanhComponent dim=5'"
        " component3='type=NaturalGradientAffineComponent input-dim=5 output-dim=3'",
        4,
    ),
}


def gradient(nnet, natural):
    rng = np.random.default_rng(0)
    request = simple_request(nnet, 6, 3, derivatives=True)
    desc = compile_request(nnet, request, natural_gradient=natural)
    count = sum(op.type == "nnet3.precondition" for op in desc.ops)
    computer = NnetComputer(desc, nnet)
    for io, dim in (
        (request.inputs[0], nnet.input_dim("input")),
        (request.outputs[0], nnet.output_dim("output")),
    ):
        computer.accept_input(io.name, rng.uniform(0.1, 0.9, (len(io.indexes), dim)))
        computer.run()
    return computer.model_derivative(), computer.get_output("input"), count


@pytest.mark.parametrize("name", CASES)
def test_the_plain_gradient_comes_out(name, monkeypatch):
    line, columns = CASES[name]
    nnet = Nnet.from_config_text(
        f"input-node name=input dim={columns}\ncomponent name=c {line}\n"
        "component-node name=c component=c input=input\noutput-node name=output input=c\n",
        1,
    )

    def unchanged(self):
        self.xp.copyto(self.out, self.x)
        self.scale[0] = 1.0

    monkeypatch.setattr(natural_gradient._Preconditioner, "run", unchanged)
    plain, input_deriv, none = gradient(nnet, natural=False)
    natural, same, count = gradient(nnet, natural=True)
    np.testing.assert_allclose(natural, plain, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(same, input_deriv, rtol=1e-5, atol=1e-6)
    assert none == 0 and (count > 0) == (name != "one column")


def test_switched_off_in_the_component():
    line = "type=TdnnComponent input-dim=4 output-dim=3 time-offsets=0 use-natural-gradient=false"
    nnet = Nnet.from_config_text(
        f"input-node name=input dim=4\ncomponent name=c {line}\n"
        "component-node name=c component=c input=input\noutput-node name=output input=c\n"
    )
    assert gradient(nnet, natural=True)[2] == 0
