"""Three small trainings that go on where they were killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opscope import Scope
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config.files import parse_config
from opscope.kaldi.tables.tables import TableWriter
from opscope.scale.recipe.nnet3 import Nnet3Recipe
from opscope.scale.recipe.nnet3_options import RecipeOptions
from training_runs import run, values


@dataclass(frozen=True)
class Training:
    """Something that goes on where it was killed.

    Attributes:
        work: trains to the end, from where it is. result: what the end has to be equal to.
        prepare: writes what it reads.
    """

    name: str
    work: Callable[[], None]
    result: Callable[[], Any]
    prepare: Callable[[], None] = lambda: None


def _train() -> None:
    scope = Scope()
    run(scope, epochs=30, checkpoint="run", resume=Path("run.checkpoint").exists())
    np.savez("end.npz", **values(scope))


def _arrays() -> dict[str, np.ndarray]:
    with np.load("end.npz") as found:
        return dict(found)


_XCONFIG = """input dim=4 name=input
relu-batchnorm-layer name=tdnn1 dim=8 input=Append(-1,0,1)
output-layer name=output dim=3 max-change=1.5
"""


def prepare_nnet3() -> None:
    """What the training of nnet3 reads."""
    rng = np.random.default_rng(0)
    with (
        TableWriter("ark:feats.ark", "matrix") as feats,
        TableWriter("ark:ali.ark", "int_vector") as alis,
    ):
        for number in range(20):
            labels = rng.integers(0, 3, 30)
            feats.write(f"u{number:02}", 2 * np.eye(3, 4)[labels] + rng.normal(size=(30, 4)))
            alis.write(f"u{number:02}", labels)
    Path("net.xconfig").write_text(_XCONFIG)


def _train_nnet3() -> None:
    options = RecipeOptions(
        feats="ark:feats.ark",
        targets="ark:ali.ark",
        network="net.xconfig",
        dir="exp",
        epochs=3,
        minibatch="8,1:4",
        valid_utterances=4,
        checkpoint_minutes=0.0,
    )
    Nnet3Recipe(options, log=lambda line: None).run()


CNTK_CONFIG = """command = Train ; precision = float ; modelPath = m.dnn ; deviceId = -1
makeMode = true
Train = [ action = train
    reader = [ readerType = "CNTKTextFormatReader" ; file = "train.ctf"
        input = [ features = [ dim = 2 ; format = "dense" ]
                  labels = [ dim = 2 ; format = "dense" ] ] ]
    BrainScriptNetworkBuilder = {
        features = Input {2} ; labels = Input {2, tag = 'label'}
        h = Tanh (Parameter {4, 2, init = 'uniform', initValueScale = 20} * features)
        z = Parameter {2, 4, init = 'uniform', initValueScale = 20} * h
        ce = CrossEntropyWithSoftmax (labels, z, tag = 'criterion')
    }
    SGD = [ maxEpochs = 20 ; minibatchSize = 20 ; learningRatesPerSample = 0.02
            momentumPerMB = 0.5 ] ]
"""


def write_points(seed: int = 0) -> None:
    """What the training reads."""
    points = np.random.default_rng(seed).normal(size=(120, 2))
    side = (points.sum(1) > 0).astype(int)
    lines = [
        f"|features {x:.6f} {y:.6f} |labels {1 - c} {c}\n"
        for (x, y), c in zip(points, side, strict=True)
    ]
    Path("train.ctf").write_text("".join(lines))


def _train_cntk() -> None:
    run_commands(parse_config(CNTK_CONFIG, "t.cntk"), Run(say=lambda text: None))


TRAININGS = (
    Training("train", _train, _arrays),
    Training(
        "nnet3 train", _train_nnet3, lambda: Path("exp/final.raw").read_bytes(), prepare_nnet3
    ),
    Training("cntk train", _train_cntk, lambda: Path("m.dnn").read_bytes(), write_points),
)
