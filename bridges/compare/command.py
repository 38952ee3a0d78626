"""The command `opscope compare`."""

from __future__ import annotations

import click


@click.command()
@click.argument("file")
@click.argument("other")
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Rows of a batch, or output frames of Kaldi's networks.",
)
@click.option(
    "--bound",
    type=click.FloatRange(0),
    default=1e-5,
    show_default=True,
    help="What an error must be above to count, of values above 1 relative to them.",
)
@click.option("--page", metavar="PAGE", help="Write a page of FILE, coloured by errors.")
def compare(file: str, other: str, rows: int, bound: float, page: str | None) -> None:
    """Run two models on the same random inputs, and tell where they part ways, layer by layer.

    FILE and OTHER are nets saved by opscope, Kaldi's networks or models, or ONNX files, of which
    outputs are compared. The exit code is 1 if they differ by more than the bound.
    """
    from .comparing import compare as run

    found = run(file, other, rows=rows, bound=bound)
    click.echo(str(found))
    if page is not None:
        from ..view.viewing import view

        view(file, numbers=found.numbers(), numbers_are="error").save(page)
    if found.first is not None:
        raise click.exceptions.Exit(1)
