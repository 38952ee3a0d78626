"""`opscope nnet3 train` by jobs: equal to Kaldi's programs in a pipeline, cut off, resumed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from job_scripts import InProcess
from opscope.framework.base.errors import AttributeTypeError, FormatError, RunError, SaveError
from opscope.framework.training.folder_lock import folder_lock
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.cli.main import main
from opscope.scale.jobs.local import LocalRunner
from opscope.scale.recipe.nnet3_options import RecipeOptions
from opscope.scale.recipe.parallel import ParallelRecipe
from opscope.scale.recipe.parallel_options import ParallelOptions
from opscope.scale.recipe.train_job import TrainJob, read_job, write_job
from reference_folders import KALDI

pytestmark = pytest.mark.skipif(os.name != "posix", reason="jobs are shell scripts")
XCONFIG = """input dim=4 name=input
relu-batchnorm-dropout-layer name=tdnn1 input=Append(-1,0,1) dim=8 dropout-proportion=0.1
output-layer name=output dim=3
"""
DATA = {
    "feats": "ark:feats.ark",
    "targets": "ark:ali.ark",
    "network": "net.xconfig",
    "dir": "exp",
    "epochs": 2,
    "minibatch": "8,1:4",
    "valid_utterances": 4,
    "initial_lr": 0.02,
    "final_lr": 0.01,
    "dropout_schedule": "0,0.3,0",
}
JOBS = {"jobs_initial": 1, "jobs_final": 2}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with features, class ids and an xconfig."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(opscope.__file__).resolve().parent.parent))
    monkeypatch.setenv("OPSCOPE_THREADS", "1")
    rng = np.random.default_rng(0)
    with (
        TableWriter("ark:feats.ark", "matrix") as feats,
        TableWriter("ark:ali.ark", "int_vector") as alis,
    ):
        for number in range(12):
            labels = rng.integers(0, 3, 30)
            features = 2 * np.eye(3, 4)[labels] + rng.normal(size=(30, 4))
            feats.write(f"u{number:02}", features.astype(np.float32))
            alis.write(f"u{number:02}", labels)
    Path("net.xconfig").write_text(XCONFIG)
    return tmp_path


def recipe(runner=None, jobs=None, lines=None, **changes):
    log = (lines if lines is not None else []).append
    options = RecipeOptions(**DATA | changes)
    return ParallelRecipe(options, ParallelOptions(**jobs or JOBS), "no", log, runner)


def arguments(**changes):
    values = DATA | JOBS | changes
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def program(*words):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output


def test_a_whole_training(data):
    result = CliRunner().invoke(main, ["nnet3", "train", *arguments(cmd="run.pl --max-jobs-run 2")])
    assert result.exit_code == 0, result.output
    assert "Iter: 1/1   Jobs: 2   Epoch: 0.50/2.0 (25.0% complete)" in result.stderr
    rows = Path("exp/history.csv").read_text().splitlines()
    assert rows[0] == (
        "epoch,iteration,jobs,kept,learning_rate,loss,accuracy,eval_loss,eval_accuracy,seconds"
    )
    assert len(rows) == 3
    log = Path("exp/log/train.1.2.log").read_text()
    assert "LOG (nnet3-train[" in log and "Overall average objective function for 'output'" in log
    assert sorted(os.listdir("exp")) == sorted(
        "0.raw 2.raw egs final.raw history.csv iterations.json log run.lock settings.json".split()
    )
    here = recipe(InProcess(), dir="here").run()
    np.testing.assert_array_equal(Nnet.read("exp/final.raw").vectorize(), here.vectorize())


@pytest.mark.parametrize("frame", [-1, 2])
def test_a_job_equals_the_pipeline_of_programs(data, frame):
    """nnet3-copy, nnet3-copy-egs, nnet3-shuffle-egs, nnet3-merge-egs and nnet3-train."""
    recipe(InProcess(), epochs=1, jobs={"cmd": "local", "samples_per_iter": 20}).run()
    edits = "set-dropout-proportion name=* proportion=0.25"
    options = {"momentum": 0.25, "max_param_change": 1.5, "l2_regularize_factor": 0.5}
    job = TrainJob(
        *("exp/0.raw", "job.raw", "result", "exp/egs/egs.2.ark", frame, 0, 0.0123, 0.97, edits),
        *("8,1:4", 10, 7, {"print_interval": 10, **options}),
    )
    write_job("written", job)
    read_job("written").run(lambda line: None)
    program(
        *("nnet3-copy", "--learning-rate=0.0123", "--scale=0.97", "exp/0.raw", "a.raw"),
    )
    program("nnet3-copy", f"--edits={edits}", "a.raw", "b.raw")
    chosen = [] if frame < 0 else [f"--frame={frame}"]
    program("nnet3-copy-egs", *chosen, "ark:exp/egs/egs.2.ark", "ark:a.ark")
    program("nnet3-shuffle-egs", "--buffer-size=10", "--srand=7", "ark:a.ark", "ark:b.ark")
    program("nnet3-merge-egs", "--minibatch-size=8,1:4", "ark:b.ark", "ark:c.ark")
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    program(
        "nnet3-train", *given, "--print-interval=10", "--srand=7", "b.raw", "ark:c.ark", "p.raw"
    )
    assert Path("p.raw").read_bytes() == Path("job.raw").read_bytes()
    assert Path("p.raw").read_bytes() != Path("b.raw").read_bytes()


def test_examples_that_are_given(data):
    """In the layout of Kaldi's get_egs.sh; the archives are taken as they are."""
    recipe(InProcess(), dir="first").run()
    (data / "given" / "info").mkdir(parents=True)
    names = {"diagnostic": "train_diagnostic.egs", "valid": "valid_diagnostic.egs"}
    for name, given in names.items():
        os.rename(f"first/egs/{name}.ark", f"given/{given}")
    shutil.copy("given/valid_diagnostic.egs", "given/combine.egs")
    for number in (1, 2):
        os.rename(f"first/egs/egs.{number}.ark", f"given/egs.{number}.ark")
    Path("given/info/num_archives").write_text("2\n")
    Path("given/info/frames_per_eg").write_text("8,4\n")
    jobs = JOBS | {"egs_dir": "given"}
    made = recipe(InProcess(), jobs=jobs, feats="", targets="")
    made.run()
    rows = [Path(name, "history.csv").read_text().splitlines() for name in ("first", "exp")]
    cut = [[row.rsplit(",", 1)[0] for row in each] for each in rows]
    assert cut[0] == cut[1]
    os.remove("given/egs.2.ark")
    with pytest.raises(FormatError, match=r"egs\.2\.ark: No such file or directory, though"):
        recipe(InProcess(), jobs=jobs, feats="", targets="", dir="other").run()


CHAIN_XCONFIG = """input dim=40 name=input
relu-batchnorm-layer name=tdnn1 dim=8 input=Append(-2,0,2)
output-layer name=output include-log-softmax=false dim=20
output-layer name=output-xent input=tdnn1 dim=20
"""


@pytest.fixture
def chain(data):
    """Chain examples in the layout of Kaldi's get_egs.sh, made of reference data."""
    folder = KALDI / "chain"
    if not folder.exists():
        pytest.skip(f"{folder} is missing")
    egs = data / "cegs"
    (egs / "info").mkdir(parents=True)
    for name in ("cegs.1.ark", "cegs.2.ark", "combine.cegs", "valid_diagnostic.cegs"):
        (egs / name).write_bytes((folder / "egs.two.ark").read_bytes())
    (egs / "info" / "num_archives").write_text("2\n")
    (egs / "info" / "frames_per_eg").write_text("60\n")
    (data / "chain.xconfig").write_text(CHAIN_XCONFIG)
    return folder / "den.fst"


def chain_recipe(den_fst, runner):
    jobs = {"jobs_initial": 1, "jobs_final": 2, "egs_dir": "cegs", "den_fst": str(den_fst)}
    jobs |= {"xent_regularize": 0.1, "leaky_hmm_coefficient": 0.1, "deriv_truncate_margin": 4}
    changes = {"feats": "", "targets": "", "network": "chain.xconfig", "epochs": 1}
    changes |= {"minibatch": "2,1", "dropout_schedule": "", "frame_subsampling_factor": 3}
    return recipe(runner, jobs=jobs, backstitch_training_scale=0.3, **changes)


def test_lf_mmi_by_jobs(chain, monkeypatch):
    """A job equals Kaldi's pipeline of programs for chain examples; frame shifts take turns."""
    told: list[TrainJob] = []
    kept: dict[str, bytes] = {}
    run = TrainJob.run

    def noting(self, log):
        told.append(self)
        run(self, log)
        kept[self.output] = Path(self.output).read_bytes()
        kept[self.model] = Path(self.model).read_bytes()

    monkeypatch.setattr(TrainJob, "run", noting)
    made = chain_recipe(chain, InProcess())
    made.run()
    assert [job.shift for job in told] == [1, 2, 2, 0, 0, 1][: len(told)] and len(told) == 6
    assert [job.trainer["backstitch_training_scale"] for job in told[:2]] == [0.0, 0.3 / 15]
    assert made.history["eval_loss"][-1] < made.history["eval_loss"][0]
    job = told[2]
    Path("model.raw").write_bytes(kept[job.model])
    program("nnet3-copy", f"--learning-rate={job.learning_rate!r}", "model.raw", "a.raw")
    program("nnet3-chain-copy-egs", f"--frame-shift={job.shift}", f"ark:{job.archive}", "ark:a.ark")
    buffer = f"--buffer-size={job.buffer}"
    program("nnet3-chain-shuffle-egs", buffer, f"--srand={job.seed}", "ark:a.ark", "ark:b.ark")
    program("nnet3-chain-merge-egs", "--minibatch-size=2,1", "ark:b.ark", "ark:c.ark")
    options = [f"--{name.replace('_', '-')}={value!r}" for name, value in job.trainer.items()]
    options += ["--xent-regularize=0.1", "--leaky-hmm-coefficient=0.1", f"--srand={job.seed}"]
    options += [f"--optimization.{k.replace('_', '-')}={v}" for k, v in job.passes.items()]
    program("nnet3-chain-train", *options, "a.raw", chain, "ark:c.ark", "p.raw")
    assert Path("p.raw").read_bytes() == kept[job.output]


def test_models_are_averaged_as_nnet3_average_does(data, monkeypatch):
    kept: dict[str, bytes] = {}
    write = Nnet.write

    def keeping(self, path, binary=True):
        write(self, path, binary)
        kept[os.path.basename(path)] = Path(path).read_bytes()

    monkeypatch.setattr(Nnet, "write", keeping)
    recipe(InProcess(), jobs={"jobs_initial": 3, "jobs_final": 3}).run()
    for name in ("2.1", "2.2", "2.3"):
        Path(f"{name}.raw").write_bytes(kept[f"{name}.raw"])
    program("nnet3-average", "2.1.raw", "2.2.raw", "2.3.raw", "mean.raw")
    assert Path("mean.raw").read_bytes() == kept["2.raw"]
    assert kept["1.raw"] in [kept[f"1.{job}.raw"] for job in (1, 2, 3)]  # the best one's


def test_what_jobs_are_told(data, monkeypatch):
    """Rates by jobs, l2 by jobs, the first iteration's rules, shrinkage, frames and archives."""
    jobs = {"jobs_initial": 2, "jobs_final": 3, "single_frames": True, "proportional_shrink": 2.0}
    told: list[TrainJob] = []
    run = TrainJob.run

    def noting(self, log):
        told.append(self)
        run(self, log)

    monkeypatch.setattr(TrainJob, "run", noting)
    changes = {"num_frames": "2", "backstitch_training_scale": 0.2, "seed": 5}
    recipe(InProcess(), jobs=jobs, **changes).run()
    # 2 epochs of 3 archives and 2 frames: 12, so 4 iterations
    assert [job.model[-5:] for job in told] == ["0.raw"] * 2 + ["1.raw"] * 2 + ["2.raw"] * 3 + [
        "3.raw"
    ] * 3
    rates = [2 * 0.02, 2 * 0.02 * 0.5 ** (2 / 12), 3 * 0.02 * 0.5 ** (4 / 12), 3 * 0.01]
    firsts = [told[place] for place in (0, 2, 4, 7)]
    assert [job.learning_rate for job in firsts] == pytest.approx(rates, rel=1e-12)
    assert [job.scale for job in firsts] == pytest.approx([1 - 2 * rate for rate in rates])
    assert [job.trainer["l2_regularize_factor"] for job in firsts] == [1 / 2, 1 / 2, 1 / 3, 1 / 3]
    assert [job.trainer["max_param_change"] for job in firsts] == [2 / 2**0.5, 2, 2, 2]
    assert [job.minibatch for job in firsts] == ["4,1:2", "8,1:4", "8,1:4", "8,1:4"]
    assert [job.seed for job in firsts] == [5, 6, 7, 8]
    assert [job.archive[-5] for job in told] == list("1231231231")
    assert [job.frame for job in told] == [1, 0] * 5
    assert firsts[2].edits == f"set-dropout-proportion name=* proportion={0.3 * 4 / 6}"
    assert (firsts[1].read_cache[-7:], firsts[1].write_cache[-7:]) == ("cache.1", "cache.2")
    assert told[3].write_cache == ""


def test_models_that_fell_behind_are_left_out(data, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(
        ParallelRecipe, "_objective", lambda self, path: -9.0 if ".1.1." in path else -1.0
    )
    recipe(InProcess(), lines=lines, jobs={"jobs_initial": 2, "jobs_final": 2}).run()
    assert "Only 1/2 of the models are averaged: jobs [2]" in lines
    assert [row.split(",")[3] for row in Path("exp/history.csv").read_text().splitlines()][1:] == [
        "1",
        "1",
    ]


def test_archives_hold_all_examples_once(data):
    recipe(InProcess(), epochs=1, jobs={"cmd": "local", "samples_per_iter": 10}).run()
    count = int(Path("exp/egs/num_archives").read_text())
    keys = [
        key
        for number in range(1, count + 1)
        for key, _ in read_table(f"ark:exp/egs/egs.{number}.ark", "example")
    ]
    assert count == 4 and sorted(keys) == sorted(f"eg-{n}" for n in range(len(keys)))
    assert len(keys) == len(Path("exp/egs/train.scp").read_text().splitlines())


def test_a_training_that_was_cut_off_goes_on(data, monkeypatch):
    """At every job and between jobs; no finished job runs again."""
    whole = InProcess()
    wanted = recipe(whole, dir="whole").run()
    ran: list[str] = []

    class Breaking(InProcess):
        def submit(self, script):
            if len(self.ran) == 2:
                raise KeyboardInterrupt
            return super().submit(script)

    for _ in range(9):
        runner = Breaking()
        try:
            resumed = recipe(runner, dir="parts").run()
            break
        except KeyboardInterrupt:
            pass
        finally:
            ran += runner.ran
    np.testing.assert_array_equal(resumed.vectorize(), wanted.vectorize())
    assert ran == whole.ran and len(ran) == len(set(ran))
    columns = [
        [row.rsplit(",", 1)[0] for row in Path(name, "history.csv").read_text().splitlines()]
        for name in ("whole", "parts")
    ]
    assert columns[0] == columns[1]


@pytest.mark.slow
def test_a_killed_training_goes_on(data):
    """kill -9 of the run and of its jobs, at any moment."""
    recipe(InProcess(), dir="whole").run()
    command = [sys.executable, "-P", "-m", "opscope", "nnet3", "train", *arguments()]
    rng = np.random.default_rng(0)
    for _ in range(4):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(1.0 + 1.5 * rng.random())
        if rng.random() < 0.5:
            jobs = subprocess.run(["pgrep", "-f", f"{data}/exp/jobs/"], capture_output=True)
            for word in jobs.stdout.split():
                os.kill(int(word), signal.SIGKILL)
        process.kill()
        process.wait()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    assert Path("exp/final.raw").read_bytes() == Path("whole/final.raw").read_bytes()
    assert not list(Path("exp").glob("*.[0-9].raw"))


def test_two_runs_in_one_folder(data):
    os.mkdir("exp")
    with folder_lock("exp"):
        for more in ([], ["--cmd=local"]):
            result = CliRunner().invoke(main, ["nnet3", "train", *arguments(), *more])
            assert result.exit_code == 1
            assert "error: exp: another run is under way there" in result.stderr


def test_a_job_whose_data_are_damaged(data):
    class Damaging(InProcess):
        def submit(self, script):
            Path("exp/egs/egs.1.ark").write_bytes(b"u1 \0Bxx")
            return LocalRunner.submit(self, script)

    with pytest.raises(RunError, match=r"(?s)train\.0\.1: .*attempt 1 of 1.*egs\.1\.ark"):
        recipe(Damaging(), jobs=JOBS | {"job_tries": 1}).run()
    assert not Path("exp/1.raw").exists()


@pytest.mark.parametrize(
    ("changes", "jobs", "error", "part"),
    [
        ({}, {"cmd": "slurm", "jobs_final": 0}, AttributeTypeError, "jobs_final=0 must be"),
        ({}, {"cmd": "x"}, RunError, "no job runner 'x'"),
        ({"epochs": 1}, {"jobs_final": 500}, FormatError, "too few for 500 archives"),
        ({}, {"egs_dir": "none"}, FormatError, "none/info/num_archives: No such file"),
        ({}, {"den_fst": "den.fst"}, AttributeTypeError, "den_fst wants chain examples"),
        ({}, JOBS | {"proportional_shrink": 30.0}, AttributeTypeError, "=30 is too large"),
    ],
)
def test_refusals(data, changes, jobs, error, part):
    with pytest.raises(error, match=part):
        recipe(None if "cmd" in jobs else InProcess(), jobs=jobs, **changes).run()
    assert not Path("exp/final.raw").exists()


def test_settings(data):
    recipe(InProcess(), epochs=1).run()
    with pytest.raises(SaveError, match="jobs_final \\(was 2\\)"):
        recipe(InProcess(), epochs=1, jobs={"jobs_final": 1, "cmd": "local"}).run()
    recipe(InProcess(), epochs=1, jobs=JOBS | {"cmd": "run.pl", "job_tries": 9}).run()
    result = CliRunner().invoke(main, ["nnet3", "train", "--dir=x", "--network=y"])
    assert result.exit_code == 2 and "Missing option '--feats'" in result.stderr
