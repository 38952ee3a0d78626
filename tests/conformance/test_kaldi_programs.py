"""The programs for nnet3 models give what Kaldi's own gave.

What nnet3-info prints is compared with `info.txt`, word by word; numbers may differ by one in the
last of their three digits, since sums of float32 depend on their order. A copy is compared byte by
byte, text made of a binary model, too: there Kaldi multiplies averages by their count, and divides
again.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kaldi_data import FOLDER, need
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.python_api.cli.main import main

MODELS = sorted(FOLDER.glob("random_nets/*/model.raw")) + sorted(FOLDER.glob("trained/*/model.raw"))
NAMES = [f"{path.parent.parent.name}/{path.parent.name}" for path in MODELS]
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]\d+)?")


def program(*args):
    """Runs a program; what it gave on stdout."""
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def assert_same(text, wanted, rtol, atol=0.0):
    """The same words, and numbers as close as that."""
    assert _NUMBER.sub("#", text) == _NUMBER.sub("#", wanted)
    numbers, others = (np.array(_NUMBER.findall(t), float) for t in (text, wanted))
    np.testing.assert_allclose(numbers, others, rtol=rtol, atol=atol)


@pytest.mark.parametrize("path", MODELS, ids=NAMES)
def test_info(path):
    text = program("nnet3-info", path)
    wanted = path.with_name("info.txt").read_text()
    assert_same(text, "".join(wanted.splitlines(True)[: text.count("\n")]), rtol=1.01e-2, atol=2e-8)


@pytest.mark.parametrize("path", MODELS, ids=NAMES)
def test_copy(path, tmp_path):
    keep = ["--batchnorm-test-mode"] if b"<TestMode> T" in path.read_bytes() else []
    program("nnet3-copy", *keep, path, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    text = path.with_suffix(".txt")
    if text.exists():
        for source in (path, text):
            program("nnet3-copy", *keep, "--binary=false", source, tmp_path / "text")
            assert (tmp_path / "text").read_bytes() == text.read_bytes()


@pytest.mark.parametrize("name", ["final.mdl", "final.txt.mdl"])
def test_acoustic_model(name, tmp_path):
    path, text = need("formats", name), need("formats", "final.txt.mdl")
    binary = name == "final.mdl"
    program("nnet3-am-copy", f"--binary={binary}", path, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    program("nnet3-am-copy", "--binary=false", path, tmp_path / "text")
    assert (tmp_path / "text").read_bytes() == text.read_bytes()
    program("nnet3-am-copy", path, tmp_path / "binary")
    assert program("nnet3-am-info", tmp_path / "binary") == program("nnet3-am-info", path)


def test_transition_model(tmp_path):
    """Kaldi's text and binary form hold the same."""
    models = [
        TransitionModel.read_from(Reader(need("formats", name)))
        for name in ("final.mdl", "final.txt.mdl")
    ]
    assert models[0].entries == models[1].entries and models[0].phones == models[1].phones
    assert models[0].entry_of == models[1].entry_of and models[0].is_hmm
    np.testing.assert_array_equal(models[0].tuples, models[1].tuples)
    np.testing.assert_allclose(models[0].log_probs, models[1].log_probs, rtol=1e-6)


def test_all_models_were_compared():
    """Without the reference results all of the above is empty."""
    need("random_nets")
    assert MODELS and all(Path(path).exists() for path in MODELS)
