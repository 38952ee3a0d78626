"""How far a run is, in percent, for those who schedule it: `progressTracing`.

Source: CNTK's `Common/Include/ProgressTracing.h`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

_SECONDS = 10.0


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


@dataclass
class JobProgress:
    """Prints `PROGRESS: 12.50%` and `EVALERR: 0.3400000%` (the training criterion) to standard
    output, every ten seconds and at the end of a training.

    Attributes:
        epochs: of all trainings of the run.
        before: of commands that are over.
    """

    epochs: int
    before: int = 0
    _since: float = field(default_factory=time.monotonic)

    def minibatch(self, epoch: int, share: float, loss: float) -> None:
        """Called within an epoch (counted from 0), of which a share is done."""
        if time.monotonic() - self._since > _SECONDS:
            self._report(epoch + share, loss)

    def trained(self, epochs: int, loss: float) -> None:
        """Called at the end of a training."""
        self._report(epochs, loss)

    def _report(self, done: float, loss: float) -> None:
        percent = 100 * (self.before + done) / self.epochs if self.epochs else 0.0
        _print(f"PROGRESS: {percent:.2f}%\nEVALERR: {loss:.7f}%\n")
        self._since = time.monotonic()
