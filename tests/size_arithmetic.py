"""Random arithmetic over sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any


def computed(rng: random.Random, sizes: Sequence[Any]) -> list[Any]:
    """Numbers of random arithmetic over sizes; what comparisons say is among them."""
    values = [*sizes, 1, 2, 3, 7]
    for _ in range(12):
        a, b = rng.choice(values), rng.choice(values)
        how = rng.randrange(9)
        if how < 3:
            values.append((a + b, a - b, a * b)[how])
        elif how == 3:
            values.append(a // max(b, 1))
        elif how == 4:
            values.append(a % max(b, 1))
        elif how == 5:
            values.append(-(-a // 4) * 4)
        elif how == 6:
            values.append(min(a, b))
        elif how == 7:
            values.append(int(a == b) + 2 * int(a < b) + 4 * int(a >= b))
        else:
            values.append(len(range(a % 5)))
    return values
