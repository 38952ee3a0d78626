"""The command `opscope train-recognizer`."""

from __future__ import annotations

from typing import Any

import click

from ...framework.base.options.field_options import field_options
from .options import RecognizerOptions
from .train import Training


@click.command()
@click.argument("data")
@click.option("--out", required=True, metavar="MODEL", help="The folder of the recognizer.")
@click.option(
    "--work", metavar="FOLDER", help="Folder of the stages' results; by default MODEL.work."
)
@click.option("--list", "lists", is_flag=True, help="List the stages and whether they are done.")
@click.option("--stage", "begin", default="", metavar="NAME", help="Do all again from this one on.")
@click.option("--stop-after", default="", metavar="NAME", help="The last stage that is done.")
@field_options(RecognizerOptions)
def train_recognizer(
    data: str,
    out: str,
    work: str | None,
    lists: bool,
    begin: str,
    stop_after: str,
    **options: Any,
) -> None:
    """Train a recognizer on DATA, recordings with texts, and write the folder MODEL.

    DATA is a folder of recordings with NAME.txt beside NAME.wav, in folders by speaker where these
    are known; a CSV or TSV file with the columns path, text and speaker; or a data folder of
    Kaldi's. With --from, a model that is there learns from them. MODEL is a folder that transcribe
    takes, and Vosk. What is done already is not done again: the same command goes on after an
    interruption.
    """
    training = Training(data, out, work, RecognizerOptions(**options), click.echo)
    if lists:
        for line in training.plan.table():
            click.echo(line)
        return
    training.run(begin, stop_after)
