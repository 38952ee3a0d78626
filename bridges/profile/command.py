"""The command `opscope profile`."""

from __future__ import annotations

import click


@click.command()
@click.argument("file")
@click.option("--rows", type=click.IntRange(1), help="Rows of the batch, or frames; 32 by default.")
@click.option(
    "--by",
    type=click.Choice(["row", "type", "group"]),
    default="row",
    show_default=True,
    help="Lines of the table: operators or nodes, types of them, or groups.",
)
@click.option(
    "-o",
    "--output",
    multiple=True,
    metavar="OUT",
    help="Also write a Chrome trace (.json), a flame graph (.svg) or the whole table (.txt).",
)
@click.option(
    "--network", default="", metavar="COMMAND", help="Of a config of CNTK's with several networks."
)
def profile(file: str, rows: int | None, by: str, output: tuple[str, ...], network: str) -> None:
    """Show where the time of the net in FILE goes: it is run forward on random inputs.

    FILE is what `opscope view` takes. Traces open in chrome://tracing and in Perfetto.
    """
    from ..view.viewing import ROWS
    from .profiling import profile as measure

    profiled = measure(file, rows=rows or ROWS, network=network)
    for path in output:
        profiled.save(path)
    click.echo(profiled.table(by))
