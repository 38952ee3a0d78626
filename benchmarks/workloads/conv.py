"""Convolutional networks: a small one, and a residual one for images of 3x32x32."""

from __future__ import annotations

from typing import Any

from .dense import SGD, beside_onnx, beside_torch, peer_sgd
from .workload import Workload


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


STAGES = (16, 1), (32, 2), (64, 2)  # filters, stride


def _our_conv(b: Any, x: Any, filters: int, stride: int = 1) -> Any:
    x = b.conv2d(x, filters=filters, kernel=3, stride=stride, padding="same", bias=False)
    return b.batch_norm(x)


def our_residual(b: Any, x: Any) -> Any:
    x = b.relu(_our_conv(b, x, 16))
    before = 16
    for filters, stride in STAGES:
        y = b.relu(_our_conv(b, x, filters, stride))
        y = _our_conv(b, y, filters)
        if filters != before:
            x = b.batch_norm(b.conv2d(x, filters=filters, kernel=1, stride=stride, bias=False))
        x = b.relu(x + y)
        before = filters
    return b.fc(b.flatten(b.mean(x, axes=[2, 3]), axis=1), size=10)


def peer_residual() -> Any:
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, filters: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(before, filters, 3, stride, 1, bias=False),
                nn.BatchNorm2d(filters),
                nn.ReLU(),
                nn.Conv2d(filters, filters, 3, 1, 1, bias=False),
                nn.BatchNorm2d(filters),
            )
            self.short = nn.Sequential()
            if filters != before:
                short = nn.Conv2d(before, filters, 1, stride, bias=False)
                self.short = nn.Sequential(short, nn.BatchNorm2d(filters))
            self.relu = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.relu(self.short(x) + self.body(x))

    blocks = []
    before = 16
    for filters, stride in STAGES:
        blocks.append(Block(before, filters, stride))
        before = filters
    first = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*first, *blocks, *last)


_IMAGES, _COLORS = (64, 1, 28, 28), (32, 3, 32, 32)

WORKLOADS = {
    "conv-step": Workload(
        "conv net 1x28x28, 16 and 32 filters 5x5, batch 64, SGD step",
        1.2,
        beside_torch(our_convnet, peer_convnet, _IMAGES, SGD, peer_sgd),
    ),
    "conv-onnx-1": Workload(
        "conv net 1x28x28, batch 1, forward", 1.2, beside_onnx(our_convnet, (1, 1, 28, 28))
    ),
    "conv-onnx-64": Workload(
        "conv net 1x28x28, batch 64, forward", 1.0, beside_onnx(our_convnet, _IMAGES)
    ),
    "residual": Workload(
        "residual net 3x32x32, 3 blocks of 16 to 64 filters, batch 32, forward",
        1.0,
        beside_torch(our_residual, peer_residual, _COLORS),
    ),
    "residual-step": Workload(
        "residual net 3x32x32, batch 32, SGD step",
        1.0,
        beside_torch(our_residual, peer_residual, _COLORS, SGD, peer_sgd),
    ),
}
