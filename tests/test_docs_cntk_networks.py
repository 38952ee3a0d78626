"""The page on CNTK's networks: its code runs, and prints what it says."""

from opscope.cntk.network.nodes.kind import KINDS, NDL
from test_docs_nnet3 import ROOT, fences, run_blocks


def test_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        run_blocks(fences(ROOT / "docs/cntk_networks.md"))
    finally:  # the page registers a node type
        for table, name in ((KINDS, "ScaleNode"), (NDL, "scalenode"), (NDL, "myscale")):
            table.pop(name, None)
