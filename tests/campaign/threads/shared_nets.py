"""Nets of NetBuilder that threads share, and compiled functions called as kernels call them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import half_nets
from opscope import NetBuilder, OpContext, Scope, Sequences, load, options, save
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.model import model_of_bytes
from opscope.cntk.base.mersenne import Mersenne64
from opscope.cntk.network.ziggurat import uniform
from opscope.cntk.readers.htk.mlf import read_mlf
from opscope.framework.fusion import conversions, team
from opscope.framework.fusion.rows import row_copies
from opscope.framework.fusion.scalars.codegen import COLUMN, FULL, ONE, ROW, Loop
from opscope.framework.ir.registry import load_operators, lookup, operator_types
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.backends import rows
from opscope.operators.backends.products import few_rows, mkl, parts
from opscope.operators.base.row_adder import row_adder
from opscope.operators.linear import matmul
from rnn_layers import feed_for, layer_net, parameters
from scalar_loops import loop_of, task_of_loop

Results = Mapping[str, np.ndarray]
Work = Callable[[], Results]
"""A run that several threads may make at once; it gives the same numbers each time."""

_SMALL, _LARGE = (40, 300), (300, 700)
"""Shapes that compiled loops are run on: on one thread, and on several."""
_LARGE_LOOPS = 30  # one in so many is run on the larger one


def _loaded(b: NetBuilder) -> Any:
    """A net that was saved and loaded."""
    scope = Scope()
    b.initialize(scope, OpContext(seed=5))
    with tempfile.TemporaryDirectory() as folder:
        save(b, scope, f"{folder}/net")
        return load(f"{folder}/net")


def _predicting(b: NetBuilder, feed: Mapping[str, Any], name: str) -> Work:
    """One loaded net, whose `predict` all threads call."""
    loaded = _loaded(b)

    def predict() -> Results:
        value = loaded.predict(feed, name)[name]
        return {name: getattr(value, "data", value)}

    return predict


def _training(b: NetBuilder, feed: Mapping[str, Any], steps: int = 2) -> Work:
    """One net; each run trains parameters in a scope of its own, from the same beginning."""
    names = parameters(b)

    def train() -> Results:
        scope, found = Scope(), {}
        b.initialize(scope, OpContext(seed=3), share=True)
        for _ in range(steps):
            found = b.run(scope, feed=feed, fetch=["cost"])
        return {**found, **{name: np.array(scope.numpy(name)) for name in names}}

    return train


# Dense nets, and nets in every precision


def dense() -> Work:
    """Products in parts for several threads, a chain that they share, a softmax."""
    b = NetBuilder("dense")
    x = b.input("x", [-1, 300])
    b.softmax(b.fc(b.fc(x, 400, activation="tanh"), 10), name="y")
    rows = np.random.default_rng(0).normal(size=(600, 300)).astype(np.float32)
    return _predicting(b, {"x": rows}, "y")


def wide_training(dtype: str, rate: float = 0.01) -> Work:
    """Layers whose products, chains, gradients, norms and updates are large enough for threads."""
    b = NetBuilder("wide", dtype)
    x, label = b.input("x", [-1, 300]), b.input("label", [-1], "int64")
    hidden = b.batch_norm(b.fc(b.fc(x, 500, activation="relu"), 300, activation="gelu"))
    b.mean(b.softmax_cross_entropy(b.fc(hidden, 20), label), name="cost")
    b.backward_from("cost")
    b.add_optimization(rate, "adam", clip_norm=1.0)
    rng = np.random.default_rng(1)
    feed = {"x": rng.normal(size=(200, 300)).astype(dtype), "label": rng.integers(0, 20, 200)}
    return _training(b, feed)


def kind(name: str, dtype: str) -> Work:
    """A net of `half_nets.py`."""
    b, cost, feed = half_nets.NETS[name](dtype)
    b.backward_from(cost)
    b.add_optimization(0.05, "momentum")
    return _training(b, feed)


def rows_and_heads(dtype: str) -> Work:
    """Attention, softmax and normalization, with their gradients, large enough for threads."""
    b = NetBuilder("rows", dtype)
    x = b.input("x", [4, 40, 96])
    hidden = b.transformer_encoder_layer(x, heads=3, feedforward=160, dropout=0.0)
    hidden = b.rms_norm(b.mul(hidden, b.softmax(hidden)))
    b.mean(b.square(b.log_softmax(hidden)), name="cost")
    b.backward_from("cost")
    b.add_optimization(0.01, "sgd")
    rng = np.random.default_rng(7)
    return _training(b, {"x": rng.normal(size=(4, 40, 96)).astype(dtype)})


def cached(dtype: str) -> Work:
    """Attention over caches that hold more of some sequences than of others."""
    b = NetBuilder("cached", dtype)
    names = ("query", "key", "value")
    shapes = ([4, 6, 96], [4, 300, 96], [4, 300, 96])
    for name, shape in zip(names, shapes, strict=True):
        b.input(name, shape)
    inputs = {name: name for name in (*names, b.input("past", [4], "int64").name)}
    options = {"causal": True, "heads": 3}
    # As a generator has it: of the weights nothing is kept.
    b.forward_net.add_op("scaled_dot_product_attention", inputs, {"out": "seen"}, options)
    rng = np.random.default_rng(12)
    feed = {n: rng.normal(size=s).astype(dtype) for n, s in zip(names, shapes, strict=True)}
    feed["past"] = np.array([0, 294, 7, 100])

    def run() -> Results:
        found = b.run(Scope(), feed=feed, fetch=["seen"], need_backward=False)
        return {name: np.array(value) for name, value in found.items()}

    return run


def filled() -> Work:
    """Large arrays of one value, and products of one row with large matrices."""
    b = NetBuilder("filled")
    x = b.input("x", [1, 300])
    y = b.fill_constant(shape=(300, 1000), value=0.5, name="y")
    b.fill_like(y, value=2.0, name="z")
    b.fc(b.matmul(x, y), size=50, name="scores")
    row = np.random.default_rng(8).normal(size=(1, 300)).astype(np.float32)

    def run() -> Results:
        scope = Scope()
        b.initialize(scope, OpContext(seed=4))
        found = b.run(scope, feed={"x": row}, fetch=["y", "z", "scores"], need_backward=False)
        return {name: np.array(value) for name, value in found.items()}

    return run


def optimizers() -> Work:
    """A net for every optimizer."""
    load_operators()
    kinds = [
        op_type
        for op_type in operator_types()
        if "." not in op_type and {"param", "grad", "lr"} <= lookup(op_type).input_slots.keys()
    ]
    rng = np.random.default_rng(2)
    feed = {"x": rng.normal(size=(30, 20)).astype(np.float32), "label": rng.integers(0, 4, 30)}
    made = {}
    for op_type in kinds:
        b = NetBuilder(op_type)
        x, label = b.input("x", [-1, 20]), b.input("label", [-1], "int64")
        scores = b.fc(b.fc(x, 120, activation="sigmoid"), 4)
        b.backward_from(b.mean(b.softmax_cross_entropy(scores, label), name="cost"))
        b.add_optimization(0.01, op_type)
        made[op_type] = _training(b, feed, 3)
    return lambda: {f"{op_type} {n}": v for op_type in made for n, v in made[op_type]().items()}


def convolutions(dtype: str) -> Work:
    """Every convolution, over one, two and three axes, large enough for threads."""
    b = NetBuilder("convolutions", dtype)
    shapes = {1: [8, 16, 64], 2: [8, 8, 14, 14], 3: [4, 6, 7, 7, 7]}
    rng, feed, costs = np.random.default_rng(3), {}, []
    for rank, shape in shapes.items():
        for family in ("conv", "conv_transpose"):
            name = f"{family}{rank}"
            x = b.input(name, [-1, *shape[1:]])
            feed[name] = rng.normal(size=shape).astype(dtype)
            layer = getattr(b, f"{family}{rank}d")
            costs.append(b.mean(layer(x, 24, 3, activation="relu")))
            costs.append(b.mean(layer(layer(x, 2, 3), 2, 3)))  # few channels: by matrix products
    b.backward_from(b.sum(costs, name="cost"))
    b.add_optimization(0.1, "nesterov")
    return _training(b, feed)


def convolution_prediction() -> Work:
    """A loaded net of convolutions, with chains and a pooling between them; the third one has
    more weights than pixels."""
    b = NetBuilder("pictures")
    x = b.conv2d(b.input("x", [-1, 3, 16, 16]), 16, 3, activation="relu")
    x = b.conv2d(b.max_pool2d(x, kernel=[2, 2]), 32, 3, padding=1, activation="tanh")
    x = b.conv2d(x, 64, 3, padding=1, activation="relu")
    b.assign(b.conv2d(x, 32, 1), name="y")
    pictures = np.random.default_rng(14).normal(size=(16, 3, 16, 16)).astype(np.float32)
    return _predicting(b, {"x": pictures}, "y")


def residual_prediction() -> Work:
    """A loaded net whose 3x3 filters take fewer multiplications, where tiles do not take them."""
    b = NetBuilder("residual")
    x = b.conv2d(b.input("x", [-1, 3, 16, 16]), 64, 3, activation="relu")
    x = b.relu(b.conv2d(x, 64, 3, padding=1) + x)
    b.assign(b.conv2d(x, 32, 1), name="y")
    pictures = np.random.default_rng(21).normal(size=(4, 3, 16, 16)).astype(np.float32)
    predict = _predicting(b, {"x": pictures}, "y")

    def without_tiles() -> Results:
        with options(amx=False):
            return predict()

    return without_tiles


def sizes_of_pictures() -> Work:
    """A loaded net that comes with images of several sizes: from the third on, traces bind it."""
    b = NetBuilder("sizes")
    x = b.conv2d(b.input("x", [-1, 3, -1, -1]), 16, 3, activation="relu")
    b.assign(b.conv2d(b.interpolate(x, scale=2, mode="linear"), 8, 3, padding=1), name="y")
    loaded, rng = _loaded(b), np.random.default_rng(20)
    feeds = {n: {"x": rng.normal(size=(1, 3, 9, n)).astype("f4")} for n in (8, 12, 16, 20, 24)}
    return lambda: {str(n): loaded.predict(feed, "y")["y"] for n, feed in feeds.items()}


def folded_norms(dtype: str) -> Work:
    """Convolutions with the batch norm behind them, which weights and bias take in."""
    b = NetBuilder("norms", dtype)
    x = b.relu(b.batch_norm(b.conv2d(b.input("x", [-1, 8, 16, 16]), 32, 3)))
    b.batch_norm(b.conv2d(x, 32, 3), name="y")
    rows = np.random.default_rng(17).normal(size=(16, 8, 16, 16)).astype(dtype)
    return _predicting(b, {"x": rows}, "y")


def blended_norms(dtype: str) -> Work:
    """CNTK's batch norm, whose running statistics blend with those of the minibatch."""
    net, rng = PlainNet(), np.random.default_rng(18)
    slots = "x", "scale", "bias", "mean", "variance", "seen", "time", "blend"
    writes = {name: name for name in ("out", "used_mean", "used_scale", "own_weight")}
    after = {f"{name}_out": name for name in ("mean", "variance", "seen")}
    net.add_op("cntk.batch_norm", {name: name for name in slots}, {**writes, **after})
    net.add_backward_ops({"out": "slope"}, wrt=["x", "scale", "bias"])
    feed = {name: rng.uniform(0.5, 1.5, 24).astype(dtype) for name in slots[1:5]}
    feed |= {name: rng.normal(size=(20, 24, 90)).astype(dtype) for name in ("x", "slope")}
    feed |= {
        name: np.array([value]) for name, value in zip(slots[5:], (15.0, 40.0, 7.0), strict=True)
    }
    names = "out", "mean", "variance", "x@GRAD", "scale@GRAD", "bias@GRAD"

    def run() -> Results:
        scope = Scope()
        scope.feed({name: value.copy() for name, value in feed.items()})
        net.run(scope, OpContext(train=True, live_out=names))
        return {name: np.array(scope.numpy(name)) for name in names}

    return run


def pictures(dtype: str) -> Work:
    """Poolings over one and two axes, and convolutions of so few filters that they are products."""
    b = NetBuilder("poolings", dtype)
    rng, feed, costs = np.random.default_rng(15), {}, []
    for rank, shape in {1: [8, 8, 96], 2: [8, 8, 24, 24]}.items():
        for family in ("max", "avg"):
            name = f"{family}{rank}"
            x = b.input(name, [-1, *shape[1:]])
            feed[name] = rng.normal(size=shape).astype(dtype)
            few = getattr(b, f"conv{rank}d")(x, 3, 3)
            pooled = [getattr(b, f"{family}_pool{rank}d")(y, kernel=[2] * rank) for y in (x, few)]
            pooled.append(getattr(b, f"adaptive_avg_pool{rank}d")(x, size=[1] * rank))
            pooled.append(b.interpolate(x, scale=1.5, mode="linear"))
            costs += [b.mean(b.square(y)) for y in pooled]
    b.backward_from(b.sum(costs, name="cost"), wrt=[*parameters(b), *feed])
    b.add_optimization(0.1, "sgd")
    return _training(b, feed)


def one_row(dtype: str) -> Work:
    """A net whose weights lie packed for products of one row, twice: in both directions."""
    b = NetBuilder("row", dtype)
    b.fc(b.fc(b.input("x", [-1, 300]), 600, activation="relu"), 20, name="y")
    row = np.random.default_rng(19).normal(size=(1, 300)).astype(dtype)

    def run() -> Results:
        scope = Scope()
        b.initialize(scope, OpContext(seed=9), share=True)
        for _ in range(2):
            found = b.run(scope, feed={"x": row}, fetch=["y"], need_backward=False)
        return found

    return run


def few_products() -> Work:
    """Products of few rows: with a matrix that is packed for them, and with one in columns."""
    b = NetBuilder("products")
    b.matmul(b.input("x", [48, 1024]), b.input("y", [1024, 528]), name="z")
    b.matmul(
        b.input("u", [8, 300], "float64"),
        b.input("v", [400, 300], "float64"),
        transpose_y=True,
        name="w",
    )
    rng = np.random.default_rng(16)
    feed = {
        **{name: rng.normal(size=size).astype(np.float32) for name, size in _FACTORS.items()},
        "u": rng.normal(size=(8, 300)),
        "v": rng.normal(size=(400, 300)),
    }

    def run() -> Results:
        found = b.run(Scope(), feed=feed, fetch=["z", "w"], need_backward=False)
        return {name: np.array(value) for name, value in found.items()}

    return run


_FACTORS = {"x": (48, 1024), "y": (1024, 528)}


def stacks() -> Work:
    """Products of stacks of matrices, a step of attention, and of matrices in odd places."""
    b = NetBuilder("stacks")
    x, y = b.input("x", [-1, 40, 60]), b.input("y", [-1, 60, 50])
    weights = b.softmax(b.matmul(b.matmul(x, y), b.parameter("w", [50, 70])))
    turned = b.matmul(b.transpose(x, perm=[1, 0, 2]), b.parameter("v", [60, 30]))
    costs = [b.mean(b.square(weights)), b.mean(b.square(turned))]
    b.backward_from(b.sum(costs, name="cost"))
    b.add_optimization(0.1, "lion")
    rng = np.random.default_rng(4)
    return _training(b, {name: rng.normal(size=s) for name, s in _STACKS.items()})


_STACKS = {"x": (12, 40, 60), "y": (12, 60, 50)}


# Loops over sequences


def loop(kind: str, dtype: str, **options: Any) -> Work:
    """A recurrent layer with initial states, and the gradients of everything."""
    b, outputs, wrt = layer_net(kind, dtype=dtype, **options)
    feed = feed_for(b, np.random.default_rng(6), dtype=dtype)
    names = [*map(str, outputs), *(b.gradient(name) for name in wrt)]

    def run() -> Results:
        scope = Scope()
        b.initialize(scope, OpContext(seed=7), share=True)
        found = b.run(scope, feed=feed, fetch=names)
        return {name: getattr(value, "data", value) for name, value in found.items()}

    return run


def wide_loop(kind: str, dtype: str) -> Work:
    """A recurrent layer whose steps are shared by a team of threads."""
    b = NetBuilder("wide", dtype)
    x = b.input("x", [-1, 40], levels=1)
    states, _ = getattr(b, kind)(x, 160)
    b.backward_from(b.mean(b.square(states), name="cost"))
    b.add_optimization(0.1, "adamw")
    rng = np.random.default_rng(8)
    lengths = np.cumsum([0, *rng.integers(4, 13, 40)])
    rows = rng.normal(size=(lengths[-1], 40)).astype(dtype)
    return _training(b, {"x": Sequences(rows, (lengths,))})


def steps_of_layers() -> Work:
    """A step net with two memories, one two steps back, and layers that are not one cell."""
    b = NetBuilder("steps", "float64")
    x = b.input("x", [-1, 20], levels=1)
    with b.recurrent("cell", reverse=True) as step:
        row, before = step.input(x), step.memory(60, value=0.5)
        far = step.memory(60, delay=2)
        h = b.layer_norm(b.fc([row, before], size=60, activation="tanh")) + far * 0.5
        step.update(before, h)
        step.update(far, b.matmul(h, b.parameter("w", [60, 60])))
        states = step.output(h)
    b.backward_from(b.mean(b.square(states), name="cost"))
    b.add_optimization(0.1, "rmsprop")
    rng = np.random.default_rng(9)
    return _training(b, {"x": [rng.normal(size=(n, 20)) for n in (3, 9, 6, 1)]})


def recurrent_prediction() -> Work:
    """A loaded LSTM that goes both ways."""
    b = NetBuilder("prediction")
    states, _ = b.lstm(b.input("x", [-1, 16], levels=1), 48, bidirectional=True)
    b.assign(states, name="y")
    rows = np.random.default_rng(10).normal(size=(90, 16)).astype(np.float32)
    return _predicting(b, {"x": Sequences(rows, (np.array([0, 40, 60, 90]),))}, "y")


def team_prediction() -> Work:
    """A loaded GRU whose steps, products of packed weights among them, are shared by a team."""
    b = NetBuilder("team")
    states, _ = b.gru(b.input("x", [-1, 40], levels=1), 160)
    b.assign(states, name="y")
    rows = np.random.default_rng(13).normal(size=(320, 40)).astype(np.float32)
    return _predicting(b, {"x": Sequences(rows, (np.arange(0, 321, 8),))}, "y")


def both_ways() -> Work:
    """An imported LSTM over one sequence; of a further length, its directions run side by side."""
    rng, graph = np.random.default_rng(11), Graph("both ways", 17)
    x = graph.input("x", np.float32, ["T", 1, 24])
    w, r = (graph.constant(rng.normal(size=(2, 128, k)).astype("f4")) for k in (24, 32))
    graph.node("LSTM", [x, w, r], outputs=["y"], hidden_size=32, direction="bidirectional")
    graph.output("y", np.float32)
    model = model_of_bytes(model_bytes(graph))
    feeds = {f"{n} steps": rng.normal(size=(n, 1, 24)).astype("f4") for n in (70, 40, 50)}
    return lambda: {name: model.run({"x": rows})["y"] for name, rows in feeds.items()}


# Compiled functions


def _loops(dtype: str) -> dict[str, Loop]:
    """The loop of every operator with a scalar expression, in turn with operands of each kind."""
    load_operators()
    kinds = FULL, ROW, COLUMN, ONE
    found = {
        op_type: loop_of(op_type, dtype, kinds[number % len(kinds)])
        for number, op_type in enumerate(operator_types())
    }
    return {op_type: loop for op_type, loop in found.items() if loop is not None}


def every_loop(dtype: str) -> Work:
    """The loops of all elementwise operators: each by itself, then all by a team of threads."""
    found = _loops(dtype)
    rng = np.random.default_rng(11)
    given = {
        shape: {
            FULL: rng.uniform(0.1, 0.9, shape).astype(dtype),
            ROW: rng.uniform(0.1, 0.9, shape[1]).astype(dtype),
            COLUMN: rng.uniform(0.1, 0.9, shape[0]).astype(dtype),
            ONE: np.full(1, 0.7, dtype),
        }
        for shape in (_SMALL, _LARGE)
    }

    def run() -> Results:
        results, tasks = {}, []
        for number, (op_type, loop) in enumerate(found.items()):
            shape = _SMALL if number % _LARGE_LOOPS else _LARGE
            for way in ("alone", "team"):
                written = {i for i, _ in loop.stores}
                arrays = [
                    np.zeros(shape, dtype) if i in written else given[shape][operand.kind]
                    for i, operand in enumerate(loop.operands)
                ]
                task = task_of_loop(loop, arrays)
                if way == "alone":
                    task()
                else:
                    tasks.append(replace(task, work=team.ITEM_WORK))
                results.update({f"{op_type} {way} {i}": arrays[i] for i in written})
        team.run_together(tasks)()
        return results

    return run


def copies() -> Work:
    """Rows copied, turned, filled and converted, by one thread and by several."""
    rng = np.random.default_rng(12)
    source = rng.normal(size=(3000, 200)).astype(np.float32)
    rows = rng.permutation(3000)

    def run() -> Results:
        taken, filled = np.empty_like(source), np.empty_like(source)
        half, back = np.empty(source.shape, np.float16), np.empty_like(source)
        tasks = [team.copy_task(taken, source, source_rows=rows), team.fill_task(filled, 0.5)]
        team.run_together([task for task in tasks if task is not None])()
        conversions.convert_call(np, source, half)()
        conversions.convert_call(np, half, back)()
        results = {"taken": taken, "filled": filled, "half": half, "back": back}
        for dtype in (np.float32, np.float64):
            numbers = source[:-5, :-3].astype(dtype)  # neither axis is of whole vectors
            turned = results[f"turned, {numbers.dtype}"] = np.empty(numbers.shape[::-1], dtype)
            row_copies.copy_call(np, numbers.T, turned)()
        return results

    return run


def groups(dtype: str) -> Work:
    """Convolutions of each channel, channels that groups exchange, means of images, sums of
    sequences, rows moved to others."""
    b = NetBuilder("groups", dtype)
    rng = np.random.default_rng(21)
    images = b.conv2d(b.input("x", [4, 32, 12, 12]), 32, 1)
    images = b.conv2d(b.conv2d(images, 32, 3, padding=1, groups=32), 32, 1)
    b.global_avg_pool(images, name="means")
    b.reduce_mean(images, axes=[2, 3], name="planes")
    turned = b.transpose(b.reshape(images, shape=[4, 4, 8, 12, 12]), perm=[0, 2, 1, 3, 4])
    b.conv2d(b.reshape(turned, shape=[4, 32, 12, 12]), 32, 1, name="exchanged")
    b.sequence_pool(b.input("rows", [-1, 48], levels=1), pool_type="sum", name="sums")
    ids, places = b.input("ids", [90], "int64"), b.input("places", [90], "int64")
    gathered = b.gather(b.input("table", [20, 48]), ids)
    b.scatter_add(b.input("base", [7, 48]), places, gathered, name="moved")
    shapes = {"x": (4, 32, 12, 12), "table": (20, 48), "base": (7, 48)}
    feed: dict[str, Any] = {n: rng.normal(size=shape).astype(dtype) for n, shape in shapes.items()}
    feed |= {"ids": rng.integers(0, 20, 90), "places": rng.integers(0, 7, 90)}
    feed["rows"] = [rng.normal(size=(length, 48)).astype(dtype) for length in (60, 1, 300)]

    def run() -> Results:
        scope = Scope()
        b.initialize(scope, OpContext(seed=9), share=True)
        fetch = ["means", "planes", "exchanged", "sums", "moved"]
        return b.run(scope, feed=feed, fetch=fetch, need_backward=False)

    return run


def sums_of_columns() -> Work:
    """Sums over rows of both types, and one row by a matrix, in pieces for several threads."""
    rng = np.random.default_rng(13)
    x, y = rng.normal(size=(2, 700, 192))
    ids = rng.integers(0, 5, len(x))

    def run() -> Results:
        found = {}
        for dtype in (np.float32, np.float64):
            sums = np.empty((2, 96), dtype)
            given = x.astype(dtype), y.astype(dtype)
            rows.call(*rows.moments(*given, (sums[0], sums[1]), (0.5, 2.0)))()
            found[dtype.__name__] = sums
            found[f"few {dtype.__name__}"] = out = np.empty((1, 192), dtype)
            product = parts.by_task(partial(few_rows.task, None), matmul.product)
            product(np, given[0][:1, :1].repeat(700, 1), given[1], out)()
            found[f"added {dtype.__name__}"] = added = np.zeros((5, 192), dtype)
            row_adder(added, ids, given[0])()
            if mkl.library() is not None:
                tall = given[0].repeat(2, 0).repeat(2, 1)
                found[f"tall {dtype.__name__}"] = out = np.empty((len(tall), 192), dtype)
                mkl.product(np, tall, given[1][:384], out)()
        return found

    return run


def integer_products() -> Work:
    """Products and images of bytes, in parts for several threads, with factors that stay packed."""
    rng = np.random.default_rng(17)
    b = NetBuilder("integers")
    arrays = {
        "y": rng.integers(-128, 128, (260, 200), np.int8),
        "w": rng.integers(-128, 128, (48, 48, 3, 3), np.int8),
        "deep": rng.integers(-128, 128, (48, 1, 3, 3), np.int8),
        "table": rng.integers(0, 256, 256, np.uint8),
        "s": np.array(0.02, np.float32),
        "z": np.array(100, np.uint8),
        "nibbles": rng.integers(0, 256, (200, 9, 16), np.uint8),
        "steps": rng.normal(size=(200, 9)).astype(np.float32),
        "upper": (rng.normal(size=(200, 9, 32)).astype("f4").view("u4") >> 16).astype("u2"),
    }
    arrays["upper"] = arrays["upper"].view(np.uint8)
    y, w, deep, table, s, z, nibbles, steps, upper = (
        b.state(name, list(one.shape), dtype=str(one.dtype)) for name, one in arrays.items()
    )
    scope = Scope()
    for name, array in arrays.items():
        scope.var(name).set(array)
    x = b.input("x", [-1, 260], "int8")
    b.integer_matmul(x, y, name="out")
    rows = b.cast(x, dtype=np.dtype("float32"))
    for name, int8_x in (("halves", False), ("rounded", True)):
        b.matmul_nbits(rows, nibbles, steps, int8_x=int8_x, name=name)
    b.matmul_nbits(rows, upper, bits=16, name="bfloat16")
    pixels = b.quantize_linear(b.input("images", [-1, 48, 10, 10]), s, z)
    made = b.integer_conv(pixels, w, x_zero=z, scale=s, out_zero=z, padding=(1,))
    made = b.integer_conv(made, deep, x_zero=z, scale=s, out_zero=z, padding=(1,), groups=48)
    made = b.quantized_add(b.byte_table(made, table), pixels, s, z, s, z, s, z)
    most = b.max_pool2d(made, kernel=(3,), stride=(2,), padding=(1,))
    b.quantized_global_avg_pool(most, s, z, s, z, name="means")
    lines = b.quantize_linear(b.input("lines", [-1, 48, 20]), s, z)
    most = b.max_pool1d(lines, kernel=(2,))
    table = b.byte_table(most, table)
    reals = b.dequantize_linear(table, s, z, name="reals")
    again = b.dynamic_quantize_linear(reals)
    b.quantized_mul(again[0], again[0], again[1], again[2], s, z, s, z, name="products")
    with tempfile.TemporaryDirectory() as folder:
        save(b, scope, f"{folder}/net")
        loaded = load(f"{folder}/net")
    feed = {
        "x": rng.integers(-128, 128, (160, 260), np.int8),
        "images": rng.normal(size=(160, 48, 10, 10)).astype(np.float32),
    }
    feed["lines"] = feed["images"].reshape(160, 48, 100)[..., :20]
    names = ["out", "reals", "means", "products", "halves", "rounded", "bfloat16"]
    return lambda: dict(loaded.predict(feed, names))


def random_integers() -> Work:
    """CNTK's random generator, many turns at once."""
    real = np.dtype(np.float32)
    return lambda: {
        "drawn": Mersenne64(5).draw(20_000),
        "uniform": uniform(5, 20_000, -1.0, 1.0, real),
    }


def labels() -> Work:
    """Labels of utterances, read from a file."""
    folder = tempfile.TemporaryDirectory(prefix="opscope-campaign-")
    path = Path(folder.name, "labels.mlf")
    rng = np.random.default_rng(3)
    lines = ["#!MLF!#"]
    for number in range(20):
        lines.append(f'"u{number}"')
        lines += [f"{at} {at + 1} s{one}" for at, one in enumerate(rng.integers(0, 9, 50))]
        lines.append(".")
    path.write_text("\n".join(lines))

    def run() -> Results:
        assert folder.name
        return read_mlf(path, {f"s{one}": one for one in range(9)})

    return run


def boxes() -> Work:
    """Boxes of a detector, of which those are left that overlap no better one."""
    rng = np.random.default_rng(4)
    low = rng.uniform(0, 30, (300, 2)).astype("f4")
    high = low + rng.uniform(0, 8, (300, 2)).astype("f4")
    graph = Graph("boxes")
    given = [graph.input("boxes", np.float32, [1, 300, 4])]
    given.append(graph.input("scores", np.float32, [1, 2, 300]))
    limits = [np.int64(50), np.float32(0.4), np.float32(0.1)]
    graph.node("NonMaxSuppression", [*given, *map(graph.constant, limits)], outputs=["kept"])
    graph.output("kept", np.int64)
    model = model_of_bytes(model_bytes(graph))
    feed = {"boxes": np.concatenate([low, high], 1)[None]}
    feed["scores"] = rng.uniform(0, 1, (1, 2, 300)).astype("f4")
    return lambda: model.run(feed)


WORKS: dict[str, Callable[[], Work]] = {
    "dense": dense,
    "wide training": partial(wide_training, "float32"),
    "wide training, double": partial(wide_training, "float64"),
    **{
        f"{name}, {dtype}": partial(kind, name, dtype)
        for name in half_nets.NETS
        for dtype in ("float32", "bfloat16")
    },
    "mlp, float16": partial(kind, "mlp", "float16"),
    "rows and heads": partial(rows_and_heads, "float32"),
    "rows and heads, double": partial(rows_and_heads, "float64"),
    "cached": partial(cached, "float32"),
    "cached, double": partial(cached, "float64"),
    "filled": filled,
    "optimizers": optimizers,
    "convolutions": partial(convolutions, "float32"),
    "convolutions, double": partial(convolutions, "float64"),
    "pictures": partial(pictures, "float32"),
    "pictures, double": partial(pictures, "float64"),
    "one row": partial(one_row, "float32"),
    "one row, double": partial(one_row, "float64"),
    "few products": few_products,
    "folded norms": partial(folded_norms, "float32"),
    "folded norms, double": partial(folded_norms, "float64"),
    "blended norms": partial(blended_norms, "float32"),
    "blended norms, double": partial(blended_norms, "float64"),
    "stacks": stacks,
    "lstm loop": partial(loop, "lstm", "float32", bidirectional=True),
    "lstm loop, double": partial(loop, "lstm", "float64", peepholes=True),
    "gru loop": partial(loop, "gru", "float32", reset_after=False),
    "simple loop": partial(loop, "simple_rnn", "float64", reverse=True),
    "wide lstm": partial(wide_loop, "lstm", "float32"),
    "wide gru, double": partial(wide_loop, "gru", "float64"),
    "steps of layers": steps_of_layers,
    "recurrent prediction": recurrent_prediction,
    "team prediction": team_prediction,
    "both ways": both_ways,
    "convolution prediction": convolution_prediction,
    "residual prediction": residual_prediction,
    "sizes of pictures": sizes_of_pictures,
    "every loop": partial(every_loop, "float32"),
    "every loop, double": partial(every_loop, "float64"),
    "copies": copies,
    "sums of columns": sums_of_columns,
    "groups": partial(groups, "float32"),
    "groups, double": partial(groups, "float64"),
    "integer products": integer_products,
    "random integers": random_integers,
    "labels": labels,
    "boxes": boxes,
}
