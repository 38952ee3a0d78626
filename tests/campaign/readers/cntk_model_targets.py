"""The campaign's readers of CNTK's models and checkpoints, and its damage to binary files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cntk_runtime_nets import Builder
from opscope.cntk.models.checkpoint import (
    Checkpoint,
    RateControl,
    format_checkpoint,
    read_checkpoint,
)
from opscope.cntk.models.dump import dump
from opscope.cntk.models.open_model import open_model
from opscope.cntk.models.stream import BinaryReader, BinaryWriter
from opscope.cntk.models.v1 import format_model
from opscope.cntk.network.dialect import from_desc, to_desc
from opscope.cntk.network.nodes.initial_values import read_matrix
from opscope.framework.ir.messages import parse_net, serialize_net
from opscope.proto.cntk_v2_pb2 import Dictionary
from opscope.proto.net_pb2 import NetDesc
from v2_models import recurrent

from ..inputs import Target
from .mutate import BYTES, TEXT, Mutation, message


def size(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A number that may be a count or a size, made a little or much larger or smaller."""
    width = rng.choice((2, 4, 4, 8))
    places = [
        place
        for place in (rng.randrange(max(len(data) - width, 1)) for _ in range(40))
        if 0 < int.from_bytes(data[place : place + width], "little") <= 4 * len(data)
    ]
    if not places or len(data) < width:
        return data
    place = places[0]
    old = int.from_bytes(data[place : place + width], "little")
    values = (0, old - 1, old + 1, 2 * old, old << 8, len(data), 10**9, 1 << 8 * width - 1, -1)
    value = rng.choice(values) & ((1 << 8 * width) - 1)
    return data[:place] + value.to_bytes(width, "little") + data[place + width :]


BINARY: tuple[Mutation, ...] = (*BYTES, size, size, size)


def _network(seed: int) -> Builder:
    builder = Builder(seed)
    features = builder.add("InputValue", "features", shape=(4,))
    labels = builder.add("InputValue", "labels", shape=(3,))
    weights = builder.parameter("W", 3, 4)
    scores = builder.add("Times", "z", weights, features)
    before = builder.add("PastValue", "before", scores, shape=(3,), timeStep=1)
    mean = builder.add("Mean", "mean", features)
    cut = builder.add("Slice", "cut", features, beginIndex=0, endIndex=3, axis=1)
    total = builder.add("Plus", "total", builder.add("Plus", "sum", scores, before), cut)
    loss = builder.add("CrossEntropyWithSoftmax", "ce", labels, total)
    groups = builder.network.groups
    for group, node in (("feature", features), ("label", labels), ("criterion", loss)):
        groups[group].append(node)
    groups["output"] += [total, mean]
    builder.net()
    return builder


def _use_model(path: Path) -> None:
    """All that can be done with a model without data."""
    network = open_model(path).network
    dump(network)
    format_model(network)
    serialize_net(to_desc(network))


def _versions(folder: Path) -> Sequence[bytes]:
    network = _network(0).network
    return [format_model(network, version) for version in (14, 16, 18)]


def _sparse(layout: int) -> bytes:
    """A sparse matrix of 3 x 2 with 2 elements; compressed columns (5) or rows (9)."""
    writer = BinaryWriter()
    writer.number("char", b"s")
    writer.marker("BMAT")
    writer.number("uint64", 4)
    writer.wide("m")
    writer.number("int32", layout)
    for number in (2, 2, 3):
        writer.number("uint64", number)
    writer.parts.append(np.array([1.5, 2], "<f4").tobytes())
    starts = [0, 1, 2] if layout == 5 else [0, 1, 1, 2]
    writer.parts.append(np.array([1, 0, *starts], "<u8").tobytes())
    writer.marker("EMAT")
    return writer.bytes()


def _matrices(folder: Path) -> Sequence[bytes]:
    dense = BinaryWriter()
    dense.matrix(np.arange(6.0).reshape(2, 3))
    return [_sparse(5), _sparse(9), dense.bytes(), _sparse(5) + dense.bytes()]


def _read_matrices(path: Path) -> None:
    reader = BinaryReader(path.read_bytes(), str(path))
    while reader.left:
        reader.matrix()


def _checkpoints(folder: Path) -> Sequence[bytes]:
    gradients = [np.ones((2, 3)), np.zeros((4, 1), np.float32)]
    control = RateControl(0.5, True, (0.1, -1.0))
    return [
        format_checkpoint(Checkpoint(100, 0.1, 2.0, 32, gradients, [1.0, 2.0], control)),
        format_checkpoint(Checkpoint(100, 0.1, float("inf"), None, gradients)),
    ]


def _dictionaries(folder: Path) -> Sequence[bytes]:
    return [recurrent()]


def _dialect(folder: Path) -> Sequence[bytes]:
    return [serialize_net(to_desc(_network(0).network))]


def _read_dialect(path: Path) -> None:
    from_desc(parse_net(path.read_bytes())).validate()


def _in_cntk(desc: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A mutation of a net that stays one of CNTK's."""
    found = NetDesc.FromString(message(NetDesc)(desc, rng, others))
    found.format_version = 1
    found.metadata["dialect"] = NetDesc.FromString(others[0]).metadata["dialect"]
    return found.SerializeToString()


def _read_values(path: Path) -> None:
    read_matrix(str(path), np.dtype(np.float32))


_V2: tuple[Mutation, ...] = (message(Dictionary), message(Dictionary), *BYTES)

TARGETS = (
    Target("CNTK versions", ".dnn", _versions, _use_model, BINARY),
    Target("CNTK v2 model", ".model", _dictionaries, _use_model, _V2),
    Target("CNTK matrices", ".mat", _matrices, _read_matrices, BINARY),
    Target("CNTK checkpoint", ".ckp", _checkpoints, read_checkpoint, BINARY),
    Target("CNTK net", ".pb", _dialect, _read_dialect, (_in_cntk,)),
    Target("CNTK values", ".txt", lambda _: [b"1 2 3\n4 5e-1 6\n"], _read_values, TEXT),
)
