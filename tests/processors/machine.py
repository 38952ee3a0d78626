"""What the tests run on."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""


class Lacking(Exception):
    """What a machine needs and is not there."""


@dataclass(frozen=True)
class Machine:
    """A Python, and how it is run.

    Attributes:
        variables: of the environment. options: of pytest. library: the native library, where it is
            not that of the tree.
    """

    python: Sequence[str]
    variables: Mapping[str, str]
    options: Sequence[str] = ()
    library: Path | None = None


def run(*command: str | Path, **variables: str) -> None:
    """Run a command with more variables of the environment; what it prints is kept back.

    Raises:
        Lacking: it fails; with all that it printed.
    """
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | variables,
    )
    if done.returncode:
        raise Lacking(f"what `{' '.join(map(str, command))}` brings: {done.stdout}")


def from_npm(lists: Path, home: Path) -> None:
    """Fill a folder with packages of npm, by the versions and hashes of a `package-lock.json`.

    Raises:
        Lacking: npm is not there, or fails.
    """
    if shutil.which("npm") is None:
        raise Lacking("npm")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    for path in lists.glob("package*.json"):
        shutil.copy(path, home)
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(home))


def is_from(lists: Path, home: Path) -> bool:
    """Whether a folder was filled by this `package-lock.json`."""
    was, now = (folder / "package-lock.json" for folder in (home, lists))
    return was.exists() and was.read_bytes() == now.read_bytes()


def unpack_wheels(
    folder: Path, names: Iterable[str], version: str, platforms: Iterable[str]
) -> None:
    """Unpack packages, of the versions that this environment has, for another Python."""
    making, wheels = folder.with_suffix(".new"), folder.with_suffix(".wheels")
    wanted = [f"{name}=={importlib.metadata.version(name)}" for name in names]
    options = [f"--platform={one}" for one in platforms]
    options += ["--python-version", version, "--only-binary=:all:", "-q", "-d", str(wheels)]
    run(sys.executable, "-m", "pip", "download", *options, *wanted)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(making)
    making.rename(folder)
