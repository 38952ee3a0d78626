"""The dead-code check: what counts as a use beside what vulture sees, and what it finds."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("vulture")

SCRIPT = Path(__file__).resolve().parents[1] / "devtools" / "deadcode.py"


@pytest.fixture
def deadcode(tmp_path, monkeypatch):
    """The script, on an empty tree."""
    spec = importlib.util.spec_from_file_location("opscope_deadcode_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PACKAGE", ("framework",))
    for name in ("framework", "examples", "benchmarks", "docs"):
        (tmp_path / name).mkdir()
    for name in ("README.md", "setup.py"):
        (tmp_path / name).write_text("")
    return module


def test_what_nothing_uses_is_found(deadcode):
    source = "def lonely():\n    x = 1\n    return 1\n\n\nclass Never:\n    pass\n"
    (deadcode.ROOT / "framework" / "a.py").write_text(source)
    assert sorted(deadcode.findings()) == [
        "framework/a.py:1: function lonely is not used",
        "framework/a.py:2: variable x is not used",
        "framework/a.py:6: class Never is not used",
    ]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("framework/b.py", "from .a import lonely\nlonely()\n"),
        ("framework/b.py", "TABLE = {'x': 'lonely'}\nprint(TABLE)\n"),
        ("framework/b.py", "print('.a:lonely')\n"),
        ("examples/b.py", "from opscope.framework.a import lonely\nlonely()\n"),
        ("README.md", "Call `lonely()`.\n"),
        ("docs/page.md", "```python\nlonely(1)\n```\n"),
        ("docs/page.md", "::: opscope.framework.a\n"),
        ("docs/page.md", "::: opscope.framework.a.lonely\n"),
    ],
)
def test_uses(deadcode, file, text):
    (deadcode.ROOT / "framework" / "a.py").write_text("def lonely():\n    return 1\n")
    (deadcode.ROOT / file).write_text(text)
    assert deadcode.findings() == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("framework/b.py", "print('a lonely word')\n"),
        ("README.md", "A lonely word.\n"),
        ("examples/b.py", "def lonely():\n    return 2\n"),
    ],
)
def test_no_uses(deadcode, file, text):
    (deadcode.ROOT / "framework" / "a.py").write_text("def lonely():\n    return 1\n")
    (deadcode.ROOT / file).write_text(text)
    assert deadcode.findings() == ["framework/a.py:1: function lonely is not used"]


def test_registered_functions_are_used(deadcode):
    source = "relu = operator()\n\n\n@relu.kernel\ndef relu_kernel(k):\n    return k\n"
    (deadcode.ROOT / "framework" / "a.py").write_text(source)
    assert deadcode.findings() == []


def test_a_file_that_cannot_be_read_is_an_error(deadcode):
    (deadcode.ROOT / "framework" / "a.py").write_text("def (:\n")
    with pytest.raises(SystemExit, match="could not read"):
        deadcode.findings()
