"""The examples of docs/cntk_configs.md run and print what the page says."""

from test_docs_nnet3 import ROOT, fences, run_blocks


def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(fences(ROOT / "docs/cntk_configs.md"))
