"""The page on running CNTK's networks: its code runs, and prints what it says."""

from test_docs_nnet3 import ROOT, fences, run_blocks


def test_page():
    run_blocks(fences(ROOT / "docs/cntk_runtime.md"))
