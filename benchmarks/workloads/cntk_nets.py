"""A CNTK config as it was written for speech: its DNN trained for an epoch, file reading included.

The peer is what a user of PyTorch writes for the same: the same sizes, samples drawn in random
order from arrays in memory, momentum; its data is read from a binary file.
"""

from __future__ import annotations

import functools
import pathlib

import numpy as np

from .workload import OURS, Step, Workload, eager, scratch

SAMPLES, INPUTS, HIDDEN, CLASSES, BATCH = 10_240, 440, 512, 132, 256

_CONFIG = f"""\
precision = "float" ; deviceId = -1 ; traceLevel = 0 ; makeMode = false ; command = Train
Train = [
    action = "train" ; modelPath = "$dir$/dnn.model"
    SimpleNetworkBuilder = [
        layerSizes = {INPUTS}:{HIDDEN}*3:{CLASSES}
        layerTypes = "Sigmoid"
        trainingCriterion = "CrossEntropyWithSoftmax"
        evalCriterion = "ClassificationError"
    ]
    SGD = [
        epochSize = 0 ; minibatchSize = {BATCH} ; maxEpochs = 1 ; numMBsToShowResult = 1000
        learningRatesPerMB = 0.1 ; momentumPerMB = 0.9
    ]
    reader = [
        readerType = "HTKMLFReader" ; readMethod = "blockRandomize" ; frameMode = true
        miniBatchMode = "partial" ; randomize = "auto" ; verbosity = 0
        features = [ dim = {INPUTS} ; type = "real" ; scpFile = "$dir$/list.scp" ]
        labels = [ mlfFile = "$dir$/labels.mlf" ; labelDim = {CLASSES}
                   labelMappingFile = "$dir$/states" ; type = "category" ]
    ]
]
"""
_LENGTH = 320  # frames of an utterance
_PERIOD = 100_000  # of a frame, in HTK's units of 100 ns


@functools.cache
def _corpus() -> pathlib.Path:
    """A folder with the config, HTK features with their labels, and the same as arrays."""
    from opscope.cntk.readers.base.htk_files import write_htk

    folder = scratch()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((SAMPLES, INPUTS), np.float32)
    y = rng.integers(0, CLASSES, SAMPLES)
    lines = ["#!MLF!#"]
    names = []
    for number, begin in enumerate(range(0, SAMPLES, _LENGTH)):
        path = folder / f"u{number:03}.fea"
        write_htk(path, x[begin : begin + _LENGTH])
        names.append(f"u{number:03}.fea={path}[0,{_LENGTH - 1}]")
        lines.append(f'"*/u{number:03}.lab"')
        for frame, label in enumerate(y[begin : begin + _LENGTH]):
            lines.append(f"{frame * _PERIOD} {(frame + 1) * _PERIOD} s{label} {label}")
        lines.append(".")
    (folder / "list.scp").write_text("\n".join(names) + "\n")
    (folder / "labels.mlf").write_text("\n".join(lines) + "\n")
    (folder / "states").write_text("".join(f"s{one}\n" for one in range(CLASSES)))
    (folder / "dnn.cntk").write_text(_CONFIG)
    np.savez(folder / "data.npz", x=x, y=y)
    return folder


def _ours(threads: int) -> Step:
    import opscope
    from opscope.cntk.actions.common import Run
    from opscope.cntk.actions.run import run_commands
    from opscope.cntk.config import parse_command_line

    opscope.set_threads(threads)
    folder = _corpus()

    def step() -> object:
        arguments = [f"configFile={folder / 'dnn.cntk'}", f"dir={folder}"]
        run_commands(parse_command_line(arguments), Run(say=lambda line: None))
        return folder

    return step


def _theirs() -> Step:
    import torch

    folder = _corpus()

    def step() -> object:
        with np.load(folder / "data.npz") as file:
            x, y = (torch.from_numpy(file[name]) for name in "xy")
        sizes = INPUTS, HIDDEN, HIDDEN, HIDDEN, CLASSES
        layers: list[torch.nn.Module] = []
        for before, after in zip(sizes[:-1], sizes[1:], strict=True):
            layers += [torch.nn.Linear(before, after), torch.nn.Sigmoid()]
        model = torch.nn.Sequential(*layers[:-1])
        update = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        loss_of = torch.nn.CrossEntropyLoss()
        wrong = 0
        for rows in torch.randperm(SAMPLES).split(BATCH):
            update.zero_grad()
            scores = model(x[rows])
            labels = y[rows]
            loss = loss_of(scores, labels)
            loss.backward()
            update.step()
            wrong += int((scores.argmax(1) != labels).sum())
        torch.save(model.state_dict(), folder / "dnn.pt")
        return wrong

    return step


def _operations() -> float:
    sizes = INPUTS, HIDDEN, HIDDEN, HIDDEN, CLASSES
    products = [a * b for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
    return 2.0 * SAMPLES * (3 * sum(products) - products[0])


WORKLOADS = {
    "cntk-epoch": Workload(
        f"CNTK's SimpleNetworkBuilder: DNN {INPUTS}-3x{HIDDEN}-{CLASSES}, an epoch of"
        f" {SAMPLES:,} frames of HTK files",
        1.0,
        {OURS: _ours, "torch": eager(_theirs)},
        _operations,
    ),
}
