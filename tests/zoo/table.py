"""The table of what came of each architecture, which may only grow."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

PATH = Path(__file__).resolve().with_name("table.json")
WORDS = ("right", "refused", "not exported", "wrong", "crash")
"""What can come of a row: better ones first; the last two are faults here."""
PARTS = ("forward", "gradients")

Row = Mapping[str, Mapping[str, str]]
"""Route and batch -> part -> what came of it: a word, and why."""


def read() -> dict[str, dict[str, dict[str, str]]]:
    """Architecture -> its row."""
    return json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}


def write(rows: Mapping[str, Row], order: Sequence[str]) -> None:
    """Write the rows, those of architectures that are gone aside."""
    kept = {name: rows[name] for name in order if name in rows}
    scratch = PATH.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    scratch.replace(PATH)


def word(outcome: str) -> str:
    return outcome.split(":")[0]


def worse(before: Row, after: Row) -> list[str]:
    """Where a row is no longer right, or has a fault that the table does not name."""
    lines = []
    for route, parts in after.items():
        for part, outcome in parts.items():
            was = word(before.get(route, {}).get(part, WORDS[2]))
            if WORDS.index(word(outcome)) > WORDS.index(was):
                lines.append(f"{route}, {part}: {was} before, now {outcome}")
    return lines


def summary(row: Row) -> str:
    """One line: what is right, and why the rest is not."""
    count = Counter(word(outcome) for parts in row.values() for outcome in parts.values())
    rest = [
        f"\n    {route}, {part}: {outcome}"
        for route, parts in row.items()
        for part, outcome in parts.items()
        if word(outcome) != "right"
    ]
    return f"{count['right']} of {count.total()} right" + "".join(rest)


def counts(rows: Mapping[str, Row]) -> dict[tuple[str, str], Counter[str]]:
    """(Route, part) -> word -> how many architectures; the worse batch counts."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in rows.values():
        worst: dict[tuple[str, str], int] = {}
        for setting, parts in row.items():
            route = setting.rsplit(" ", 1)[0]
            for part, outcome in parts.items():
                key = route, part
                worst[key] = max(worst.get(key, 0), WORDS.index(word(outcome)))
        for key, number in worst.items():
            found.setdefault(key, Counter())[WORDS[number]] += 1
    return found


def totals(rows: Mapping[str, Row]) -> str:
    """The show line: shares of what PyTorch exports."""
    lines = [f"{len(rows)} architectures"]
    for (route, part), count in sorted(counts(rows).items()):
        exported = count.total() - count["not exported"]
        share = 100 * count["right"] / exported if exported else 0.0
        rest = ", ".join(f"{count[w]} {w}" for w in WORDS[1:] if count[w])
        lines.append(
            f"  {route}, {part}: {count['right']} of {exported} right ({share:.1f} %)"
            + (f"; {rest}" if rest else "")
        )
    return "\n".join(lines)


def shown(rows: Mapping[str, Row]) -> str:
    """The whole table."""
    return "\n".join([*(f"{name}: {summary(row)}" for name, row in rows.items()), totals(rows)])
