"""Training on batches of ever other shapes, beside eager PyTorch: the first pass, and later ones.

    python benchmarks/ragged.py [--only lstm,transformer,images] [--shapes 30,300] [--threads 1]

Each side of a row has a process of its own; the sides run one after the other. Times are CPU time
of a batch of mean size, the first run left out. The first pass meets every shape for the first
time; of the later ones the least counts. PyTorch pads sequences, and packs them for its LSTM, as
its users do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

BATCH, WORDS, WIDTH, LONGEST, CLASSES = 8, 1000, 128, 60, 10
PASSES = 3
SIDES = "opscope", "torch"
Shape = Sequence[int]
Training = tuple[Callable[[Any], object], Callable[[Shape], Any]]
"""A step of training, and what it is fed for a shape."""


def drawn(kind: str, count: int) -> list[Shape]:
    """Different shapes: the lengths of the sequences of a batch, or height and width of images."""
    rng = np.random.default_rng(7)
    if kind == "images":
        sizes = [(high, wide) for high in range(32, 62) for wide in range(32, 62)]
        return [sizes[number] for number in rng.permutation(len(sizes))[:count]]
    return [rng.integers(5, LONGEST + 1, BATCH).tolist() for _ in range(count)]


def size_of(kind: str, shape: Shape) -> int:
    """What the work of a batch grows with."""
    return int(np.prod(shape)) if kind == "images" else sum(shape)


def numbers_for(kind: str, shape: Shape) -> tuple[Any, Any]:
    """Inputs and labels: of images, or of each sequence."""
    rng = np.random.default_rng(1)
    if kind == "images":
        images = rng.normal(size=(BATCH, 3, *shape)).astype(np.float32)
        return images, rng.integers(0, CLASSES, BATCH)
    words, labels = ([rng.integers(0, WORDS, length) for length in shape] for _ in range(2))
    return words, labels


def ours(kind: str, threads: int) -> Training:
    import opscope

    opscope.set_threads(threads)
    b = opscope.NetBuilder(kind)
    if kind == "images":
        x, y = b.input("x", [-1, 3, -1, -1]), b.input("y", [-1], "int64")
        for stride, filters in ((1, 16), (2, 32), (2, 64)):
            x = b.relu(b.conv2d(x, filters, 3, padding=1, stride=stride))
        scores = b.fc(b.reduce_mean(x, axes=[2, 3]), size=CLASSES)
    else:
        words = b.input("x", [-1], "int64", levels=1)
        y = b.input("y", [-1], "int64", levels=1)
        x = b.embedding(words, [WORDS, WIDTH])
        if kind == "transformer":
            x = b.positional_encoding(x, kind="learned", max_length=LONGEST + 1)
            x = b.transformer_encoder(x, layers=2, heads=4, norm_first=True, dropout=0.0)
        else:
            x, _ = b.lstm(x, WIDTH, bidirectional=True)
        scores = b.fc(x, size=WORDS)
    b.mean(b.softmax_cross_entropy(scores, y), name="loss")
    b.backward_from("loss")
    b.add_optimization(1e-3, "adam")
    scope = opscope.Scope()
    b.initialize(scope)

    def step(feed: Any) -> object:
        return b.run(scope, feed=feed, fetch=["loss"])

    return step, lambda shape: dict(zip("xy", numbers_for(kind, shape), strict=True))


def of_torch(kind: str, threads: int) -> Training:
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    convolutions = ((3, 16, 1), (16, 32, 2), (32, 64, 2))
    if kind == "images":
        layers = [nn.Conv2d(given, made, 3, step, 1) for given, made, step in convolutions]
        parts: dict[str, nn.Module] = {
            "body": nn.Sequential(*[part for one in layers for part in (one, nn.ReLU())]),
            "out": nn.Linear(64, CLASSES),
        }
    else:
        parts = {"embedding": nn.Embedding(WORDS, WIDTH)}
        if kind == "transformer":
            layer = nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, 0.0, norm_first=True, batch_first=True
            )
            parts["positions"] = nn.Embedding(LONGEST + 1, WIDTH)
            parts["body"] = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            parts["out"] = nn.Linear(WIDTH, WORDS)
        else:
            parts["body"] = nn.LSTM(WIDTH, WIDTH, bidirectional=True, batch_first=True)
            parts["out"] = nn.Linear(2 * WIDTH, WORDS)
    model = nn.ModuleDict(parts)
    update = torch.optim.Adam(model.parameters(), 1e-3)

    def loss_of(x: Any, y: Any, lengths: Any) -> Any:
        if kind == "images":
            return nn.functional.cross_entropy(model["out"](model["body"](x).mean((2, 3))), y)
        beyond = torch.arange(x.shape[1]) >= lengths[:, None]
        x = model["embedding"](x)
        if kind == "transformer":
            x = x + model["positions"](torch.arange(x.shape[1]))
            x = model["body"](x, src_key_padding_mask=beyond)
        else:
            packed = nn.utils.rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            x, _ = nn.utils.rnn.pad_packed_sequence(model["body"](packed)[0], batch_first=True)
        return nn.functional.cross_entropy(model["out"](x[~beyond]), y[~beyond])

    def step(feed: Any) -> object:
        update.zero_grad()
        loss_of(*feed).backward()
        return update.step()

    def feed_of(shape: Shape) -> Any:
        x, y = numbers_for(kind, shape)
        if kind == "images":
            return torch.from_numpy(x), torch.from_numpy(y), None
        padded = [
            nn.utils.rnn.pad_sequence([*map(torch.from_numpy, one)], batch_first=True)
            for one in (x, y)
        ]
        return *padded, torch.tensor(shape)

    return step, feed_of


def passes_of(side: str, kind: str, count: int, threads: int) -> tuple[float, float]:
    """Milliseconds of a batch in the first pass and in the best of the later ones."""
    step, feed_of = (ours if side == SIDES[0] else of_torch)(kind, threads)
    shapes = drawn(kind, count)
    feeds = [feed_of(shape) for shape in shapes]
    sizes = [size_of(kind, shape) for shape in shapes]
    step(feeds[0])
    found = []
    for _ in range(PASSES):
        begin = time.process_time()
        for feed in feeds[1:]:
            step(feed)
        found.append((time.process_time() - begin) / sum(sizes[1:]))
    # A batch of mean size, of all shapes that may be drawn, so that numbers of shapes compare.
    mean = np.mean([size_of(kind, shape) for shape in drawn(kind, 900)])
    return found[0] * 1e3 * float(mean), min(found[1:]) * 1e3 * float(mean)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="lstm,transformer,images")
    parser.add_argument("--shapes", default="30,300", help="numbers of shapes")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    counts = [int(one) for one in given.shapes.split(",")]
    for kind in given.only.split(","):
        later = []
        for count in counts:
            made = []
            for side in SIDES:
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    made.append(pool.submit(passes_of, side, kind, count, given.threads).result())
            (first, again), (their_first, their_again) = made
            later.append(again)
            print(
                f"{kind}, {count} shapes: first pass {first:.1f} ms a batch, PyTorch"
                f" {their_first:.1f}, ratio {their_first / first:.2f}; later {again:.1f},"
                f" {their_again:.1f}, {their_again / again:.2f}",
                flush=True,
            )
        ratio = later[-1] / later[0]
        print(f"{kind}: later, {counts[-1]} shapes take {ratio:.2f} of {counts[0]}", flush=True)


if __name__ == "__main__":
    main()
