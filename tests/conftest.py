"""Options of the whole suite: the quick selection, and the account of the conformance tests.

The account (`conformance_report.py`) is made here and not in `conformance/conftest.py`: where there
are several processes, the one that writes the summary collects nothing and loads this file only.
"""

from __future__ import annotations

import pytest

from conformance_report import families_of, lines_of, unused_references
from quick_sample import sample
from reference_folders import CNTK, DATA, KALDI

REFERENCES = {"kaldi": KALDI, "cntk": CNTK}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("opscope")
    group.addoption(
        "--quick",
        action="store_true",
        help="a fixed sample of the tests: every sixth function, its first case",
    )
    group.addoption(
        "--require-conformance",
        action="store_true",
        help="fail where reference results are there and no conformance test used them",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        chosen = list(sample(items))
        left_out = set(items).difference(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = chosen


# The account of the conformance tests


def finished(config: pytest.Config) -> list[pytest.TestReport]:
    """The reports of all tests that have run, in whichever process."""
    stats = config.pluginmanager.get_plugin("terminalreporter").stats
    return [
        report for outcome in ("passed", "failed", "skipped") for report in stats.get(outcome, ())
    ]


def unused(config: pytest.Config) -> list[str]:
    """The folders of reference results that `--require-conformance` finds unused."""
    if not config.getoption("--require-conformance"):
        return []
    folders = {name: path for name, path in REFERENCES.items() if DATA.is_dir() or path.is_dir()}
    return unused_references(families_of(finished(config)), folders)


def pytest_sessionfinish(session: pytest.Session) -> None:
    in_a_worker = hasattr(session.config, "workerinput")
    if not in_a_worker and session.exitstatus == pytest.ExitCode.OK and unused(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = list(lines_of(finished(config)))
    if lines:
        terminalreporter.section("conformance with reference results")
    for line in lines:
        terminalreporter.write_line(line)
    for folder in unused(config):
        terminalreporter.write_line(f"no conformance test used {folder}", red=True)
