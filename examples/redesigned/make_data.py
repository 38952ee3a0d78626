"""Small speech-like data under the names that the notes' configs use.

python examples/redesigned/make_data.py [FOLDER]

Frames of 183 states: each state has a mean of its own, and states follow one another in runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from opscope.cntk.readers.base.htk_files import write_htk

STATES = 183
UTTERANCES, FRAMES, RUN = 20, 100, 5
PERIOD = 100_000  # of a frame, in units of 100 ns


def main() -> None:
    """Write the lists, the labels, the states and, in a folder of their own, the features."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    rng = np.random.default_rng(0)
    used = rng.permutation(STATES)[:12]  # few of them, so that little data is enough
    labels = ["#!MLF!#"]
    lists: dict[str, list[str]] = {}
    means = {dim: rng.normal(size=(STATES, dim)) for dim in (792, 24)}
    for number in range(UTTERANCES):
        name = f"u{number:02}"
        states = np.repeat(rng.choice(used, FRAMES // RUN), RUN)
        for dim, mean in means.items():
            frames = mean[states] + rng.normal(size=(FRAMES, dim))
            path = folder / f"features{dim}" / f"{name}.fea"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_htk(path, frames.astype(np.float32))
            lists.setdefault(f"TIMIT.train.scp.fbank{dim}", []).append(
                f"{name}.fea={path}[0,{FRAMES - 1}]"
            )
        labels.append(f'"{name}.lab"')
        for start in range(0, FRAMES, RUN):
            labels.append(f"{start * PERIOD} {(start + RUN) * PERIOD} s{states[start]}")
        labels.append(".")
    for name, lines in lists.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "TIMIT.train.align_cistate.mlf.cntk").write_text("\n".join(labels) + "\n")
    (folder / "TIMIT.statelist").write_text("".join(f"s{n}\n" for n in range(STATES)))


if __name__ == "__main__":
    main()
