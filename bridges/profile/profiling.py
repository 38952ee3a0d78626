"""`profile`: the time and memory of every layer of a net, on random inputs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from ...framework.base.errors import OpscopeError
from ...framework.base.files.atomic import PathLike, write_atomically
from ...framework.base.scope import Scope
from ...framework.base.sizes.byte_sizes import size_text
from ..model.opening import open_model
from ..view.profile import profile as measure
from ..view.texts import seconds_text
from ..view.viewing import ROWS, graph_of
from .flame import flame_graph
from .timed import Timed
from .trace import chrome_trace


class Profile:
    """Where the time of a net goes.

    Attributes:
        title: the net's. what: how it was measured.
        rows: what ran, in order.
    """

    def __init__(self, title: str, what: str, rows: Iterable[Timed]) -> None:
        self.title = title
        self.what = what
        self.rows = list(rows)

    @property
    def seconds(self) -> float:
        """Of all rows."""
        return sum(row.seconds for row in self.rows)

    def table(self, by: str = "row", most: int = 40) -> str:
        """The largest first: seconds, their share, bytes of results, how many, name and type.

        Args:
            by: "row", "type" (operators of one type added up) or "group" (the outermost group).
            most: lines at most; the last one says what is left out.

        Raises:
            OpscopeError: `by` is none of these.
        """
        keys = {"row": _by_row, "type": _by_type, "group": _by_group}
        if by not in keys:
            raise OpscopeError(f"by={by!r}: one of {', '.join(map(repr, keys))} is wanted")
        parts: dict[tuple[str, str], list[Timed]] = {}
        for number, row in enumerate(self.rows):
            parts.setdefault(keys[by](row, number), []).append(row)
        listed = [
            (sum(row.seconds for row in rows), max(row.bytes for row in rows), len(rows), key)
            for key, rows in parts.items()
        ]
        listed.sort(key=lambda line: -line[0])
        whole = self.seconds or 1.0
        lines = [f"{self.title}: {self.what}; {seconds_text(self.seconds)} in all"]
        lines.append(f"{'time':>9} {'share':>6} {'memory':>10} {'count':>5}  what")
        for seconds, memory, count, (name, kind) in listed[:most]:
            shown = f"{name}  ({kind})" if kind else name
            lines.append(
                f"{seconds_text(seconds):>9} {seconds / whole:6.1%} {size_text(memory):>10}"
                f" {count:5d}  {shown}"
            )
        if len(listed) > most:
            rest = sum(line[0] for line in listed[most:])
            lines.append(f"{seconds_text(rest):>9} {rest / whole:6.1%} {'':10} {'':5}  "
                         f"{len(listed) - most} more")  # fmt: skip
        return "\n".join(lines)

    def trace(self) -> dict[str, Any]:
        """Events for Chrome's `chrome://tracing` and for Perfetto; see `chrome_trace`."""
        return chrome_trace(self.title, self.what, self.rows)

    def flame_graph(self) -> str:
        """An SVG picture whose widths are times: groups below, what is in them above."""
        return flame_graph(self.title, self.what, self.rows)

    def save(self, path: PathLike) -> None:
        """Write a trace (`.json`), a flame graph (`.svg`) or the table (`.txt`).

        Raises:
            OpscopeError: another suffix. SaveError: the file cannot be written.
        """
        suffix = os.path.splitext(os.fspath(path))[1].lower()
        if suffix == ".json":
            text = json.dumps(self.trace())
        elif suffix == ".svg":
            text = self.flame_graph()
        elif suffix == ".txt":
            text = self.table(most=len(self.rows)) + "\n"
        else:
            raise OpscopeError(
                f"{os.fspath(path)}: a profile is written as .json (a trace), .svg (a flame graph)"
                " or .txt (the table)"
            )
        write_atomically(path, text.encode())

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Profile of {self.title}: {len(self.rows)} rows, {seconds_text(self.seconds)}>"


def _by_row(row: Timed, number: int) -> tuple[str, str]:
    return row.name or f"#{number}", row.kind


def _by_type(row: Timed, number: int) -> tuple[str, str]:
    return row.kind, ""


def _by_group(row: Timed, number: int) -> tuple[str, str]:
    return (row.path[0], "") if row.path else (row.name, row.kind)


def profile(
    net: Any, *, rows: int = ROWS, scope: Scope | None = None, network: str = "", seed: int = 0
) -> Profile:
    """Run a net forward on random inputs, and measure where its time goes.

    Each operator is timed by itself, which costs some microseconds an operator; the least of
    several runs counts. Kaldi's networks are shown by their nodes, CNTK's by theirs.

    Args:
        net, scope, network: as `opscope.view` takes them.
        rows: of the batch; frames of a network of Kaldi's.
        seed: of the random inputs.

    Raises:
        FormatError: a file is missing, damaged, or holds no single net.
        VariableError: `net` is no net, or does not run.
    """
    if rows < 1:
        raise OpscopeError(f"rows={rows}: at least 1 is wanted")
    model = open_model(net, scope, network=network, use="to look at").in_operators(rows)
    graph = graph_of(model)
    measure(graph, model, rows, seed)
    titles = {key: group.name or group.title for key, group in graph.groups.items()}
    timed = [
        Timed(
            item.name, item.title, tuple(titles[key] for key in item.path), item.time,
            item.memory or 0,
        )
        for item in graph.items.values()
        if item.time is not None
    ]  # fmt: skip
    return Profile(model.title, graph.profiled, timed)
