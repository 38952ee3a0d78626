"""The command `opscope open`."""

from __future__ import annotations

import click

from . import opening


@click.command("open")
@click.argument("files", nargs=-1, required=True)
def open(files: tuple[str, ...]) -> None:
    """Tell what FILES are, by what is in them: kind, inputs, outputs, size, what is unusual.

    They may be models, configs and data of Kaldi's, CNTK's and HTK's, ONNX, safetensors, what
    opscope saves, or the folder of a Vosk model.
    """
    for number, file in enumerate(files):
        if number:
            click.echo()
        click.echo(str(opening.open(file)))
