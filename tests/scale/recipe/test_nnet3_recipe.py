"""`opscope nnet3 train`: the whole of it, cut off and gone on with, and what it refuses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from opscope.framework.base.errors import AttributeTypeError, FormatError, SaveError, ShapeError
from opscope.framework.training.history import History
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.egs import epochs
from opscope.nnet3.egs.epochs import EpochTraining
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.training import NnetTrainer
from opscope.python_api.cli.main import main
from opscope.scale.recipe import nnet3
from opscope.scale.recipe.nnet3 import Nnet3Recipe
from opscope.scale.recipe.nnet3_options import RecipeOptions

XCONFIG = """input dim=4 name=input
relu-batchnorm-dropout-layer name=tdnn1 input=Append(-1,0,1) dim=16 dropout-proportion=0.1
output-layer name=output dim=3
"""
LDA = XCONFIG.replace(
    "relu-", "fixed-affine-layer name=lda input=Append(-1,0,1) affine-transform-file=lda.mat\nrelu-"
)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with features, class ids and an xconfig; settings of a small training."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with (
        TableWriter("ark:feats.ark", "matrix") as feats,
        TableWriter("ark:ali.ark", "int_vector") as alis,
        TableWriter("ark:dense.ark", "matrix") as dense,
    ):
        for number in range(20):
            labels = rng.integers(0, 3, 30)
            features = 2 * np.eye(3, 4)[labels] + rng.normal(size=(30, 4))
            feats.write(f"u{number:02}", features.astype(np.float32))
            alis.write(f"u{number:02}", labels)
            dense.write(f"u{number:02}", np.eye(3, dtype=np.float32)[labels])
    Path("net.xconfig").write_text(XCONFIG)
    return {
        "feats": "ark:feats.ark",
        "targets": "ark:ali.ark",
        "network": "net.xconfig",
        "dir": "exp",
        "epochs": 3,
        "minibatch": "8,1:4",
        "valid_utterances": 4,
        "initial_lr": 0.02,
        "final_lr": 0.01,
    }


def recipe(data, **changes):
    return Nnet3Recipe(RecipeOptions(**data | changes), log=[].append)


def test_a_whole_training(data):
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in data.items()]
    result = CliRunner().invoke(main, ["nnet3", "train", *arguments, "--average-last=2"])
    assert result.exit_code == 0, result.output
    assert "  initial-lr: 0.02\n" in result.stderr and "Examples: train 6" in result.stderr
    assert "objective function changed from" in result.stderr
    rows = Path("exp/history.csv").read_text().splitlines()
    assert rows[0] == "epoch,loss,accuracy,eval_loss,eval_accuracy,seconds" and len(rows) == 4
    assert float(rows[3].split(",")[4]) > 0.6
    assert Path("exp/history.png").stat().st_size > 1000
    assert Nnet.read("exp/final.raw").components["tdnn1.batchnorm"].count > 0
    result = CliRunner().invoke(main, ["nnet3", "train", *arguments, "--average-last=2"])
    assert "final.raw is there already" in result.stderr


@pytest.mark.parametrize(("seconds", "pictures"), [(20.0, 1), (0.0, 3)])
def test_small_epochs_share_a_picture(data, monkeypatch, seconds, pictures):
    drawn = []
    monkeypatch.setattr(nnet3, "_DRAWN_EVERY", seconds)
    monkeypatch.setattr(History, "plot", lambda self, path: drawn.append(len(self.rows)))
    recipe(data).run()
    assert drawn == [1, 2, 3][-pictures:]


@pytest.mark.parametrize("options", [{}, {"backstitch_training_scale": 0.3}])
def test_an_interrupted_training_goes_on(data, monkeypatch, options):
    whole = recipe(data, dir="whole", **options).run()
    steps, train = [0], NnetTrainer.train

    def breaking(self, example):
        steps[0] += 1
        if steps[0] % 11 == 0:
            raise KeyboardInterrupt
        train(self, example)

    monkeypatch.setattr(NnetTrainer, "train", breaking)
    for _ in range(9):
        try:
            resumed = recipe(data, dir="parts", checkpoint_minutes=0.0, **options).run()
            break
        except KeyboardInterrupt:
            os.replace("parts", "moved")  # files do not depend on where they lie
            os.replace("moved", "parts")
    np.testing.assert_array_equal(resumed.vectorize(), whole.vectorize())
    columns = [
        [row.rsplit(",", 1)[0] for row in Path(name, "history.csv").read_text().splitlines()]
        for name in ("whole", "parts")
    ]
    assert columns[0] == columns[1]
    assert Path("whole/final.raw").read_bytes() == Path("parts/final.raw").read_bytes()


def test_ctrl_c_writes_the_checkpoint(data, monkeypatch):
    whole = recipe(data, dir="whole").run()
    steps, train = [0], NnetTrainer.train

    def pressing(self, example):
        steps[0] += 1
        if steps[0] == 5:
            os.kill(os.getpid(), signal.SIGINT)
        train(self, example)

    monkeypatch.setattr(NnetTrainer, "train", pressing)
    told = []
    stopped = Nnet3Recipe(RecipeOptions(**data | {"dir": "parts"}), log=told.append)
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    assert steps[0] == 5 and any("train.checkpoint: the same training" in line for line in told)
    clock = SimpleNamespace(monotonic=lambda: float(steps[0]))  # a second for each minibatch
    monkeypatch.setattr("opscope.nnet3.egs.epochs.time", clock)
    resumed = Nnet3Recipe(RecipeOptions(**data | {"dir": "parts"}), log=told.append)
    np.testing.assert_array_equal(resumed.run().vectorize(), whole.vectorize())
    left = [int(line.split()[-3]) for line in told if line.endswith(" s left")]
    assert left == [16, 8]


def test_killed_behind_the_last_minibatch_of_an_epoch(data, monkeypatch):
    """The model of that epoch holds its last learning rate, as if nothing had happened."""
    recipe(data, dir="whole").run()
    end = EpochTraining._end

    def stop(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(EpochTraining, "_end", stop)
    with pytest.raises(KeyboardInterrupt):
        recipe(data, dir="parts", checkpoint_minutes=0.0).run()
    monkeypatch.setattr(EpochTraining, "_end", end)
    recipe(data, dir="parts", checkpoint_minutes=0.0).run()
    for name in ("1.raw", "final.raw"):
        assert Path("parts", name).read_bytes() == Path("whole", name).read_bytes()


def test_a_checkpoint_with_other_learning_rates_is_refused(data, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(epochs, "_FORMAT", "1")
        recipe(data, epochs=1).run()
    os.unlink("exp/final.raw")
    with pytest.raises(FormatError, match="train.checkpoint: an earlier version wrote .* remove"):
        recipe(data, epochs=1).run()
    os.unlink("exp/train.checkpoint")
    recipe(data, epochs=1).run()
    assert Path("exp/final.raw").exists()


@pytest.mark.slow
def test_a_killed_training_goes_on(data):
    """kill -9 at any moment, also in the middle of writing."""
    data = data | {"epochs": 6, "checkpoint_minutes": 0.0}
    recipe(data, dir="whole").run()
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in data.items()]
    root = str(Path(opscope.__file__).resolve().parent.parent)
    command = [sys.executable, "-m", "opscope", "nnet3", "train", *arguments]
    environment = os.environ | {"PYTHONPATH": root}
    checkpoint, rng = Path("exp/train.checkpoint"), np.random.default_rng(0)
    whole, killed = Path("whole/final.raw").read_bytes(), 0
    while killed < 3:
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        while process.poll() is None:  # until it has got a little further
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns != before:
                break
            time.sleep(0.01)
        time.sleep(0.1 * rng.random())
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        else:  # on a busy machine it may be over before it can be killed
            assert Path("exp/final.raw").read_bytes() == whole
            shutil.rmtree("exp")
    subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
    assert Path("exp/final.raw").read_bytes() == whole


def test_a_transform_is_made(data):
    Path("net.xconfig").write_text(LDA)
    recipe(data, epochs=1).run()
    assert Nnet.read("exp/final.raw").components["lda"].linear_params.shape == (12, 12)
    assert Path("exp/lda.mat").exists()


def test_fine_tuning(data):
    recipe(data).run()
    before = Nnet.read("exp/final.raw").vectorize()
    tuned = recipe(data, dir="tuned", network="exp/final.raw", epochs=1, initial_lr=0.01).run()
    moved = np.linalg.norm(tuned.vectorize() - before) / np.linalg.norm(before)
    assert 0 < moved < 0.5


def test_dense_targets(data):
    Path("net.xconfig").write_text(
        XCONFIG.replace("dim=3", "dim=3 include-log-softmax=false objective-type=quadratic")
    )
    made = recipe(data, targets="ark:dense.ark").run()
    assert made.node("output").objective == "quadratic"


def test_schedules():
    options = RecipeOptions(
        "a", "b", "c", "d", dropout_schedule="0,0.2@0.25,0", initial_lr=0.01, final_lr=0.0001
    )
    assert [options.dropout(x) for x in (0, 0.125, 0.25, 1)] == [0, 0.1, 0.2, 0]
    assert options.learning_rate(0.5) == pytest.approx(0.001)


def test_dropout_changes(data):
    made = recipe(data, dropout_schedule="0.5,0.1").run()
    assert made.components["tdnn1.dropout"].dropout_proportion == pytest.approx(0.5 - 0.4 * 2 / 3)


@pytest.mark.parametrize(
    ("changes", "error", "part"),
    [
        ({"targets": "ark:feats.ark"}, ShapeError, "targets of 4 columns, the network's output"),
        ({"feats": "ark:dense.ark"}, ShapeError, "features of 3 columns, the network's input"),
        ({"network": "missing"}, FormatError, "missing: No such file"),
        ({"minibatch": "x"}, AttributeTypeError, "is no number"),
        ({"dropout_schedule": "a"}, AttributeTypeError, "no VALUE@SHARE"),
        ({"epochs": 0}, AttributeTypeError, "must be positive"),
        ({"num_frames": "31"}, FormatError, "long enough"),
    ],
)
def test_refusals(data, changes, error, part):
    with pytest.raises(error, match=part):
        recipe(data, **changes).run()
    assert not Path("exp/final.raw").exists()


def test_other_settings_in_the_same_folder(data):
    recipe(data, epochs=1).run()
    with pytest.raises(SaveError, match="epochs \\(was 1\\)"):
        recipe(data, epochs=2).run()


def test_features_that_are_no_numbers(data):
    with TableWriter("ark:nan.ark", "matrix") as feats:
        for number, value in enumerate((0.0, np.nan, 1.0)):
            feats.write(f"u{number:02}", np.full((30, 4), value, np.float32))
    with pytest.raises(FormatError, match="u01: the features hold NaN"):
        recipe(data, feats="ark:nan.ark").run()
    lines = []
    changes = {"feats": "ark:nan.ark", "skip_nan": True, "dir": "other", "epochs": 1}
    Nnet3Recipe(RecipeOptions(**data | changes), log=lines.append).run()
    assert any(line.startswith("1 utterances were passed over") for line in lines)
