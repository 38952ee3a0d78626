"""Jobs on a real Slurm of one node, which the tests start; skipped where there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opscope

sys.path.insert(0, str(Path(__file__).parent))
from one_node import missing, one_node_slurm

from job_scripts import InProcess, counted, first_time, runs
from opscope.framework.base.errors import RunError
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.scale.jobs.command import make_runner
from opscope.scale.jobs.pool import JobPool
from opscope.scale.recipe.nnet3_options import RecipeOptions
from opscope.scale.recipe.parallel import ParallelRecipe
from opscope.scale.recipe.parallel_options import ParallelOptions
from reference_folders import DATA

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"no Slurm: {missing()}"),
]
XCONFIG = """input dim=40 name=input
relu-batchnorm-layer name=tdnn1 dim=64 input=Append(-2,-1,0,1,2)
relu-batchnorm-layer name=tdnn2 dim=64 input=Append(-3,0,3)
output-layer name=output dim=10
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The variables of a running Slurm."""
    with one_node_slurm(tmp_path_factory.mktemp("slurm")) as environment:
        old = {name: os.environ.get(name) for name in environment}
        os.environ |= environment
        yield environment
        for name, value in old.items():
            if value is None:
                del os.environ[name]


def test_jobs(slurm, tmp_path):
    """Run once, failed, killed together with their script, and ended by scancel."""
    for name in "abc":
        (tmp_path / name).mkdir()
    jobs = [
        counted(tmp_path, "good", 'echo "on $SLURM_JOB_ID"'),
        counted(tmp_path, "failed", first_time(tmp_path / "a", "exit 3")),
        counted(tmp_path, "lost", first_time(tmp_path / "b", "kill -9 $PPID; sleep 9")),
        counted(tmp_path, "ended", first_time(tmp_path / "c", "scancel $SLURM_JOB_ID; sleep 99")),
    ]
    lines: list[str] = []
    runner = make_runner("slurm.pl --time 0:10:00 --num-threads 1")
    runner.patience = 2.0
    JobPool(str(tmp_path / "jobs"), runner, lines.append).run(jobs)
    assert runs(tmp_path) == ["ended"] * 2 + ["failed"] * 2 + ["good"] + ["lost"] * 2
    assert len(lines) == 3
    JobPool(str(tmp_path / "jobs"), runner, lines.append).run(jobs)
    assert len(runs(tmp_path)) == 7


def test_a_job_that_never_comes_back(slurm, tmp_path):
    runner = make_runner("slurm.pl")
    with pytest.raises(RunError, match=r"slow: job \d+ on Slurm did not come back within 0\.1 min"):
        pool = JobPool(str(tmp_path / "jobs"), runner, print, minutes=0.1)
        pool.run([counted(tmp_path, "slow", "sleep 99")])


def test_options_that_slurm_refuses(slurm, tmp_path):
    with pytest.raises(RunError, match="sbatch failed with status 1: .*invalid partition"):
        pool = JobPool(str(tmp_path / "jobs"), make_runner("slurm.pl -p nowhere"), print)
        pool.run([counted(tmp_path, "j")])


def test_spoken_digits(slurm, tmp_path, monkeypatch):
    """Two to four jobs an iteration; the bits are those of jobs in one process."""
    speech = DATA / "speech"
    if not speech.exists():
        pytest.skip(f"{speech} is missing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(opscope.__file__).resolve().parent.parent))
    digits = dict(line.split() for line in (speech / "train.labels").read_text().splitlines())
    with (
        TableWriter("ark:feats.ark", "matrix") as feats,
        TableWriter("ark:ali.ark", "int_vector") as alis,
    ):
        for number, (key, matrix) in enumerate(read_table(f"ark:{speech}/train.ark", "matrix")):
            if number % 5 == 0:
                feats.write(key, matrix)
                alis.write(key, np.full(len(matrix), int(digits[key]), np.int32))
    Path("net.xconfig").write_text(XCONFIG)
    values = {"feats": "ark:feats.ark", "targets": "ark:ali.ark", "network": "net.xconfig"}
    values |= {"epochs": 3, "initial_lr": 0.002, "final_lr": 0.0005, "valid_utterances": 40}
    names = {"slurm": None, "here": InProcess()}
    for name, runner in names.items():
        parallel = ParallelOptions(cmd="slurm.pl --mem 500M", jobs_initial=2, jobs_final=4)
        made = ParallelRecipe(RecipeOptions(**values, dir=name), parallel, log=print, runner=runner)
        made.run()
        assert [int(jobs) for jobs in made.history["jobs"]] == [2, 3, 3, 4]
        assert made.history["eval_accuracy"][-1] > 0.5
    assert Path("slurm/final.raw").read_bytes() == Path("here/final.raw").read_bytes()


def test_the_script_of_the_documentation(slurm, tmp_path, monkeypatch):
    """docs/scale_out_kaldi.md: its data, its network, and its script as a job of Slurm."""
    monkeypatch.chdir(tmp_path)
    root = Path(opscope.__file__).resolve().parent
    page = (root / "docs" / "scale_out_kaldi.md").read_text()
    monkeypatch.setenv("PYTHONPATH", str(root.parent))
    data = re.search(r"```python\n(.*?)```", page, re.S)[1]
    subprocess.run([sys.executable, "-P", "-c", data], check=True)
    Path("net.xconfig").write_text(re.search(r"```xconfig\n(.*?)```", page, re.S)[1])
    script = re.search(r"```text\n(#!/bin/bash\n.*?)```", page, re.S)[1]
    Path("bin").mkdir()
    Path("bin/opscope").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m opscope "$@"\n')
    Path("bin/opscope").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    Path("train.sh").write_text(script)
    subprocess.run(["sbatch", "--wait", "--output=train.log", "train.sh"], timeout=280)
    assert Path("exp/final.raw").exists(), Path("train.log").read_text()
    assert len(Path("exp/history.csv").read_text().splitlines()) == 3
