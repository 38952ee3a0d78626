"""Small random networks, and everything that a compiled request computes."""

from __future__ import annotations

import numpy as np

from opscope.framework.passes.verify.verifier import verify
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.run.computer import NnetComputer

_ACTIVATIONS = ("RectifiedLinear", "Sigmoid", "Tanh", "LogSoftmax", "NoOp", "BatchNorm")


def random_net(seed):
    """A network with splices, sums, columns, skips and recurrences."""
    rng = np.random.default_rng(seed)
    lines = ["input-node name=input dim=3"]
    dim, before, behind = 4, "input", 3
    for layer in range(int(rng.integers(2, 4))):
        name = f"l{layer}"
        read, width = spliced(rng, before, behind)
        if rng.random() < 0.4:
            read = f"Append({read}, IfDefined(Offset({name}, {rng.choice([-1, 1, -2])})))"
            width += dim
        kind = rng.choice(["NaturalGradientAffine", "Affine", "NaturalGradientAffine"])
        lines += [
            f"component name={name}a type={kind}Component input-dim={width} output-dim={dim}",
            f"component-node name={name}a component={name}a input={read}",
        ]
        kind = rng.choice(_ACTIVATIONS)
        lines += [
            f"component name={name} type={kind}Component dim={dim}",
            f"component-node name={name} component={name} input={name}a",
        ]
        before, behind = name, dim
        if rng.random() < 0.3:
            lines.append(f"dim-range-node name={name}h input-node={name} dim-offset=1 dim=3")
            before, behind = f"{name}h", 3
    last = before
    if rng.random() < 0.5:
        last = f"Sum(Scale(0.5, {before}), Offset(Scale(0.5, {before}), 1))"
    lines.append(f"output-node name=output input={last}")
    return Nnet.from_config_text("\n".join(lines) + "\n", seed)


def spliced(rng, node, dim):
    """A descriptor that reads a node, and how many columns it has."""
    offsets = sorted(rng.choice(np.arange(-2, 3), size=int(rng.integers(1, 4)), replace=False))
    parts = [node if not t else f"Offset({node}, {t})" for t in offsets]
    if len(parts) == 1:
        return parts[0], dim
    if rng.random() < 0.3:
        return f"Sum({parts[0]}, {parts[1]})", dim
    return f"Append({', '.join(parts)})", dim * len(parts)


def request_for(nnet, frames=4, sequences=2, stats=False):
    """A request for all derivatives, with enough input for the outputs."""

    def rows(begin, end):
        n, t = np.meshgrid(np.arange(sequences), np.arange(begin, end), indexing="ij")
        return np.stack((n.ravel(), t.ravel(), np.zeros(n.size, int)), axis=1)

    inputs = [IoSpecification("input", rows(-9, frames + 9), True)]
    outputs = [IoSpecification("output", rows(0, frames), True)]
    return ComputationRequest(inputs, outputs, True, stats)


def computed(computation, nnet, seed=3):
    """Output, derivative at the input and of the model, by name."""
    desc = lower_computation(computation)
    verify(desc)
    computer = NnetComputer(desc, nnet)
    rng = np.random.default_rng(seed)
    sizes = {var.name: var.shape for var in desc.vars}
    computer.accept_input("input", rng.normal(size=sizes["input.input"]))
    computer.run()
    computer.accept_input("output", rng.normal(size=sizes["output_deriv.output"]))
    computer.run()
    found = {name: computer.get_output(name) for name in ("output", "input")}
    return found | {"model": computer.model_derivative()}


def assert_same(got, wanted, tolerance=1e-3):
    for name, value in wanted.items():
        scale = np.linalg.norm(value) or 1.0
        assert np.linalg.norm(got[name] - value) <= tolerance * scale, name
