"""The benchmarked nnet3 networks beside PyTorch, written as its users write them.

A layer over several offsets is a `Conv1d`, or a `Linear` over the frames put side by side; an LSTM
with a projection is `nn.LSTM(proj_size=...)`, over all frames or, as delay -3 allows, over three
interleaved sequences. The faster of both counts. The peers compute what the output frames need.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .workload import OURS, Maker, Step, Workload, eager

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
def network(name: str, train: bool = True) -> tuple[Any, Any]:
    """The network and its request, with all derivatives where it trains, else in test mode."""
    from opscope import nnet3

    xconfig, frames, sequences, step, left = NETS[name]
    nnet = nnet3.Nnet.from_config_text(nnet3.xconfig_to_config(xconfig), 0)
    if not train:
        count_statistics(nnet)
        nnet3.prepare_for_test(nnet)
    request = nnet3.simple_request(
        nnet, frames, sequences, subsampling=step, left_context=left, derivatives=train
    )
    for io in request.inputs:
        io.has_deriv = False
    return nnet, request


def count_statistics(nnet: Any) -> None:
    """Gives batch normalization the statistics that a trained network has."""
    for component in nnet.components.values():
        if hasattr(component, "stats_sum"):
            component.count = 1000.0
            component.stats_sum = np.zeros_like(component.stats_sum)
            component.stats_sumsq = np.full_like(component.stats_sum, 1000.0)


def computing(name: str, train: bool) -> Step:
    """Forward, and where it trains backward to the gradient of all parameters."""
    from opscope import nnet3

    nnet, request = network(name, train)
    computer = nnet3.NnetComputer(nnet3.compile_request(nnet, request), nnet)
    rng = np.random.default_rng(0)
    given = [
        (io.name, rng.standard_normal((len(io.indexes), dim), np.float32))
        for io, dim in (
            (request.inputs[0], nnet.input_dim("input")),
            (request.outputs[0], nnet.output_dim("output")),
        )
    ][: 2 if train else 1]

    def step() -> Any:
        for key, matrix in given:
            computer.accept_input(key, matrix)
            computer.run()
        return computer

    return step


def products(name: str) -> Step:
    """The matrix products in it alone, by the peer: rows x in times in x out, both ways."""
    import torch

    from opscope import nnet3

    nnet, request = network(name)
    computation = nnet3.compile_computation(nnet, request)
    submatrices = computation.submatrices
    nodes = computation.topology.nodes
    calls = []
    for command in computation.commands:
        if command.type not in ("Propagate", "Backprop"):
            continue
        weights = getattr(nodes[command.node].component, "linear_params", None)
        if weights is None:
            continue
        forward = command.type == "Propagate"
        rows = submatrices[command.target if forward else command.deriv[2]].rows
        x = torch.randn(rows, weights.shape[1])
        w = torch.randn(weights.shape)
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


def operations(name: str, train: bool) -> float:
    """Floating-point operations of the products, as the compiled computation has them."""
    from opscope import nnet3

    nnet, request = network(name, train)
    computation = nnet3.compile_computation(nnet, request)
    nodes = computation.topology.nodes
    total = 0.0
    for command in computation.commands:
        if command.type not in ("Propagate", "Backprop"):
            continue
        weights = getattr(nodes[command.node].component, "linear_params", None)
        if weights is None:
            continue
        forward = command.type == "Propagate"
        rows = computation.submatrices[command.target if forward else command.deriv[2]].rows
        total += 2.0 * rows * weights.size * (1 if forward or not command.deriv[3] else 2)
    return total


def _layer(inner: int, outer: int, offsets: tuple[int, ...], spliced: bool, norm: bool) -> Any:
    """A layer over offsets, without padding; x is [N, D, T] or, spliced, [N, T, D]."""
    import torch
    from torch import nn

    dilation = offsets[1] - offsets[0] if len(offsets) > 1 else 1

    class Spliced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(inner * len(offsets), outer)
            self.norm = nn.BatchNorm1d(outer) if norm else None

        def forward(self, x: Any) -> Any:
            frames = x.shape[1] - offsets[-1] + offsets[0]
            if len(offsets) > 1:
                begins = [offset - offsets[0] for offset in offsets]
                x = torch.cat([x[:, begin : begin + frames] for begin in begins], 2)
            rows = self.linear(x.reshape(-1, x.shape[2]))
            if self.norm is not None:
                rows = self.norm(torch.relu(rows))
            return rows.view(x.shape[0], frames, -1)

    if spliced:
        return Spliced()
    conv = nn.Conv1d(inner, outer, len(offsets), dilation=dilation)
    return nn.Sequential(conv, nn.ReLU(), nn.BatchNorm1d(outer)) if norm else conv


def _tdnn(spliced: bool) -> Any:
    from torch import nn

    offsets = [(-2, -1, 0, 1, 2), (-1, 0, 1), (-1, 0, 1), (-3, 0, 3), (-3, 0, 3), (-6, -3, 0)]
    dims = [40] + [512] * 6
    layers = [_layer(dims[i], 512, each, spliced, True) for i, each in enumerate(offsets)]
    return nn.Sequential(*layers, _layer(512, 1000, (0,), spliced, False))


def _tdnnf(spliced: bool) -> Any:
    from torch import nn

    axis = 1 if spliced else 2

    class Factored(nn.Module):
        def __init__(self, stride: int) -> None:
            super().__init__()
            before, after = ((-stride, 0), (0, stride)) if stride else ((0,), (0,))
            self.stride = stride
            self.linear = _layer(512, 96, before, spliced, False)
            self.affine = _layer(96, 512, after, spliced, True)

        def forward(self, x: Any) -> Any:
            y = self.affine(self.linear(x))
            return y + 0.66 * x.narrow(axis, self.stride, y.shape[axis])

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = _layer(40, 512, (0,), spliced, True)
            self.full = nn.Sequential(*(Factored(1) for _ in range(3)))
            # From here on every third frame is enough.
            self.third = nn.Sequential(Factored(0), *(Factored(1) for _ in range(7)))
            self.out = _layer(512, 1000, (0,), spliced, False)

        def forward(self, x: Any) -> Any:
            x = self.full(self.first(x))
            x = x[:, ::3] if spliced else x[:, :, ::3]
            return self.out(self.third(x))

    return Model()


def _lstmp(interleaved: bool) -> Any:
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(40, 256, num_layers=2, proj_size=128, batch_first=True)
            self.out = nn.Linear(128, 1000)

        def forward(self, x: Any) -> Any:
            if interleaved:
                n, frames, dim = x.shape
                x = x.view(n, frames // 3, 3, dim).transpose(1, 2).reshape(3 * n, frames // 3, dim)
                x = self.lstm(x)[0]
                x = x.view(n, 3, frames // 3, 128).transpose(1, 2).reshape(n, frames, 128)
            else:
                x = self.lstm(x)[0]
            return self.out(x[:, -NETS["lstmp"][1] :])

    return Model()


_FRAMES = {"tdnn": 8 + 26, "tdnnf": 3 * 49 + 1 + 2 * 3 + 2 * 21, "lstmp": 60}
"""Input frames of a sequence: those that the output frames need."""


def theirs(name: str, train: bool, second: bool, compile_it: bool) -> Step:
    """PyTorch's model in one of two formulations; where it trains, the gradient, no update."""
    import torch

    model = {"tdnn": _tdnn, "tdnnf": _tdnnf, "lstmp": _lstmp}[name](second)
    model.train(train)
    shape = [NETS[name][2], _FRAMES[name], 40]
    if name != "lstmp" and not second:
        shape = [shape[0], shape[2], shape[1]]
    x = torch.randn(shape)
    called = torch.compile(model) if compile_it else model

    def forward() -> Any:
        with torch.inference_mode():
            return called(x)

    if not train:
        return forward
    derivative = torch.randn_like(model(x))

    def gradient() -> Any:
        model.zero_grad()
        called(x).backward(derivative)
        return model

    return gradient


def _sides(name: str, train: bool) -> dict[str, Maker]:
    first, second = ("steps", "interleaved") if name == "lstmp" else ("Conv1d", "Linear")
    sides: dict[str, Maker] = {OURS: lambda _: computing(name, train)}
    for how, other in ((first, False), (second, True)):
        sides[f"torch {how}"] = eager(lambda other=other: theirs(name, train, other, False))
        sides[f"torch.compile {how}"] = eager(lambda other=other: theirs(name, train, other, True))
    if train:
        sides["torch, its products alone"] = eager(lambda: products(name))
    return sides


PRODUCTS = "torch, its products alone"
"""No peer that does the work: what it would take if nothing but products had to be done."""

_TITLES = {
    "tdnn": "nnet3 TDNN, 128 x 8 frames",
    "tdnnf": "nnet3 TDNN-F, 32 x 150 frames",
    "lstmp": "nnet3 LSTMP, 32 x 20 frames",
}

WORKLOADS = {
    f"{name}-{'gradient' if train else 'forward'}": Workload(
        f"{title}, {'gradient' if train else 'forward'}",
        1.2,
        _sides(name, train),
        lambda name=name, train=train: operations(name, train),
    )
    for name, title in _TITLES.items()
    for train in (False, True)
}
