"""The generated C and its team of threads under the sanitizers of gcc.

Prints a row for each: AddressSanitizer with UndefinedBehaviorSanitizer, and ThreadSanitizer. Each
runs `sharing.py`; what a sanitizer says fails the run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sanitizer:
    """Options of gcc, the libraries to load first, the variable of its options, and these."""

    name: str
    flags: str
    libraries: tuple[str, ...]
    variable: str
    options: str


SANITIZERS = (
    Sanitizer(
        "address, undefined",
        "-fsanitize=address,undefined -fno-sanitize-recover=undefined",
        ("libasan.so", "libubsan.so"),
        "ASAN_OPTIONS",
        "detect_leaks=0:log_path={log}",
    ),
    Sanitizer(
        "thread",
        "-fsanitize=thread",
        ("libtsan.so",),
        "TSAN_OPTIONS",
        "ignore_noninstrumented_modules=1:exitcode=0:log_path={log}",
    ),
)


def run(sanitizer: Sanitizer, runs: int) -> tuple[str, list[str]]:
    """The last line of `sharing.py`, and what the sanitizer reported."""
    with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as scratch:
        compiler = Path(scratch, "cc")
        compiler.write_text(f'#!/bin/sh\nexec gcc {sanitizer.flags} -g "$@"\n')
        compiler.chmod(0o755)
        log = Path(scratch, "log")
        environment = os.environ | {
            "LD_PRELOAD": " ".join(map(library_path, sanitizer.libraries)),
            "OPSCOPE_CC": str(compiler),
            "OPSCOPE_CACHE": str(Path(scratch, "cache")),
            "OPSCOPE_THREADS": "2",
            sanitizer.variable: sanitizer.options.format(log=log),
        }
        done = subprocess.run(
            [sys.executable, "-P", "-m", "campaign.threads.sharing", str(runs)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        text = "".join(path.read_text() for path in Path(scratch).glob("log.*")) + done.stderr
        built = len(list(Path(scratch, "cache").glob("*.so")))
    reports = re.findall(r"^(?:WARNING|==\d+==ERROR|.*runtime error): ?.*", text, re.MULTILINE)
    if done.returncode or not built:
        reports.append(f"exit code {done.returncode}, {built} libraries: {done.stderr[-2000:]}")
    lines = done.stdout.splitlines()[-2:]
    return f"{'; '.join(lines) or 'no output'}; {built} libraries", reports


def library_path(name: str) -> str:
    """Where gcc has a library."""
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def run_all(runs: int) -> int:
    """Run under every sanitizer, and print the table; the number of reports."""
    rows, count = [], 0
    for sanitizer in SANITIZERS:
        told, reports = run(sanitizer, runs)
        rows.append(f"| {sanitizer.name} | {told} | {len(reports)} |")
        count += len(reports)
        print("\n".join(reports[:10]))
    print("\n".join(["| sanitizer | work | reports |", "| --- | --- | --- |", *rows]))
    return count
