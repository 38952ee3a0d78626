"""The rows of the page about the founding documents, from the claims that the tests check."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cntk_pages import table

VERDICTS = ("works", "differs", "absent")


def claims() -> Iterator[str]:
    """The counts of verdicts by document; then a row for each claim."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from conformance.claims import DOCUMENTS

    counts = {d.key: Counter(claim.verdict for claim in d.claims) for d in DOCUMENTS}
    rows = [(d.title, *_numbers(counts[d.key])) for d in DOCUMENTS]
    rows.append(("together", *_numbers(sum(counts.values(), Counter()))))
    yield table(("document", *VERDICTS, "rows"), rows)
    for document in DOCUMENTS:
        yield f"## {document.title}"
        yield table(
            ("line", "claim", "verdict"),
            (
                (str(claim.line), _cell(claim.text), _cell(claim.told))
                for claim in sorted(document.claims, key=lambda claim: claim.line)
            ),
        )


def _numbers(count: Counter[str]) -> list[str]:
    return [*(str(count[verdict]) for verdict in VERDICTS), str(count.total())]


def _cell(text: str) -> str:
    """A text as a cell of a table: nothing in it is Markdown or HTML."""
    return text.translate({ord(sign): f"&#{ord(sign)};" for sign in "\\`*_{}[]<>#|&"})
