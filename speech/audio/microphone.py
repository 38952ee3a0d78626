"""Samples of a microphone, as they come, by sounddevice where that is installed."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.training.ctrl_c import CtrlC
from ...nnet3.language.nodes import warn

_BLOCK = 0.2  # seconds


class Microphone:
    """A microphone; blocks of its samples, int16, [count], until Ctrl-C.

    Args:
        rate: of the samples, in Hz. device: its number, or a part of its name; None: the default.

    Raises:
        OpscopeError: sounddevice is missing, or there is no such device at this rate.
    """

    def __init__(self, rate: float, device: str | None = None) -> None:
        try:
            sounddevice: Any = import_module("sounddevice")
        except (ImportError, OSError) as error:  # OSError: its PortAudio is missing
            raise OpscopeError(
                "a microphone wants the package sounddevice (pip install opscope[microphone]) and"
                f" PortAudio: {error}"
            ) from None
        self._blocks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        chosen = int(device) if device is not None and device.isdigit() else device
        try:
            self._stream = sounddevice.RawInputStream(
                samplerate=rate,
                blocksize=round(rate * _BLOCK),
                device=chosen,
                dtype="int16",
                channels=1,
                callback=self._take,
            )
        except (sounddevice.PortAudioError, ValueError) as error:
            raise OpscopeError(f"no microphone at {rate:g} Hz: {error}") from None

    def __iter__(self) -> Iterator[np.ndarray]:
        with CtrlC(says_so=False) as end, self._stream:
            while not (end.pressed and self._blocks.empty()):
                with suppress(queue.Empty):
                    yield np.frombuffer(self._blocks.get(timeout=_BLOCK), "<i2")

    def _take(self, data: Any, count: int, times: Any, status: Any) -> None:
        """Called by sounddevice in a thread of its own."""
        if status:
            warn(f"microphone: {status}")
        self._blocks.put(bytes(data))
