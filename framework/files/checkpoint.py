"""Checkpoints: one file that holds all a training needs to continue bit for bit.

A checkpoint `NAME.checkpoint` is a safetensors file. Its arrays are the net's description (`net`,
the bytes of a NetDesc), every parameter and state (`var/NAME`), and with an early stop also the
best epoch's (`best/NAME`); its metadata hold the random state, the position and the history as
JSON. Being one file that takes its place by one rename, it is the former checkpoint or the new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.errors import FormatError
from ..base.files.atomic import PathLike, atomic_file
from ..base.untrusted.values import json_value, whole_number
from ..ir.desc import TEMPORARY, NetDesc
from ..ir.messages import from_message, parse_net, serialize_net, to_message
from ..ir.op_list import OpList
from ..ir.packages import with_packages
from ..passes.lowering import lower
from ..runtime.initialize import persistent_vars
from .saved import check_fits
from .tensor_file import TensorFile, digest, write_tensors

SUFFIX = ".checkpoint"
FORMAT = 1
_NET, _VAR, _BEST = "net", "var/", "best/"


@dataclass
class Checkpoint:
    """The contents of a checkpoint.

    Attributes:
        op_list: the net. values, best: name -> array. state: what `train` keeps: plain numbers.
    """

    op_list: OpList
    values: dict[str, np.ndarray]
    best: dict[str, np.ndarray] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)


def checkpoint_path(prefix: PathLike) -> str:
    """`run/digits` -> `run/digits.checkpoint`."""
    path = os.fspath(prefix)
    return path if path.endswith(SUFFIX) else path + SUFFIX


def write_checkpoint(
    prefix: PathLike,
    net: OpList,
    values: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    best: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a checkpoint in place of the former one.

    Args:
        values: every parameter and state of the net; see `persistent_values`.

    Raises:
        SaveError: it cannot be written; the former one is untouched.
    """
    tensors = {_VAR + name: array for name, array in values.items()}
    tensors |= {_BEST + name: array for name, array in (best or {}).items()}
    # A tensor and not metadata, which are text: a message is bytes.
    tensors[_NET] = np.frombuffer(serialize_net(with_packages(net)), np.uint8)
    metadata = {
        "opscope.checkpoint": str(FORMAT),
        "opscope.digest": digest(tensors),
        "opscope.state": json.dumps(state),
    }
    with atomic_file(checkpoint_path(prefix)) as file:
        write_tensors(file, tensors, metadata)


def read_checkpoint(prefix: PathLike) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        FormatError: missing, truncated, damaged, of a newer format, or no checkpoint at all.
    """
    path = checkpoint_path(prefix)
    file = TensorFile(path)
    version = file.metadata.get("opscope.checkpoint", "")
    if not version or _NET not in file:
        raise FormatError(f"{path}: a safetensors file, but no checkpoint")
    if whole_number(version, f"{path}: the format of the checkpoint", 0) > FORMAT:
        raise FormatError(f"{path}: checkpoint format {version} is newer than {FORMAT}")
    tensors = {name: file.read(name) for name in file}
    # Safetensors has no checksum of its own: a flipped bit would train on.
    if digest(tensors) != file.metadata.get("opscope.digest"):
        raise FormatError(f"{path}: its contents do not match its mark: it is damaged")
    net = from_message(parse_net(tensors.pop(_NET).tobytes(), path))
    for var in persistent_vars(net):
        check_fits(file, var.name, var, _VAR + var.name)
    state = json_value(file.metadata.get("opscope.state", ""), f"{path}: the state of training")
    if not isinstance(state, dict):
        raise FormatError(f"{path}: the state of training is a {type(state).__name__}")
    return Checkpoint(net, _under(tensors, _VAR), _under(tensors, _BEST), state)


def _under(tensors: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }


def net_difference(saved: OpList, wanted: OpList) -> str:
    """The first difference between the net of a checkpoint ("there") and another net ("here").

    "" where there is none; source lines and free metadata may differ, and so may names of what is
    computed and not kept, and whether a layer is whole: older files have others.
    """
    mine, theirs = (_bare(to_message(lower(net))) for net in (wanted, saved))
    numbered = (_bare(to_message(_numbered(lower(net)))) for net in (wanted, saved))
    if mine == theirs or next(numbered) == next(numbered):
        return ""
    for what, ours, others in (("variable", mine.vars, theirs.vars), ("op", mine.ops, theirs.ops)):
        for index, (one, other) in enumerate(zip(ours, others, strict=False)):
            if one != other:
                label = "name" if what == "variable" else "type"
                difference = f"{what} {index} is {getattr(other, label)!r} there"
                difference += f" and {getattr(one, label)!r} here"
                if getattr(one, label) == getattr(other, label):
                    difference = (
                        f"{what} {index} ({getattr(one, label)!r}) is another there than here"
                    )
                return difference
        if len(ours) != len(others):
            return f"{len(others)} {what}s there and {len(ours)} here"
    return f"{saved.name!r} there, {wanted.name!r} here"


def _numbered(net: OpList) -> OpList:
    """The net with numbers for the names of its temporaries, in the order of their declarations."""
    fixed = {var.view.base for var in net.vars if var.view is not None}
    fixed.update(var.name for var in net.vars if var.kind != TEMPORARY or var.view is not None)
    free = (var.name for var in net.vars if var.name not in fixed)
    names = {name: f"@{number}" for number, name in enumerate(free)}
    out = net.copy()
    out.ops = [op.renamed(names) for op in net.ops]
    out.vars = [var.changed(name=names.get(var.name, var.name)) for var in net.vars]
    return out


def _bare(desc: NetDesc) -> NetDesc:
    bare = NetDesc()
    bare.CopyFrom(desc)
    bare.ClearField("metadata")
    bare.ClearField("format_version")
    initializers = [var.initializer for var in bare.vars if var.HasField("initializer")]
    # Moving a line of the program must not keep a training from resuming.
    for item in (*bare.vars, *bare.ops, *initializers):
        item.ClearField("source")
    for step in bare.steps:
        step.net.CopyFrom(_bare(step.net))
        step.net.ClearField("vars")  # shapes of what is linked, which the net around it declares
        if step.HasField("child_net"):
            step.child_net.CopyFrom(_bare(step.child_net))
    for op in bare.ops:
        op.ClearField("device")  # a training may go on with other stages, or with none
        for attr in op.attrs.values():
            if attr.WhichOneof("value") == "net":
                attr.net.CopyFrom(_bare(attr.net))
    return bare
