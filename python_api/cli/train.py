"""The command `train`."""

from __future__ import annotations

from typing import Any

import click

_INTERRUPTED = 130  # what shells give for a program that Ctrl-C ended


@click.command()
@click.argument("file")
@click.option("--data", required=True, help="Arrays by name: an .npz, or a folder of .npy files.")
@click.option("--evaluate", help="Held-out data in the same form.")
@click.option(
    "--hold-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    help="Share of --data to hold out, taken by --seed.",
)
@click.option(
    "--feed",
    multiple=True,
    metavar="NAME=KEY",
    help="Feed this input with that array; by default arrays named as inputs.",
)
@click.option("--out", required=True, help="Where the trained net goes (.pb and .safetensors).")
@click.option(
    "--batch", type=click.IntRange(1), default=32, show_default=True, help="Rows of a minibatch."
)
@click.option("--epochs", type=click.IntRange(1), default=10, show_default=True)
@click.option("--loss", default="loss", show_default=True, help="Variable to minimize.")
@click.option("--metric", multiple=True, help="Further variable to report.")
@click.option("--optimizer", help="Replace the net's optimizer: sgd, adam, ...; see `opscope ops`.")
@click.option("--lr", type=float, help="Learning rate of --optimizer (default 0.001).")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Attribute of --optimizer."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of orders, initial values, dropout."
)
@click.option("--checkpoint", metavar="PREFIX", help="Write PREFIX.checkpoint after epochs.")
@click.option(
    "--checkpoint-every", type=click.IntRange(1), default=1, show_default=True, help="Epochs."
)
@click.option("--resume", is_flag=True, help="Resume from the checkpoint, if there is one.")
@click.option(
    "--resume-weights",
    is_flag=True,
    help="Resume from the checkpoint with a changed net or optimizer; reports what was taken over.",
)
@click.option(
    "--early-stop",
    type=click.IntRange(1),
    metavar="EPOCHS",
    help="Stop after so many epochs without a better loss.",
)
@click.option("--csv", "log_csv", metavar="FILE", help="Write a line for each epoch.")
@click.option("--plot", metavar="FILE", help="Draw the curves as a PNG.")
@click.option("--device", default="", help="cpu (default), gpu or gpu:N.")
@click.option(
    "--zero",
    type=click.IntRange(0, 3),
    default=0,
    help="Share out among ranks: 1 optimizer states, 2 gradients as well, 3 parameters as well.",
)
@click.option(
    "--accumulate", type=click.IntRange(1), default=1, help="Minibatches before each update."
)
@click.option(
    "--pipeline",
    metavar="ORDER",
    help="Of a net with stages, the order in which ranks run theirs: 1f1b (default) or gpipe; off:"
    " every rank has all stages.",
)
@click.option(
    "--memory", help="The most that a step may take: 8GB, 512MiB, 80% of the device's memory."
)
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def train(file: str, **options: Any) -> None:
    """Train the net in FILE and save the result.

    The net brings its own optimizer, or gets one by --optimizer, which then replaces it.
    """
    from ...framework.base.context import OpContext
    from ...framework.files.saved import save
    from ..train.training import EarlyStop
    from ..train.training import train as train_net
    from .files import read_net

    _check(options)
    net, scope = read_net(file, options["device"])
    if options["optimizer"]:
        net = _with_optimizer(net.op_list, scope, options)
    data, held_out = _data(net.op_list, options)
    history = train_net(
        net,
        data,
        epochs=options["epochs"],
        scope=scope,
        evaluate=held_out,
        loss=options["loss"],
        metrics=options["metric"],
        log_csv=options["log_csv"],
        plot=options["plot"],
        checkpoint=options["checkpoint"],
        checkpoint_every=options["checkpoint_every"],
        resume="weights" if options["resume_weights"] else options["resume"],
        early_stop=EarlyStop(options["early_stop"]) if options["early_stop"] else None,
        progress=not options["quiet"],
        context=OpContext(seed=options["seed"]),
        zero=options["zero"],
        accumulate=options["accumulate"],
        **({"pipeline": options["pipeline"]} if options["pipeline"] else {}),
        memory=options["memory"],
    )
    if history.rank:  # under `opscope launch`: one rank writes and tells
        click.get_current_context().exit(_INTERRUPTED if history.interrupted else 0)
    save(net, scope, options["out"])
    row = {name: value for name, value in history.last.items() if name != "seconds"}
    if row:
        click.echo("  ".join(f"{name} {value:.6g}" for name, value in row.items()))
    click.echo(f"saved {options['out']}" + (" (interrupted)" if history.interrupted else ""))
    if history.interrupted:
        click.get_current_context().exit(_INTERRUPTED)


def _check(options: dict[str, Any]) -> None:
    from ...framework.base.files.atomic import check_writable
    from ...framework.files.saved import paths_of

    if options["evaluate"] and options["hold_out"]:
        raise click.UsageError("--evaluate and --hold-out exclude each other")
    if not options["optimizer"] and (options["lr"] is not None or options["settings"]):
        raise click.UsageError("--lr and --set belong to --optimizer")
    for name in ("resume", "resume_weights"):
        if options[name] and not options["checkpoint"]:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --checkpoint")
    for path in paths_of(options["out"]):
        check_writable(path)


def _with_optimizer(desc: Any, scope: Any, options: dict[str, Any]) -> Any:
    """The forward operators of a net, with gradients and updates made anew."""
    from ..builder import NetBuilder
    from .files import number_or_text, pairs, variable

    variable(desc, options["loss"])
    attrs = pairs(options["settings"], "--set")
    builder = NetBuilder.from_desc(desc)
    kept = {var.name for var in builder.op_list.vars}
    builder.backward_from(options["loss"])
    builder.add_optimization(
        0.001 if options["lr"] is None else options["lr"],
        options["optimizer"],
        **{name: number_or_text(value) for name, value in attrs.items()},
    )
    for name in scope.names():  # states of the former optimizer, its learning rate among them
        if name not in kept:
            scope.erase(name)
    return builder


def _data(desc: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Training and held-out minibatches."""
    import numpy as np

    from ...framework.files.array_files import read_arrays
    from ..train.minibatches import Minibatches

    arrays = _named(desc, read_arrays(options["data"]), options["data"], options["feed"])
    batch, seed = options["batch"], options["seed"]
    held_out = None
    if options["evaluate"]:
        path = options["evaluate"]
        held_out = _named(desc, read_arrays(path), path, options["feed"])
    elif options["hold_out"]:
        whole = Minibatches(arrays, batch)  # checks that all have the same number of rows
        order = np.random.default_rng(seed).permutation(whole.rows)
        cut = whole.rows - round(whole.rows * options["hold_out"])
        held_out = {name: array[order[cut:]] for name, array in arrays.items()}
        arrays = {name: array[order[:cut]] for name, array in arrays.items()}
    data = Minibatches(arrays, batch, seed=seed)
    return data, None if held_out is None else Minibatches(held_out, batch, shuffle=False)


def _named(desc: Any, arrays: Any, path: str, feed: tuple[str, ...]) -> dict[str, Any]:
    """Arrays by the names of the inputs they feed."""
    from ...framework.base.errors import FormatError, nearest
    from ...framework.ir.desc import INPUT
    from .files import pairs, variable

    inputs = {var.name for var in desc.vars if var.kind == INPUT}
    keys = pairs(feed, "--feed") or {name: name for name in arrays if name in inputs}
    if not keys:
        raise FormatError(
            f"{path}: no array is named as an input of the net ({', '.join(sorted(inputs))});"
            f" it holds {', '.join(arrays)}; say --feed INPUT=ARRAY"
        )
    read = {name for op in desc.ops for name in op.input_names()}
    for name in sorted((inputs & read) - keys.keys()) if not feed else ():
        rest = [key for key in arrays if key not in keys.values()]
        raise FormatError(
            f"{path}: holds no array for the input {name!r}{nearest(name, rest)}; it holds"
            f" {', '.join(arrays)}; say --feed {name}=ARRAY"
        )
    for name, key in keys.items():
        variable(desc, name)
        if key not in arrays:
            raise FormatError(f"{path}: holds no array {key!r}{nearest(key, arrays)}")
    return {name: arrays[key] for name, key in keys.items()}
