"""Train a small residual network on handwritten digits; pytorch.py does the same with PyTorch.

python examples/residual/train.py [--epochs 12]

He, Zhang, Ren and Sun 2015, Deep residual learning for image recognition: the blocks for CIFAR-10.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

import opscope
from opscope import Minibatches, NetBuilder, Scope
from opscope.metrics import Accuracy


def block(b, x, filters, stride=1):
    """Two convolutions beside a shortcut, which is a convolution where the shape changes."""
    out = b.conv2d(x, filters, 3, stride=stride, padding=1, bias=False)
    out = b.conv2d(b.relu(b.batch_norm(out)), filters, 3, padding=1, bias=False)
    if stride > 1:
        x = b.batch_norm(b.conv2d(x, filters, 1, stride=stride, bias=False))
    return b.relu(b.batch_norm(out) + x)


def build(steps):
    b = NetBuilder("residual")
    image = b.input("image", [-1, 1, 8, 8])
    label = b.input("label", [-1], "int64")
    x = b.relu(b.batch_norm(b.conv2d(image, 16, 3, padding=1, bias=False)))
    x = block(b, block(b, x, 16), 16)
    x = block(b, block(b, x, 32, stride=2), 32)
    x = block(b, block(b, x, 64, stride=2), 64)
    scores = b.fc(b.flatten(b.global_avg_pool(x), axis=1), 10, name="scores")
    b.mean(b.softmax_cross_entropy(scores, label), name="loss")
    b.backward_from("loss")
    b.add_optimization(2e-3, "adam", schedule="cosine", schedule_attrs={"total_steps": steps})
    return b


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    epochs = parser.parse_args().epochs
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.images / 16).astype(np.float32)[order, None]
    labels = digits.target[order]
    data = Minibatches({"image": images[:1437], "label": labels[:1437]}, 32)
    held_out = Minibatches({"image": images[1437:], "label": labels[1437:]}, 32, shuffle=False)
    start = time.perf_counter()
    history = opscope.train(
        build(epochs * len(data)),
        data,
        epochs=epochs,
        scope=Scope(),
        evaluate=held_out,
        metrics=[Accuracy("scores", "label")],
        seed=0,
    )
    seconds = time.perf_counter() - start
    print(f"test accuracy {history.last['eval_accuracy']:.4f} after {seconds:.1f} s")


if __name__ == "__main__":
    main()
