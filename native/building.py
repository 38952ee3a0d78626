"""Builds the whole native library: for a wheel, or in a tree that is installed (setup.py)."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import units

_GLIBC = re.compile(rb"\0GLIBC_2\.(\d+)(?=\0)")


class Compiler:
    """A C compiler and the machine that it compiles for.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be run.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        triple = self.run("-dumpmachine")
        self.machine = units.machine_name(triple.split("-")[0])
        self.version = self.run("--version")
        self.objects = units.FOLDER.parent / "build" / "native" / self.machine
        """Where the objects of this tree are kept, for the next library."""

    def run(self, *arguments: str) -> str:
        """Run it; returns what it prints."""
        command = [*self.command, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()


def find_compiler() -> Compiler | None:
    """The compiler that `CC` names, or the first usual one; None where there is none.

    MSVC is none: the files are written in GNU C, which gcc and clang take.
    """
    named = os.environ.get("CC", "")
    for command in [shlex.split(named)] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]) is not None:
            return Compiler(command)
    return None


def build(compiler: Compiler, target: Path) -> None:
    """Compile the whole library, except for the objects that an earlier build left.

    A unit that the compiler does not take for some processor is left out, with a warning: another
    one serves there.

    Raises:
        OSError, subprocess.SubprocessError: it takes nothing, or cannot link.
    """
    compiler.objects.mkdir(parents=True, exist_ok=True)
    jobs = [(unit, one) for unit in units.units() for one in unit.processors(compiler.machine)]
    target.parent.mkdir(parents=True, exist_ok=True)
    # Builds may run side by side: what is not compiled yet is written where no other one looks.
    with tempfile.TemporaryDirectory(dir=compiler.objects) as folder:
        scratch = Path(folder)
        left_out: list[str] = []
        units.write_headers(scratch)

        def compile_one(job: tuple[units.Unit, units.Processor]) -> Path | None:
            unit, processor = job
            kept = compiler.objects / f"{unit.marker(processor)}-{_key(compiler, *job)}.o"
            if kept.exists():
                return kept
            made = scratch / kept.name
            try:
                compiler.run("-I", folder, *unit.arguments(processor), "-c", "-o", str(made))
            except subprocess.CalledProcessError as error:
                if unit.file in units.ALONE:
                    raise
                left_out.append(f"{unit.marker(processor)}: {_reason(error.stderr)}")
                return None
            for older in compiler.objects.glob(f"{unit.marker(processor)}-*.o"):
                older.unlink(missing_ok=True)
            return made.rename(kept)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [str(made) for made in pool.map(compile_one, jobs) if made is not None]
        version, linked = scratch / "version.c", scratch / target.name
        text = f'const char opscope_version[] = "{units.digest()}";\n'
        version.write_text(text, encoding="utf-8")
        flags = units.link_flags(compiler.machine)
        compiler.run(*flags, str(version), *objects, "-o", str(linked), "-lm")
        # A process may run the library that was there before: it keeps that file.
        new = target.with_suffix(".new")
        shutil.copy(linked, new)
        new.replace(target)
    # Last: a warning may be an error, and the library serves nevertheless.
    if left_out:
        listed = "\n  ".join(sorted(left_out))
        told = f"the native library lacks what did not compile:\n  {listed}"
        warnings.warn(told, stacklevel=2)


def _reason(printed: str) -> str:
    """The first error that a compiler printed."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), "; ".join(lines[:1]))


def _key(compiler: Compiler, unit: units.Unit, processor: units.Processor) -> str:
    """What an object is made of; the path of the file, the last argument, does not count."""
    arguments = unit.arguments(processor)[:-1]
    parts = compiler.command, compiler.version, arguments, units.text(unit.file)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def platform_tag(library: Path, machine: str) -> str | None:
    """The tag of a wheel for Linux that holds this library; None where it is for another system.

    It names the glibc that the library needs, whose version stands beside each function of it.
    """
    found = [int(minor) for minor in _GLIBC.findall(library.read_bytes())]
    return f"manylinux_2_{max(found)}_{machine}" if found else None
