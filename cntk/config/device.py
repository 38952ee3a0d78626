"""`deviceId` of a config."""

from __future__ import annotations

import re

from .parameters import ConfigParameters

_NUMBER = re.compile("[0-9]{1,9}")


def device_of(section: ConfigParameters, default: str = "auto") -> str:
    """What `deviceId` says: "cpu" (or -1), "gpu", "auto", or the number of a GPU.

    Raises:
        FormatError: it says something else.
    """
    text = section.string("deviceId", default).lower()
    if text == "-1":
        return "cpu"
    if text not in ("cpu", "gpu", "auto") and not _NUMBER.fullmatch(text):
        raise section["deviceId"].error(
            f"deviceId is a number, 'cpu', 'gpu' or 'auto', not {text[:60]!r}"
        )
    return text
