"""The command `run`."""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from typing import Any

import click


@click.command()
@click.argument("file")
@click.option(
    "--feed",
    multiple=True,
    metavar="NAME=ARRAY",
    help="Give a variable the array in FILE.npy or FILE.npz:KEY.",
)
@click.option("--fetch", multiple=True, required=True, metavar="NAME", help="Variable to read.")
@click.option("--out", metavar="OUT", help="Write .npy (one variable) or .npz instead of text.")
@click.option(
    "--range", "span", metavar="A:B", help="Run exactly the operators A to B (exclusive)."
)
@click.option("--train-phase", is_flag=True, help="Run in training phase (dropout and the like).")
@click.option("--seed", type=int, help="Of random operators.")
@click.option("--device", default="", metavar="DEVICE", help="cpu (default), gpu or gpu:N.")
def run(
    file: str,
    feed: tuple[str, ...],
    fetch: tuple[str, ...],
    out: str | None,
    span: str | None,
    train_phase: bool,
    seed: int | None,
    device: str,
) -> None:
    """Run the net in FILE and print variables, or write them to a file.

    Without --range the forward operators that the fetched variables depend on are run.
    """
    from ...framework.base.context import OpContext
    from ...framework.files.array_files import read_array
    from ...framework.ir.desc import PLAIN
    from ...framework.passes.prune import prune
    from ...framework.runtime.feeding import Feeder
    from ...framework.runtime.net import Net
    from .files import pairs, read_net, variable

    begin, end = _range(span)
    arrays = {name: read_array(path) for name, path in pairs(feed, "--feed").items()}
    net, scope = read_net(file, device)
    for name in (*arrays, *fetch):
        variable(net.op_list, name)
    if span is None and net.op_list.type == PLAIN:
        net = Net.create(prune(net.op_list, fetch))
    known = {var.name for var in net.op_list.vars}
    used = {name: array for name, array in arrays.items() if name in known}
    for name in arrays.keys() - used:
        click.echo(f"warning: --feed {name}: what is fetched does not depend on it", err=True)
    if span is None:
        _check_inputs(net.op_list, used)
    Feeder(net.op_list, scope)(used, lambda: "--feed")
    net.run(scope, OpContext(train=train_phase, seed=seed, live_out=fetch), begin, end)
    values = {name: scope.numpy(name) for name in fetch}
    if out is None:
        for name, value in values.items():
            click.echo(f"{name} {value.dtype}{list(value.shape)}")
            click.echo(str(value))
    else:
        _write(out, values)


def _check_inputs(net: Any, given: Collection[str]) -> None:
    """Refuse a run of an op list without some input that its operators read."""
    from ...framework.base.errors import VariableError, format_shape
    from ...framework.ir.desc import INPUT

    read = {name for op in net.ops for name in op.input_names()}
    for var in net.vars:
        if var.kind == INPUT and var.name in read and var.name not in given:
            shape = f"{var.dtype or ''}{format_shape(var.shape)}"
            raise VariableError(
                f"input {var.name!r} {shape} is missing: --feed {var.name}=FILE.npy"
            )


def _range(span: str | None) -> tuple[int, int]:
    if span is None:
        return -1, -1
    begin, colon, end = span.partition(":")
    if not colon or not all(re.fullmatch("[0-9]{0,9}", part) for part in (begin, end)):
        raise click.UsageError(f"--range {span}: want A:B, A: or :B")
    return int(begin or -1), int(end or -1)


def _write(out: str, values: dict) -> None:
    import numpy as np

    from ...framework.base.atomic import write_atomically

    buffer = io.BytesIO()
    if out.endswith(".npz"):
        np.savez(buffer, **values)
    elif len(values) == 1:
        np.save(buffer, next(iter(values.values())), allow_pickle=False)
    else:
        raise click.UsageError(f"--out {out}: several variables need an .npz file")
    write_atomically(out, buffer.getvalue())
