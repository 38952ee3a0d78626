"""The text of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from ...framework.parallel.cost import ALGORITHMS
from ...framework.parallel.link import Link
from .plan import COMPUTE, Event, rows_for, step_time
from .units import bytes_text, time_text


def plan_text(
    events: Sequence[Event], rows: int, rank_counts: Sequence[int], link: Link, efficiency: float
) -> str:
    """A line for each number of ranks and each algorithm; `*` marks the fastest algorithm.

    Args:
        events: of a step of one rank. rows: of its minibatch. rank_counts: in order.
        link: between ranks. efficiency: for which the fewest rows are reported.

    Raises:
        OpscopeError: a number of ranks below 1, or an efficiency that is not within 0 and 1.
    """
    computed = sum(event.size(rows) for event in events if event.kind == COMPUTE)
    sent = [event for event in events if event.kind not in (COMPUTE, "wait")]
    early = sum(bool(event.ticket) for event in sent)
    nbytes = sum(event.size(rows) for event in sent)
    wanted = f"rows for {efficiency:.0%}"
    lines = [
        f"link: {link.bandwidth * 8 / 1e9:.4g} Gbit/s, latency {time_text(link.latency)}",
        f"a rank: {rows} rows, operators {time_text(computed)}, {len(sent)} messages"
        f" ({early} while operators run), {bytes_text(nbytes)}",
        "",
        f"{'ranks':>6}  {'all_reduce':10}  {'step':>9}  {'waiting':>9}  {'efficiency':>10}"
        f"  {'bound by':9}  {wanted:>12}",
    ]
    for ranks in rank_counts:
        steps = {name: step_time(events, rows, ranks, link, name) for name in ALGORITHMS}
        best = min(steps, key=lambda name: steps[name].whole)
        for name, step in steps.items():
            fewest = rows_for(efficiency, events, ranks, link, name)
            label = name + "*" * (name == best)
            waiting = time_text(step.latency + step.bandwidth)
            lines.append(
                f"{ranks:6d}  {label:10}  {time_text(step.whole):>9}  {waiting:>9}"
                f"  {step.efficiency:10.1%}  {step.bound:9}"
                f"  {'never' if fewest is None else fewest:>12}"
            )
    return "\n".join(lines) + "\n"
