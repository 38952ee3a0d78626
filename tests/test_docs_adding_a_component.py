"""The page on adding a component type, followed word by word in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
import time
from importlib.metadata import EntryPoint

import pytest

from opscope.nnet3.components import COMPONENTS, new_component
from opscope.nnet3.components.base import component as component_module
from test_docs_nnet3 import ROOT

PAGE = ROOT / "docs/adding_a_component.md"
PACKAGE = ("proto", "framework", "operators", "nnet3")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A folder to import `opscope` from, with the modules that tests share."""
    home = tmp_path_factory.mktemp("copy")
    leave = shutil.ignore_patterns("__pycache__")
    for layer in PACKAGE:
        shutil.copytree(ROOT / layer, home / "opscope" / layer, ignore=leave)
    shutil.copy(ROOT / "__init__.py", home / "opscope")
    shutil.copy(ROOT / "pyproject.toml", home / "opscope")
    (home / "opscope/tests/nnet3").mkdir(parents=True)
    for path in (ROOT / "tests").glob("*.py"):
        if not path.name.startswith("test_"):
            shutil.copy(path, home / "opscope/tests")
    return home


def run(home, *arguments):
    """What a Python process that imports from `home` prints."""
    environment = os.environ | {"PYTHONPATH": str(home)}
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=home / "opscope",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks():
    """(the file that a block is the whole of, or "", language, text) of the page's blocks."""
    pattern = r"(?:This is the whole of `([^`]+)`:\n\n)?^```(\w*)\n(.*?)^```$"
    return re.findall(pattern, PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_page(copy, record_property):
    begin = time.perf_counter()
    files = [(path, text) for path, _, text in blocks() if path]
    for path, text in files:
        assert not (ROOT / path).exists(), "the page adds files, it changes none"
        (copy / "opscope" / path).write_text(text)
    (test,) = [path for path, _ in files if path.startswith("tests/")]
    printed = run(copy, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", test)
    assert re.search(r"\d+ passed", printed) and "failed" not in printed
    shown = [(language, text) for path, language, text in blocks() if not path]
    assert [language for language, _ in shown] == ["python", "", "toml"]
    assert run(copy, "-c", shown[0][1]) == shown[1][1]
    record_property("files touched", len(files))
    record_property("seconds", round(time.perf_counter() - begin, 1))
    assert len(files) == 2


def test_the_new_module_has_the_types_it_says(copy):
    """The modules of the folder are found: nothing names the new one."""
    (module, text), *_ = [(path, text) for path, _, text in blocks() if path]
    (copy / "opscope" / module).write_text(text)
    code = "from opscope.nnet3 import components; print(*sorted(components.COMPONENTS))"
    found = run(copy, "-c", code).split()
    assert set(found) - set(COMPONENTS) == {"ParametricReluComponent"}


def test_entry_points_are_loaded_when_a_type_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "my_components.py").write_text(
        "from opscope.nnet3.components.base.component import Component\n"
        "class MyOwnComponent(Component):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("mine", "my_components", component_module.PLUGINS)
    monkeypatch.setattr(component_module, "entry_points", lambda group: [point])
    component_module.load_plugins.cache_clear()
    try:
        assert new_component("MyOwnComponent").type == "MyOwnComponent"
    finally:
        COMPONENTS.pop("MyOwnComponent", None)
        component_module.load_plugins.cache_clear()
