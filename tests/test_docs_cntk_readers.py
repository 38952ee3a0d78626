"""The page on CNTK's readers: its code runs, prints what it says, and names every reader."""

from opscope.cntk.readers.catalogue import READERS, WRITERS
from test_docs_nnet3 import ROOT, fences, run_blocks

PAGE = ROOT / "docs/cntk_readers.md"


def test_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(fences(PAGE))


def test_every_type_is_named():
    text = PAGE.read_text()
    for name in {*READERS.own, *WRITERS.own} - {"CompositeDataReader"}:
        assert f"| `{name}` |" in text
