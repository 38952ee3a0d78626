"""The page of evidence: its sums are the sums of the tables, and it lists every loss."""

from __future__ import annotations

import re

import pytest

from package_copy import ROOT


@pytest.fixture(scope="module")
def text() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        import evidence_page
    return "\n".join(evidence_page.evidence())


def test_sums_of_the_campaign(text: str) -> None:
    promises = (ROOT / "docs" / "promises.md").read_text()
    kills = re.search(r"After ([\d,]+) kills", promises)
    readers = re.search(r"^\| all \| (.*)$", promises, re.MULTILINE)
    assert kills is not None and readers is not None
    assert re.search(rf"^\| \d+ \| {kills[1]} \| 0 \| 0 \|$", text, re.MULTILINE)
    assert f"| {readers[1]}" in text


def test_every_loss_is_listed(text: str) -> None:
    performance = (ROOT / "docs" / "performance.md").read_text()
    table = performance.partition("## Beside others")[2].partition("## Less of a machine")[0]
    ratios = (
        (row[1].strip(), float(row[column]))
        for row in (line.split("|") for line in table.splitlines() if line.startswith("| `"))
        if len(row) == 12
        for column in (4, 7, 8, 9)
        if row[column].strip() != "–"
    )
    lost = [(name, ratio) for name, ratio in ratios if ratio < 1]
    listed = text.partition("### What is slower")[2].partition("\n## ")[0]
    for name, ratio in lost:
        assert re.search(rf"^\| {name} \| .* \| {ratio:.2f} \|$", listed, re.MULTILINE)
