"""SwishComponent: operator, files, values, gradients, training."""

from pathlib import Path

import numpy as np
import pytest

from opscope import nnet3
from opscope.nnet3.files.examples import NnetExample, NnetIo
from opscope.nnet3.training import NnetTrainer, NnetTrainerOptions
from opscope.testing import Case, OpTest

CONFIG = Path(__file__).with_name("net.config")


def swish(x, betas):
    return x / (1 + np.exp(-betas * x))


class TestTrainedSwish(OpTest):
    """Values and gradients in float64, against the formula and against differences."""

    type = "trained_swish"
    grad = ("x", "betas")

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 3)), "betas": rng.normal(size=3)})

    def reference(self, inputs, attrs):
        return {"out": swish(inputs["x"], inputs["betas"])}


def network():
    nnet = nnet3.Nnet.from_configs(CONFIG, 1)
    nnet.components["swish"].betas[:] = [-2, -1, 0, 0.5, 1, 3]
    return nnet


@pytest.mark.parametrize("binary", [True, False])
def test_files(binary, tmp_path):
    nnet = network()
    nnet.write(tmp_path / "net.raw", binary)
    again = nnet3.Nnet.read(tmp_path / "net.raw")
    np.testing.assert_array_equal(again.components["swish"].betas, nnet.components["swish"].betas)
    again.write(tmp_path / "again.raw", binary)
    assert (tmp_path / "again.raw").read_bytes() == (tmp_path / "net.raw").read_bytes()


def computer_of(nnet, frames):
    request = nnet3.simple_request(nnet, frames, derivatives=True)
    return nnet3.NnetComputer(nnet3.compile_request(nnet, request), nnet)


def affine(component, x):
    return x @ component.linear_params.astype(np.float64).T + component.bias_params


def forward(nnet, x):
    """The output in float64, by formula."""
    wide = np.hstack([x[:-2], x[1:-1], x[2:]])
    parts = nnet.components
    return affine(parts["affine2"], swish(affine(parts["affine1"], wide), parts["swish"].betas))


def test_output_and_gradient_of_a_network():
    nnet = network()
    rng = np.random.default_rng(2)
    x, deriv = rng.normal(size=(9, 4)), rng.normal(size=(7, 2))
    computer = computer_of(nnet, 7)
    computer.accept_input("input", x)
    computer.run()
    np.testing.assert_allclose(computer.get_output("output"), forward(nnet, x), atol=1e-5)
    computer.accept_input("output", deriv)
    computer.run()
    start = nnet.components["affine1"].num_parameters
    got = computer.model_derivative()[start : start + 6]
    betas = nnet.components["swish"].betas.astype(np.float64)
    differences = []
    for column in range(6):
        ends = []
        for step in (1e-4, -1e-4):
            nnet.components["swish"].betas = betas + step * (np.arange(6) == column)
            ends.append((forward(nnet, x) * deriv).sum())
        differences.append((ends[0] - ends[1]) / 2e-4)
    np.testing.assert_allclose(got, differences, rtol=1e-4, atol=1e-4)


def test_training():
    """A network learns what one with other betas computes."""
    teacher = network()
    rng = np.random.default_rng(3)
    nnet = nnet3.Nnet.from_configs(CONFIG, 1)
    first = nnet.components["swish"].betas.copy()
    options = NnetTrainerOptions(max_param_change=1.0, momentum=0.5)
    trainer = NnetTrainer(options, nnet, log=lambda line: None)
    request = nnet3.simple_request(nnet, 50)
    losses = []
    for _ in range(60):
        x = rng.normal(size=(52, 4)).astype(np.float32)
        wanted = forward(teacher, x).astype(np.float32)
        inputs, outputs = request.inputs[0], request.outputs[0]
        trainer.train(
            NnetExample(
                [
                    NnetIo("input", inputs.indexes, x),
                    NnetIo("output", outputs.indexes, wanted),
                ]
            )
        )
        trainer.store()
        losses.append(np.square(forward(nnet, x) - wanted).mean())
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
    assert np.abs(nnet.components["swish"].betas - first).max() > 0.05
