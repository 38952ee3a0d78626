"""The folder of an experiment: one training, with the settings that it was begun with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ...framework.base.errors import FormatError, SaveError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.untrusted.records import json_file, typed

EXAMPLES = "egs"
_SETTINGS = "settings.json"


def make_folder(folder: str) -> None:
    """Make the folder, with a place for examples. Raises SaveError: it cannot be made."""
    path = os.path.join(folder, EXAMPLES)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise SaveError(f"cannot make the folder {path}: {error.strerror}") from None


def keep_settings(folder: str, settings: Mapping[str, Any]) -> None:
    """Write down what a training was begun with, or compare with what was written.

    Raises:
        SaveError: the settings are others, or cannot be read or written.
    """
    path = os.path.join(folder, _SETTINGS)
    text = json.dumps(settings, indent=1) + "\n"
    try:
        before = json_file(path, missing=None)
        if before is None:
            write_atomically(path, text.encode())
            return
        before = typed(before, dict[str, Any], path)
    except FormatError as error:
        raise SaveError(f"{error}; these are no settings of a training") from None
    names = [*settings, *(name for name in before if name not in settings)]
    changed = [name for name in names if before.get(name) != settings.get(name)]
    if changed:
        listed = ", ".join(f"{name} (was {before.get(name)!r})" for name in changed)
        raise SaveError(f"{folder} holds a training with other settings: {listed}")
