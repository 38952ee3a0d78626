"""The page on a node type of one's own: its code runs, and prints what it says."""

from importlib.metadata import EntryPoint

from opscope.cntk.lower.table import TABLE
from opscope.cntk.network import catalogue
from opscope.cntk.network.nodes.kind import KINDS, NDL
from opscope.framework.ir.registry import unregister
from test_docs_nnet3 import ROOT, fences, run_blocks


def test_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        run_blocks(fences(ROOT / "docs/cntk_own_node.md"))
    finally:  # the page registers a node type
        for table, name in ((KINDS, "ScaleNode"), (NDL, "scalenode"), (NDL, "myscale")):
            table.pop(name, None)
        TABLE.pop("ScaleNode", None)
        unregister("my.scale")


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
