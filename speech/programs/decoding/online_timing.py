"""How long an online recognizer would lag behind speakers: waiting for them is only counted.

Source: Kaldi's `online2/online-timing.cc`.
"""

from __future__ import annotations

import math
import time
from types import SimpleNamespace


class Timer:
    """The time of an utterance that is said while it is recognized.

    Attributes:
        waited: seconds in which there was nothing to do. audio: seconds that were said so far.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self.waited = self.audio = 0.0

    def wait_until(self, audio: float) -> None:
        """Wait until so many seconds are said."""
        self.waited += max(audio - self.seconds(), 0.0)
        self.audio = audio

    def seconds(self) -> float:
        """Since the beginning, including the seconds of waiting."""
        return time.perf_counter() - self._start + self.waited


class TimingStats:
    """Sums over utterances."""

    def __init__(self) -> None:
        self._count = 0
        self._audio = self._seconds = self._waited = self._longest = 0.0
        self._longest_key = ""

    def add(self, key: str, timer: Timer) -> str:
        """Count an utterance; returns what is to be logged of it."""
        seconds = timer.seconds()
        delay = seconds - timer.audio
        self._count += 1
        self._audio += timer.audio
        self._seconds += seconds
        self._waited += timer.waited
        if delay > self._longest:
            self._longest = delay
            self._longest_key = key
        return f"Latency {delay:g} seconds out of {timer.audio:g}, for utterance {key}"

    def tell(self, options: SimpleNamespace) -> None:
        """Log the sums; whole utterances (`--online=false`) are counted without waiting."""
        log = options.program.log
        if not options.online:
            worked = self._seconds - self._waited
            log(
                "Timing stats: real-time factor for offline decoding was"
                f" {ratio(worked, self._audio):g} = {worked:g} seconds  / {self._audio:g} seconds."
            )
            return
        factor = ratio(self._seconds, self._audio)
        log(f"Timing stats: real-time factor was {factor:g} (note: this cannot be less than one.)")
        log(f"Average delay was {ratio(self._seconds - self._audio, self._count):g} seconds.")
        idle = 100 * ratio(self._waited, self._audio)
        if idle:
            log(f"Percentage of time spent idling was {idle:g}")
        log(f"Longest delay was {self._longest:g} seconds for utterance '{self._longest_key}'")


def ratio(sum_of: float, count: float) -> float:
    """A quotient; NaN of nothing."""
    return sum_of / count if count else math.nan
