"""The benchmarked nnet3 networks, and computing them against bare matrix products."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

Step = Callable[[], object]

TDNN = """
input name=input dim=40
relu-batchnorm-layer name=tdnn1 dim=512 input=Append(-2,-1,0,1,2)
relu-batchnorm-layer name=tdnn2 dim=512 input=Append(-1,0,1)
relu-batchnorm-layer name=tdnn3 dim=512 input=Append(-1,0,1)
relu-batchnorm-layer name=tdnn4 dim=512 input=Append(-3,0,3)
relu-batchnorm-layer name=tdnn5 dim=512 input=Append(-3,0,3)
relu-batchnorm-layer name=tdnn6 dim=512 input=Append(-6,-3,0)
output-layer name=output dim=1000
"""
TDNNF = """
input name=input dim=40
relu-batchnorm-layer name=tdnn1 dim=512
{layers}
output-layer name=output dim=1000
""".format(
    layers="\n".join(
        f"tdnnf-layer name=tdnnf{number} dim=512 bottleneck-dim=96 time-stride={stride}"
        for number, stride in enumerate([1, 1, 1, 0, 3, 3, 3, 3, 3, 3, 3], 2)
    )
)
LSTMP = """
input name=input dim=40
fast-lstmp-layer name=lstm1 cell-dim=256 recurrent-projection-dim=64 {rest}
fast-lstmp-layer name=lstm2 cell-dim=256 recurrent-projection-dim=64 {rest}
output-layer name=output dim=1000
""".format(rest="non-recurrent-projection-dim=64 delay=-3")

# name -> (xconfig, output frames, sequences, step of the output frames, extra left context)
NETS = {
    "tdnn": (TDNN, 8, 128, 1, 0),
    "tdnnf": (TDNNF, 50, 32, 3, 0),
    "lstmp": (LSTMP, 20, 32, 1, 40),
}


@cache
def network(name: str) -> tuple[Any, Any]:
    """The network and its request with all derivatives."""
    from opscope import nnet3

    xconfig, frames, sequences, step, left = NETS[name]
    nnet = nnet3.Nnet.from_config_text(nnet3.xconfig_to_config(xconfig), 0)
    request = nnet3.simple_request(
        nnet, frames, sequences, subsampling=step, left_context=left, derivatives=True
    )
    for io in request.inputs:
        io.has_deriv = False
    return nnet, request


def computing(name: str) -> Step:
    """Forward and backward of a compiled request: the gradient of all parameters."""
    from opscope import nnet3

    nnet, request = network(name)
    computer = nnet3.NnetComputer(nnet3.compile_request(nnet, request), nnet)
    rng = np.random.default_rng(0)
    given = [
        (io.name, rng.standard_normal((len(io.indexes), dim), np.float32))
        for io, dim in (
            (request.inputs[0], nnet.input_dim("input")),
            (request.outputs[0], nnet.output_dim("output")),
        )
    ]

    def step() -> Any:
        for name, matrix in given:
            computer.accept_input(name, matrix)
            computer.run()
        return computer

    return step


def products(name: str) -> Step:
    """The matrix products in it alone, by the peer: rows x in times in x out, both ways."""
    import torch

    from opscope import nnet3

    nnet, request = network(name)
    computation = nnet3.compile_computation(nnet, request)
    submatrices, nodes = computation.submatrices, computation.topology.nodes
    calls = []
    for command in computation.commands:
        if command.type not in ("Propagate", "Backprop"):
            continue
        weights = getattr(nodes[command.node].component, "linear_params", None)
        if weights is None:
            continue
        forward = command.type == "Propagate"
        rows = submatrices[command.target if forward else command.deriv[2]].rows
        x, w = torch.randn(rows, weights.shape[1]), torch.randn(weights.shape)
        y = torch.randn(rows, weights.shape[0])
        if forward:
            calls.append((x, w.t(), y))
        else:
            calls.append((y.t(), x, w))
            if command.deriv[3]:
                calls.append((y, w, x))

    def step() -> None:
        for a, b, out in calls:
            torch.mm(a, b, out=out)

    return step


CASES: dict[str, Callable[[], tuple[Step, Step]]] = {
    "n1": lambda: (computing("tdnn"), products("tdnn")),
    "n2": lambda: (computing("tdnnf"), products("tdnnf")),
    "n3": lambda: (computing("lstmp"), products("lstmp")),
}
