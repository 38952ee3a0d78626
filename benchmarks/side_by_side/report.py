"""What was measured, as lines, Markdown and a picture."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from workloads.workload import OURS

from .rounds import Condition


@dataclass
class Row:
    """One workload under one condition.

    Attributes:
        ratio: the fastest peer's time / ours, the median over rounds; above 1 we are faster.
        achieved: what part of the measured product ceiling ours reaches; None where products are
            not what the workload is made of.
        ours_ms, peer_ms, spread: medians, and half the distance of our quartiles by the median.
        all_ms: medians of all sides. cpu_ms: their least CPU time.
        absent: why other sides were left out.
        first_s: seconds to the end of the first call of ours and of the fastest peer.
        without: what our side did without; "" is all of the machine.
        peak_mb: the most memory of both, where each had a process of its own.
    """

    workload: str
    title: str
    threads: int
    where: str
    target: float
    ours_ms: float
    peer: str
    peer_ms: float
    ratio: float
    spread: float
    achieved: float | None
    products: float | None
    first_s: tuple[float, float]
    peak_mb: tuple[float | None, float | None]
    all_ms: dict[str, float]
    without: str = ""
    cpu_ms: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def condition(self) -> Condition:
        return Condition(self.threads, self.where, self.without)

    def against(self, peer: str) -> float | None:
        """The time of a peer / ours; None where it was left out."""
        return self.all_ms[peer] / self.ours_ms if peer in self.all_ms else None

    def line(self) -> str:
        """What the terminal shows."""
        mark = "" if self.ratio >= self.target else "  below target"
        share = "" if self.achieved is None else f"  {self.achieved:4.0%} of the ceiling"
        share += "" if self.products is None else f"  products {self.products:4.0%}"
        return (
            f"{self.workload:16} {self.condition.told:12}"
            f" ours {self.ours_ms:9.3f} ms (±{self.spread:3.0%})"
            f"  {self.peer} {self.peer_ms:9.3f} ms  ratio {self.ratio:5.2f}"
            f" (target {self.target:g}){share}{mark}"
        )

    def json(self) -> dict[str, Any]:
        return asdict(self)


def markdown(rows: Sequence[Row]) -> str:
    """A table: a line a workload, a column a condition."""
    conditions = list(dict.fromkeys(row.condition for row in rows))
    heads = [condition.told for condition in conditions]
    lines = [
        "| workload | target | " + " | ".join(heads) + " | ours, ms | peak MB, ours / peer |",
        "|---|---|" + "---|" * (len(heads) + 2),
    ]
    for workload in dict.fromkeys(row.workload for row in rows):
        own = {row.condition: row for row in rows if row.workload == workload}
        first = next(iter(own.values()))
        cells = [f"{own[each].ratio:.2f}" if each in own else "–" for each in conditions]
        memory = next((row.peak_mb for row in own.values() if None not in row.peak_mb), None)
        told = f"{memory[0]:.0f} / {memory[1]:.0f}" if memory else "–"
        line = [first.title, f"{first.target:g}", *cells, f"{first.ours_ms:.3g}", told]
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines) + "\n"


def board_table(rows: Sequence[Row]) -> str:
    """Our milliseconds and each peer's time by ours, a line a workload, with one and more threads
    after each other; then how many rows are ahead of each peer, and why sides are left out."""
    counts = list(dict.fromkeys(row.threads for row in rows))
    sides = list(dict.fromkeys(side for row in rows for side in row.all_ms))
    peers = [side for side in sides if side != OURS]
    lines = [
        "| net | ours, ms | " + " | ".join(peers) + " | fastest |",
        "|---|---:|" + "---:|" * (len(peers) + 1),
    ]
    for workload in dict.fromkeys(row.workload for row in rows):
        own = {row.threads: row for row in rows if row.workload == workload}

        def cell(number: Callable[[Row], float | None], own: dict[int, Row] = own) -> str:
            found = [number(own[count]) if count in own else None for count in counts]
            told = ["–" if one is None else f"{one:.3g}" for one in found]
            return "–" if set(told) == {"–"} else " / ".join(told)

        ratios = [cell(lambda row, peer=peer: row.against(peer)) for peer in peers]
        ours = cell(lambda row: row.ours_ms)
        last = cell(lambda row: row.ratio)
        title = next(iter(own.values())).title
        lines.append("| " + " | ".join([title, ours, *ratios, last]) + " |")
    lines.append("")
    for peer in peers:
        both = [row for row in rows if peer in row.all_ms]
        ratios = [(row.against(peer) or 0.0, row.title) for row in both]
        ahead = sum(ratio >= 1 for ratio, _ in ratios)
        least, title = min(ratios)
        told = f"ahead in {ahead} of {len(both)} measurements, least {least:.2f} ({title})"
        lines.append(f"- {peer}: {told}")
    why = dict.fromkeys(
        f"- without {side}: {row.title} ({told})"
        for row in rows
        for side, told in row.absent.items()
    )
    return "\n".join([*lines, *why]) + "\n"


def picture(rows: Sequence[Row], path: pathlib.Path) -> None:
    """Ratios as points on a logarithmic axis, a line a workload."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row.workload for row in rows))
    conditions = list(dict.fromkeys(row.condition for row in rows))
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.28 * len(names)))
    for number, condition in enumerate(conditions):
        own = [row for row in rows if row.condition == condition]
        heights = [names.index(row.workload) + 0.12 * number for row in own]
        threads = f"{condition.threads} thread{'s' if condition.threads > 1 else ''}"
        lacking = f", without {condition.without}" if condition.without else ""
        label = f"{condition.where}, {threads}{lacking}"
        axes.plot([row.ratio for row in own], heights, "o", markersize=4, label=label)
    for row in rows:
        axes.plot([row.target], [names.index(row.workload)], "k|", markersize=9)
    axes.axvline(1, color="gray", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("time of the fastest peer / ours (bars: targets)")
    axes.legend(fontsize=7, loc="best")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
