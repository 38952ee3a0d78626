"""Virtual environments with this tree installed in them, made once and reused."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from .process import ROOT, StepError, run, say, settings
from .protos import generated_exist

VENV = ROOT / ".venv"
PROTOC_VENV = ROOT / "build" / "protoc"
OLDEST_NUMPY_VENV = ROOT / "build" / "oldest-numpy"

# The release that tests and benchmarks compare with; another one would measure something else.
TORCH = "2.13.0"


def install_key(root: Path = ROOT) -> str:
    """A hash over all that decides what an editable install of `root` puts in place."""
    digest = hashlib.sha256(f"{platform.python_version()}\0{root}\0".encode())
    compiled = [*(root / "proto").glob("*.proto"), *(root / "native").glob("*.[ch]")]
    compiled += [root / "native" / "declarations.py", root / "native" / "arguments.py"]
    files = root / "pyproject.toml", root / "setup.py", *sorted(compiled)
    for path in files:
        digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


class Environment:
    """A virtual environment, with a stamp that tells what was installed into it.

    Args:
        served_by: the environment whose pip installs here; without one it gets a pip of its own.
    """

    def __init__(self, path: Path, served_by: Environment | None = None):
        self.path = path
        self.served_by = served_by
        self.scripts = path / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.scripts / ("python.exe" if os.name == "nt" else "python")
        self.stamp = path / "opscope-stamp.json"

    def python_version(self) -> str | None:
        """The version it was made with; None where there is no environment."""
        try:
            lines = (self.path / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        pairs = (line.split("=", 1) for line in lines if "=" in line)
        return {key.strip(): value.strip() for key, value in pairs}.get("version")

    def create(self) -> None:
        """Make it unless it is there already, for this version of Python."""
        if self.python_version() == platform.python_version() and self.python.exists():
            return
        shown = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        say(f"making the virtual environment {shown}")
        command = [sys.executable, "-m", "venv", "--clear", self.path]
        if self.served_by is None:
            if subprocess.run(command, capture_output=True).returncode == 0:
                return
            # Some systems ship venv without ensurepip: there, this Python's own pip serves it.
            say("pip could not be put into it: using the pip of this Python")
        run([*command, "--without-pip"], "making a virtual environment", quiet=True)

    def has_pip(self) -> bool:
        """Whether pip is installed inside."""
        return any(self.path.glob("**/site-packages/pip/__init__.py"))

    def python_of_pip(self) -> str | Path:
        """The Python whose pip installs here."""
        if self.has_pip():
            return self.python
        return sys.executable if self.served_by is None else self.served_by.python_of_pip()

    def pip(self, *arguments: str | Path, what: str, **options) -> None:
        """Run pip on this environment; its output shows only when it fails. See `run`."""
        python = self.python_of_pip()
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        if python != self.python:
            pip += ["--python", self.python]
        run([*pip, *arguments], what, quiet=True, **options)

    def installed(self, key: str) -> set[str] | None:
        """The extras installed under this key; None where it must be installed anew."""
        try:
            record = json.loads(self.stamp.read_text(encoding="utf-8"))
            return set(record["extras"]) if record["key"] == key else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def prepare(self, *extras: str) -> None:
        """Make it and install this tree as an editable package with these extras.

        Nothing is done where the stamp says that it has been done. Extras of earlier commands stay,
        so that commands run in turn do not reinstall each other's; a tree that has not changed
        is not built again for more of them.
        """
        self.create()
        key = install_key()
        before = self.installed(key) if generated_exist() else None
        if before is not None and before.issuperset(extras):
            return
        wanted = sorted({*extras, *(before or ())})
        chosen = f"[{','.join(wanted)}]" if wanted else ""
        say(f"installing opscope{chosen}")
        self.stamp.unlink(missing_ok=True)  # an install that is broken off leaves no stamp
        what = ["-e", str(ROOT)] if before is None else ["opscope"]
        what[-1] += chosen
        self.pip("install", *what, what="installing opscope")
        self.stamp.write_text(json.dumps({"key": key, "extras": wanted}), encoding="utf-8")

    def install_torch(self) -> None:
        """Install the PyTorch to compare with; without it, say so and go on."""
        query = "import importlib.metadata as m; print(m.version('torch'))"
        found = subprocess.run([self.python, "-c", query], capture_output=True, text=True)
        if found.stdout.strip().split("+")[0] == TORCH:
            return
        say(f"installing torch {TORCH}")
        try:
            self.pip("install", f"torch=={TORCH}", what=f"installing torch {TORCH}")
        except StepError as error:
            say(f"{error}: going on without it, comparisons with it are skipped")

    def install_oldest_numpy(self) -> None:
        """Install the oldest NumPy that pyproject.toml allows, in place of the newest."""
        (bound,) = (d for d in settings()["project"]["dependencies"] if d.startswith("numpy>="))
        oldest = bound.replace(">=", "==") + ".*"
        say(f"installing {oldest}")
        self.pip("install", oldest, what=f"installing {oldest}")
