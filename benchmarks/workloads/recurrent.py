"""The benchmarked recurrent networks, on both sides: opscope and PyTorch."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .workload import OURS, Absent, Maker, Step, Workload, eager

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, BATCH, WIDTH, HIDDEN = 40, 64, 128, 256
SGD = {"learning_rate": 0.01, "type": "sgd"}


def sequences() -> Any:
    """A batch of random sequences of one length."""
    from opscope import Sequences

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((BATCH, STEPS, WIDTH), dtype=np.float32)
    return Sequences.from_padded(rows, lengths=[STEPS] * BATCH), rows


def our_cell(b: Any, x: Any) -> Any:
    return b.lstm(x, HIDDEN)[0]


def our_small_operators(b: Any, x: Any) -> Any:
    """A gated step written by hand from small operators; no cell."""
    w_x = b.parameter("w_x", [WIDTH, 2 * HIDDEN])
    w_h = b.parameter("w_h", [HIDDEN, 2 * HIDDEN])
    bias = b.parameter("bias", [2 * HIDDEN], 0.0)
    with b.recurrent("step") as step:
        row = step.input(x)
        before = step.memory(HIDDEN)
        both = row @ w_x + bias + before @ w_h
        gate, new = b.split(both, num=2, axis=1)
        gate = b.sigmoid(gate)
        state = gate * before + (1 - gate) * b.tanh(new)
        step.update(before, state)
        out = step.output(state)
    return out


def ours(build: Callable[[Any, Any], Any], train: bool) -> Step:
    from opscope import NetBuilder, OpContext, Scope

    b = NetBuilder("bench")
    out = build(b, b.input("x", [-1, WIDTH], levels=1))
    fetch = out
    if train:
        fetch = b.mean(b.square(out))
        b.backward_from(fetch)
        b.add_optimization(**SGD)
    scope = Scope()
    b.initialize(scope)
    batch, _ = sequences()
    b.feed(scope, {"x": batch})
    net = b.bound_net(frozenset([fetch.name]), train)
    context = OpContext(train=train, live_out=[fetch.name])
    return lambda: net.run(scope, context)


def peer_step(model: Any, x: Any, train: bool) -> Step:
    import torch

    if not train:

        def forward() -> Any:
            with torch.inference_mode():
                return model(x)

        return forward
    update = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> Any:
        update.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        update.step()
        return loss

    return step


def peer_cell() -> Any:
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(WIDTH, HIDDEN, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0]

    return Model()


def peer_small_operators() -> Any:
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Linear(WIDTH, 2 * HIDDEN)
            self.h = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)

        def forward(self, x: Any) -> Any:
            state = x.new_zeros(x.shape[0], HIDDEN)
            rows = self.x(x)
            states = []
            for t in range(x.shape[1]):
                gate, new = (rows[:, t] + self.h(state)).chunk(2, dim=1)
                gate = torch.sigmoid(gate)
                state = gate * state + (1 - gate) * torch.tanh(new)
                states.append(state)
            return torch.stack(states, dim=1)

    return Model()


def atis() -> pathlib.Path:
    """The folder of the ATIS files."""
    folder = pathlib.Path(os.environ.get("OPSCOPE_CNTK_DATA", ROOT.parent / "shared/data/cntk"))
    if not (folder / "atis.train.ctf").exists():
        raise Absent("no folder OPSCOPE_CNTK_DATA with the ATIS files")
    return folder


def tagger_batches() -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Real sentences of ATIS in batches of similar length: (word numbers, slot numbers)."""
    sys.path.insert(0, str(ROOT / "examples" / "tagger"))
    from ctf import read_ctf

    streams = read_ctf(atis() / "atis.train.ctf", ["S0", "S2"])
    pairs = zip(streams["S0"].sequences, streams["S2"].sequences, strict=True)
    sentences = sorted(list(pairs)[:1600], key=lambda pair: len(pair[0]))
    return [sentences[i : i + 16] for i in range(0, len(sentences), 16)]


def our_tagger(batches: Any) -> Step:
    from opscope import NetBuilder, Scope, Sequences

    b = NetBuilder("tagger")
    words = b.input("words", [-1], "int64", levels=1)
    slots = b.input("slots", [-1], "int64", levels=1)
    scores = b.fc(b.lstm(b.embedding(words, [943, 150]), 300)[0], size=129)
    cost = b.mean(b.softmax_cross_entropy(scores, slots))
    b.backward_from(cost)
    b.add_optimization(**SGD)
    scope = Scope()
    fed = [
        {
            "words": Sequences.from_list([w for w, _ in batch]),
            "slots": Sequences.from_list([s for _, s in batch]),
        }
        for batch in batches
    ]

    def epoch() -> None:
        for feed in fed:
            b.run(scope, feed=feed)

    return epoch


def peer_tagger(batches: Any) -> Step:
    import torch
    from torch import nn
    from torch.nn.utils.rnn import pack_sequence

    embedding, lstm = nn.Embedding(943, 150), nn.LSTM(150, 300)
    dense = nn.Linear(300, 129)
    loss_of = nn.CrossEntropyLoss()
    parameters = [p for module in (embedding, lstm, dense) for p in module.parameters()]
    update = torch.optim.SGD(parameters, lr=0.01)
    packed = [
        [
            pack_sequence(
                [torch.from_numpy(np.asarray(pair[i])) for pair in batch], enforce_sorted=False
            )
            for i in range(2)
        ]
        for batch in batches
    ]

    def epoch() -> None:
        for words, slots in packed:
            update.zero_grad()
            rows = words._replace(data=embedding(words.data))
            loss_of(dense(lstm(rows)[0].data), slots.data).backward()
            update.step()

    return epoch


def our_characters(b: Any, x: Any) -> Any:
    """Two LSTMs over characters and the scores of the next one."""
    return b.fc(b.lstm(b.lstm(x, 128)[0], 128)[0], size=WIDTH)


def peer_characters() -> Any:
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(WIDTH, 128, num_layers=2, batch_first=True)
            self.out = nn.Linear(128, WIDTH)

        def forward(self, x: Any) -> Any:
            return self.out(self.lstm(x)[0])

    return Model()


def _sides(build: Any, model: Callable[[], Any], train: bool) -> dict[str, Maker]:
    def theirs(compile_it: bool) -> Step:
        import torch

        module = torch.compile(model()) if compile_it else model()
        return peer_step(module, torch.from_numpy(sequences()[1]), train)

    return {
        OURS: lambda _: ours(build, train),
        "torch": eager(lambda: theirs(False)),
        "torch.compile": eager(lambda: theirs(True)),
    }


def _cell_operations(train: bool) -> float:
    once = 2.0 * BATCH * STEPS * 4 * HIDDEN * (WIDTH + HIDDEN)
    return once * (3 if train else 1)


_SIZES = f"T={STEPS}, batch {BATCH}"

WORKLOADS = {
    "lstm": Workload(
        f"LSTM {_SIZES}, {WIDTH} -> {HIDDEN}, forward",
        1.2,
        _sides(our_cell, peer_cell, False),
        lambda: _cell_operations(False),
    ),
    "lstm-step": Workload(
        f"LSTM {_SIZES}, {WIDTH} -> {HIDDEN}, SGD step",
        1.2,
        _sides(our_cell, peer_cell, True),
        lambda: _cell_operations(True),
    ),
    "step-net": Workload(
        f"step net of small operators {_SIZES}, SGD step",
        2.5,
        _sides(our_small_operators, peer_small_operators, True),
    ),
    "tagger": Workload(
        "ATIS tagger, 1,600 sentences of their real lengths, SGD",
        1.3,
        {
            OURS: lambda _: our_tagger(tagger_batches()),
            "torch": eager(lambda: peer_tagger(tagger_batches())),
        },
    ),
    "characters": Workload(
        f"two LSTMs of 128 over characters, {_SIZES}, SGD step",
        1.2,
        _sides(our_characters, peer_characters, True),
    ),
}
