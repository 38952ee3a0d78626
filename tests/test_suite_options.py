"""The suite's own options: the quick selection, the account of the conformance tests, the draws."""

import os
import re
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


LOGGING = """
import logging

def test_name():
    logging.getLogger("files").warning("bytes that are no UTF-8: \\udcff")
    assert False, "of \\udcfe"
"""


def test_a_process_reports_bytes_that_are_no_utf_8(tmp_path):
    (tmp_path / "test_logging.py").write_text(LOGGING)
    done = pytest_of(tmp_path, "-n", "1")
    assert done.returncode == 1, done.stdout
    assert "bytes that are no UTF-8: \\udcff" in done.stdout
    assert "of \\udcfe" in done.stdout and "1 failed" in done.stdout


DRAWING = """
import random
import subprocess
import sys

import numpy as np
import pytest

import opscope

PROCESS = "import numpy; print(numpy.random.default_rng().random())"

def drawn():
    contexts = (opscope.OpContext(), opscope.OpContext())
    own = [context.generator(opscope.CPUPlace()).random() for context in contexts]
    return [*own, np.random.default_rng().random(), np.random.random(), random.random()]

@pytest.fixture(scope="module")
def shared():
    return drawn()

def tell(name, numbers):
    assert len({*numbers}) == len(numbers)
    print(f"<{name}>", *numbers)

def test_first(shared):
    tell("first", shared + drawn())

def test_second(shared):
    tell("second", drawn() + shared)

def test_process():
    done = [subprocess.run([sys.executable, "-c", PROCESS], stdout=-1, text=True) for _ in "ab"]
    assert done[0].stdout == done[1].stdout
    tell("process", [float(done[0].stdout)])
"""


def pytest_of(folder, *arguments):
    """Runs the tests of a folder with the suite's options."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-qs", "-p", "conftest", "-p", "no:cacheprovider"]
        + ["--rootdir", folder, "-c", os.devnull, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )


def numbers_drawn(folder, *arguments):
    """What the tests of `DRAWING` draw, by name."""
    (folder / "test_drawing.py").write_text(DRAWING)
    done = pytest_of(folder, *arguments)
    assert done.returncode == 0, done.stdout
    lines = re.findall(r"<(\w+)> (.*)", done.stdout)
    return {name: [float(number) for number in numbers.split()] for name, numbers in lines}


def test_what_a_test_draws_without_a_seed_is_the_same_in_every_run(tmp_path):
    """Alone as after others, in fixtures and in processes; the numbers of one test differ."""
    every = numbers_drawn(tmp_path)
    names = ["first", "second", "process"]
    assert sorted(every) == sorted(names) and {*every["first"]} & {*every["second"]}
    for name in names[1:]:
        assert numbers_drawn(tmp_path, f"test_drawing.py::test_{name}")[name] == every[name]
    other = numbers_drawn(tmp_path, "--seed", "1")
    assert all(not {*other[name]} & {*every[name]} for name in names)


def test_vosk_is_loaded_by_processes_of_its_own():
    """Its library waits forever where another copy of OpenFst is in the process: `vosk_beside`."""
    asks = re.compile(
        r"importorskip\(\W*vosk|import_module\(\W*vosk|^from vosk import", re.MULTILINE
    )
    here = Path(__file__)
    found = [
        path for path in here.parent.rglob("*.py") if path != here and asks.search(path.read_text())
    ]
    assert not found
    assert asks.search('importorskip("vosk")')
