"""What the page "In your browser" asks of opscope; Pyodide runs it in a worker of the page."""

from __future__ import annotations

import linecache
import os
import platform
import sys
import time
import traceback
from pathlib import Path

import numpy as np

import opscope
from opscope import nnet3, speech
from opscope.bridges.model.nnet3_models import Nnet3Model
from opscope.framework.base.errors import OpscopeError
from opscope.framework.fusion.compiled import native

PROGRAM = "program"
"""What tracebacks call the reader's program."""


def about() -> str:
    """The versions that run here, and whether the native library does."""
    kinds = [kind.name for kind in native.kinds_here()]
    library = f"native library ({kinds[-1]})" if kinds else "without the native library"
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    return f"opscope {opscope.__version__}, {versions}, {library}"


def call(task: str, *arguments: str) -> tuple[bool, str]:
    """Whether a task worked, and the text of its result or its error."""
    try:
        return True, _TASKS[task](*arguments)
    except BaseException as error:  # a program may end itself
        if isinstance(error, OpscopeError) and task != "run":
            return False, f"{type(error).__name__}: {error}"
        return False, _trace(error)
    finally:
        for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
            stream.flush()
            os.fsync(stream.fileno())  # Pyodide keeps a line without an end until then


def _trace(error: BaseException) -> str:
    """The traceback of an error without the lines of this module that lead to the task.

    Of errors that opscope raises on purpose, the lines of the program are enough.
    """
    whole = traceback.TracebackException.from_exception(error)
    while whole.stack and whole.stack[0].filename == __file__:
        del whole.stack[0]
    if isinstance(error, OpscopeError):
        whole.stack[:] = [frame for frame in whole.stack if frame.filename == PROGRAM]
    return "".join(whole.format())


def _run(text: str) -> str:
    linecache.cache[PROGRAM] = len(text), None, text.splitlines(keepends=True), PROGRAM
    exec(compile(text, PROGRAM, "exec"), {"__name__": "__main__"})
    return ""


def _look(*names: str) -> str:
    """What the first of some files is, and its page, if it holds a network."""
    path = Path("/dropped", names[0])
    described = str(opscope.open(path))
    try:
        page = opscope.view(path).html
    except OpscopeError as error:
        return f"{described}\n{error}\n"
    return f"{described}\n\0{page}"


def _compiled(config: str, request: str) -> str:
    """The commands that a request to a network is compiled to."""
    path = Path("network.config")
    path.write_text(config, encoding="utf-8")
    model = opscope.open(path).model
    if not isinstance(model, Nnet3Model):
        raise OpscopeError("this is no config of nnet3")
    return f"{nnet3.compile(model.nnet, request)}\n"


def _transcribed(folder: str, recording: str) -> str:
    """The utterances of a recording, a line each, with their times."""
    start = time.perf_counter()
    model = speech.Model(f"/speech/{folder}")
    loaded = time.perf_counter()
    print(f"The model took {loaded - start:.1f} s to load.")
    found = speech.transcribe(f"/speech/{recording}", model)
    print(f"{found.duration:.1f} s of sound took {time.perf_counter() - loaded:.1f} s.")
    return "".join(f"{one.start:8.2f} {one.end:8.2f}  {one.text}\n" for one in found.utterances)


_TASKS = {"run": _run, "look": _look, "compiled": _compiled, "transcribed": _transcribed}
