"""The suite's own options: the quick selection, and the account of the conformance tests."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance_report import families_of, lines_of, unused_references
from quick_sample import SHARE, sample


def item(nodeid, *markers):
    """A stand-in for a collected test."""
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: name in markers)


def test_the_sample_takes_the_first_case_of_every_sixth_function_of_each_file():
    items = [
        item(f"tests/test_{file}.py::test_{function}[{case}]")
        for file in "ab"
        for function in range(SHARE + 1)
        for case in range(3)
    ]
    wanted = [
        f"tests/test_{file}.py::test_{function}[0]" for file in "ab" for function in (0, SHARE)
    ]
    assert [chosen.nodeid for chosen in sample(items)] == wanted


def test_the_sample_takes_quick_tests_and_leaves_slow_ones_out():
    items = [
        item("tests/test_a.py::test_slow", "slow"),
        item("tests/test_a.py::test_first"),
        item("tests/test_a.py::test_second"),
        item("tests/test_a.py::test_quick[0]", "quick"),
        item("tests/test_a.py::test_quick[1]", "quick"),
    ]
    assert list(sample(items)) == [items[1], items[3], items[4]]


def report(nodeid, outcome="passed", when="call", **properties):
    """A stand-in for a test's report."""
    return SimpleNamespace(
        nodeid=nodeid, outcome=outcome, when=when, user_properties=list(properties.items())
    )


REPORTS = [
    report("tests/conformance/test_kaldi_steps.py::test_steps[a]", error=1e-6, tolerance=1e-4),
    report("tests/conformance/test_kaldi_steps.py::test_steps[b]", error=2e-6, tolerance=1e-4),
    report("tests/conformance/test_kaldi_steps.py::test_steps[b]", when="setup"),
    report("tests/conformance/test_kaldi_steps.py::test_steps[c]", "failed", remark="in double"),
    report("tests/conformance/test_cntk_ndl.py::test_nodes", "skipped", "setup"),
    SimpleNamespace(nodeid="tests/conformance/test_a.py", outcome="skipped", when="collect"),
    report("tests/framework/test_net.py::test_run"),
]


def test_the_account_counts_cases_and_shows_the_largest_error():
    assert list(lines_of(REPORTS)) == [
        "                    passed  failed  skipped  largest error",
        "a:                       0       0        1",
        "cntk_ndl: nodes          0       0        1",
        "kaldi_steps: steps       2       1        0  2.0e-06 of 1e-04  b",
        "in double: c",
        "3 conformance tests ran, 2 were skipped",
    ]


def test_there_is_nothing_to_account_for():
    assert list(lines_of(REPORTS[4:])) == []


def test_references_that_only_skipped_tests_name_are_unused():
    folders = {"kaldi": Path("k"), "cntk": Path("c")}
    assert unused_references(families_of(REPORTS), folders) == ["c"]
    assert unused_references(families_of(REPORTS[6:]), folders) == ["k", "c"]
    assert unused_references({}, {}) == []


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_run_that_leaves_references_unused_fails(processes, tmp_path):
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-n",
        processes,
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "--require-conformance", f"{__file__}::test_there_is_nothing_to_account_for"],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OPSCOPE_KALDI_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout
    assert f"no conformance test used {tmp_path}" in done.stdout
    assert "1 passed" in done.stdout
