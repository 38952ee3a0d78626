"""Folders of Vosk's models: where the acoustic model lies, and what the options beside it say."""

from __future__ import annotations

import os

from ...framework.base.untrusted.opener import read_file
from ...framework.base.untrusted.values import whole_number

_FACTOR = "--frame-subsampling-factor"


def acoustic_model_of(folder: str) -> str:
    """The acoustic model of a Vosk model's folder; "" where it is none."""
    inside = any(os.path.isdir(os.path.join(folder, name)) for name in ("conf", "graph", "ivector"))
    flat = os.path.isfile(os.path.join(folder, "mfcc.conf"))
    for path in (os.path.join(folder, "am", "final.mdl"), os.path.join(folder, "final.mdl")):
        if os.path.isfile(path) and (inside or flat):
            return path
    return ""


def options(path: str) -> dict[str, str]:
    """The options in a file of `--name=value`, by name; none where there is no such file."""
    if not os.path.isfile(path):
        return {}
    text = read_file(path).decode("utf-8", "replace")
    pairs = (line.split("#")[0].strip().partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def subsampling_of(folder: str) -> int | None:
    """Frames for one row of output, as conf/model.conf says it; None where it does not.

    Raises:
        FormatError: it is no number from 1 to 1000.
    """
    values = options(os.path.join(folder, "conf", "model.conf"))
    if _FACTOR not in values:
        return None
    return whole_number(values[_FACTOR], f"{folder}/conf/model.conf", 1, 1000)
