"""The table at the end of a run: each kind of comparison, how many cases, the largest error.

A test hands its errors to `within`; one line stands for all cases of a test function. What deserves
a word (`remark`) is listed below by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest


@pytest.fixture
def within(record_property) -> Callable[[Mapping[str, float], float], None]:
    """A function (errors by what was compared, tolerance) that notes the errors and checks them."""

    def check(errors: Mapping[str, float], tolerance: float) -> None:
        record_property("error", float(max(errors.values())))
        record_property("tolerance", tolerance)
        beyond = {name: error for name, error in errors.items() if not error < tolerance}
        assert not beyond

    return check


@pytest.fixture
def remark(record_property) -> Callable[[str], None]:
    """A function that notes a reason why a case is compared in another way than the rest."""
    return lambda text: record_property("remark", text)


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

    def line(self) -> str:
        passed, failed = self.outcomes["passed"], self.outcomes["failed"]
        error = "" if self.error < 0 else f"{self.error:.1e} of {self.tolerance:.0e}  {self.worst}"
        return f"{passed:7d} {failed:7d} {self.skipped:8d}  {error}".rstrip()


def pytest_terminal_summary(terminalreporter) -> None:
    families: dict[str, Family] = {}
    remarks: dict[str, list[str]] = {}
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            path, _, name = report.nodeid.partition("::")
            stem = path.rpartition("/")[2].removesuffix(".py")
            if "conformance" not in path or report.when != "call" and outcome == "passed":
                continue
            title = f"{stem.removeprefix('test_')}: {name.partition('[')[0].removeprefix('test_')}"
            families.setdefault(title, Family()).add(report)
            for key, text in report.user_properties:
                if key == "remark":
                    remarks.setdefault(text, []).append(name.partition("[")[2].removesuffix("]"))
    if not any(sum(family.outcomes.values()) for family in families.values()):
        return
    write = terminalreporter.write_line
    terminalreporter.section("conformance with reference results")
    width = max(map(len, families))
    write(f"{'':{width}}  passed  failed  skipped  largest error")
    for title, family in sorted(families.items()):
        write(f"{title:{width}} {family.line()}")
    for text, names in remarks.items():
        write(f"{text}: {', '.join(sorted(set(names)))}")
