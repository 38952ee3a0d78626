"""The 1,797 handwritten digits (8x8) that scikit-learn ships, split 80/20 by a fixed seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

Batches = list[dict[str, np.ndarray]]


def load() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Training and test set: `image` [N, 64] in 0..1 and `label` [N]."""
    from sklearn.datasets import load_digits  # not there where a saved net is only run

    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    cut = len(order) * 4 // 5
    parts = (order[:cut], order[cut:])
    train, test = ({"image": images[part], "label": labels[part]} for part in parts)
    return train, test


def batches(data: dict[str, np.ndarray], size: int) -> Batches:
    """The set in its order, in minibatches."""
    count = len(data["label"])
    return [{k: v[i : i + size] for k, v in data.items()} for i in range(0, count, size)]


def shuffled(
    data: dict[str, np.ndarray], size: int
) -> Callable[[int], Iterator[dict[str, np.ndarray]]]:
    """Epoch number -> minibatches in an order that depends on it alone: a run can resume."""

    def epoch(number: int) -> Iterator[dict[str, np.ndarray]]:
        order = np.random.default_rng(1000 + number).permutation(len(data["label"]))
        yield from batches({key: value[order] for key, value in data.items()}, size)

    return epoch
