"""The page on adding a reader: followed word by word in a copy of the package."""

import time

import pytest

from package_copy import ROOT, add_files, blocks, copy_package, run, run_tests
from test_docs_nnet3 import run_blocks

PAGE = ROOT / "docs/adding_a_reader.md"
SHOWN = [block for block in blocks(PAGE) if not block.path]
TABLE = '    {\n        "BinaryReader": ('


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package with the files of the page, and its line in the catalogue."""
    home = tmp_path_factory.mktemp("copy")
    copy_package(home, "proto", "framework", "operators", "cntk")
    files = add_files(home, PAGE)
    catalogue = home / "opscope/cntk/readers/catalogue.py"
    text = catalogue.read_text()
    assert text.count(TABLE) == 1 and SHOWN[0].text.startswith('        "CsvReader"')
    catalogue.write_text(text.replace(TABLE, TABLE.replace("{\n", "{\n" + SHOWN[0].text)))
    return home, files


def test_a_module_a_line_and_a_test(copy, record_property):
    begin = time.perf_counter()
    home, files = copy
    (test,) = [path for path in files if path.startswith("tests/")]
    run_tests(home, test)
    record_property("files touched", len(files))  # the catalogue in place of the test
    record_property("seconds", round(time.perf_counter() - begin, 1))
    assert len(files) == 2


def test_in_a_config(copy):
    home, _ = copy
    assert [block.language for block in SHOWN[1:3]] == ["python", ""]
    assert run(home, "-c", SHOWN[1].text) == SHOWN[2].text


def test_in_a_package_of_your_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks([(block.language, block.text) for block in SHOWN[3:]])
