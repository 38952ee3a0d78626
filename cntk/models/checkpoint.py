"""CNTK's checkpoints (`.ckp`): the learner's state beside a model.

CNTK forgets at a restart how its control of learning rates stood. That is kept here in a section
behind the end of the checkpoint, where CNTK does not look; plain trainings have none.

Source: SGD::SaveCheckPointInfo and LoadCheckPointInfo.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...framework.base.atomic import PathLike, atomic_file
from ...framework.base.errors import FormatError
from ...framework.base.untrusted.values import read_bytes
from ..base.text import reason
from .stream import BinaryReader, BinaryWriter

VERSION = 2


@dataclass
class Checkpoint:
    """State between two epochs.

    Attributes:
        samples: samples seen so far.
        rate: learning rate per sample.
        criterion: training criterion of the epoch before.
        minibatch: minibatch size, or None where an old file has none.
        gradients: smoothed gradients, a matrix for each parameter that learns, in the order of the
            parameters' names; where a learner keeps more, columns are appended.
        counts: smoothed counts of the parameters (fsAdaGrad), or empty where an old file has none.
        control: how the control of rates stood, or None where it has nothing to tell.
    """

    samples: int
    rate: float
    criterion: float
    minibatch: int | None
    gradients: list[np.ndarray] = field(default_factory=list)
    counts: list[float] = field(default_factory=list)
    control: RateControl | None = None


@dataclass(frozen=True)
class RateControl:
    """How the control of learning rates stood.

    Attributes:
        average: criterion of the epochs since the last adjustment.
        reduced: whether the rate has begun to fall.
        rates: of the epochs before; -1: none.
    """

    average: float
    reduced: bool
    rates: tuple[float, ...]


def read_checkpoint(path: PathLike) -> Checkpoint:
    """The checkpoint of a file.

    Raises:
        FormatError: the file is missing, cut off, damaged or of a newer version.
    """
    try:
        data = read_bytes(path)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {reason(error)}") from None
    return parse_checkpoint(data, str(path))


def parse_checkpoint(data: bytes, name: str = "checkpoint") -> Checkpoint:
    """The checkpoint of a file's bytes.

    Raises:
        FormatError: as `read_checkpoint`.
    """
    reader = BinaryReader(data, name)
    if reader.try_marker("BVersion"):
        version = reader.number("uint64")
        if not 1 <= version <= VERSION:
            raise reader.error(f"checkpoint version {version}; up to {VERSION} can be read")
        reader.marker("EVersion")
    reader.marker("BCKP")
    reader.marker("BLearnRate")
    samples, rate, criterion = (reader.number(k) for k in ("uint64", "double", "double"))
    reader.marker("ELearnRate")
    minibatch = None
    if reader.try_marker("BMinibatchSize"):
        minibatch = reader.number("uint64")
        reader.marker("EMinibatchSize")
    result = Checkpoint(samples, rate, criterion, minibatch)
    reader.marker("BGradient")
    while not reader.try_marker("EGradient"):
        result.gradients.append(reader.matrix())
    if reader.try_marker("BCount"):
        result.counts = [reader.number("double") for _ in result.gradients]
        reader.marker("ECount")
    reader.marker("ECKP")
    if reader.try_marker("BControl"):
        average, reduced = reader.number("double"), reader.number("bool")
        rates = []
        while not reader.try_marker("EControl"):
            rates.append(reader.number("double"))
        result.control = RateControl(average, bool(reduced), tuple(rates))
    return result


def format_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The bytes of a checkpoint file."""
    writer = BinaryWriter()
    writer.marker("BVersion")
    writer.number("uint64", VERSION)
    writer.marker("EVersion")
    writer.marker("BCKP")
    writer.marker("BLearnRate")
    writer.number("uint64", checkpoint.samples)
    writer.number("double", checkpoint.rate)
    writer.number("double", checkpoint.criterion)
    writer.marker("ELearnRate")
    if checkpoint.minibatch is not None:
        writer.marker("BMinibatchSize")
        writer.number("uint64", checkpoint.minibatch)
        writer.marker("EMinibatchSize")
    writer.marker("BGradient")
    for gradient in checkpoint.gradients:
        writer.matrix(gradient)
    writer.marker("EGradient")
    if checkpoint.counts:
        writer.marker("BCount")
        for count in checkpoint.counts:
            writer.number("double", count)
        writer.marker("ECount")
    writer.marker("ECKP")
    control = checkpoint.control
    if control is not None:
        writer.marker("BControl")
        writer.number("double", control.average)
        writer.number("bool", control.reduced)
        for rate in control.rates:
            writer.number("double", rate)
        writer.marker("EControl")
    return writer.bytes()


def write_checkpoint(checkpoint: Checkpoint, path: PathLike) -> None:
    """Write a checkpoint file.

    Raises:
        SaveError: it cannot be written.
    """
    data = format_checkpoint(checkpoint)
    with atomic_file(path) as file:
        file.write(data)
