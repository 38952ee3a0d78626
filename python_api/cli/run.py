"""The command `run`."""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import numpy as np

    from ...bridges.model.model import Model


@click.command()
@click.argument("file")
@click.option(
    "--feed",
    multiple=True,
    metavar="NAME=ARRAY",
    help="Give a variable the array in FILE.npy or FILE.npz:KEY.",
)
@click.option(
    "--fetch", multiple=True, metavar="NAME", help="Variable to read; without it the results."
)
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

    FILE is a .pb or a .checkpoint. The command runs the forward operators that the fetched
    variables depend on, or the operators in --range. Or it is a model or config of Kaldi's nnet3,
    whose `input` is one utterance [frames, columns]; a model or network description of CNTK, whose
    inputs are one sequence of samples; an ONNX model.
    """
    from ...bridges.model.opening import open_model
    from ...framework.base.errors import OpscopeError
    from ...framework.files.array_files import read_array
    from .files import pairs

    operators = _range(span)
    arrays = {name: read_array(path) for name, path in pairs(feed, "--feed").items()}
    model = open_model(file, whole=True, use="to run")
    if model.family == "operators":
        values = _run_net(model, device, arrays, fetch, operators, train_phase, seed)
    else:
        given = {"--range": span, "--train-phase": train_phase, "--seed": seed, "--device": device}
        for option, value in given.items():
            if value is not None and value is not False and value != "":
                raise OpscopeError(f"{file}: {model.what}: {option} is for nets of operators")
        values = model.run(arrays, fetch)
    values = {name: _array(name, value) for name, value in values.items()}
    if out is None:
        for name, value in values.items():
            click.echo(f"{name} {value.dtype}{list(value.shape)}")
            click.echo(str(value))
    else:
        _write(out, values)


def _array(name: str, value: Any) -> np.ndarray:
    """A value, which must be an array of numbers.

    Raises:
        VariableError: it is none.
    """
    import numpy as np

    from ...framework.base.errors import VariableError

    if not isinstance(value, np.ndarray) or value.dtype == object:
        raise VariableError(f"{name!r} is no array of numbers, but {type(value).__name__}")
    return value


def _run_net(
    model: Model,
    device: str,
    arrays: dict[str, np.ndarray],
    fetch: tuple[str, ...],
    span: tuple[int, int] | None,
    train_phase: bool,
    seed: int | None,
) -> dict[str, Any]:
    """The values that operators of a net make."""
    from ...framework.base.context import OpContext
    from ...framework.ir.desc import PLAIN
    from ...framework.ir.results import net_results
    from ...framework.passes.prune import prune
    from ...framework.runtime.feeding import Feeder
    from ...framework.runtime.net import Net
    from .files import read_net, variable

    net, scope = read_net(model, device)
    fetch = fetch or tuple(net_results(net.op_list, arrays) or net_results(net.op_list))
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
    net.run(scope, OpContext(train=train_phase, seed=seed, live_out=fetch), *(span or (-1, -1)))
    return {name: scope.numpy(name) for name in fetch}


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


def _range(span: str | None) -> tuple[int, int] | None:
    if span is None:
        return None
    begin, colon, end = span.partition(":")
    if not colon or not all(re.fullmatch("[0-9]{0,9}", part) for part in (begin, end)):
        raise click.UsageError(f"--range {span}: want A:B, A: or :B")
    return int(begin or -1), int(end or -1)


def _write(out: str, values: dict) -> None:
    import numpy as np

    from ...framework.base.files.atomic import write_atomically

    buffer = io.BytesIO()
    if out.endswith(".npz"):
        np.savez(buffer, **values)
    elif len(values) == 1:
        np.save(buffer, next(iter(values.values())), allow_pickle=False)
    else:
        raise click.UsageError(f"--out {out}: several variables need an .npz file")
    write_atomically(out, buffer.getvalue())
