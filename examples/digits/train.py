"""Train a small network on real handwritten digits, save it, and plot the curves.

    python examples/digits/train.py [--out build/digits]

Writes digits.pb, digits.safetensors, digits.csv and digits.png into the folder `--out`.
"""

from __future__ import annotations

import argparse
import pathlib
import time

import numpy as np
from data import batches, load, shuffled

import opscope
from opscope import NetBuilder, Scope


def build() -> NetBuilder:
    """64 pixels -> 128 -> 64 -> 10 classes, with its loss, gradients and Adam updates."""
    b = NetBuilder("digits")
    image = b.input("image", [-1, 64])
    label = b.input("label", [-1], "int64")
    hidden = b.fc(image, size=128, activation="relu")
    hidden = b.dropout(b.fc(hidden, size=64, activation="relu"), p=0.2)
    scores = b.fc(hidden, size=10, name="scores")
    cost = b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    b.accuracy(scores, label, name="accuracy")
    b.backward_from(cost)
    b.add_optimization(2e-3, "adam")
    return b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/digits"))
    parser.add_argument("--epochs", type=int, default=30)
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
        log_csv=args.out / "digits.csv",
        plot=args.out / "digits.png",
        seed=1,
    )
    seconds = time.perf_counter() - start
    opscope.save(b, scope, args.out / "digits.pb")
    scores = b.run(scope, feed={"image": test_set["image"]}, fetch=["scores"], need_backward=False)
    predicted = scores["scores"].argmax(axis=1)
    right = int(np.sum(predicted == test_set["label"]))
    total = len(predicted)
    print(f"test accuracy {right / total:.4f} ({right} of {total}) after {seconds:.1f} s")
    print(f"saved {args.out / 'digits.pb'} and digits.safetensors; curves in digits.png")
    print("first predictions:", *predicted[:20])


if __name__ == "__main__":
    main()
