"""Running the steps of a command: each prints a line, and one that fails ends the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
"""The repository, where every step runs."""


class StepError(Exception):
    """A step failed: one line to print, and the exit code to end with."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


def say(text: str) -> None:
    """Print one line of progress, ahead of what the next process prints."""
    print(f"build.py: {text}", flush=True)


def run(command: Sequence[str | Path], what: str, *, quiet: bool = False, **options) -> None:
    """Run a command from the repository root.

    Args:
        what: names the step in the error.
        quiet: keep the output back unless the command fails.
        options: passed on to `subprocess.run`.

    Raises:
        StepError: it could not be started, or ended with a code other than 0.
    """
    if quiet:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    try:
        done = subprocess.run([str(part) for part in command], **{"cwd": ROOT} | options)
    except OSError as error:
        raise StepError(f"{what}: {error}") from error
    if done.returncode == 0:
        return
    if quiet:
        print(done.stdout, file=sys.stderr, flush=True)
    code = done.returncode if done.returncode > 0 else 128 - done.returncode  # as a shell has it
    raise StepError(f"{what} failed with exit code {code}", code)


def with_defaults(defaults: Mapping[str, str]) -> dict[str, str]:
    """This process's environment variables, completed by defaults."""
    return {**defaults, **os.environ}


def settings() -> dict[str, Any]:
    """What pyproject.toml says."""
    import tomllib  # here, so that an older Python gets as far as the message in build.py

    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
