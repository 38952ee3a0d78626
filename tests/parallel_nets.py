"""Nets that are trained on ranks and in one process, and how to do so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import opscope
from opscope.framework.base.backend import Place, to_host
from opscope.framework.base.communicator import Communicator
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.files.saved import persistent_values
from opscope.framework.ir.op_list import OpList
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.passes.pipeline import Pass, run_passes
from opscope.framework.passes.ranks.all_reduce import InsertAllReduce
from opscope.framework.passes.ranks.sync_batch_norm import SyncBatchNorm
from opscope.framework.runtime.initialize import initialize
from opscope.framework.runtime.plain_net import PlainNet

Batch = Mapping[str, Any]
PASSES: tuple[Pass, ...] = (SyncBatchNorm(), InsertAllReduce())


def mlp(dtype: str, optimizer: str = "momentum", rate: float = 0.1, **options: Any) -> OpList:
    """x [-1, 6] -> two layers -> classes; the mean of the costs."""
    b = opscope.NetBuilder("mlp", dtype)
    h = b.fc(b.input("x", [-1, 6]), size=8, activation="tanh")
    cost = b.softmax_cross_entropy(b.fc(h, size=3), b.input("label", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(rate, optimizer, **options)
    return b.op_list


def weighted(dtype: str) -> OpList:
    """As `mlp`, with a weight a sample."""
    b = opscope.NetBuilder("weighted", dtype)
    h = b.fc(b.input("x", [-1, 6]), size=8, activation="tanh")
    cost = b.softmax_cross_entropy(b.fc(h, size=3), b.input("label", [-1], "int64"))
    b.masked_mean(cost, b.input("weight", [-1]), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1, "adam", clip_norm=0.5)
    return b.op_list


def normalized(dtype: str) -> OpList:
    """As `mlp`, with batch normalization."""
    b = opscope.NetBuilder("normalized", dtype)
    h = b.batch_norm(b.fc(b.input("x", [-1, 6]), size=8), name="norm")
    h = b.batch_norm(b.fc(b.relu(h), size=5), name="norm2")
    cost = b.softmax_cross_entropy(b.fc(h, size=3), b.input("label", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.05, "momentum", momentum=0.5)
    return b.op_list


def words(dtype: str, optimizer: str = "adagrad", **options: Any) -> OpList:
    """ids [-1] -> rows of a table, whose gradient is sparse -> classes."""
    b = opscope.NetBuilder("words", dtype)
    h = b.embedding(b.input("ids", [-1], "int64"), size=[20, 4], sparse=True, name="table")
    cost = b.softmax_cross_entropy(b.fc(h, size=3), b.input("label", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1, optimizer, **options)
    return b.op_list


def lstm(dtype: str) -> OpList:
    """Sequences of unequal lengths -> LSTM -> a class a frame."""
    b = opscope.NetBuilder("lstm", dtype)
    x = b.input("x", [-1, 6], levels=1)
    out, _ = b.lstm(x, 5)
    label = b.input("label", [-1], "int64", levels=1)
    cost = b.softmax_cross_entropy(b.fc(out, size=3), label)
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1, "momentum", clip_norm=1.0)
    return b.op_list


def halves(dtype: str, loss_scale: float | str = 16.0) -> OpList:
    """As `mlp`, in half precision with a scaled loss."""
    b = opscope.NetBuilder("halves", dtype)
    h = b.fc(b.input("x", [-1, 6]), size=8, activation="tanh")
    cost = b.softmax_cross_entropy(b.fc(h, size=3), b.input("label", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1, "adam", loss_scale=loss_scale)
    return b.op_list


def rows(step: int, count: int, dtype: str) -> dict[str, np.ndarray]:
    """`count` samples for any of the nets over rows."""
    rng = np.random.default_rng(step)
    return {
        "x": rng.normal(size=(count, 6)).astype(dtype),
        "label": rng.integers(0, 3, count),
        "weight": rng.uniform(0, 2, count).astype(dtype),
        "ids": rng.integers(0, 20, count),
    }


def cut(batch: Batch, bounds: Sequence[int]) -> list[dict[str, Any]]:
    """A batch in parts: rows from each bound to the next."""
    spans = list(zip(bounds, bounds[1:], strict=False))
    return [{name: value[a:b] for name, value in batch.items()} for a, b in spans]


def joined(parts: Sequence[Batch]) -> dict[str, Any]:
    """The parts as one batch."""
    return {name: joined_values([part[name] for part in parts]) for name in parts[0]}


def joined_values(values: Sequence[Any]) -> Any:
    if isinstance(values[0], list):
        return [one for value in values for one in value]
    return np.concatenate(values)


def run_steps(
    net: OpList,
    batches: Sequence[Batch],
    communicator: Communicator | None,
    place: Place | None = None,
) -> dict[str, np.ndarray]:
    """Parameters and states after a step on each batch."""
    plain, scope = PlainNet(net), Scope(place)
    start = Scope()
    initialize(net, start, OpContext(seed=3))  # on the host: GPUs draw other numbers
    for name, array in persistent_values(plain.desc, start).items():
        scope.var(name).set(array)
    context = OpContext(communicator=communicator, seed=1)
    names = [var.name for var in net.vars if var.kind == 1]
    for batch in batches:
        for name in names:
            value = batch[name]
            if isinstance(value, list):
                value = opscope.Sequences.from_list(value)
            scope.var(name).set(value)
        plain.run(scope, context)
    found = persistent_values(plain.desc, scope)
    return {name: to_host(array).copy() for name, array in found.items()}


def on_ranks(
    net: OpList,
    parts: Sequence[Sequence[Batch]],
    passes: Sequence[Pass] = PASSES,
    place: Place | None = None,
) -> list[dict[str, np.ndarray]]:
    """What each rank has after a step on each of its parts: parts[step][rank]."""
    made = run_passes(net, passes)

    def work(c: Communicator) -> dict[str, np.ndarray]:
        return run_steps(made, [step[c.rank] for step in parts], c, place)

    return DryWorld(len(parts[0])).run(work)


def compare(
    net: OpList,
    parts: Sequence[Sequence[Batch]],
    tolerance: float,
    passes: Sequence[Pass] = PASSES,
) -> None:
    """Ranks against one process on the joined batches; ranks bit for bit among themselves."""
    wanted = run_steps(net, [joined(step) for step in parts], None)
    found = on_ranks(net, parts, passes)
    for name, value in wanted.items():
        assert len({one[name].tobytes() for one in found}) == 1, f"{name}: ranks differ"
        gap = np.abs(found[0][name] - value).max(initial=0)
        assert gap <= tolerance * max(1.0, np.abs(value).max(initial=0)), f"{name}: {gap}"


Maker = Callable[[str], OpList]
