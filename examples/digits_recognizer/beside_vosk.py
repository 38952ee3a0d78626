"""Recognizes recordings with opscope and with Vosk, and counts where their words differ.

python beside_vosk.py MODEL RECORDING ...
"""

from __future__ import annotations

import json
import sys
import wave

import vosk

from opscope.speech import Model, transcribe


def by_vosk(model: vosk.Model, path: str) -> str:
    """The words that Vosk recognizes."""
    with wave.open(path) as file:
        recognizer = vosk.KaldiRecognizer(model, file.getframerate())
        found = []
        while block := file.readframes(4000):
            if recognizer.AcceptWaveform(block):
                found.append(json.loads(recognizer.Result())["text"])
    return " ".join([*found, json.loads(recognizer.FinalResult())["text"]]).strip()


def main(folder: str, recordings: list[str]) -> None:
    vosk.SetLogLevel(-1)
    ours, theirs = Model(folder), vosk.Model(folder)
    different = 0
    for path in recordings:
        found = " ".join(transcribe(path, ours, mode="vosk").text.split())
        beside = by_vosk(theirs, path)
        if found != beside:
            different += 1
            print(f"{path}: {found!r} here, {beside!r} by Vosk")
    print(f"{len(recordings)} recordings, {different} with other words")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
