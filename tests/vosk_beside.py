"""The package vosk in a process of its own.

Its library has a copy of OpenFst inside: in one process with another, such as that of kaldifst, it
waits for ever while it is loaded. And the loops of its OpenBLAS, which last digits hang on, are
chosen by a variable that is read when it starts: here they are those that each x86 with AVX2 has.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

ENVIRONMENT = {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}


def skip_without_vosk() -> None:
    if importlib.util.find_spec("vosk") is None:
        pytest.skip("the package vosk is not installed")


class Vosk:
    """What tests use of the module: models and `KaldiRecognizer`, with their methods."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )

    def call(self, *message: Any) -> Any:
        """Make an object (None, kind, arguments), or call one (number, method, arguments)."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(message, default=_sent) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"vosk ended with status {self._process.wait()}"
        return json.loads(line)

    def Model(self, folder: str) -> Remote:
        return Remote(self, self.call(None, "Model", [folder]))

    def SpkModel(self, folder: str) -> Remote:
        return Remote(self, self.call(None, "SpkModel", [folder]))

    def KaldiRecognizer(self, *arguments: Any) -> Remote:
        return Remote(self, self.call(None, "KaldiRecognizer", list(arguments)))

    def close(self) -> None:
        self._process.communicate(timeout=60)


class Remote:
    """An object of the other process."""

    def __init__(self, vosk: Vosk, number: int) -> None:
        self._vosk, self.number = vosk, number

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._vosk.call(self.number, name, list(arguments))


def _sent(value: Any) -> dict[str, Any]:
    if isinstance(value, Remote):
        return {"object": value.number}
    return {"bytes": base64.b64encode(value).decode()}


@contextmanager
def vosk_beside() -> Iterator[Vosk]:
    """The package; the test is skipped where it is absent."""
    skip_without_vosk()
    vosk = Vosk()
    try:
        yield vosk
    finally:
        vosk.close()


def _serve() -> None:
    import vosk

    vosk.SetLogLevel(-1)
    objects: list[Any] = []

    def received(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return objects[value["object"]] if "object" in value else base64.b64decode(value["bytes"])

    for line in sys.stdin:
        number, name, arguments = json.loads(line)
        function = getattr(vosk if number is None else objects[number], name)
        result = function(*map(received, arguments))
        if number is None:
            objects.append(result)
            result = len(objects) - 1
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    _serve()
