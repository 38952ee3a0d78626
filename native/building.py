"""Builds the whole native library: for a wheel, or in a tree that is installed (setup.py)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
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


def build(compiler: Compiler, target: Path, scratch: Path) -> None:
    """Compile the whole library.

    A unit that the compiler does not take for some processor is left out: another one serves there.

    Args:
        scratch: a folder for objects, and for headers that are made.

    Raises:
        OSError, subprocess.SubprocessError: it takes nothing, or cannot link.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    units.write_headers(scratch)
    jobs = [(unit, one) for unit in units.units() for one in unit.processors(compiler.machine)]

    def compile_one(job: tuple[units.Unit, units.Processor]) -> str | None:
        unit, processor = job
        made = str(scratch / f"{unit.marker(processor)}.o")
        try:
            compiler.run("-I", str(scratch), *unit.arguments(processor), "-c", "-o", made)
        except subprocess.CalledProcessError:
            if unit.file in units.ALONE:
                raise
            return None
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [made for made in pool.map(compile_one, jobs) if made is not None]
    version = scratch / "version.c"
    version.write_text(f'const char opscope_version[] = "{units.digest()}";\n', encoding="utf-8")
    target.parent.mkdir(parents=True, exist_ok=True)
    # A process may run the library that was there before: it keeps that file.
    linked = target.with_suffix(".new")
    flags = units.link_flags(compiler.machine)
    compiler.run(*flags, str(version), *objects, "-o", str(linked), "-lm")
    linked.replace(target)


def platform_tag(library: Path, machine: str) -> str | None:
    """The tag of a wheel for Linux that holds this library; None where it is for another system.

    It names the glibc that the library needs, whose version stands beside each function of it.
    """
    found = [int(minor) for minor in _GLIBC.findall(library.read_bytes())]
    return f"manylinux_2_{max(found)}_{machine}" if found else None
