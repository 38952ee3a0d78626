"""How far all shards of a scoring are."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Sequence
from typing import Any

from ..jobs.pool import Log
from .folder import ScoreFolder

_LOOKS = 1.0  # seconds between two looks
_STEPS = 10  # lines where there is no terminal


class Progress:
    """Utterances of all shards, on a bar where stderr is a terminal, else in a few lines.

    Args:
        sizes: utterances of each shard.
        open_shards: the numbers of those that are not finished.
    """

    def __init__(
        self, folder: ScoreFolder, sizes: Sequence[int], open_shards: Collection[int], log: Log
    ) -> None:
        self._folder = folder
        self._open = open_shards
        self._log = log
        self._total = sum(sizes)
        self._finished = self._total - sum(sizes[number - 1] for number in open_shards)
        self._shown = self._finished * _STEPS // max(self._total, 1)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=self._total,
                initial=self._finished,
                unit=" utterances",
                leave=False,
                dynamic_ncols=True,
            )
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._end.set()
        self._thread.join()
        if self._bar is not None:
            self._bar.close()

    def _watch(self) -> None:
        while not self._end.wait(_LOOKS):
            self.show()

    def show(self) -> None:
        """Show how many utterances are done now."""
        done = self._finished + sum(map(self._folder.progress, self._open))
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        elif (step := done * _STEPS // max(self._total, 1)) > self._shown:
            self._shown = step
            self._log(f"{100 * step // _STEPS}%: {done} of {self._total} utterances")
