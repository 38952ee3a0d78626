"""Shared by several commands: reading nets from files, NAME=VALUE options."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from ...bridges.recognise.kinds import NNET3, SCRIPTS
from ...framework.base.errors import OpscopeError, nearest
from ...framework.files.checkpoint import SUFFIX, load_checkpoint, read_checkpoint
from ...framework.files.saved import NET_SUFFIX, Loaded, load, load_desc, load_marked, paths_of
from ...framework.ir.desc import INPUT
from ...framework.ir.op_list import OpList

if TYPE_CHECKING:
    from ...nnet3.network.nnet import Nnet


def read_desc(path: str) -> OpList:
    """The description in a saved net or a checkpoint; that of a model of Kaldi's or of CNTK's is in
    a dialect of its own."""
    return read_marked(path)[0]


def read_marked(path: str) -> tuple[OpList, str]:
    """The same, and the mark that parameters beside a saved net must have; '' of anything else."""
    if path.endswith(SUFFIX):
        return read_checkpoint(path).op_list, ""
    kind = recognised(path)
    if kind in NNET3:
        from ...nnet3.network.nnet import Nnet

        return Nnet.read(path).to_desc(), ""
    if kind == "model" or kind in SCRIPTS:
        from ...cntk.programs.files import model_desc

        return model_desc(path), ""
    net_path = paths_of(path)[0]
    if os.path.exists(path) and not os.path.isfile(net_path):
        from ...bridges.recognise.recognising import no_net

        raise no_net(path, kind, "that is read here")
    return load_marked(path)


def recognised(path: str) -> str:
    """The kind of a file, one of `KINDS`; "" for what is not there, and for saved nets, whose name
    may lack its suffix."""
    from ...bridges.recognise.recognising import check_language, kind_of
    from ...nnet3.programs.base.file_kinds import TABLE

    if path.endswith((NET_SUFFIX, SUFFIX)) or not (TABLE.match(path) or os.path.exists(path)):
        return ""
    kind = kind_of(path)
    check_language(path, kind)
    return "" if kind in ("net", "checkpoint") else kind


def listed(kind: str) -> str:
    """What the programs of nnet3 call a file that they list or check."""
    return "table" if kind in ("archive", "script file") else kind


def read_network(path: str, kind: str) -> Nnet | None:
    """The network of Kaldi's in a model, a config, an xconfig or a `.pb`; None if it is none.

    Args:
        path: of the file.
        kind: what `recognised` says of it.
    """
    if kind in ("config", "xconfig"):
        from ...nnet3.programs.listing import read_network as read_config

        return read_config(path, kind)
    if path.endswith(SUFFIX) or (kind and kind not in NNET3):
        return None
    from ...nnet3.network.nnet import Nnet

    if kind in NNET3:
        return Nnet.read(path)
    if not all(map(os.path.isfile, paths_of(path))):
        return None  # a description alone is shown as it is
    from ...nnet3.inference.saved import load_nnet
    from ...nnet3.network.dialect import DIALECT

    return load_nnet(path) if load_desc(path).metadata.get("dialect") == DIALECT else None


def read_net(path: str, device: str = "") -> Loaded:
    """The net and the values in a saved net or a checkpoint, on a device (`cpu`, `gpu:0`).

    The commands say themselves which operators run and in which phase.
    """
    from ...framework.base.backend import parse_place
    from ...framework.base.scope import Scope

    scope = Scope(parse_place(device)) if device else Scope()
    read = load_checkpoint if path.endswith(SUFFIX) else load
    return read(path, scope, train=True)


def pairs(values: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` options as a dict.

    Raises:
        UsageError: one has no `=`, or a name comes twice.
    """
    found: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"{option} {text}: want NAME=VALUE")
        if name in found:
            raise click.UsageError(f"{option} {text}: {name} is given twice")
        found[name] = value
    return found


def number_or_text(text: str) -> Any:
    """An attribute's value from the command line: a bool, an int, a float, or the text itself."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def variable(desc: OpList, name: str) -> str:
    """`name`, if the net has such a variable.

    Raises:
        OpscopeError: it has none; the message names the nearest.
    """
    names = [var.name for var in desc.vars]
    if name not in names:
        inputs = ", ".join(var.name for var in desc.vars if var.kind == INPUT)
        raise OpscopeError(
            f"net {desc.name!r} has no variable {name!r}{nearest(name, names)}; its inputs are"
            f" {inputs}"
        )
    return name
