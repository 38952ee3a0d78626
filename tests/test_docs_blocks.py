"""Every code block of every page of the documentation runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import doc_blocks
from doc_blocks import INSTEAD, Block, Page, PageError, agrees, blocks, commands, missing_names
from doc_pages import GIVEN, IN_A_COPY, PAGES, run_page
from package_copy import ROOT, copy_package


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


MORE = [page for page in PAGES if any(block.wanted for block in blocks(page))]
"""Pages with blocks that need more than `pip install .` brings."""


@pytest.mark.parametrize("page", [page for page in PAGES if page not in MORE], ids=_name)
def test_page_without_extras(page: Path, tmp_path: Path) -> None:
    """`build.py pages` runs the same blocks; .ci/run leaves these out, as that has run before."""
    run_page(page, tmp_path, ROOT.parent)


@pytest.mark.parametrize("page", MORE, ids=_name)
def test_page_with_extras(page: Path, tmp_path: Path) -> None:
    name = _name(page)
    if name in IN_A_COPY:
        files = {block.path for block in blocks(page) if block.path}
        assert len(files) == IN_A_COPY[name]
        assert sum(path.startswith("tests/") for path in files) == 1
    run_page(page, tmp_path, ROOT.parent)


def test_the_plugin_is_that_of_the_page() -> None:
    *files, script = (b for b in blocks(ROOT / "docs/adding_an_operator.md") if b.path)
    assert len(files) == 3
    assert script.path == "round_trip.py"
    for block in files:
        assert (ROOT / "examples/plugin_operator" / block.path).read_text() == block.text


def test_an_operator_of_opscope_itself(tmp_path: Path) -> None:
    """The same two files inside of the package; of the others only the stub is written anew."""
    copy = copy_package(tmp_path)
    module, test, *_ = (b for b in blocks(ROOT / "docs/adding_an_operator.md") if b.path)
    text = module.text.replace("from opscope.framework", "from ...framework")
    text = text.replace("from opscope.operators.base", "from ..base")
    (copy / "operators/math/swish.py").write_text(text)
    (copy / "tests/operators/math").mkdir(parents=True)
    (copy / "tests/operators/math/test_swish.py").write_text(test.text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    for arguments in (INSTEAD["build.py stubs"], ("-m", "pytest", "-q", "tests/operators")):
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    stub = (copy / "python_api/builder/methods.pyi").read_text()
    method = "\n        ".join(
        ["    def swish(", "self,", "x: Var | str,", "*,", "beta: float = 1.0,"]
    )
    assert method in stub


def test_no_block_is_passed_over() -> None:
    """Every fence opens or closes a block that is found, and no code is indented instead."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(blocks(page)), page
        prose = re.sub(r"^( *)```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
        assert not re.findall(r"^\n {4,}[^\s*\-]", prose, re.MULTILINE), page


def test_each_block_of_the_readme_imports_and_makes_what_it_uses() -> None:
    """Somebody copies one block, not all those before it."""
    for block in blocks(ROOT / "README.md"):
        if block.language == "python":
            missing = missing_names(block.text)
            assert not missing, f"README.md:{block.line}: {sorted(missing)}"


def test_what_stands_in_a_table_is_a_page() -> None:
    assert {*GIVEN, *IN_A_COPY} <= set(map(_name, PAGES))
    assert {*IN_A_COPY} <= set(map(_name, MORE)), "their tests need pytest"


# -- the runner itself -----------------------------------------------------------------------------


def fences(*parts: str) -> str:
    """A page of blocks: "LANGUAGE\\nTEXT" each."""
    return "\n\n".join(f"```{part.rstrip()}\n```" for part in parts) + "\n"


def page_of(folder: Path, *parts: str) -> Page:
    path = folder / "page.md"
    path.write_text(fences(*parts))
    return Page(path)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_python_and_its_output(tmp_path: Path) -> None:
    page_of(tmp_path, "python\nx = 1", "text\nno code", "python\nprint(x, 0.25)", "\n1 0...").run()
    with pytest.raises(PageError, match=r"page.md:5: it prints\n1"):
        page_of(tmp_path, "python\nprint(1)", "\n2").run()


def test_a_block_that_needs_no_names_of_others_runs_alone(tmp_path: Path) -> None:
    parts = ("python\nclass int:\n    pass", "python\nx = int('7')", "python\nprint(x, int)")
    page_of(tmp_path, *parts, "\n7 <class '__main__.int'>").run()


def test_output_is_shown_and_belongs_to_a_program(tmp_path: Path) -> None:
    with pytest.raises(PageError, match="prints what is not shown"):
        page_of(tmp_path, "python\nprint(1)", "python\nprint(2)", "\n2").run()
    with pytest.raises(PageError, match="stands behind one that prints"):
        page_of(tmp_path, "\n2").run()


def test_errors_that_are_shown(tmp_path: Path) -> None:
    page_of(tmp_path, "python\nint('a')", "\nValueError: invalid literal ...").run()
    with pytest.raises(ValueError, match="invalid literal"):
        page_of(tmp_path, "python\nint('a')").run()
    with pytest.raises(PageError, match="it prints"):
        page_of(tmp_path, "python\nint('a')", "\nValueError: no number").run()


def test_commands(tmp_path: Path) -> None:
    words = "sh\npython -c 'print(1)' > a.txt   # one\npython \\\n  -c 'print(2)'"
    page_of(tmp_path, words, "\n2", "sh\nopscope version > v.txt").run()
    assert (tmp_path / "a.txt").read_text().strip() == "1"
    assert (tmp_path / "v.txt").read_text().startswith("opscope")
    with pytest.raises(PageError, match="opscope show nothing.pb"):
        page_of(tmp_path, "sh\nopscope show nothing.pb").run()
    with pytest.raises(PageError, match="ls is none of python"):
        page_of(tmp_path, "sh\nls").run()
    assert list(commands("a # b\n\n# c\nd#e \\\n f\n")) == ["a", "d#e   f"]


def test_other_languages(tmp_path: Path) -> None:
    page_of(tmp_path, "toml\na = 1", "ndl\nx = Input(2)", "json\n[]").run()
    page_of(
        tmp_path,
        "xconfig\ninput name=input dim=2\noutput-layer name=output dim=2",
        "brainscript\nx = 1",
        "mel\nX = Tanh(Y)",
        "cntk\na = [ b = 1 ]",
        "nnet3\ninput-node name=i dim=2\noutput-node name=o input=i",
    ).run()
    with pytest.raises(PageError, match=r"page.md:1: TOMLDecodeError"):
        page_of(tmp_path, "toml\na = ").run()
    with pytest.raises(PageError, match="the language 'c' is none"):
        page_of(tmp_path, "c\nint a;").run()


def test_files(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "This is the whole of `a/b.txt`:\n\n```text\none\nthree\n```\n\n"
        "These lines go before `three` in `a/b.txt`:\n\n```text\ntwo\n```\n"
    )
    page = Page(tmp_path / "page.md")
    assert blocks(page.path)[1] == Block(10, "text", "two\n", "a/b.txt", "three")
    page.run()
    assert (tmp_path / "a/b.txt").read_text() == "one\ntwo\nthree\n"
    with pytest.raises(PageError, match="is there already"):
        page.run()


def test_a_block_that_wants_what_is_not_installed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = {"numpy"}
    monkeypatch.setattr(
        doc_blocks.importlib.metadata, "distributions", lambda name: [name] * (name in installed)
    )
    (tmp_path / "page.md").write_text(
        "It needs `pip install 'opscope[plot]'`:\n\n"
        "```python\nint('plot')\n```\n\n```\nshown\n```\n\n"
        "More.\n\n```python\nprint(1)\n```\n\n```\n1\n```\n\n"
        "All that follows needs `pip install torch`. More.\n\nMore.\n\n```python\n2 / 0\n```\n"
    )
    found = blocks(tmp_path / "page.md")
    assert [block.wanted for block in found if block.language] == [
        ("opscope[plot]",),
        (),
        ("torch",),
    ]
    Page(tmp_path / "page.md").run()
    installed.add("torch")
    with pytest.raises(ZeroDivisionError):
        Page(tmp_path / "page.md").run()
    installed.add("matplotlib")
    with pytest.raises(ValueError, match="plot"):
        Page(tmp_path / "page.md").run()


def test_what_stands_for_anything() -> None:
    assert agrees("a ... c\n...\nend\n", "a b c\n1\n2\nend\n")
    assert agrees("...\nend", "end\n")
    assert not agrees("a\nend", "a\nb\nend\n")
    assert not agrees("a ... c", "a b\nc\n")
