"""What the tests run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""


class Lacking(Exception):
    """What a machine needs and is not there."""


@dataclass(frozen=True)
class Machine:
    """How pytest is run: by a Python, with variables of the environment and options of its own."""

    python: Sequence[str]
    variables: Mapping[str, str]
    options: Sequence[str] = ()
