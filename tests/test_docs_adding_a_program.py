"""The page on adding a program, followed word by word in a copy of the package."""

from followed_page import ROOT, Copy, blocks

PAGE = ROOT / "docs/adding_a_program.md"
LOADED = """
import sys
from opscope.python_api.cli.main import main
main(["--help"], standalone_mode=False)
print([name for name in sys.modules if name.startswith("opscope.nnet3.programs.")])
"""


def test_page(tmp_path):
    copy = Copy(tmp_path, "proto", "framework", "operators", "nnet3", "python_api")
    new, changed = copy.follow(PAGE)
    (module, test) = new
    assert test.startswith("tests/") and changed == ["nnet3/programs/__init__.py"]
    assert module.startswith("nnet3/programs/"), "two files but for the test"
    assert all(block.path for block in blocks(PAGE))
    copy.test(test)
    listed = copy.run("-c", LOADED)
    assert "nnet3-count-parameters" in listed and "Print how many parameters comp" in listed
    assert listed.endswith("\n[]\n"), "a program is loaded when it is called"
