"""Dense networks, and the steps that the other families are made with."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .workload import OURS, Maker, Step, Workload, eager, session


def data(shape: Sequence[int], classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, dtype=np.float32)
    return x, rng.integers(0, classes, shape[0])


def ours(
    build: Callable[[Any, Any], Any], shape: Sequence[int], optimizer: Any, train: bool
) -> Step:
    """One step (or forward pass) of opscope.

    Labels and small inputs are copied each time; large ones are handed over, as the peer does.
    """
    from opscope import NetBuilder, OpContext, Scope

    b = NetBuilder("bench")
    image = b.input("image", [-1, *shape[1:]])
    scores = build(b, image)
    fetch = scores
    if train:
        label = b.input("label", [-1], "int64")
        fetch = b.mean(b.softmax_cross_entropy(scores, label))
        b.backward_from(fetch)
        b.add_optimization(**optimizer)
    scope = Scope()
    b.initialize(scope)
    x, y = data(shape)
    net = b.bound_net(frozenset([fetch.name]), train)
    context = OpContext(train=train, live_out=[fetch.name])
    image_var = scope.var("image")
    label_var = scope.var("label") if train else None

    give = image_var.share if x.nbytes > 1 << 16 else image_var.set

    def step() -> Any:
        give(x)
        if label_var is not None:
            label_var.set(y)
        net.run(scope, context)
        return scope

    return step


def peer(model: Any, shape: Sequence[int], optimizer: Any, train: bool) -> Step:
    """The same of PyTorch."""
    import torch

    x, y = (torch.from_numpy(array) for array in data(shape))
    if not train:
        model.eval()

        def forward() -> Any:
            with torch.inference_mode():
                return model(x)

        return forward
    loss_of = torch.nn.CrossEntropyLoss()
    update = optimizer(model.parameters())

    def step() -> Any:
        update.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        update.step()
        return loss

    return step


def beside_torch(
    build: Callable[[Any, Any], Any],
    model: Callable[[], Any],
    shape: Sequence[int],
    our_optimizer: Any = None,
    peer_optimizer: Any = None,
) -> dict[str, Maker]:
    """Our net beside the peer's, eager and compiled; it trains where optimizers are given."""
    train = our_optimizer is not None

    def of_peer() -> Step:
        return peer(model(), shape, peer_optimizer, train)

    def compiled_model() -> Step:
        import torch

        return peer(torch.compile(model()), shape, peer_optimizer, train)

    return {
        OURS: lambda _: ours(build, shape, our_optimizer, train),
        "torch": eager(of_peer),
        "torch.compile": eager(compiled_model),
    }


def beside_onnx(build: Callable[[Any, Any], Any], shape: Sequence[int]) -> dict[str, Maker]:
    """Our forward pass beside ONNX Runtime's of the same net, which we export."""

    def of_runtime(threads: int) -> Step:
        import opscope

        b = opscope.NetBuilder("bench")
        scores = build(b, b.input("image", [-1, *shape[1:]]))
        scope = opscope.Scope()
        b.initialize(scope)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.onnx")
            opscope.to_onnx(b, path, scope=scope, outputs=[scores.name])
            runtime: Any = session(path, threads)
        x = data(shape)[0]
        return lambda: runtime.run(None, {"image": x})

    return {OURS: lambda _: ours(build, shape, None, False), "onnxruntime": of_runtime}


def our_mlp(sizes: Sequence[int]) -> Callable[[Any, Any], Any]:
    def build(b: Any, x: Any) -> Any:
        for size in sizes[1:-1]:
            x = b.fc(x, size=size, activation="relu")
        return b.fc(x, size=sizes[-1])

    return build


def peer_mlp(sizes: Sequence[int]) -> Any:
    from torch import nn

    layers: list[Any] = []
    for inner, outer in zip(sizes[:-2], sizes[1:-1], strict=True):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


LARGE = (784, 512, 512, 10)
SMALL = (64, 32, 10)
ADAM = {"learning_rate": 1e-3, "type": "adam"}
SGD = {"learning_rate": 0.01, "type": "sgd"}


def peer_adam(parameters: Any) -> Any:
    import torch

    return torch.optim.Adam(parameters, lr=1e-3)


def peer_sgd(parameters: Any) -> Any:
    import torch

    return torch.optim.SGD(parameters, lr=0.01)


def _operations(sizes: Sequence[int], batch: int, train: bool) -> Callable[[], float]:
    """Products of an MLP: three where it trains, but for the first layer's input gradient."""
    layers = [2.0 * batch * a * b for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
    return lambda: 3 * sum(layers) - layers[0] if train else sum(layers)


def _beside_torch(sizes: Sequence[int], batch: int, *optimizers: Any) -> dict[str, Maker]:
    shape = (batch, sizes[0])
    return beside_torch(our_mlp(sizes), lambda: peer_mlp(sizes), shape, *optimizers)


WORKLOADS = {
    "mlp-step": Workload(
        "MLP 784-512-512-10, batch 256, Adam step",
        2.0,
        _beside_torch(LARGE, 256, ADAM, peer_adam),
        _operations(LARGE, 256, True),
    ),
    "mlp": Workload(
        "MLP 784-512-512-10, batch 256, forward",
        1.0,
        _beside_torch(LARGE, 256),
        _operations(LARGE, 256, False),
    ),
    "small-step": Workload(
        "MLP 64-32-10, batch 32, SGD step", 8.0, _beside_torch(SMALL, 32, SGD, peer_sgd)
    ),
    "small": Workload("MLP 64-32-10, batch 32, forward", 3.0, _beside_torch(SMALL, 32)),
    "mlp-onnx-1": Workload(
        "MLP 784-512-512-10, batch 1, forward", 1.2, beside_onnx(our_mlp(LARGE), (1, 784))
    ),
    "mlp-onnx-64": Workload(
        "MLP 784-512-512-10, batch 64, forward",
        1.0,
        beside_onnx(our_mlp(LARGE), (64, 784)),
        _operations(LARGE, 64, False),
    ),
    "small-onnx-1": Workload(
        "MLP 64-32-10, batch 1, forward", 1.2, beside_onnx(our_mlp(SMALL), (1, 64))
    ),
}
