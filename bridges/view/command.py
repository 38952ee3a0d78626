"""The command `opscope view`."""

from __future__ import annotations

import os

import click


@click.command()
@click.argument("file")
@click.option(
    "-o", "--output", metavar="PAGE", help="The page; by default FILE.html here; - for stdout."
)
@click.option("--against", metavar="OTHER", help="Show in colors how FILE differs from OTHER.")
@click.option(
    "--profile",
    is_flag=True,
    help="Run the net on random input; show time and memory of operators.",
)
@click.option(
    "--rows", type=click.IntRange(1), help="Rows of the profile's batch, or frames; 32 by default."
)
@click.option(
    "--network", default="", metavar="COMMAND", help="Of a config of CNTK's with several networks."
)
def view(
    file: str,
    output: str | None,
    against: str | None,
    profile: bool,
    rows: int | None,
    network: str,
) -> None:
    """Write a page to look at the net in FILE: one HTML file that needs no network.

    FILE is a .pb, a .checkpoint, a model of Kaldi's nnet3 (.raw, .mdl), a config or xconfig of it,
    a model of CNTK (.dnn, .cmf, .model), a config or network description of CNTK (.cntk, .ndl,
    .bs; --network says which where it has several), or an ONNX model.
    """
    from ...framework.base.files.atomic import refuse_sources
    from ...framework.base.sizes.byte_sizes import size_text
    from ..recognize.recognizing import files_of
    from .viewing import ROWS
    from .viewing import view as make_page

    if rows is not None and not profile:
        raise click.UsageError("--rows is for --profile, which is not given")
    page = make_page(file, against=against, profile=profile, rows=rows or ROWS, network=network)
    if output == "-":
        click.echo(page.html, nl=False)
        return
    target = output or f"{os.path.basename(file)}.html"
    refuse_sources(target, [part for each in (file, against) if each for part in files_of(each)])
    page.save(target)
    click.echo(f"{target}: {size_text(len(page.html.encode()))}")
