"""What was measured, as lines, Markdown and a picture."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .rounds import Condition


@dataclass
class Row:
    """One workload under one condition.

    Attributes:
        ratio: the fastest peer's time / ours, the median over rounds; above 1 we are faster.
        achieved: what part of the measured product ceiling ours reaches; None where products are
            not what the workload is made of.
        ours_ms, peer_ms, spread: medians, and half the distance of our quartiles by the median.
        all_ms: medians of all sides.
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

    @property
    def condition(self) -> Condition:
        return Condition(self.threads, self.where, self.without)

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
