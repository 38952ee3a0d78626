"""Component types of other packages: the sample in examples/, and what may be wrong with one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.nnet3.components import COMPONENTS, new_component
from opscope.nnet3.components.base import component as component_module
from package_copy import ROOT

SAMPLE = ROOT / "examples/nnet3_component"


def script(folder: Path, *arguments: object, path: str = "") -> str:
    """What Python prints, in a process of its own: a plug-in changes the tables of all tests."""
    found = os.pathsep.join([path, str(ROOT.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-P", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": found},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_sample_does_what_its_readme_says(tmp_path: Path) -> None:
    """Its own tests are among that: gradients in float64, files in both forms, training."""
    shutil.copytree(SAMPLE, tmp_path / SAMPLE.relative_to(ROOT))
    script(tmp_path, ROOT / "tests/doc_blocks.py", SAMPLE / "README.md")
    assert " passed" in (tmp_path / "tests.txt").read_text()
    assert "<SwishComponent>" in (tmp_path / "net.txt").read_text()
    assert (
        "component name=swish type=SwishComponent, input-dim=6"
        in (tmp_path / "info.txt").read_text()
    )


def test_the_page_shows_how_the_sample_is_installed() -> None:
    page = (ROOT / "docs/adding_a_component.md").read_text()
    assert f"```toml\n{(SAMPLE / 'pyproject.toml').read_text()}```" in page


INSTALLED = """[opscope.components]
swish = swish_component
[opscope.operators]
swish = swish_component
"""
COMPONENT_TEST = """
import numpy as np
from component_test import ComponentTest

class TestSwishComponent(ComponentTest):
    type = "SwishComponent"
    line = "dim=3 initial-beta=1.5 learning-rate=0.5"
    refused = {"": "wants dim=", "dim=0": "dim must be positive"}

    def reference(self, component, x):
        return x / (1 + np.exp(-component.betas * x))
"""


def test_the_sample_passes_the_harness_of_components(tmp_path: Path) -> None:
    """Files, config lines, gradients in float64, and what the properties admit."""
    info = tmp_path / "site/swish_component-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: swish-component\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(INSTALLED)
    (tmp_path / "test_swish.py").write_text(COMPONENT_TEST)
    path = os.pathsep.join(map(str, (info.parent, SAMPLE, ROOT / "tests")))
    options = "-q", "-p", "no:cacheprovider"
    told = script(tmp_path, "-m", "pytest", *options, "test_swish.py", path=path)
    assert "7 passed" in told
    listed = script(tmp_path, "-m", "opscope", "nnet3", "components", path=path)
    assert "swish_component\n  SwishComponent " in listed


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module `my_components` that an entry point names."""
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("mine", "my_components", component_module.PLUGINS)
    monkeypatch.setattr(component_module, "entry_points", lambda group: [point])
    component_module.load_plugins.cache_clear()
    known = dict(COMPONENTS)
    yield tmp_path / "my_components.py"
    COMPONENTS.clear()
    COMPONENTS.update(known)
    sys.modules.pop("my_components", None)
    component_module.load_plugins.cache_clear()


HEAD = "from opscope.nnet3.components.base.component import Component\n"


def test_entry_points_are_loaded_when_a_type_is_unknown(plugin: Path) -> None:
    plugin.write_text(f"{HEAD}class MyOwnComponent(Component):\n    pass\n")
    assert new_component("MyOwnComponent").type == "MyOwnComponent"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "'mine' of the group opscope.components cannot be loaded: my_components: Module"),
        ("1 / 0", "'mine' .* cannot be loaded: my_components: ZeroDivisionError: division by zero"),
        (
            f"{HEAD}class TanhComponent(Component):\n    pass\n",
            "my_components defines the component type TanhComponent, which belongs to opscope.nnet3"
            ".components.nonlinear",
        ),
    ],
    ids=["no module", "fails", "takes a name"],
)
def test_faults_of_a_plug_in_name_it(text: str | None, told: str, plugin: Path) -> None:
    if text is not None:
        plugin.write_text(text)
    tanh = COMPONENTS["TanhComponent"]
    for _ in range(2):  # a second look-up tells the same
        with pytest.raises(OpscopeError, match=told):
            new_component("MyOwnComponent")
    assert COMPONENTS["TanhComponent"] is tanh
