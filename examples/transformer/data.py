"""The handwritten digits of scikit-learn as sequences: 8 rows of 8 pixels, split 80/20."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits


def load() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Training and test set: `rows` [N, 8, 8] in 0..1 and `label` [N]."""
    digits = load_digits()
    rows = (digits.images / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    cut = len(order) * 4 // 5
    parts = (order[:cut], order[cut:])
    train, test = ({"rows": rows[part], "label": labels[part]} for part in parts)
    return train, test
