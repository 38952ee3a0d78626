"""The tutorial on nnet3 and README's example: their code runs, and prints what they say."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
from click.testing import CliRunner

from kaldi_data import FOLDER
from opscope import nnet3
from opscope.python_api.cli.main import main

ROOT = pathlib.Path(__file__).resolve().parents[1]


def fences(path: pathlib.Path) -> list[tuple[str, str]]:
    """(language, text) of the code blocks of a page."""
    text = path.read_text()
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def run_blocks(blocks: list[tuple[str, str]]) -> None:
    """Runs Python blocks one after the other; a plain block behind one is what it prints."""
    names: dict[str, object] = {}
    for number, (language, code) in enumerate(blocks):
        if language != "python":
            continue
        printed = StringIO()
        with redirect_stdout(printed):
            exec(code, names)
        follows = blocks[number + 1] if number + 1 < len(blocks) else ("python", "")
        if follows[0] == "" and not follows[1].startswith("opscope "):
            assert printed.getvalue() == follows[1]
        else:
            assert "False" not in printed.getvalue(), printed.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tutorial(folder):
    blocks = fences(ROOT / "docs/nnet3.md")
    own = [b for b in blocks if "trained/" not in b[1]]
    trained = (FOLDER / "trained/tdnn/model.raw").exists()
    if trained:
        (folder / "trained").symlink_to(FOLDER / "trained")
    assert len(blocks) - len(own) == 3
    run_blocks(blocks if trained else own)


def test_readme_in_python(folder):
    block = next(b for b in fences(ROOT / "README.md") if "xconfig_to_config" in b[1])
    run_blocks([block])


def test_readme_on_the_command_line(folder):
    """The lines that make a network and features, and compute."""
    block = next(b for b in fences(ROOT / "README.md") if "make_features.py" in b[1])
    for line in block[1].splitlines():
        command, _, target = line.partition("#")[0].partition(">")
        words = command.replace("examples/", f"{ROOT}/examples/").split()
        if words[0] == "python":
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            subprocess.run([sys.executable, *words[1:]], env=env, check=True)
            continue
        result = CliRunner().invoke(main, words[1:])
        assert result.exit_code == 0, result.output
        if target:
            pathlib.Path(target.strip()).write_text(result.stdout)
    scores = dict(nnet3.read_table("ark:out.ark", "matrix"))
    assert sorted(scores) == ["a-i", "i-u", "u-a"]
    for matrix in scores.values():
        assert matrix.shape[1] == 10 and len(matrix) > 40
        np.testing.assert_allclose(np.exp(matrix).sum(axis=1), 1, atol=1e-4)
        assert matrix.std() > 0.01


def test_program_pages_hook():
    """The pages that are filled while the site is built."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import operators_page
    finally:
        sys.path.pop(0)

    class Page:
        class file:
            src_uri = "reference/nnet3_programs.md"

    text = operators_page.on_page_markdown("# x", Page)
    assert "## nnet3-compute\n" in text and "--frames-per-chunk" in text
    assert "## nnet3-compile\n" in text and "--kaldi" in text
