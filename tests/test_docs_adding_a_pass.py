"""The page on adding an optimisation pass, followed word by word in a copy of the package."""

from followed_page import ROOT, Copy, blocks

PAGE = ROOT / "docs/adding_an_optimisation_pass.md"


def test_page(tmp_path):
    copy = Copy(tmp_path, "proto", "framework", "operators", "nnet3")
    new, changed = copy.follow(PAGE)
    (module, test) = new
    assert test.startswith("tests/") and changed == ["nnet3/optimize/passes.py"]
    assert module.startswith("nnet3/optimize/"), "two files but for the test"
    copy.test(test)
    shown = [block for block in blocks(PAGE) if not block.path]
    assert [block.language for block in shown] == ["python", ""]
    assert copy.run("-c", shown[0].text) == shown[1].text
