"""Standard input and output of the command line: closed, full, or a terminal.

A result that could not be written ends the program with one line and the code 1; text that came out
of a file cannot send commands to a terminal.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import sys
from typing import Any, TextIO

import click

from ...framework.base.errors import ESCAPES

_PLAIN = {code: escape for code, escape in ESCAPES.items() if chr(code) != "\r"}
"""Bars of progress return to the beginning of their line."""


def open_closed() -> None:
    """Give standard streams that the caller has closed a file on which every use fails.

    Else the next file that is opened would take their number, and what a library or a command
    writes to standard output would go into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # Input that cannot be read, output that cannot be written.
            os.open(os.devnull, os.O_WRONLY if number == 0 else os.O_RDONLY)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, errors="surrogateescape", closefd=False))


def _byte_or_escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """For a character that a stream cannot encode: the byte that it stands for, else `\\u3042`."""
    assert isinstance(error, UnicodeEncodeError)
    error.end = error.start + 1
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeEncodeError:
        return codecs.backslashreplace_errors(error)


codecs.register_error("opscope", _byte_or_escape)


def prepare() -> None:
    """Let keys and names be any bytes, and show control characters as text where a person looks."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            errors = "opscope" if name == "stdout" else "backslashreplace"
            stream.reconfigure(errors=errors)
            if stream.isatty():
                setattr(sys, name, _Terminal(stream))


def finish(code: Any) -> Any:
    """Write out what waits; the exit code, 1 where that fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _forget(sys.stdout)
        code = code or report(error)
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        return code
    _forget(sys.stderr)
    return code


def report(error: OSError) -> int:
    """Report an error of the operating system that nothing else has reported; the exit code.

    A reader that went away, as `head` does, needs no line.
    """
    if error.errno != errno.EPIPE:
        with contextlib.suppress(OSError):
            what = error.filename or "standard input or output"
            click.echo(f"error: {what}: {error.strerror or error}", err=True)
    _forget(sys.stdout)
    return 1


def _forget(stream: TextIO) -> None:
    """Drop what could not be written, so that the interpreter does not try it again at its end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _Terminal:
    """A text stream that shows control characters as `\\x1b`; all else is as the stream has it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text.translate(_PLAIN))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
