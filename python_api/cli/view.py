"""The command `opscope view`."""

from __future__ import annotations

import os

import click


@click.command()
@click.argument("file")
@click.option(
    "-o", "--output", metavar="PAGE", help="The page; by default FILE with .html behind it; - for stdout."
)
def view(file: str, output: str | None) -> None:
    """Write a page to look at the net in FILE: one HTML file that needs no network.

    FILE is a .pb, a .checkpoint, a model of Kaldi's nnet3 (.raw, .mdl), a config or xconfig of it,
    a model of CNTK (.dnn, .cmf, .model), or a config or network description of CNTK (.cntk, .ndl,
    .bs) with one network.
    """
    from ...bridges.view.viewing import view as make_page

    page = make_page(file)
    if output == "-":
        click.echo(page.html, nl=False)
        return
    target = output or f"{os.path.basename(file)}.html"
    page.save(target)
    click.echo(f"{target}: {len(page.html.encode()) / 1024:.0f} KiB")
