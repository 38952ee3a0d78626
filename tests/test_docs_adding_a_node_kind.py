"""The page on adding a node kind: followed word by word in a copy of the package."""

import time
from importlib.metadata import EntryPoint

import pytest

from opscope.cntk.lower.table import TABLE
from opscope.cntk.network import catalogue
from opscope.cntk.network.nodes.kind import KINDS
from opscope.framework.ir.registry import unregister
from package_copy import ROOT, add_files, blocks, copy_package, run, run_tests
from test_docs_nnet3 import run_blocks

PAGE = ROOT / "docs/adding_a_node_kind.md"
SHOWN = [block for block in blocks(PAGE) if not block.path]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package with the files of the page."""
    home = tmp_path_factory.mktemp("copy")
    copy_package(home, "proto", "framework", "operators", "cntk")
    return home, add_files(home, PAGE)


def test_two_modules_and_a_test(copy, record_property):
    begin = time.perf_counter()
    home, files = copy
    (test,) = [path for path in files if path.startswith("tests/")]
    run_tests(home, test)
    record_property("files touched", len(files) - 1)
    record_property("seconds", round(time.perf_counter() - begin, 1))
    assert len(files) == 3


def test_in_a_network(copy):
    home, _ = copy
    assert [block.language for block in SHOWN[:2]] == ["python", ""]
    assert run(home, "-c", SHOWN[0].text) == SHOWN[1].text


def test_in_a_package_of_your_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        run_blocks([(block.language, block.text) for block in SHOWN[2:]])
    finally:  # the page registers a kind and an operator
        KINDS.pop("PowerNode", None)
        TABLE.pop("PowerNode", None)
        unregister("my.power")


def test_entry_points_are_loaded_when_a_name_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "my_nodes.py").write_text(
        "from opscope.cntk.network.nodes import rules\n"
        "from opscope.cntk.network.nodes.kind import register\n"
        "from opscope.cntk.network.nodes.node import Kind\n"
        "register(Kind('MyNode', (1, 1), rules.unary))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("mine", "my_nodes", catalogue.GROUP)
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [point])
    catalogue.load_plugins.cache_clear()
    try:
        assert catalogue.kind("MyNode").inputs == (1, 1)
    finally:
        KINDS.pop("MyNode", None)
        catalogue.load_plugins.cache_clear()
