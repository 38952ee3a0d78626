"""Recognizes what is said into a microphone, as Vosk's example `test_microphone.py` does.

    pip install opscope[microphone]
    python recognize.py --model vosk-model-small-en-us-0.15

Only the import differs from a program that is written for Vosk.
"""

from __future__ import annotations

import argparse
import queue
import sys

import sounddevice

from opscope.speech import KaldiRecognizer, Model  # was: from vosk import ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-l", "--list-devices", action="store_true", help="list devices, and end")
    parser.add_argument("-m", "--model", help="folder of a model")
    parser.add_argument("-d", "--device", help="microphone: its number, or a part of its name")
    parser.add_argument("-r", "--samplerate", type=int, help="in Hz; by default the device's")
    parser.add_argument("-f", "--filename", help="raw samples are also written to this file")
    arguments = parser.parse_args()
    if arguments.list_devices:
        print(sounddevice.query_devices())
        return
    if arguments.model is None:
        parser.error("--model is needed")
    device = arguments.device
    if device is not None and device.isdigit():
        device = int(device)
    rate = arguments.samplerate
    if rate is None:
        rate = int(sounddevice.query_devices(device, "input")["default_samplerate"])
    blocks: queue.Queue[bytes] = queue.Queue()

    def take(data, count, time, status) -> None:
        """Called by sounddevice for each block, in a thread of its own."""
        if status:
            print(status, file=sys.stderr)
        blocks.put(bytes(data))

    recognizer = KaldiRecognizer(Model(arguments.model), rate)
    copy = open(arguments.filename, "wb") if arguments.filename else None
    microphone = sounddevice.RawInputStream(
        samplerate=rate,
        blocksize=rate // 4,
        device=device,
        dtype="int16",
        channels=1,
        callback=take,
    )
    try:
        with microphone:
            print("Ctrl-C ends.", file=sys.stderr)
            while True:
                data = blocks.get()
                if recognizer.AcceptWaveform(data):
                    print(recognizer.Result())
                else:
                    print(recognizer.PartialResult())
                if copy is not None:
                    copy.write(data)
    except KeyboardInterrupt:
        print(recognizer.FinalResult())
    finally:
        if copy is not None:
            copy.close()


if __name__ == "__main__":
    main()
