"""A microphone: blocks of a device until Ctrl-C, and what is told where there is none."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kaldi_models import call_main
from opscope.framework.base.errors import OpscopeError
from opscope.speech.audio.microphone import Microphone
from speech_models import RATE, small_files, speech, write_files


class PortAudioError(Exception):
    """As sounddevice has it."""


class Device:
    """Stands for `sounddevice.RawInputStream`: gives its samples, then somebody presses Ctrl-C."""

    samples = speech("ab c ba")

    def __init__(self, **given: Any) -> None:
        if given["device"] == "none":
            raise PortAudioError("No input device matching 'none'")
        assert (given["samplerate"], given["dtype"], given["channels"]) == (RATE, "int16", 1)
        self._size, self._take = given["blocksize"], given["callback"]
        self.device = given["device"]

    def __enter__(self) -> Device:
        for at in range(0, len(self.samples), self._size):
            self._take(self.samples[at : at + self._size].tobytes(), self._size, None, "")
        signal.raise_signal(signal.SIGINT)
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(RawInputStream=Device, PortAudioError=PortAudioError)
    monkeypatch.setitem(sys.modules, "sounddevice", module)


def test_blocks_until_ctrl_c(device: None) -> None:
    blocks = list(Microphone(RATE, "3"))
    assert [len(each) for each in blocks[:-1]] == [RATE // 5] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate(blocks), Device.samples)


def test_the_command_prints_what_is_said(device: None, tmp_path: Path) -> None:
    folder = write_files(small_files(tmp_path / "parts"), tmp_path / "model")
    code, out, err = call_main("transcribe", folder, "--microphone")
    assert (code, out.decode().split(), err) == (0, ["ab", "c", "ba"], "")
    code, _, err = call_main("transcribe", folder, "--microphone", "--device=none")
    assert code == 1 and "no microphone at 16000 Hz: No input device matching 'none'" in err
    for wrong, told in (
        (("--microphone", "x.wav"), "give FILES, or --microphone"),
        ((), "give FILES, or --microphone"),
        (("x.wav", "--device=1"), "--device goes with --microphone"),
        (("--microphone", "--format=srt"), "a stream goes with --format=txt or json"),
    ):
        code, _, err = call_main("transcribe", folder, *wrong)
        assert code == 2 and told in err


def test_without_sounddevice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(OpscopeError, match=r"pip install opscope\[microphone\]"):
        Microphone(RATE)
