"""CNTK's checkpoints (`.ckp`): the learner's state beside a model.

CNTK forgets at a restart how its control of learning rates stood, and what ranks that train apart
know. That is kept here in sections after the end of the checkpoint, where CNTK does not look;
plain trainings have none.

Source: SGD::SaveCheckPointInfo and LoadCheckPointInfo.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.files.atomic import PathLike
from ...framework.base.untrusted.opener import read_file
from ...framework.base.untrusted.values import INT64
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
        blocks: the last change of each parameter by block momentum, a row each.
        others: states of the learners of the other ranks, where they train apart.
    """

    samples: int
    rate: float
    criterion: float
    minibatch: int | None
    gradients: list[np.ndarray] = field(default_factory=list)
    counts: list[float] = field(default_factory=list)
    control: RateControl | None = None
    blocks: list[np.ndarray] = field(default_factory=list)
    others: list[LearnerStates] = field(default_factory=list)


@dataclass(frozen=True)
class LearnerStates:
    """The states of a learner, see `Checkpoint`."""

    gradients: list[np.ndarray]
    counts: list[float]


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
    data = read_file(path)
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
    samples = _whole(reader, "samples")
    rate = _finite(reader, "learning rate")
    criterion = reader.number("double")
    reader.marker("ELearnRate")
    minibatch = None
    if reader.try_marker("BMinibatchSize"):
        minibatch = _whole(reader, "minibatch size")
        reader.marker("EMinibatchSize")
    result = Checkpoint(samples, rate, criterion, minibatch)
    own = _read_states(reader)
    result.gradients = own.gradients
    result.counts = own.counts
    reader.marker("ECKP")
    if reader.try_marker("BControl"):
        average, reduced = reader.number("double"), reader.number("bool")
        rates = []
        while not reader.try_marker("EControl"):
            rates.append(_finite(reader, "learning rate"))
        result.control = RateControl(average, bool(reduced), tuple(rates))
    if reader.try_marker("BBlocks"):
        while not reader.try_marker("EBlocks"):
            result.blocks.append(reader.matrix())
    if reader.try_marker("BRanks"):
        while not reader.try_marker("ERanks"):
            result.others.append(_read_states(reader))
    return result


def _whole(reader: BinaryReader, what: str) -> int:
    """A number of samples.

    Raises:
        FormatError: it is larger than any training has.
    """
    start = reader.offset
    value = reader.number("uint64")
    if value > INT64[1]:
        raise reader.error(f"{what}: {value} is beyond {INT64[1]}", start)
    return value


def _finite(reader: BinaryReader, what: str) -> float:
    """A number that a training can go on with.

    Raises:
        FormatError: it is infinite, or none.
    """
    start = reader.offset
    value = reader.number("double")
    if not math.isfinite(value):
        raise reader.error(f"{what}: {value}", start)
    return value


def _read_states(reader: BinaryReader) -> LearnerStates:
    states = LearnerStates([], [])
    reader.marker("BGradient")
    while not reader.try_marker("EGradient"):
        states.gradients.append(reader.matrix())
    if reader.try_marker("BCount"):
        states.counts.extend(_finite(reader, "count") for _ in states.gradients)
        reader.marker("ECount")
    return states


def _write_states(writer: BinaryWriter, states: LearnerStates) -> None:
    writer.marker("BGradient")
    for gradient in states.gradients:
        writer.matrix(gradient)
    writer.marker("EGradient")
    if states.counts:
        writer.marker("BCount")
        for count in states.counts:
            writer.number("double", count)
        writer.marker("ECount")


def format_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The bytes of a checkpoint file."""
    return _written(checkpoint).bytes()


def checkpoint_parts(checkpoint: Checkpoint) -> list[bytes | memoryview]:
    """The bytes of a checkpoint file in pieces, which large states share their memory with."""
    return _written(checkpoint).parts


def _written(checkpoint: Checkpoint) -> BinaryWriter:
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
    _write_states(writer, LearnerStates(checkpoint.gradients, checkpoint.counts))
    writer.marker("ECKP")
    control = checkpoint.control
    if control is not None:
        writer.marker("BControl")
        writer.number("double", control.average)
        writer.number("bool", control.reduced)
        for rate in control.rates:
            writer.number("double", rate)
        writer.marker("EControl")
    if checkpoint.blocks:
        writer.marker("BBlocks")
        for change in checkpoint.blocks:
            writer.matrix(change)
        writer.marker("EBlocks")
    if checkpoint.others:
        writer.marker("BRanks")
        for states in checkpoint.others:
            _write_states(writer, states)
        writer.marker("ERanks")
    return writer
