#!/usr/bin/env python3
"""The one door to this repository: `python build.py COMMAND`.

    install   make the environment with all that the checks of .ci/run use
    demo      train a network on handwritten digits, then load it again in a fresh process
    check     lint, types, deadcode, prose, docs and a sample of the tests, in about two minutes
    test      run the tests (further arguments go to pytest)
    coverage  run the tests and state the line coverage (further arguments go to pytest)
    format    format the code and mend what the linter can mend
    lint      check style and formatting
    types     check the types of the package
    deadcode  find code that nothing uses
    prose     find turns of English that docs/style.md refuses
    docs      build the documentation into build/site/, and check its links, images and widths;
              --browser adds Python for the page that runs opscope in a browser, --axe
              has axe look at every page (both need npm, --axe also a Chromium);
              --pictures writes screenshots of a page of each sort into build/pictures/
    stubs     write the stubs of NetBuilder's methods and of the public names again
    proto     compile proto/*.proto
    bench     run the benchmarks beside PyTorch (further arguments go to benchmarks/run.py)
    gpu       on a machine with a GPU, run all tests there and write the table of benchmarks/gpu.py
    zoo       architectures of torchvision, timm and transformers beside PyTorch
              (further arguments go to tests/zoo)
    processors  test the native library on all kinds of processor, under sanitizers, with qemu on
              aarch64 and with Node in WebAssembly (further arguments go to tests/processors)
    wheel     build a wheel into dist/ and try it away from the tree; with a cross compiler
              (aarch64-linux-gnu-gcc) one for its machine, too
    pages     run the blocks of README and of all pages with what `pip install .` brings

Needs Python 3.11 or newer and nothing else: each command makes or reuses the virtual environment
`.venv`, installs what it needs and runs. A step that fails ends the command with its exit code.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from devtools.environment import OLDEST_NUMPY_VENV, PROTOC_VENV, VENV, Environment
from devtools.gpu import cuda_extra
from devtools.process import ROOT, StepError, run, say, settings, with_defaults
from devtools.prose import findings
from devtools.protos import compile_protos
from devtools.sizes import advice
from native import building, units

OLDEST_PYTHON = (3, 11)

# One thread a process: the test processes already share the cores among them.
TEST_ENV = {
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}

SITE = Path("build", "site")
PICTURES = Path("build", "pictures")

STUBS = "opscope.python_api.to_python.stubs"

# Run in a fresh environment that holds only the wheel: every public name must load from there, and
# every native function be there without a compiler.
WHEEL_CHECK = """
import subprocess
import sys
from pathlib import Path
import opscope
from opscope.framework.fusion.compiled import native
from opscope.native import units
home = Path(opscope.__file__).resolve()
if not home.is_relative_to(Path(sys.prefix).resolve()):
    sys.exit(f"opscope came from {home}, not from the wheel")
for name in opscope.__all__:
    getattr(opscope, name)
if units.BUILT.exists():
    here = native.kinds_here()
    for unit in units.units():
        if native.load(unit.file, unit.kind) is None and set(here) & set(unit.processors()):
            sys.exit(f"the native library lacks {unit}")
subprocess.run([sys.executable, "-P", "-m", "opscope", "version"], check=True)
print("opscope", opscope.__version__, "works from its wheel")
"""
WITHOUT_COMPILER = {"OPSCOPE_CC": "none"}

# Compilers for other machines; where one is installed, `wheel` makes a wheel for its machine too.
CROSS_COMPILERS = ("aarch64-linux-gnu-gcc",)


def pytest_arguments(rest: Iterable[str]) -> list[str]:
    """The arguments for pytest: two processes, unless those given say otherwise.

    A process that is done takes half of what waits for the other: the longest tests stand last.
    """
    given = list(rest)
    chosen = any(a.startswith(("-n", "--numprocesses")) or a in ("--pdb", "--trace") for a in given)
    return given if chosen else ["-n", "2", "--dist", "worksteal", *given]


@contextmanager
def compiling() -> Iterator[None]:
    """Compile the native library meanwhile, since pip keeps no more than one core busy.

    setup.py takes the objects that are there, and says what goes wrong.
    """

    def compile_all() -> None:
        compiler = building.find_compiler()
        if compiler is not None:
            building.build(compiler, units.BUILT)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(compile_all)
        yield


def install(arguments: argparse.Namespace) -> None:
    """Make the environment with all that the checks of .ci/run use: they can run side by side."""
    environment = Environment(VENV)
    environment.create()
    with compiling():
        environment.install_torch()  # first: the libraries of the zoo take the one that is there
    extras = () if arguments.without_extras else ("test", "speed", "onnx", "docs", "zoo")
    environment.prepare(*extras)


def demo(arguments: argparse.Namespace) -> None:
    """Train on handwritten digits, then predict from the saved files in a fresh process."""
    environment = Environment(VENV)
    environment.prepare("examples")
    for script in ("train.py", "predict.py"):
        path = Path("examples", "digits", script)
        say(f"running {path}")
        variables = with_defaults({"MPLBACKEND": "Agg"})
        run([environment.python, path], str(path), env=variables)


def run_tests(environment: Environment, arguments: Iterable[str]) -> None:
    """Run pytest with these arguments."""
    pytest = [environment.python, "-P", "-m", "pytest", *pytest_arguments(arguments)]
    run(pytest, "pytest", env=with_defaults(TEST_ENV))


def test(arguments: argparse.Namespace) -> None:
    """Run the tests; further arguments go to pytest."""
    environment = Environment(OLDEST_NUMPY_VENV if arguments.oldest_numpy else VENV)
    thorough = arguments.torch or bool(os.environ.get("CI"))
    environment.prepare("test", *(["speed", "onnx"] if thorough else []))
    if thorough:
        environment.install_torch()
    if arguments.oldest_numpy:
        environment.install_oldest_numpy()
    try:
        run_tests(environment, arguments.rest)
    except StepError as error:
        # pytest's closing line says what failed, and stays the last one.
        raise SystemExit(error.code) from error


def coverage(arguments: argparse.Namespace) -> None:
    """Run the tests and state the line coverage of the package; further arguments go to pytest."""
    environment = Environment(VENV)
    environment.prepare("test")
    html = ROOT / "build" / "coverage"
    measured = ["--cov", "--cov-report=", f"--cov-report=html:{html}", *arguments.rest]
    run_tests(environment, measured)
    total = [environment.python, "-P", "-m", "coverage", "report", "--format=total"]
    done = subprocess.run(total, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise StepError(f"coverage report: {done.stderr.strip() or done.stdout.strip()}")
    say(f"line coverage of the package: {done.stdout.strip()}% (by file: {html / 'index.html'})")


def proto(arguments: argparse.Namespace) -> None:
    """Compile proto/*.proto into proto/*_pb2.py and *_pb2.pyi."""
    # Apart from .venv, whose protobuf the tools' own bounds would push back.
    environment = Environment(PROTOC_VENV)
    environment.create()
    environment.pip("install", *settings()["build-system"]["requires"], what="installing protoc")
    for path in compile_protos(environment.python):
        say(f"made {path.relative_to(ROOT)}")


def bench(arguments: argparse.Namespace) -> None:
    """Run the benchmarks; further arguments go to benchmarks/run.py."""
    environment = Environment(VENV)
    environment.prepare("bench")
    environment.install_torch()
    run([environment.python, Path("benchmarks", "run.py"), *arguments.rest], "benchmarks/run.py")


def gpu(arguments: argparse.Namespace) -> None:
    """On a machine with a GPU: all tests with CuPy, and the table of benchmarks/gpu.py.

    Further arguments go to pytest. The table is written into docs/performance.md.
    """
    extra = cuda_extra()
    environment = Environment(VENV)
    environment.create()
    environment.install_torch()
    environment.prepare("test", "speed", "onnx", extra)
    run_tests(environment, arguments.rest)
    page = Path("docs", "performance.md")
    run([environment.python, Path("benchmarks", "gpu.py"), "--write", page], "benchmarks/gpu.py")


def campaign(arguments: argparse.Namespace) -> None:
    """Read damaged files for some minutes; further arguments go to tests/campaign."""
    environment = Environment(VENV)
    environment.prepare("test")
    command = [environment.python, "-P", "-m", "campaign", *arguments.rest]
    variables = with_defaults(TEST_ENV) | {"PYTHONPATH": str(ROOT / "tests")}
    run(command, "the campaign", env=variables)


def zoo(arguments: argparse.Namespace) -> None:
    """Run the zoo of architectures; further arguments go to tests/zoo."""
    environment = Environment(VENV)
    environment.create()
    environment.install_torch()  # first: the libraries of the zoo take the one that is there
    environment.prepare("test", "speed", "onnx", "zoo")
    command = [environment.python, "-P", "-m", "zoo", *arguments.rest]
    variables = with_defaults(TEST_ENV) | {"PYTHONPATH": str(ROOT / "tests")}
    run(command, "the zoo", env=variables)


def processors(arguments: argparse.Namespace) -> None:
    """Test native functions on all processors; further arguments go to tests/processors."""
    environment = Environment(VENV)
    environment.prepare("test", "speed", "onnx")
    command = [environment.python, "-P", "-m", "processors", *arguments.rest]
    variables = with_defaults(TEST_ENV) | {"PYTHONPATH": str(ROOT / "tests")}
    run(command, "the tests on all processors", env=variables)


def ruff(*arguments: str) -> None:
    """Run ruff on the whole tree."""
    environment = Environment(VENV)
    environment.prepare("test")
    command = [environment.python, "-P", "-m", "ruff", *arguments, "."]
    run(command, " ".join(("ruff", *arguments)))


def format(arguments: argparse.Namespace) -> None:
    """Format the code with ruff, and mend what its linter can mend."""
    ruff("check", "--fix")
    ruff("format")


def lint(arguments: argparse.Namespace) -> None:
    """Check style and formatting with ruff."""
    ruff("check")
    ruff("format", "--check")


def types(arguments: argparse.Namespace) -> None:
    """Check the types of the package with pyright."""
    environment = Environment(VENV)
    environment.prepare("test")
    # pyright's own version check would ask the network.
    variables = with_defaults({"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})
    # Two threads end sooner on idle cores, but both look at what both need: two thirds more work.
    # The checks of CI keep all cores busy already.
    threads = [] if os.environ.get("CI") else ["--threads", "2"]
    command = [environment.python, "-P", "-m", "pyright", *threads]
    run([*command, "--pythonpath", environment.python], "pyright", env=variables)


def deadcode(arguments: argparse.Namespace) -> None:
    """Find functions, classes and variables that nothing uses, with vulture."""
    environment = Environment(VENV)
    environment.prepare("test")
    script = Path("devtools", "deadcode.py")
    run([environment.python, "-P", script], str(script))


def prose(arguments: argparse.Namespace) -> None:
    """Find turns of English that docs/style.md refuses, in pages, docstrings and messages."""
    found = list(findings())
    for finding in found:
        print(finding)
    if found:
        raise StepError(f"prose: {len(found)} turns to rewrite; docs/style.md shows how")


def quick(arguments: argparse.Namespace) -> None:
    """Run a sample of the tests."""
    environment = Environment(VENV)
    environment.prepare("test")
    run_tests(environment, ["--quick", "-q"])


def check(arguments: argparse.Namespace) -> None:
    """Run lint, types, deadcode, prose, docs and a sample of the tests: before a commit."""
    Environment(VENV).prepare("test", "docs")
    failed = []
    for part in (lint, types, deadcode, prose, docs, quick):
        start = time.monotonic()
        try:
            part(arguments)
        except StepError as error:
            failed.append(str(error))
        say(f"{part.__name__} took {time.monotonic() - start:.0f} s")
    for line in advice():
        say(f"advice: {line}")
    if failed:
        raise StepError("; ".join(failed))
    say("all checks passed")


@contextmanager
def fresh_environment(what: str) -> Iterator[tuple[Environment, Path]]:
    """An environment that holds the package, built as a wheel, and its dependencies; and the wheel.

    Args:
        what: it is for, in a line of progress.
    """
    environment = Environment(VENV)
    environment.create()
    say(f"building the wheel {what}")
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "wheel")
        environment.pip("wheel", "--no-deps", "-w", made, ROOT, what="building the wheel")
        (built,) = made.glob("*.whl")
        fresh = Environment(Path(scratch, "venv"), served_by=environment)
        fresh.create()
        fresh.pip("install", built, what="installing the wheel")
        yield fresh, built


def wheel(arguments: argparse.Namespace) -> None:
    """Build a wheel into dist/, once it has worked in an environment of its own."""
    with fresh_environment("for dist/") as (fresh, built):
        away = built.parent
        bare = os.environ | WITHOUT_COMPILER
        run([fresh.python, "-I", "-c", WHEEL_CHECK], "using the wheel", cwd=away, env=bare)
        run([fresh.scripts / "opscope", "version"], "the wheel's command opscope", cwd=away)
        dist = ROOT / "dist"
        dist.mkdir(exist_ok=True)
        shutil.copy(built, dist)
    say(f"made {Path('dist', built.name)}")
    for compiler in CROSS_COMPILERS:
        if shutil.which(compiler) is not None:
            # Not tried: tests of the native library run it under qemu, where that is installed.
            arguments = "wheel", "--no-deps", "-w", dist, ROOT
            variables = os.environ | {"CC": compiler}
            Environment(VENV).pip(*arguments, what=f"building with {compiler}", env=variables)
            say(f"made a wheel with {compiler} in dist/")


def pages(arguments: argparse.Namespace) -> None:
    """Run the blocks of README and of all pages with what `pip install .` brings, and no more."""
    with fresh_environment("that the pages run with") as (fresh, built):
        script = ROOT / "tests" / "doc_pages.py"
        run([fresh.python, script], "the pages", cwd=built.parent, env=with_defaults(TEST_ENV))


def docs(arguments: argparse.Namespace) -> None:
    """Build the documentation into build/site/, and check its links, images and widths."""
    environment = Environment(VENV)
    environment.prepare("docs")
    run([environment.python, "-P", "-m", "mkdocs", "build", "--strict"], "mkdocs build")
    if getattr(arguments, "browser", False):  # `check` builds the pages alone
        run([environment.python, Path("docs", "browser_page.py"), SITE], "the page for browsers")
    run([environment.python, Path("tests", "site_pages.py"), SITE], "the site")
    if getattr(arguments, "axe", False):
        run([environment.python, Path("tests", "site_axe.py"), SITE], "axe")
    if getattr(arguments, "pictures", False):
        script = Path("tests", "site_pictures.py")
        run([environment.python, script, SITE, PICTURES], "the pictures")


def stubs(arguments: argparse.Namespace) -> None:
    """Write the stubs of NetBuilder's methods and of the public names again."""
    environment = Environment(VENV)
    environment.prepare("test")
    run([environment.python, "-P", "-m", STUBS], "writing the stubs")


# Each command, and whether it passes further arguments on.
COMMANDS: dict[Callable[[argparse.Namespace], None], bool] = {
    install: False,
    demo: False,
    check: False,
    test: True,
    coverage: True,
    format: False,
    lint: False,
    types: False,
    deadcode: False,
    prose: False,
    docs: False,
    stubs: False,
    proto: False,
    bench: True,
    gpu: True,
    campaign: True,
    zoo: True,
    processors: True,
    wheel: False,
    pages: False,
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
        if command is install:
            sub.add_argument(
                "--without-extras", action="store_true", help="the package and PyTorch alone"
            )
        if command is test:
            sub.add_argument(
                "--torch",
                action="store_true",
                help="with PyTorch, ONNX Runtime and MKL, as also where CI is set",
            )
            sub.add_argument(
                "--oldest-numpy",
                action="store_true",
                help="with the oldest NumPy that opscope takes",
            )
        if command is docs:
            sub.add_argument(
                "--browser",
                action="store_true",
                help="with Python for the page that runs opscope in a browser, from npm",
            )
            sub.add_argument("--axe", action="store_true", help="axe looks at every page")
            sub.add_argument(
                "--pictures", action="store_true", help="write screenshots into build/pictures/"
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


def run_pypa_build() -> None:
    """Go on as the PyPI package `build`, which `python -m build` in this folder asks for.

    Python finds this file first, since the folder it runs in comes before the installed packages.
    """
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT]
    sys.modules.pop("build", None)
    try:
        runpy.run_module("build", run_name="__main__", alter_sys=True)
    except ImportError as error:
        sys.exit(
            f"python -m build: {error}; install it (pip install build), or: python build.py wheel"
        )


if __name__ == "__main__":
    if __spec__ is not None:
        run_pypa_build()
    else:
        sys.exit(main())
