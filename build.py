#!/usr/bin/env python3
"""The one door to this repository: `python build.py COMMAND`.

    demo    train a network on handwritten digits, then load it again in a fresh process
    test    run the tests (further arguments go to pytest)
    proto   compile proto/*.proto
    bench   run the benchmarks beside PyTorch (further arguments go to benchmarks/run.py)
    lint    check style and formatting
    wheel   build a wheel into dist/ and try it away from the tree
    docs    build the documentation into build/site/

Needs Python 3.11 or newer and nothing else: each command makes or reuses the virtual environment
`.venv`, installs what it needs and runs. A step that fails ends the command with its exit code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PROTOC_VENV = ROOT / "build" / "protoc"
OLDEST_PYTHON = (3, 11)

# The release that tests and benchmarks compare with; another one would measure something else.
TORCH = "2.13.0"

# One thread a process: the test processes already share the cores among them.
TEST_ENV = {
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}

# Run in a fresh environment that holds only the wheel: every public name must load from there.
WHEEL_CHECK = """
import subprocess
import sys
from pathlib import Path
import opscope
home = Path(opscope.__file__).resolve()
if not home.is_relative_to(Path(sys.prefix).resolve()):
    sys.exit(f"opscope came from {home}, not from the wheel")
for name in opscope.__all__:
    getattr(opscope, name)
subprocess.run([sys.executable, "-P", "-m", "opscope", "version"], check=True)
print("opscope", opscope.__version__, "works from its wheel")
"""


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


def compile_protos(python: str | Path = sys.executable, root: Path = ROOT) -> list[Path]:
    """Compile `proto/*.proto` into `_pb2.py` and `_pb2.pyi` beside them.

    `setup.py` calls this too, so that every kind of install and build makes the same files. protoc
    gets the sources as `opscope/proto/*.proto`: under these names they are entered in protobuf's
    pool, which a process shares with all its libraries, and the classes know their real module.

    Args:
        python: an interpreter that has grpcio-tools.
        root: the root of the repository.

    Returns:
        The generated files; one whose content has not changed is left alone.

    Raises:
        StepError: a file does not compile.
    """
    folder = root / "proto"
    sources = sorted(source.name for source in folder.glob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        outputs = [f"--python_out={scratch}", f"--pyi_out={scratch}"]
        names = [f"opscope/proto/{name}" for name in sources]
        # -P: the folders of this tree must not stand in for installed packages.
        protoc = [python, "-P", "-m", "grpc_tools.protoc", f"-Iopscope/proto={folder}"]
        run([*protoc, *outputs, *names], "compiling proto/*.proto", quiet=True, cwd=scratch)
        generated = []
        for made in sorted(Path(scratch, "opscope", "proto").iterdir()):
            target = folder / made.name
            if not target.exists() or target.read_bytes() != made.read_bytes():
                # Renamed into place: a process that imports it meanwhile sees all or nothing.
                fresh = target.with_name(f"{target.name}.{os.getpid()}")
                shutil.copyfile(made, fresh)
                os.replace(fresh, target)
            generated.append(target)
    return generated


def generated_exist(root: Path = ROOT) -> bool:
    """Whether every proto has its generated module."""
    sources = (root / "proto").glob("*.proto")
    return all(source.with_name(f"{source.stem}_pb2.py").exists() for source in sources)


def install_key(root: Path = ROOT) -> str:
    """A hash over all that decides what an editable install of `root` puts in place."""
    digest = hashlib.sha256(f"{platform.python_version()}\0{root}\0".encode())
    protos = sorted((root / "proto").glob("*.proto"))
    for path in (root / "pyproject.toml", root / "setup.py", *protos):
        digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


class Environment:
    """A virtual environment, with a stamp that tells what was installed into it."""

    def __init__(self, path: Path):
        self.path = path
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
        if subprocess.run(command, capture_output=True).returncode != 0:
            # Some systems ship venv without ensurepip: there, this Python's own pip serves it.
            say("pip could not be put into it: using the pip of this Python")
            run([*command, "--without-pip"], "making a virtual environment", quiet=True)

    def has_pip(self) -> bool:
        """Whether pip is installed inside."""
        return any(self.path.glob("**/site-packages/pip/__init__.py"))

    def pip(self, *arguments: str | Path, what: str) -> None:
        """Run pip on this environment; its output shows only when it fails."""
        pip = [self.python, "-m", "pip"]
        if not self.has_pip():
            pip = [sys.executable, "-m", "pip", "--python", self.python]
        run([*pip, "--disable-pip-version-check", *arguments], what, quiet=True)

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
        so that commands run in turn do not reinstall each other's.
        """
        self.create()
        key = install_key()
        before = self.installed(key)
        if before is not None and before.issuperset(extras) and generated_exist():
            return
        wanted = sorted({*extras, *(before or ())})
        say(f"installing opscope[{','.join(wanted)}]")
        self.stamp.unlink(missing_ok=True)  # an install that is broken off leaves no stamp
        self.pip("install", "-e", f"{ROOT}[{','.join(wanted)}]", what="installing opscope")
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


def with_defaults(defaults: Mapping[str, str]) -> dict[str, str]:
    """This process's environment variables, completed by defaults."""
    return {**defaults, **os.environ}


def pytest_arguments(rest: Iterable[str]) -> list[str]:
    """The arguments for pytest: two processes, unless those given say otherwise."""
    given = list(rest)
    chosen = any(a.startswith(("-n", "--numprocesses")) or a in ("--pdb", "--trace") for a in given)
    return given if chosen else ["-n", "2", *given]


def demo(arguments: argparse.Namespace) -> None:
    """Train on handwritten digits, then predict from the saved files in a fresh process."""
    environment = Environment(VENV)
    environment.prepare("examples")
    for script in ("train.py", "predict.py"):
        path = Path("examples", "digits", script)
        say(f"running {path}")
        variables = with_defaults({"MPLBACKEND": "Agg"})
        run([environment.python, path], str(path), env=variables)


def test(arguments: argparse.Namespace) -> None:
    """Run the tests; further arguments go to pytest."""
    environment = Environment(VENV)
    thorough = arguments.torch or bool(os.environ.get("CI"))
    environment.prepare("test", *(["speed"] if thorough else []))
    if thorough:
        environment.install_torch()
    pytest = [environment.python, "-P", "-m", "pytest", *pytest_arguments(arguments.rest)]
    # Not by run: pytest's closing line says what failed, and stays the last one.
    done = subprocess.run(pytest, cwd=ROOT, env=with_defaults(TEST_ENV))
    if done.returncode:
        raise SystemExit(done.returncode)


def proto(arguments: argparse.Namespace) -> None:
    """Compile proto/*.proto into proto/*_pb2.py and *_pb2.pyi."""
    import tomllib  # here, so that an older Python gets as far as the message in main

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # Apart from .venv, whose protobuf the tools' own bounds would push back.
    environment = Environment(PROTOC_VENV)
    environment.create()
    environment.pip("install", *settings["build-system"]["requires"], what="installing protoc")
    for path in compile_protos(environment.python):
        say(f"made {path.relative_to(ROOT)}")


def bench(arguments: argparse.Namespace) -> None:
    """Run the benchmarks; further arguments go to benchmarks/run.py."""
    environment = Environment(VENV)
    environment.prepare("bench")
    environment.install_torch()
    run([environment.python, Path("benchmarks", "run.py"), *arguments.rest], "benchmarks/run.py")


def lint(arguments: argparse.Namespace) -> None:
    """Check style and formatting with ruff."""
    environment = Environment(VENV)
    environment.prepare("test")
    ruff = [environment.python, "-P", "-m", "ruff"]
    run([*ruff, "check", "."], "ruff check")
    run([*ruff, "format", "--check", "."], "ruff format --check")


def wheel(arguments: argparse.Namespace) -> None:
    """Build a wheel into dist/, once it has worked in an environment of its own."""
    environment = Environment(VENV)
    environment.create()
    say("building the wheel")
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "wheel")
        environment.pip("wheel", "--no-deps", "-w", made, ROOT, what="building the wheel")
        (built,) = made.glob("*.whl")
        fresh = Environment(Path(scratch, "venv"))
        fresh.create()
        fresh.pip("install", built, what="installing the wheel")
        run([fresh.python, "-I", "-c", WHEEL_CHECK], "using the wheel", cwd=scratch)
        run([fresh.scripts / "opscope", "version"], "the wheel's command opscope", cwd=scratch)
        dist = ROOT / "dist"
        dist.mkdir(exist_ok=True)
        shutil.copy(built, dist)
    say(f"made {Path('dist', built.name)}")


def docs(arguments: argparse.Namespace) -> None:
    """Build the documentation into build/site/."""
    environment = Environment(VENV)
    environment.prepare("docs")
    run([environment.python, "-P", "-m", "mkdocs", "build", "--strict"], "mkdocs build")


# Each command, and whether it passes further arguments on.
COMMANDS: dict[Callable[[argparse.Namespace], None], bool] = {
    demo: False,
    test: True,
    proto: False,
    bench: True,
    lint: False,
    wheel: False,
    docs: False,
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; arguments a command passes on are left in `rest`."""
    parser = argparse.ArgumentParser(
        prog="build.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command, passes_on in COMMANDS.items():
        summary = (command.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(
            command.__name__, help=summary, description=summary, allow_abbrev=False
        )
        sub.set_defaults(command=command, passes_on=passes_on)
        if command is test:
            sub.add_argument(
                "--torch", action="store_true", help="with PyTorch and MKL, as also where CI is set"
            )
    argv = list(argv)
    split = argv.index("--") if "--" in argv else len(argv)
    arguments, unknown = parser.parse_known_args(argv[:split])
    arguments.rest = [*unknown, *argv[split + 1 :]]
    if arguments.rest and not arguments.passes_on:
        parser.error(f"unrecognized arguments: {' '.join(arguments.rest)}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if sys.version_info < OLDEST_PYTHON:
        print(f"build.py: needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")
        return 1
    arguments = parse(sys.argv[1:] if argv is None else argv)
    try:
        arguments.command(arguments)
    except StepError as error:
        print(f"build.py: error: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
