"""Points of two classes, one ring around the other, in CNTK's text format.

python examples/cntk/make_data.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def lines(count: int, rng: np.random.Generator) -> str:
    """So many points; every line holds one, and its class as one of two."""
    inner = rng.random(count) < 0.5
    radius = np.where(inner, rng.normal(1.0, 0.2, count), rng.normal(2.0, 0.2, count))
    angle = rng.uniform(0, 2 * np.pi, count)
    points = zip(radius * np.cos(angle), radius * np.sin(angle), inner, strict=True)
    return "".join(
        f"|features {x:.4f} {y:.4f} |labels {'1 0' if first else '0 1'}\n" for x, y, first in points
    )


def main() -> None:
    """Write train.ctf and test.ctf."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    rng = np.random.default_rng(0)
    for name, count in (("train", 4000), ("test", 1000)):
        (folder / f"{name}.ctf").write_text(lines(count, rng))


if __name__ == "__main__":
    main()
