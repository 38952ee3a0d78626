"""Random nets over batches of sequences, and their results over batches of ever other lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.sequence import Sequences
from opscope.framework.runtime.net import Net

WIDTH = 24


def drawn_net(rng: np.random.Generator, dtype: str) -> tuple[NetBuilder, list[str]]:
    """A net with gradients over words and their labels, and the names of its results."""
    b = NetBuilder("sequences", dtype)
    words, labels = (b.input(name, [-1], "int64", levels=1) for name in ("words", "labels"))
    h: Any = b.embedding(words, [20, WIDTH])
    found: list[Any] = []
    for _ in range(int(rng.integers(2, 5))):
        way = int(rng.integers(10))
        if way == 0:
            h = b.fc(h, WIDTH, activation="tanh")
        elif way == 1:
            h, _ = b.gru(h, WIDTH, reverse=bool(rng.random() < 0.5))
        elif way == 2:
            h, _ = b.lstm(h, WIDTH // 2, bidirectional=True)
        elif way == 3:
            h = b.positional_encoding(h)
            h = b.transformer_encoder_layer(h, heads=2, dropout=0.0, norm_first=True)
        elif way == 4:
            h = b.add(h, b.sequence_reverse(h))
        elif way == 5:
            h = b.add(h, b.sequence_expand(b.sequence_pool(h), h))
        elif way == 6:
            h = b.mul(h, b.sequence_softmax(h))
        elif way == 7:
            h = b.sub(h, b.sequence_shift(h, by=int(rng.integers(-1, 2))))
        elif way == 8:
            padded = b.multi_head_attention(b.sequence_pad(h), heads=3, causal=True)
            h = b.add(h, b.sequence_unpad(padded, h))
        else:
            h = b.sub(h, b.sequence_expand(b.sequence_pool(h, pool_type="last"), h))
        found.append(h)
    loss = b.mean(b.softmax_cross_entropy(b.fc(h, 5), labels))
    b.backward_from(loss)
    return b, [one.name for one in (*found, loss)] + list(b.gradients.values())


def drawn_batches(rng: np.random.Generator) -> list[list[int]]:
    """Lengths of the sequences of each batch, which grow and shrink; some come again."""
    drawn = [rng.integers(1, 20, rng.integers(1, 15)).tolist() for _ in range(7)]
    odd = [[1], [3, 0, 4, 4], [2, 2, 2], [1, 1], [7]]
    return [*drawn, *odd, drawn[2], *[rng.integers(0, 30, 12).tolist() for _ in range(3)], drawn[0]]


def results(seed: int, dtype: str, *, one_net: bool) -> dict[str, np.ndarray]:
    """All results for all batches: of one net in one scope, or of a net of its own for each."""
    rng = np.random.default_rng(seed)
    b, names = drawn_net(rng, dtype)
    scope = Scope()
    b.initialize(scope, OpContext(seed=seed))
    values = {var.name: scope.numpy(var.name) for var in b.op_list.vars if var.name in scope}
    net = Net.create(b.net.op_list)
    found = {}
    for number, lengths in enumerate(drawn_batches(rng)):
        if not one_net:
            scope, net = Scope(), Net.create(b.net.op_list)
            scope.feed(values)
        words, labels = (
            Sequences.from_list([rng.integers(0, most, n) for n in lengths]) for most in (20, 5)
        )
        scope.feed({"words": words, "labels": labels})
        net.run(scope, OpContext(live_out=names))
        found |= {f"{name}, batch {number}": scope.numpy(name) for name in names}
    return found
