"""A profile as the events that Chrome's tracing view and Perfetto draw.

Source: "Trace Event Format" of the Chromium project.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .timed import Timed


def chrome_trace(title: str, what: str, rows: Iterable[Timed]) -> dict[str, Any]:
    """Complete events, one after the other; groups are events around what is in them.

    Times are microseconds from the start of the run, as if nothing happened between operators.
    """
    events: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []  # those that are open, the outermost first
    now = 0.0
    for row in rows:
        same = 0
        while same < min(len(groups), len(row.path)) and groups[same]["name"] == row.path[same]:
            same += 1
        _close(groups, same, now)
        for name in row.path[same:]:
            groups.append(_event(name, "group", now, 0.0))
            events.append(groups[-1])
        event = _event(row.name or row.kind, row.kind, now, 1e6 * row.seconds)
        event["args"] = {"type": row.kind, "bytes": row.bytes}
        events.append(event)
        now += event["dur"]
    _close(groups, 0, now)
    return {
        "displayTimeUnit": "ns",
        "otherData": {"net": title, "measured": what},
        "traceEvents": events,
    }


def _event(name: str, category: str, begin: float, duration: float) -> dict[str, Any]:
    return {
        **{"name": name, "cat": category, "ph": "X", "pid": 1, "tid": 1},
        **{"ts": begin, "dur": duration},
    }


def _close(groups: list[dict[str, Any]], left: int, now: float) -> None:
    """End the groups after the first `left`."""
    for group in groups[left:]:
        group["dur"] = now - group["ts"]
    del groups[left:]
