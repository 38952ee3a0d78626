"""Decoding graphs on disk: made once, then memory-mapped by every process that searches them.

A file lies in the folder of compiled loops, which no other user may write to, so its arrays are
trusted; its key holds the path, size and time of the files that it was made of.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, SaveError
from ...framework.base.files.atomic import atomic_file, mark_of
from ...framework.base.untrusted.opener import real_path
from ...framework.base.untrusted.values import json_value
from ...framework.fusion.compiled.library_files import cache_folder
from ...kaldi.fst.arcs import ARC
from ...kaldi.fst.files.byte_file import ByteFile
from ...kaldi.fst.fst import Fst
from .graph import Graph, LookaheadGraph, StaticGraph
from .words import Words

_log = logging.getLogger(__name__)

_FORMAT = 3
_MAGIC = b"opsgraph"
_ALIGNMENT = 64
_MOST_FILES = 8
_SUFFIX = ".graph"
_KINDS: dict[str, type[Any]] = {"static": StaticGraph, "lookahead": LookaheadGraph}


def key_of(paths: Sequence[str]) -> str:
    """The key of what is made of files; another one when any of them is replaced or written."""
    marks = [_FORMAT, *((real_path(path), mark_of(path)) for path in paths)]
    return hashlib.sha256(repr(marks).encode()).hexdigest()[:32]


def load(key: str) -> tuple[Graph, Words | None] | None:
    """The graph and words of that key; None where they are not there."""
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / f"{key}{_SUFFIX}"
    try:
        if not path.is_file():
            return None
        cached = _unpacked(ByteFile.open(path))
        with contextlib.suppress(OSError):
            os.utime(path)  # in use
    except (OSError, FormatError, KeyError, TypeError, ValueError) as error:
        _log.debug("%s is not used: %s", path, error)
        return None
    return cached


def keep(key: str, graph: Graph, words: Words | None) -> None:
    """Write them for the next process; where that is not possible, a message says why."""
    folder = cache_folder()
    if folder is None:
        return
    arrays, facts = _packed(graph, words)
    at = 0
    table = {}
    for name, array in arrays.items():
        at += -at % _ALIGNMENT
        table[name] = [array.dtype.str if array.dtype != ARC else "arc", array.size, at]
        at += array.nbytes
    head = json.dumps({**facts, "arrays": table}).encode()
    head += b" " * (-(len(_MAGIC) + 8 + len(head)) % _ALIGNMENT)
    try:
        _make_room(folder)
        with atomic_file(folder / f"{key}{_SUFFIX}", mode=0o600) as file:
            file.write(_MAGIC + len(head).to_bytes(8, "little") + head)
            at = 0
            for array in arrays.values():
                file.write(b"\0" * (-at % _ALIGNMENT))
                at += -at % _ALIGNMENT + array.nbytes
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    except (OSError, SaveError) as error:
        _log.warning("the decoding graph is not kept for the next process: %s", error)


def _packed(graph: Graph, words: Words | None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays: dict[str, np.ndarray] = {}
    numbers: dict[str, int] = {}
    for field in dataclasses.fields(graph):
        value = getattr(graph, field.name)
        if isinstance(value, Fst):
            numbers[f"{field.name}.start"] = value.start
            for part in ("final", "begin", "arcs"):
                arrays[f"{field.name}.{part}"] = getattr(value, part)
        elif isinstance(value, np.ndarray):
            arrays[field.name] = value
        else:
            numbers[field.name] = value
    if words is not None:
        arrays["words.text"], arrays["words.ends"] = words.text, words.ends
    kind = "static" if isinstance(graph, StaticGraph) else "lookahead"
    return arrays, {"kind": kind, "numbers": numbers}


def _unpacked(file: ByteFile) -> tuple[Graph, Words | None]:
    if bytes(file.array(np.uint8, len(_MAGIC), "a graph")) != _MAGIC:
        raise file.error("no graph")
    (size,) = file.unpack("q", "the head of a graph")
    facts = json_value(bytes(file.array(np.uint8, size, "the head of a graph")).decode(), file.name)
    start = file.offset
    arrays = {}
    numbers = facts["numbers"]
    for name, (dtype, count, at) in facts["arrays"].items():
        file.offset = start + at
        arrays[name] = file.array(ARC if dtype == "arc" else dtype, count, name)
    values: dict[str, Any] = {}
    kind = _KINDS[facts["kind"]]
    for field in dataclasses.fields(kind):
        name = field.name
        if f"{name}.start" in numbers:
            parts = (arrays[f"{name}.{part}"] for part in ("final", "begin", "arcs"))
            values[name] = Fst(numbers[f"{name}.start"], *parts)
        elif name in arrays:
            values[name] = arrays[name].reshape(-1, 2) if name == "intervals" else arrays[name]
        else:
            values[name] = numbers[name]
    words = Words(arrays["words.text"], arrays["words.ends"]) if "words.text" in arrays else None
    return kind(**values), words


def _make_room(folder: Path) -> None:
    """Drop the graphs that were used longest ago where there are too many."""
    with contextlib.suppress(OSError):  # another process may do the same
        paths = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime)
        for path in paths[: max(0, len(paths) - _MOST_FILES + 1)]:
            if path.stat().st_mtime < time.time() - 1:
                path.unlink(missing_ok=True)
