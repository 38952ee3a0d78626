"""Makes features to try networks on: log-mel energies of three synthetic glides of vowels.

    python examples/nnet3/make_features.py feats.ark

Signals are pulses at the pitch of a voice through two moving resonances, 8 kHz; features are 40
energies every 10 ms, from windows of 25 ms, as an archive of Kaldi.
"""

from __future__ import annotations

import sys

import numpy as np

from opscope import nnet3

RATE, WINDOW, SHIFT, POINTS, BANDS = 8000, 200, 80, 256, 40
GLIDES = {
    "a-i": ((700, 1200), (300, 2300)),
    "i-u": ((300, 2300), (350, 800)),
    "u-a": ((350, 800), (700, 1200)),
}


def signal(start: tuple[int, int], end: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Harmonics of a falling pitch, each as strong as two resonances on their way allow."""
    seconds = rng.uniform(0.5, 0.8)
    t = np.arange(int(RATE * seconds)) / RATE
    pitch = 130 - 30 * t / seconds
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    found = 0.01 * rng.standard_normal(len(t))
    for number in range(1, 30):
        frequency = number * pitch
        for first, last in zip(start, end, strict=True):
            center = first + (last - first) * t / seconds
            found += np.sin(number * phase) / (1 + ((frequency - center) / 80) ** 2)
    return found


def features(samples: np.ndarray) -> np.ndarray:
    """Log-mel energies [frames, 40], float32."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::SHIFT]
    power = np.abs(np.fft.rfft(frames * np.hamming(WINDOW), POINTS)) ** 2
    mel = 1127 * np.log1p(np.fft.rfftfreq(POINTS, 1 / RATE) / 700)
    edges = np.linspace(mel[1], mel[-1], BANDS + 2)
    width = edges[1] - edges[0]
    bands = np.maximum(0, 1 - np.abs(mel[:, None] - edges[None, 1:-1]) / width)
    return np.log(power @ bands + 1e-6).astype(np.float32)


def main() -> None:
    rng = np.random.default_rng(0)
    with nnet3.TableWriter(f"ark:{sys.argv[1]}", "matrix") as writer:
        for name, (start, end) in GLIDES.items():
            writer.write(name, features(signal(start, end, rng)))


if __name__ == "__main__":
    main()
