"""Source locations of nets that leave the machine: files must not tell whose folders they are."""

from __future__ import annotations

import ntpath
import os
from collections.abc import Iterator
from typing import Any

from ...proto import net_pb2 as pb


def make_sources_relative(desc: pb.NetDesc) -> None:
    """Make the source files of operators and variables relative, also in inner nets.

    A file in the working folder keeps its path from there, any other its name alone.
    """
    known: dict[str, str] = {}
    for item in _sourced(desc):
        path = item.source.file
        if path:
            if path not in known:
                known[path] = relative_path(path)
            if known[path] != path:
                item.source.file = known[path]


def relative_path(path: str) -> str:
    """A path from the working folder, or the file's name where it lies elsewhere."""
    if not os.path.isabs(path):
        # A net may come from another system, where this is absolute.
        return ntpath.basename(path) if ntpath.splitdrive(path)[0] else path
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return os.path.basename(path)
    if relative.split(os.sep, 1)[0] == os.pardir:
        return os.path.basename(path)
    return relative.replace(os.sep, "/")


def _sourced(desc: pb.NetDesc) -> Iterator[Any]:
    """Everything in a net that has a source."""
    for var in desc.vars:
        if var.HasField("source"):
            yield var
        if var.HasField("initializer"):
            yield var.initializer
    for op in desc.ops:
        yield op
        for attr in op.attrs.values():
            if attr.WhichOneof("value") == "net":
                yield from _sourced(attr.net)
    for step in desc.steps:
        yield from _sourced(step.net)
        if step.HasField("child_net"):
            yield from _sourced(step.child_net)
