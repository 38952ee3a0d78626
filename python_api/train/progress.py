"""The progress of a training on the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from .measuring import Measurements

_SHOWN_EVERY = 0.2  # seconds between two updates of the numbers on the bar


class Progress:
    """A bar over all minibatches with the time left (on a terminal), and a line for each epoch.

    Both go to stderr. Where the number of minibatches is unknown the bar counts without an end.
    """

    def __init__(self, shown: bool, epochs: int, first_epoch: int) -> None:
        self._shown = shown
        self._epochs = epochs
        self._first = first_epoch
        self._bar: Any = None
        self._next = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.close()

    def start_epoch(self, epoch: int, batches: int | None, done: int) -> None:
        if not self._shown or not sys.stderr.isatty():
            return
        if self._bar is None:
            from tqdm import tqdm

            total = None if batches is None else batches * self._epochs
            initial = (batches or 0) * epoch + done
            self._bar = tqdm(
                total=total, initial=initial, unit=" minibatches", leave=False, dynamic_ncols=True
            )
        self._bar.set_description(f"epoch {epoch + 1}/{self._epochs}")

    def step(self, measured: Measurements) -> None:
        if self._bar is None:
            return
        self._bar.update()
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SHOWN_EVERY
            self._bar.set_postfix(_short(measured.means()), refresh=False)

    def end_epoch(self, row: Mapping[str, float]) -> None:
        if not self._shown:
            return
        numbers = {name: value for name, value in row.items() if name not in ("epoch", "seconds")}
        values = "  ".join(f"{name} {value}" for name, value in _short(numbers).items())
        line = f"epoch {row['epoch']}/{self._epochs}  {values}  ({row['seconds']:.1f} s)"
        if self._bar is None:
            print(line, file=sys.stderr)
        else:
            self._bar.write(line, file=sys.stderr)


def _short(numbers: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{value:.4g}" for name, value in numbers.items()}
