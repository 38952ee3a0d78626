"""The table at the end of a run: each kind of comparison, how many cases, the largest error.

A conformance test notes its errors through the fixture `within`; one line stands for all cases of a
test function. What deserves a word (the fixture `remark`) is listed below by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class Family:
    """All cases of one test function."""

    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("passed", "failed"), 0))
    skipped: int = 0
    error: float = -1.0
    tolerance: float = 0.0
    worst: str = ""

    def add(self, report: pytest.TestReport) -> None:
        if report.outcome == "skipped":
            self.skipped += 1
            return
        self.outcomes[report.outcome] += 1
        known = dict(report.user_properties)
        if known.get("error", -1.0) > self.error:
            self.error, self.tolerance = known["error"], known["tolerance"]
            self.worst = report.nodeid.partition("[")[2].removesuffix("]")

    @property
    def ran(self) -> int:
        return sum(self.outcomes.values())

    def line(self) -> str:
        passed, failed = self.outcomes["passed"], self.outcomes["failed"]
        error = "" if self.error < 0 else f"{self.error:.1e} of {self.tolerance:.0e}  {self.worst}"
        return f"{passed:7d} {failed:7d} {self.skipped:8d}  {error}".rstrip()


def families_of(reports: Iterable[pytest.TestReport]) -> dict[str, Family]:
    """The outcomes of the conformance tests by file and function."""
    families: dict[str, Family] = {}
    for report in reports:
        path, _, name = report.nodeid.partition("::")
        stem = path.rpartition("/")[2].removesuffix(".py").removeprefix("test_")
        if "conformance" not in path or report.when != "call" and report.outcome == "passed":
            continue
        title = f"{stem}: {name.partition('[')[0].removeprefix('test_')}"
        families.setdefault(title, Family()).add(report)
    return families


def remarks_of(reports: Iterable[pytest.TestReport]) -> dict[str, set[str]]:
    """The cases by what the tests remark about them."""
    remarks: dict[str, set[str]] = {}
    for report in reports:
        if (
            report.when != "call"
        ):  # "collect" where a whole file was skipped: that has no properties
            continue
        for key, text in report.user_properties:
            if key == "remark":
                case = report.nodeid.partition("[")[2].removesuffix("]")
                remarks.setdefault(str(text), set()).add(case)
    return remarks


def unused_references(families: dict[str, Family], folders: dict[str, Path]) -> list[str]:
    """The folders of reference results that no conformance test used.

    Args:
        folders: the folder of each framework; its tests are in files `test_FRAMEWORK_*.py`.
    """
    used = {title.partition("_")[0] for title, family in families.items() if family.ran}
    return [str(folder) for framework, folder in folders.items() if framework not in used]


def lines_of(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """The table, the remarks, and last how many tests ran; nothing where there were none."""
    reports = list(reports)
    families = families_of(reports)
    if not any(family.ran for family in families.values()):
        return
    width = max(map(len, families))
    yield f"{'':{width}}  passed  failed  skipped  largest error"
    for title, family in sorted(families.items()):
        yield f"{title:{width}} {family.line()}"
    for text, names in remarks_of(reports).items():
        yield f"{text}: {', '.join(sorted(names))}"
    ran = sum(family.ran for family in families.values())
    skipped = sum(family.skipped for family in families.values())
    yield f"{ran} conformance tests ran, {skipped} were skipped"
