"""Shared by several commands: reading nets from files, NAME=VALUE options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from ...framework.base.errors import FormatError, OpscopeError, nearest
from ...framework.base.scope import Scope
from ...framework.files.saved import Loaded
from ...framework.ir.desc import INPUT
from ...framework.ir.op_list import OpList

if TYPE_CHECKING:
    from ...bridges.model.model import Model


def read_net(given: str | Model, device: str = "") -> Loaded:
    """The net of operators in a file, or of a model, with its values on a device (`cpu`, `gpu:0`).

    The commands say themselves which operators run and in which phase.

    Raises:
        FormatError: the file is missing, damaged, or holds another kind of network.
    """
    from ...bridges.model.net_models import NetModel
    from ...bridges.model.opening import open_model
    from ...framework.base.backend import parse_place

    model = open_model(given, whole=True)
    if not isinstance(model, NetModel) or model.dialect:
        raise FormatError(f"{model.name}: {model.what}, and a net of operators is wanted here")
    return model.load(Scope(parse_place(device)) if device else Scope(), train=True)


def pairs(values: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` options as a dict.

    Raises:
        UsageError: one has no `=`, or a name comes twice.
    """
    by_name: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"{option} {text}: want NAME=VALUE")
        if name in by_name:
            raise click.UsageError(f"{option} {text}: {name} is given twice")
        by_name[name] = value
    return by_name


def shapes_of(values: Iterable[str]) -> dict[str, tuple[int | str, ...]]:
    """`--shape NAME=N,3,H,W` options: sizes, and names of sizes that may vary, or -1.

    Raises:
        UsageError: one is no such thing.
    """
    shapes: dict[str, tuple[int | str, ...]] = {}
    for name, text in pairs(values, "--shape").items():
        dims = [dim.strip() for dim in text.split(",")]
        if not all(dim == "-1" or dim.isdecimal() or dim.isidentifier() for dim in dims):
            raise click.UsageError(
                f"--shape {name}={text}: want sizes, and names of those that may vary, as in"
                f" {name}=N,3,224,224"
            )
        shapes[name] = tuple(dim if dim.isidentifier() else int(dim) for dim in dims)
    return shapes


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
