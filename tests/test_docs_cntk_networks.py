"""The page on CNTK's networks: its code runs, and prints what it says."""

from test_docs_nnet3 import ROOT, fences, run_blocks


def test_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(fences(ROOT / "docs/cntk_networks.md"))
