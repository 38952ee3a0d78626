"""The page on CNTK's readers: its code runs, prints what it says, and names every reader."""

from opscope.cntk.readers.base.reader import _OWN as READERS
from opscope.cntk.readers.base.writer import _OWN as WRITERS
from test_docs_nnet3 import ROOT, fences, run_blocks

PAGE = ROOT / "docs/cntk_readers.md"


def test_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(fences(PAGE))


def test_every_type_is_named():
    text = PAGE.read_text()
    for name in {*READERS, *WRITERS} - {"CompositeDataReader"}:
        assert f"| `{name}` |" in text
