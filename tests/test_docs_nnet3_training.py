"""The page on nnet3 training: its commands and its code run, in the order of the page."""

from __future__ import annotations

import pathlib
import shlex
import shutil

import numpy as np
from click.testing import CliRunner

from opscope.nnet3.files.posterior import Posterior
from opscope.nnet3.tables.tables import TableWriter
from opscope.nnet3.xconfig import xconfig_to_config
from opscope.python_api.cli.main import main
from test_docs_nnet3 import ROOT, fences, run_blocks

XCONFIG = """input dim=40 name=input
relu-batchnorm-layer name=tdnn1 dim=16 input=Append(-6,0,7)
output-layer name=output dim=10
"""


def write_data():
    rng = np.random.default_rng(0)
    with (
        TableWriter("ark:feats.ark", "matrix") as feats,
        TableWriter("ark:ali.ark", "int_vector") as alis,
        TableWriter("ark:post.ark", "posterior") as posts,
    ):
        for number in range(12):
            labels = rng.integers(0, 10, 40)
            features = np.eye(10, 40)[labels] + 0.5 * rng.normal(size=(40, 40))
            feats.write(f"u{number}", features.astype(np.float32))
            alis.write(f"u{number}", labels)
            posts.write(f"u{number}", Posterior.from_frames([[(k, 1.0)] for k in labels]))
    pathlib.Path("net.xconfig").write_text(XCONFIG)
    pathlib.Path("net.config").write_text(xconfig_to_config(XCONFIG))


def run(text):
    for line in text.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "opscope"
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.stderr or result.exception


def test_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data()
    blocks = fences(ROOT / "docs/nnet3_training.md")
    recipe, programs = (text for _, text in blocks if text.startswith("opscope "))
    run(recipe)
    assert pathlib.Path("exp/final.raw").exists()
    before, use = programs.split("opscope nnet3-compute-prob", 1)
    run(before)
    shutil.copy("merged.ark", "valid.ark")
    for name in ("2.raw", "3.raw"):
        shutil.copy("1.raw", name)
    run("opscope nnet3-compute-prob" + use)
    run_blocks([block for block in blocks if block[0] == "python"])
