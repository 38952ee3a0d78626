"""Train a small convolutional network on the same handwritten digits.

python examples/digits_conv/train.py [--out build/digits_conv]
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "digits"))
from data import batches, load, shuffled  # noqa: E402  the other example's data

import opscope  # noqa: E402
from opscope import NetBuilder, Scope  # noqa: E402


def build() -> NetBuilder:
    """Two 3x3 convolutions with batch normalization, a pooling, and a linear classifier."""
    b = NetBuilder("digits_conv")
    image = b.input("image", [-1, 64])
    label = b.input("label", [-1], "int64")
    x = b.reshape(image, shape=[-1, 1, 8, 8])
    x = b.relu(b.batch_norm(b.conv2d(x, filters=16, kernel=3, padding=1)))
    x = b.relu(b.batch_norm(b.conv2d(x, filters=32, kernel=3, padding=1)))
    x = b.flatten(b.max_pool2d(x, kernel=[2, 2]), axis=1)
    scores = b.fc(x, size=10, name="scores")
    cost = b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    b.accuracy(scores, label, name="accuracy")
    b.backward_from(cost)
    b.add_optimization(3e-3, "adam", schedule="cosine", schedule_attrs={"total_steps": 540})
    return b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/digits_conv"))
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    train_set, test_set = load()
    b, scope = build(), Scope()
    start = time.perf_counter()
    opscope.train(
        b,
        shuffled(train_set, 32),
        epochs=args.epochs,
        scope=scope,
        evaluate=batches(test_set, 64),
        loss="cost",
        metrics=["accuracy"],
        plot=args.out / "digits_conv.png",
        seed=1,
    )
    opscope.save(b, scope, args.out / "digits_conv.pb")
    scores = b.run(scope, feed={"image": test_set["image"]}, fetch=["scores"], need_backward=False)
    accuracy = float(np.mean(scores["scores"].argmax(axis=1) == test_set["label"]))
    print(f"test accuracy {accuracy:.4f} after {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
