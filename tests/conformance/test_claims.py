"""The founding documents, claim by claim: each row of the conformance page is a test."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from conformance.claims import DOCUMENTS
from conformance.claims.claim import Claim, Document
from package_copy import ROOT

SEEDS = ROOT.parent / "shared" / "seeds"


def rows() -> list:
    """All claims; the id is document:line, with a number where a line has several."""
    found = []
    for document in DOCUMENTS:
        counts: dict[int, int] = {}
        for claim in document.claims:
            count = counts[claim.line] = counts.get(claim.line, 0) + 1
            name = f"{document.key}:{claim.line}" + (f".{count}" if count > 1 else "")
            found.append(pytest.param(claim, id=name))
    return found


@pytest.mark.parametrize("claim", rows())
def test_claim(claim: Claim) -> None:
    assert not claim.problem(), f"this row {claim.problem()}: {claim.text}"
    found = claim.check()
    assert isinstance(found, bool | np.bool_) and found, f"it does not: {claim.text}"


def test_there_are_as_many_rows_as_the_page_promises() -> None:
    assert sum(len(document.claims) for document in DOCUMENTS) >= 1300


def test_a_row_without_what_its_verdict_wants_is_refused() -> None:
    whole = DOCUMENTS[0].claims[0]
    for change, problem in (
        ({"check": None}, "has no check"),
        ({"check": lambda: True}, "looks at nothing"),
        ({"differs": "since the original does"}, "no source line"),
        ({"differs": "so", "source": "the original"}, "no source line"),
        ({"differs": "so", "source": "SGD.cpp:12", "absent": "so"}, "two verdicts"),
        ({"line": 0}, "no line"),
    ):
        assert problem in dataclasses.replace(whole, **change).problem()
    assert not dataclasses.replace(whole, differs="so", source="SGD.cpp:12").problem()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.key)
def test_lines_are_those_of_the_document(document: Document) -> None:
    files = sorted(SEEDS.glob(f"{document.key}_*.txt"))
    if not files:
        pytest.skip("the documents are not here")
    lines = files[0].read_text(encoding="utf-8").split("\n")
    empty = [c.line for c in document.claims if not "".join(lines[c.line - 1 : c.line]).strip()]
    assert not empty
