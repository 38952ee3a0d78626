"""The prose linter: the turns it refuses, and the texts it reads."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def prose(monkeypatch):
    """The linter; devtools is no part of the package."""
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("devtools.prose")


def found(prose, root, file, text):
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return [(one.line, one.turn) for one in prose.findings(root)]


@pytest.mark.parametrize(
    ("sentence", "turn"),
    [
        ("Words hang on chance.", "hang on"),
        ("A member that nobody reads.", "nobody"),
        ("Rows are taken, too.", ", too"),
        ("Losses too.", "too"),
        ("Sizes are those\nof the table.", "those of"),
        ("Too many rows; the two are told apart.", None),
        ("`Rows are taken, too.`", None),
        ("See [the page](that%20of.md).", None),
    ],
)
def test_turns(prose, tmp_path, sentence, turn):
    expected = [] if turn is None else [(3, turn)]
    assert found(prose, tmp_path, "docs/page.md", f"# Page\n\n{sentence}\n") == expected


BLOCK = "Text.\n\n```python\n# Rows, too.\n```\n\nRows, too.\n"
CHANGES = "## [Unreleased]\n\n- Rows, too.\n\n## [0.1.0]\n\n- Rows, too.\n"
MODULE = '''"""Text."""


def public(x):
    """Rows.

    Rows, too.
    """
    if x:
        raise ValueError(f"{x}: rows, too")
    return ", too"


def _private():
    """Rows, too."""
'''


@pytest.mark.parametrize(
    ("file", "text", "lines"),
    [
        ("README.md", BLOCK, [7]),
        ("docs/reference/page.md", BLOCK, [7]),
        ("CHANGELOG.md", CHANGES, [3]),
        ("framework/module.py", MODULE, [10]),
        ("operators/module.py", MODULE, [7, 10]),
        ("docs/made.py", MODULE, [7, 10, 11, 15]),
        ("tests/module.py", MODULE, []),
    ],
)
def test_texts(prose, tmp_path, file, text, lines):
    assert found(prose, tmp_path, file, text) == [(line, ", too") for line in lines]


COMMENTED = """'''Rows.'''

# Rows are those
# of the table, too.
x = 1  # that of y


def _f():
    '''Tells what it is.'''
    return g("that of a row"), "that of"
"""


def test_comments_and_internal_texts(prose, tmp_path):
    turns = [(3, "those of"), (5, "that of"), (9, "Tells what"), (10, "that of")]
    assert found(prose, tmp_path, "kaldi/module.py", COMMENTED) == turns
    (tmp_path / "kaldi" / "module.py").unlink()
    assert found(prose, tmp_path, "kaldi/fst/module.py", COMMENTED) == []


@pytest.mark.parametrize("name", ["module", "module.public"])
def test_docstrings_that_the_reference_shows(prose, tmp_path, name):
    reference = tmp_path / "docs" / "reference" / "page.md"
    reference.parent.mkdir(parents=True)
    reference.write_text(f"# Page\n\n::: opscope.framework.{name}\n")
    places = found(prose, tmp_path, "framework/module.py", MODULE)
    assert places == [(7, ", too"), (10, ", too")]


def test_a_finding_says_what_to_write(prose, tmp_path):
    (tmp_path / "README.md").write_text("Rows, too.\n")
    (one,) = prose.findings(tmp_path)
    assert str(one) == "README.md:1: ', too'; write: also, before the verb"
