"""Options of the whole suite: the quick selection, and the account of the conformance tests.

The account (`conformance_report.py`) is made here and not in `conformance/conftest.py`: where there
are several processes, the one that writes the summary collects nothing and loads this file only.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy.random  # noqa: F401  which draws when it is loaded: no test shall be the first
import pytest

from conformance_report import families_of, lines_of, unused_references
from draws import shared, unseeded
from opscope.native import units
from opscope.testing.device_raw import NoCompilerError
from quick_sample import sample
from reference_folders import CNTK, DATA, KALDI

ROOM = 4 << 30
"""Bytes that the files of a whole run stay well below."""

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
    group.addoption(
        "--seed",
        type=int,
        default=0,
        help="tests draw other numbers where they draw without a seed; a test passes for any",
    )
    group.addoption("--native-library", type=Path, help="the native library, built elsewhere")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Files of tests lie in memory where there is room for them: a disk makes tests wait."""
    memory = Path("/dev/shm")
    if sys.platform == "linux" and memory.is_dir():
        state = os.statvfs(memory)
        if state.f_bavail * state.f_frsize > ROOM and not state.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    if library := config.getoption("--native-library"):
        units.BUILT = library
    seed = config.getoption("--seed")
    os.environ[unseeded.BASE] = str(seed)
    unseeded.install()
    config.option.hypothesis_seed = seed
    # Of processes that are started from here: those of xdist, and those of tests.
    os.environ.setdefault("PYTHONHASHSEED", str(seed))


# What draws without a seed: a stream for each test, and for each thing that several tests share,
# since any of these may be the first.


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    unseeded.begin(collector.nodeid)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    unseeded.begin(item.nodeid)
    shared.begin(getattr(item, "module", None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    if fixturedef.scope == "function":
        return (yield)
    at, shared_at = unseeded.state(), shared.state()
    case = getattr(request, "param_index", 0)
    unseeded.begin(f"{fixturedef.baseid} {fixturedef.argname} {case}")
    shared.begin()
    try:
        return (yield)
    finally:
        unseeded.go_on(at)
        shared.go_on(shared_at)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Reports of test processes hold bytes that are no UTF-8 as escapes.

    Tests log names of damaged files, which keep such bytes as lone surrogates; xdist cannot send
    these, and one of them would end the whole run.
    """
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    """A value of lists, tuples, dicts and text, all text of which UTF-8 can say."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_sendable(key): _sendable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_sendable(part) for part in value)
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "hypothesis" in sys.modules:
        # It would read the source of each module that happens to be loaded, for constants to draw:
        # what a test draws would follow from which tests ran before, at 4 s a process.
        providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
        providers._get_local_constants = lambda: providers._local_constants
    if config.getoption("--quick"):
        chosen = list(sample(items))
        left_out = set(items).difference(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = chosen
    shared.note(Path(__file__).parent)


@pytest.fixture(autouse=True, scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes that tests start share bytecode, also where the caller keeps none.

    Most of the start of a process is compiling the package's modules where Python may not write
    what it compiles.
    """
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            folder = tmp_path_factory.getbasetemp()
            if "PYTEST_XDIST_WORKER" in os.environ:
                folder = folder.parent  # of all test processes
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(folder / "bytecode"))
        yield


@pytest.fixture(autouse=True, scope="session")
def started_processes() -> Iterator[None]:
    """Processes that tests start draw the same numbers in every run: see draws/sitecustomize.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(unseeded.__file__).parent), prepend=os.pathsep)
        yield


# Searching the heap of a whole run for cycles, a million objects that stay, took a seventh of it.


searches_before = [0]


def full_searches() -> int:
    return gc.get_stats()[2]["collections"]


def leave_out_of_searches() -> None:
    """What is there now stays, but for what nothing refers to."""
    gc.collect()
    gc.freeze()
    searches_before[0] = full_searches()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        leave_out_of_searches()


@pytest.fixture(autouse=True, scope="module")
def searched_heap() -> None:
    """Little more than what the module's own tests make is searched, also by `gc.collect`."""
    if full_searches() > searches_before[0]:
        leave_out_of_searches()


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
