"""The command `opscope open`."""

from __future__ import annotations

import click

from ...framework.base.errors import OpscopeError
from . import opening


@click.command("open")
@click.argument("files", nargs=-1, required=True)
def open(files: tuple[str, ...]) -> None:
    """Print what FILES are, by their content: kind, inputs, outputs, size, what is unusual.

    They may be models, configs and data of Kaldi's, CNTK's and HTK's, ONNX, safetensors, what
    opscope saves, or the folder of a Vosk model. What cannot be read is reported, and the others
    are described nevertheless; the exit code is 1 then.
    """
    wrong = 0
    for number, file in enumerate(files):
        if number:
            click.echo()
        try:
            click.echo(str(opening.open(file)))
        except OpscopeError as error:
            if len(files) == 1:
                raise
            wrong += 1
            click.echo(f"error: {'; '.join(str(error).splitlines())}", err=True)
    if wrong:
        raise click.exceptions.Exit(1)
