"""Counts of a server, as text that Prometheus reads."""

from __future__ import annotations

from typing import NamedTuple


class _Kind(NamedTuple):
    """A metric: counter or gauge, what it counts, the name of its label."""

    type: str
    help: str
    label: str = ""


_KINDS = {
    "streams": _Kind("gauge", "Streams and files that are open", "kind"),
    "streams_total": _Kind("counter", "Streams and files that were opened", "kind"),
    "refused_total": _Kind("counter", "Streams and files that were refused", "reason"),
    "errors_total": _Kind("counter", "Messages and files that were answered with an error", "kind"),
    "audio_seconds_total": _Kind("counter", "Seconds of sound that were recognized", "kind"),
    "replies_total": _Kind("counter", "Messages that were answered", "kind"),
    "reply_seconds_total": _Kind("counter", "Seconds that messages waited for answers", "kind"),
    "work_waiting": _Kind("gauge", "Messages and pieces of files that wait for a core"),
    "processes_hung_total": _Kind("counter", "Processes that did not answer and were killed"),
    "network_runs_total": _Kind("counter", "Runs of the network"),
    "network_chunks_total": _Kind("counter", "Chunks of streams that they computed"),
}


class Metrics:
    """Counts by name and label."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, float]] = {name: {} for name in _KINDS}

    def add(self, name: str, label: str, value: float = 1) -> None:
        """Add to a metric."""
        values = self._values[name]
        values[label] = values.get(label, 0) + value

    def text(self, others: dict[str, float]) -> str:
        """All metrics in Prometheus' format.

        Args:
            others: values without a label, by the names of metrics.
        """
        lines: list[str] = []
        for name, kind in _KINDS.items():
            lines += [f"# HELP opscope_{name} {kind.help}", f"# TYPE opscope_{name} {kind.type}"]
            if name in others:
                lines.append(f"opscope_{name} {others[name]:.10g}")
            for label, value in self._values[name].items():
                lines.append(f'opscope_{name}{{{kind.label}="{label}"}} {value:.10g}')
        return "\n".join(lines) + "\n"
