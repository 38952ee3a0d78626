"""CNTK's configs on several ranks: threads of this process, or processes under mpiexec."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.models.open_model import open_model
from opscope.framework.parallel.dry import DryWorld

CONFIG = """command = Train ; precision = {precision} ; modelPath = "{model}" ; deviceId = -1
traceLevel = {trace}
{top}
Train = [ action = train
    reader = [ readerType = CNTKTextFormatReader ; file = "{data}" ; {reader}
        input = [ features = [ dim = 3 ; format = dense ]
                  labels = [ dim = 2 ; format = dense ] ] ]
    BrainScriptNetworkBuilder = {{
        features = Input {{3}} ; labels = Input {{2, tag = 'label'}}
        w = Parameter {{4, 3, init = 'uniform', initValueScale = 3}}
        h = {hidden}
        z = Parameter {{2, 4, init = 'uniform', initValueScale = 3}} * h
        ce = CrossEntropyWithSoftmax (labels, z, tag = 'criterion')
        errors = ClassificationError (labels, z, tag = 'evaluation')
        {nodes}
    }}
    {more}
    SGD = [ maxEpochs = {epochs} ; minibatchSize = {size} ; {sgd}
            ParallelTrain = [ {parallel} ] ] ]
"""
"""A training of a small network; the values of its settings are those of `config_text`."""


def config_text(folder: Path, **settings: object) -> str:
    """The config with other settings: `parallel`, `sgd`, `reader`, `size`, `epochs`, ..."""
    values = {
        "precision": "double",
        "model": folder / "m.dnn",
        "data": folder / "train.ctf",
        "top": "",
        "trace": 0,
        "reader": "randomize = false",
        "hidden": "Tanh (w * features)",
        "nodes": "",
        "more": "",
        "epochs": 2,
        "size": 12,
        "sgd": "learningRatesPerSample = 0.05 ; momentumPerMB = 0.5",
        "parallel": "parallelizationMethod = DataParallelSGD",
    }
    assert settings.keys() <= values.keys()
    return CONFIG.format(**{**values, **settings})


def write_points(path: Path, samples: int, seed: int = 0) -> None:
    """Lines of points and their classes, which a plane divides; the text is exact."""
    points = np.round(np.random.default_rng(seed).normal(size=(samples, 3)) * 64) / 64
    lines = [
        "|features " + " ".join(f"{x:.6f}" for x in point) + f" |labels {1 - side} {side}\n"
        for point, side in zip(points, (points.sum(1) > 0).astype(int), strict=True)
    ]
    path.write_text("".join(lines))


class Ran(NamedTuple):
    """A run: the log of each rank, and the parameters of the model by name."""

    logs: list[str]
    values: dict[str, np.ndarray]

    def criteria(self, rank: int = 0, what: str = "Finished Epoch") -> list[tuple[float, float]]:
        """Criterion and errors of the lines of a kind."""
        lines = [line for line in self.logs[rank].splitlines() if what in line]
        found = [re.findall(r"= *([-+.\de]+)%? \* \d+", line) for line in lines]
        return [(float(ce), float(errors)) for ce, errors in found]


def run_on(count: int, text: str, model: Path) -> Ran:
    """Run a config on ranks that are threads, or for a count of 0 without any."""
    logs: list[list[str]] = [[] for _ in range(max(count, 1))]
    if count:
        DryWorld(count).run(
            lambda c: run_commands(
                parse_config(text, "t.cntk"), Run(say=logs[c.rank].append, communicator=c)
            )
        )
    else:
        run_commands(parse_config(text, "t.cntk"), Run(say=logs[0].append))
    return Ran(["".join(log) for log in logs], model_values(model))


def model_values(path: Path) -> dict[str, np.ndarray]:
    """The parameters of a model file."""
    nodes = open_model(path).network.nodes.values()
    return {n.name: np.array(n.value) for n in nodes if n.is_parameter and n.value is not None}


def largest_difference(one: Ran, other: Ran) -> float:
    """Of the parameters of two runs."""
    assert one.values.keys() == other.values.keys()
    return max(float(abs(value - other.values[name]).max()) for name, value in one.values.items())


def points_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Points and classes of the lines, [samples, 3] and [samples, 2]."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return np.array([r[1:4] for r in rows], float), np.array([r[5:7] for r in rows], float)


def gradients(w: np.ndarray, v: np.ndarray, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Of the summed criterion of the network by w and by the matrix of its output, in NumPy."""
    h = np.tanh(x @ w.T)
    z = h @ v.T
    p = np.exp(z - z.max(1, keepdims=True))
    d = p / p.sum(1, keepdims=True) - y
    return [(d @ v * (1 - h**2)).T @ x, d.T @ h]


def parameters_of(values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """w and the matrix of the output."""
    (other,) = (name for name in values if name != "w")
    return [values["w"], values[other]]
