"""The benchmarked networks, on both sides: opscope and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Step = Callable[[], object]


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


def our_convnet(b: Any, x: Any) -> Any:
    for filters in (16, 32):
        x = b.max_pool2d(b.conv2d(x, filters=filters, kernel=5, activation="relu"), kernel=[2, 2])
    return b.fc(b.flatten(x, axis=1), size=10)


def peer_convnet() -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


LARGE, SMALL = (784, 512, 512, 10), (64, 32, 10)
ADAM = {"learning_rate": 1e-3, "type": "adam"}
SGD = {"learning_rate": 0.01, "type": "sgd"}


def _peer_adam(parameters: Any) -> Any:
    import torch

    return torch.optim.Adam(parameters, lr=1e-3)


def _peer_sgd(parameters: Any) -> Any:
    import torch

    return torch.optim.SGD(parameters, lr=0.01)


def mlp_step_ours() -> Step:
    return ours(our_mlp(LARGE), (256, 784), ADAM, True)


def mlp_step_peer() -> Step:
    return peer(peer_mlp(LARGE), (256, 784), _peer_adam, True)


CASES: dict[str, Callable[[], tuple[Step, Step]]] = {
    "a": lambda: (mlp_step_ours(), mlp_step_peer()),
    "b": lambda: (
        ours(our_mlp(SMALL), (32, 64), SGD, True),
        peer(peer_mlp(SMALL), (32, 64), _peer_sgd, True),
    ),
    "c1": lambda: (
        ours(our_mlp(LARGE), (256, 784), None, False),
        peer(peer_mlp(LARGE), (256, 784), None, False),
    ),
    "c2": lambda: (
        ours(our_mlp(SMALL), (32, 64), None, False),
        peer(peer_mlp(SMALL), (32, 64), None, False),
    ),
    "d": lambda: (
        ours(our_convnet, (64, 1, 28, 28), SGD, True),
        peer(peer_convnet(), (64, 1, 28, 28), _peer_sgd, True),
    ),
}
