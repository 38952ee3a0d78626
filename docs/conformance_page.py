"""The rows of the page about the founding documents, from the claims that the tests check."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cntk_pages import table

if TYPE_CHECKING:
    from conformance.claims import Document

VERDICTS = ("works", "differs", "absent")


def claims() -> Iterator[str]:
    """The counts of verdicts by document; then a row for each claim."""
    yield summary()
    for document in documents():
        yield f"## {document.title}"
        yield table(
            ("line", "claim", "verdict"),
            (
                (str(claim.line), cell(claim.text), cell(claim.told))
                for claim in sorted(document.claims, key=lambda claim: claim.line)
            ),
        )


def documents() -> Iterable[Document]:
    """The founding documents with the claims that tests check."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from conformance.claims import DOCUMENTS

    return DOCUMENTS


def summary() -> str:
    """The counts of verdicts by document."""
    counts = {d.key: Counter(claim.verdict for claim in d.claims) for d in documents()}
    rows = [(d.title, *_numbers(counts[d.key])) for d in documents()]
    rows.append(("together", *_numbers(sum(counts.values(), Counter()))))
    return table(("document", *VERDICTS, "rows"), rows)


def _numbers(count: Counter[str]) -> list[str]:
    return [*(str(count[verdict]) for verdict in VERDICTS), str(count.total())]


def cell(text: str) -> str:
    """A text as a cell of a table: nothing in it is Markdown or HTML."""
    return text.translate({ord(sign): f"&#{ord(sign)};" for sign in "\\`*_{}[]<>#|&"})
