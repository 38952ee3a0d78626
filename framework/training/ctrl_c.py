"""Ctrl-C in a training: it ends after the minibatch."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any


class CtrlC:
    """Within the block a first Ctrl-C only sets `pressed`; a second one interrupts as usual.

    Args:
        says_so: whether it says on stderr that it was pressed.

    Signals reach the main thread alone: elsewhere this does nothing.
    """

    def __init__(self, says_so: bool = True) -> None:
        self.pressed = False
        self._says_so = says_so
        self._before: Any = None

    def __enter__(self) -> CtrlC:
        # Python lets only the main thread set a handler.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, number: int, frame: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        if self._says_so:
            print("Ctrl-C: ending after this minibatch (again: at once)", file=sys.stderr)
