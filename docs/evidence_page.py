"""The page of evidence: what was measured and tested, from the pages and files that hold it."""

from __future__ import annotations

import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cntk_pages import table
from conformance_page import VERDICTS, cell, documents, summary

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from zoo.table import WORDS, counts, read  # noqa: E402

DOCS = Path(__file__).parent
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)

Rows = list[list[str]]


def evidence() -> Iterator[str]:
    """Speed, conformance, damage, configs and architectures, each with its losses."""
    for part in (_speed, _claims, _campaign, _configs, _zoo):
        yield from part()


def _section(page: str, title: str) -> str:
    """The text of a section of a page."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    start = text.index(f"\n## {title}\n") + len(f"\n## {title}\n")
    end = text.find("\n## ", start)
    return text[start : end if end >= 0 else None]


def _tables(text: str) -> list[Rows]:
    """The tables of a text: their rows, the head first."""
    found = []
    for match in _TABLE.finditer(text):
        lines = [line.strip("|").split("|") for line in match[0].splitlines()]
        rows = [[cell.strip() for cell in line] for line in lines]
        found.append([rows[0], *rows[2:]])
    return found


def _before(text: str) -> str:
    """The paragraphs in front of the first table: how, when and on what it was measured."""
    first = _TABLE.search(text)
    assert first is not None
    return text[: first.start()].strip()


def _speed() -> Iterator[str]:
    """How much faster or slower this package is than its peers; each measurement that it loses."""
    text = _section("performance", "Beside others")
    rows = _tables(text)[0][1:]
    yield "## Speed"
    yield f"How [the table of {len(rows)} workloads](performance.md#beside-others) was measured:"
    yield "> " + _before(text).replace("\n", "\n> ")
    yield (
        "A summary of its ratios, the time of the peer divided by ours, which are above 1 if"
        " opscope is faster:"
    )
    by_peer: dict[str, Rows] = {}
    for row in rows:
        by_peer.setdefault(row[_PEER], []).append(row)
    compared, lost = [], []
    for peer, own in by_peer.items():
        for column, setting in _RATIOS.items():
            ratios = {row[0]: float(row[column]) for row in own if row[column] != "–"}
            if not ratios:
                continue
            slower = {name: ratio for name, ratio in ratios.items() if ratio < 1}
            values = sorted(ratios.values())
            shown = (values[0], statistics.median(values), values[-1])
            numbers = [str(len(values)), *(f"{value:.2f}" for value in shown), str(len(slower))]
            compared.append((peer, setting, *numbers))
            lost += [(name, setting, peer, f"{ratio:.2f}") for name, ratio in slower.items()]
    head = ("peer", "setting", "workloads", "lowest", "median", "highest", "slower")
    yield table(head, compared)
    less = _section("performance", "Less of a machine")
    settings, *rows = _tables(less)[0]
    peers = {row[0]: row[_PEER] for own in by_peer.values() for row in own}
    for row in rows:
        for setting, ratio in zip(settings[1:], row[1:], strict=True):
            if ratio != "–" and float(ratio) < 1:
                lost.append((row[0], f"{setting}, no AMX", peers[row[0]], ratio))
    yield "### What is slower"
    yield (
        "Every ratio below 1. Those without AMX are from another processor; see [less of a"
        " machine](performance.md#less-of-a-machine). [8-bit"
        " integers](performance.md#8-bit-integers) and [weights in"
        " blocks](performance.md#weights-in-blocks) name their own losses."
    )
    yield table(("workload", "setting", "peer", "ratio"), lost)


_PEER = 9
_RATIOS = {
    3: "1 thread",
    6: "2 threads",
    7: "1 thread, AVX-512",
    8: "2 threads, AVX-512",
}
"""The columns of the table of workloads that hold ratios."""


def _claims() -> Iterator[str]:
    """How many claims of the founding documents hold, and those that do not."""
    yield "## Conformance"
    yield (
        "[Each claim](conformance.md) of the five founding documents has a test, which CI runs at"
        " every change (`python build.py test tests/conformance`)."
    )
    yield summary()
    yield "### What differs or is absent"
    rows = []
    for document in documents():
        for claim in document.claims:
            if claim.verdict != VERDICTS[0]:
                rows.append((document.title, str(claim.line), cell(claim.text), cell(claim.told)))
    yield table(("document", "line", "claim", "verdict"), rows)


def _campaign() -> Iterator[str]:
    """The last campaign: what was tried, and the sums of its tables."""
    text = _section("promises", "The last campaign")
    yield "## Damaged files, killed programs, threads"
    yield "[The tables](promises.md#the-last-campaign) have a row for each program and reader."
    end = 0
    for match, (head, *rows) in zip(_TABLE.finditer(text), _tables(text), strict=True):
        yield text[end : match.start()].strip()
        end = match.end()
        rows = [row for row in rows if row[0] != "all"]
        sums = (sum(_number(row, at) for row in rows) for at in range(1, len(head)))
        yield table(("rows", *head[1:]), [(str(len(rows)), *(f"{one:,}" for one in sums))])


def _number(row: list[str], column: int) -> int:
    """The number in a cell, or at its end; `52 each` counts for as many as the row begins with."""
    *_, number = re.findall(r"\d+", row[column].replace(",", ""))
    each = re.match(r"\d+", row[0]) if row[column].endswith("each") else None
    return int(number) * int(each[0] if each else 1)


def _configs() -> Iterator[str]:
    """How many configs of CNTK train here."""
    text = (DOCS / "cntk_trained.md").read_text(encoding="utf-8").partition("\n")[2]
    yield "## CNTK's own configs"
    yield _before(text)
    rows = _tables(text)[0][1:]
    outcomes = Counter(row[-1].partition(":")[0] for row in rows)
    yield table(("outcome", "configs"), ((name, str(n)) for name, n in outcomes.most_common()))
    yield "[All configs](cntk_trained.md) and, of those that are refused, the reasons."


def _zoo() -> Iterator[str]:
    """How many architectures of other libraries run and train here, by the way they come in."""
    rows = read()
    yield "## Architectures of other libraries"
    yield (
        f"{len(rows)} architectures of torchvision, timm and transformers run beside PyTorch, in"
        " batches of 1 and 2: outputs and gradients are compared. `python build.py zoo` measures"
        " the table, which may only grow; CI measures a tenth of it at every change."
    )
    found = counts(rows)
    yield table(
        ("route", "part", *WORDS),
        (
            (route, part, *(str(count[word]) for word in WORDS))
            for (route, part), count in sorted(found.items())
        ),
    )
    lost = {
        (name, cell(_short(outcome)))
        for name, row in rows.items()
        for parts in row.values()
        for outcome in parts.values()
        if outcome != WORDS[0]
    }
    yield "### What is not right"
    yield table(("architecture", "outcome"), sorted(lost))


def _short(text: str) -> str:
    """The beginning of a long message."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0]} ..."


_LONGEST = 160
