"""A server in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[list[str], subprocess.Popen[str]]]:
    """The addresses of a server, and its process, which ends without an error."""
    command = [sys.executable, "-P", "-m", "opscope", "serve", str(folder), "--port=0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.findall(r"[a-z]+://127\.0\.0\.1:\d+", line)
    assert found and line.startswith("listening at "), (line, process.communicate(timeout=60)[1])
    try:
        yield found, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0 and "Traceback" not in errors, errors


def children(process: subprocess.Popen[str]) -> list[int]:
    """The processes of a server that compute."""
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(each) for each in text.split()]
