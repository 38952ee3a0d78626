"""A layer of a transformer's encoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from .dense import SGD, peer_sgd
from .workload import OURS, Maker, Step, Workload, eager

BATCH, STEPS, WIDTH, HEADS, INNER = 16, 128, 256, 4, 1024


def _rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((BATCH, STEPS, WIDTH), dtype=np.float32)


def ours(train: bool) -> Step:
    from opscope import NetBuilder, OpContext, Scope

    b = NetBuilder("bench")
    x = b.input("x", [-1, STEPS, WIDTH])
    out = b.transformer_encoder_layer(x, heads=HEADS, feedforward=INNER, dropout=0.0)
    fetch = out
    if train:
        fetch = b.mean(b.square(out))
        b.backward_from(fetch)
        b.add_optimization(**SGD)
    scope = Scope()
    b.initialize(scope)
    net = b.bound_net(frozenset([fetch.name]), train)
    context = OpContext(train=train, live_out=[fetch.name])
    rows = _rows()
    give = scope.var("x").share

    def step() -> Any:
        give(rows)
        net.run(scope, context)
        return scope

    return step


def theirs(train: bool, compile_it: bool) -> Step:
    import torch

    layer: Any = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, dropout=0.0, batch_first=True
    )
    layer.train(train)
    update = peer_sgd(layer.parameters())
    model = torch.compile(layer) if compile_it else layer
    x = torch.from_numpy(_rows())

    def forward() -> Any:
        with torch.inference_mode():
            return model(x)

    def step() -> Any:
        update.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        update.step()
        return loss

    return step if train else forward


def _sides(train: bool) -> dict[str, Maker]:
    return {
        OURS: lambda _: ours(train),
        "torch": eager(lambda: theirs(train, False)),
        "torch.compile": eager(lambda: theirs(train, True)),
    }


def _operations(train: bool) -> float:
    rows = BATCH * STEPS
    dense = rows * (4.0 * WIDTH * WIDTH + 2 * WIDTH * INNER)
    scores = 2.0 * rows * STEPS * WIDTH
    return 2 * (dense + scores) * (3 if train else 1)


_TITLE = f"transformer encoder layer {BATCH}x{STEPS}x{WIDTH}, {HEADS} heads, inner {INNER}"

WORKLOADS = {
    "encoder": Workload(f"{_TITLE}, forward", 1.0, _sides(False), lambda: _operations(False)),
    "encoder-step": Workload(f"{_TITLE}, SGD step", 1.0, _sides(True), lambda: _operations(True)),
}
