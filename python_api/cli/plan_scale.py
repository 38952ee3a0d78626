"""The command `plan-scale`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...framework.parallel.link import Link
    from ...scale.planning.plan import Line


@click.command("plan-scale")
@click.argument("file", metavar="NET")
@click.option(
    "--ranks", required=True, metavar="N,N,...", help="Numbers of ranks, as in 8,64,1024."
)
@click.option(
    "--link",
    "speed",
    metavar="RATE",
    help="Bandwidth between ranks, each way: 10G is 10 Gbit/s, which carries 1.25 GB/s. Units: K,"
    " M, G, T bits a second, powers of 1000.",
)
@click.option(
    "--latency", metavar="TIME", help="Of a message, with unit ns, us, ms or s; by default 5us."
)
@click.option(
    "--fit",
    metavar="N,N",
    help="In place of --link: measure sums over so many ranks of this machine, as in 2,4, and fit a"
    " link to them. Wants mpiexec.",
)
@click.option(
    "--batch",
    type=click.IntRange(2),
    default=32,
    show_default=True,
    help="Rows (or sequences) of the minibatch of one rank.",
)
@click.option(
    "--efficiency",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Tell the smallest batch of a rank at which it holds.",
)
@click.option(
    "--time",
    "times",
    multiple=True,
    metavar="ROWS=TIME",
    help="What the operators of a step take with so many rows, as in 64=12ms, where it was measured"
    " elsewhere; given for two numbers of rows.",
)
@click.option(
    "--repeats", type=click.IntRange(1), default=5, show_default=True, help="Of measured steps."
)
@click.option(
    "--weight",
    default="auto",
    show_default=True,
    help="How the losses of ranks make up the total: auto, sum, mean or a variable.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N,3,...",
    help="The shape of an input, where the net leaves dimensions open. The first one is its rows:"
    " a name, -1, or left out.",
)
@click.option(
    "--below",
    multiple=True,
    metavar="NAME=N",
    help="Draw the integers of an input from 0 to N-1; by default they are 0.",
)
@click.option(
    "--length", type=click.IntRange(1), default=20, show_default=True, help="Of sequences."
)
@click.option("--device", default="", metavar="DEVICE", help="cpu (default), gpu or gpu:N.")
def plan_scale(
    file: str,
    ranks: str,
    speed: str | None,
    latency: str | None,
    fit: str | None,
    batch: int,
    efficiency: float,
    times: tuple[str, ...],
    repeats: int,
    weight: str,
    shapes: tuple[str, ...],
    below: tuple[str, ...],
    length: int,
    device: str,
) -> None:
    """Estimate the time of a training step of the net in NET on many ranks.

    NET has backward and optimizer operators; sums over ranks are put between them if it has none.
    Its operators are timed here on random inputs, with --batch rows and with half of them; what
    they send is recorded, and costed for three algorithms of all_reduce: ring, tree, and halving
    (recursive halving, then doubling). Every rank keeps its batch: the efficiency is the part of a
    step in which operators compute.
    """
    from ...scale.planning.plan import with_times
    from ...scale.planning.record import on_ranks, random_inputs, record_step
    from ...scale.planning.table import plan_text
    from .files import pairs, read_net, shapes_of

    counts = _counts(ranks, "--ranks", least=1)
    if (speed is None) == (fit is None):
        raise click.UsageError("say either --link or --fit")
    if fit is not None and latency is not None:
        raise click.UsageError("--latency belongs to --link: --fit finds its own")
    measured = _counts(fit, "--fit", least=2) if fit is not None else []
    link = None if speed is None else _link(speed, latency or "5us")
    step = _given_times(times)
    given = {name: _after_rows(name, dims) for name, dims in shapes_of(shapes).items()}
    limits = {
        name: _counts(text, f"--below {name}", least=1)[0]
        for name, text in pairs(below, "--below").items()
    }
    net, scope = read_net(file, device)
    net_of_rank = on_ranks(net.op_list, weight)
    feeds = [
        (rows, random_inputs(net_of_rank, rows, given, limits, length))
        for rows in (batch // 2, batch)
    ]
    events = record_step(net_of_rank, scope, feeds, repeats)
    if step is not None:
        events = with_times(events, step, batch)
    if link is None:
        link = _fitted(measured)
    click.echo(plan_text(events, batch, counts, link, efficiency), nl=False)


def _after_rows(name: str, dims: tuple[int | str, ...]) -> list[int]:
    """The sizes of a shape after the rows, which are as many as --batch says."""
    rest = dims[1:] if isinstance(dims[0], str) or dims[0] < 0 else dims
    sizes = [dim for dim in rest if isinstance(dim, int) and dim > 0]
    if len(sizes) < len(rest):
        raise click.UsageError(
            f"--shape {name}={','.join(map(str, dims))}: the rows alone may vary here"
        )
    return sizes


def _counts(text: str, option: str, least: int) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < least:
        raise click.UsageError(
            f"{option} {text}: want whole numbers from {least} on, with commas between them"
        )
    return counts


def _link(speed: str, latency: str) -> Link:
    from ...framework.parallel.link import Link
    from ...scale.planning.units import bandwidth, seconds

    return Link(seconds(latency, "latency"), bandwidth(speed))


def _given_times(times: tuple[str, ...]) -> Line | None:
    """The line through the times of --time; None without any."""
    from ...scale.planning.plan import Line
    from ...scale.planning.units import seconds
    from .files import pairs

    if not times:
        return None
    points = sorted(
        (_counts(rows, "--time", least=1)[0], seconds(text, "time"))
        for rows, text in pairs(times, "--time").items()
    )
    if len({rows for rows, _ in points}) != 2 or len(points) != 2:
        raise click.UsageError("--time: want the times of two numbers of rows")
    return Line.through(points[0], points[1])


def _fitted(measured: list[int]) -> Link:
    """The link of this machine; prints it, with its error."""
    from ...framework.base.cpu.cores import usable_cores
    from ...scale.planning.fitting import measured_fit

    fit = measured_fit(measured)
    cores = usable_cores()
    for ranks, (mean, most) in fit.errors.items():
        shared = f"; {ranks} ranks share {cores} cores" if ranks > cores else ""
        click.echo(
            f"fitted to sums of {ranks} ranks: error {mean:.0%} (root mean square),"
            f" {most:.0%} at most{shared}"
        )
    return fit.link
