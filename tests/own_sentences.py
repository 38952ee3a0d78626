"""Signals made of the three sentences: other rates, noise, pauses, a grammar."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from opscope.speech import read_audio
from speech_data import reference

RATE = 16000
GRAMMAR = json.dumps(["오후 시 하죠", "아 유영 봐왔 으니"], ensure_ascii=False)


@dataclass(frozen=True)
class Case:
    """A signal and how it is given to a recognizer.

    Attributes:
        parts: names of sentences, and lengths of pauses in seconds. rate: of the samples.
        block: bytes given at once; 0: all. snr: of noise, in dB. speed, gain: factors.
        near: whether words, times and confidences are Vosk's to 1e-3; else only best paths are,
            and Vosk's own confidences hang on the processor: OPENBLAS_CORETYPE=SkylakeX gives
            other ones than Haswell (see vosk_beside.py), mostly by 0.03 and more. For "pauses" it
            gives another last word, as we do; for "noise" Sandybridge gives 0.5622 where Haswell
            gives 0.5573 and we 0.5585.
    """

    parts: tuple[str | float, ...]
    rate: int = RATE
    block: int = 0
    grammar: str | None = None
    snr: float | None = None
    speed: float = 1.0
    gain: float = 1.0
    near: bool = True

    def samples(self) -> np.ndarray:
        """The signal, int16, [samples]."""
        rng = np.random.default_rng(0)
        found: list[np.ndarray] = []
        for part in self.parts:
            if isinstance(part, str):
                found.append(read_audio(reference(f"{part}.wav")).channel().astype(np.float64))
            else:
                found.append(rng.normal(0, 3, int(part * RATE)))
        signal = np.concatenate(found) * self.gain
        if self.speed != 1.0:
            places = np.arange(int(len(signal) / self.speed)) * self.speed
            signal = np.interp(places, np.arange(len(signal)), signal)
        if self.snr is not None:
            level = np.sqrt(np.mean(signal**2)) * 10 ** (-self.snr / 20)
            signal = signal + rng.normal(0, level, len(signal))
        if self.rate != RATE:
            count = int(len(signal) * self.rate / RATE)
            tones = np.fft.rfft(signal)
            kept = np.zeros(count // 2 + 1, complex)
            common = min(len(tones), len(kept))
            kept[:common] = tones[:common]
            signal = np.fft.irfft(kept, count) * (count / len(signal))
        return signal.round().clip(-32768, 32767).astype(np.int16)


CASES = {
    "pauses": Case(("u1", 1.2, "u2", 0.8), block=8000, near=False),
    "grammar": Case(("u1", 1.2, "u2"), block=8000, grammar=GRAMMAR, near=False),
    "slow": Case(("u2",), speed=0.85),
    "three": Case(("u1", "u2", "u3"), block=6400),
    "telephone": Case(("u3",), rate=8000, near=False),
    "telephone, pauses": Case(("u1", 1.2, "u2", 1.2), rate=8000, block=4000),
    "telephone, noise": Case(("u2",), rate=8000, snr=5.0, block=2000),
    "44.1 kHz": Case(("u3",), rate=44100, block=8820),
    "48 kHz": Case(("u3",), rate=48000),
    "48 kHz, pauses": Case((0.5, "u2", 1.0, "u1"), rate=48000, block=9600),
    "soft": Case(("u3",), gain=0.05, block=4000),
    "noise": Case(("u3",), snr=20.0, near=False),
    "more noise": Case(("u3",), snr=10.0, block=8000, near=False),
    "fast": Case(("u3",), speed=1.15, block=8000, near=False),
    "grammar, noise": Case(("u3",), snr=15.0, grammar=GRAMMAR, near=False),
    "loud, twice": Case(("u3", "u3"), gain=1.7, block=8000, near=False),
}
QUICK = ("slow",)
