"""The command `opscope adapt`."""

from __future__ import annotations

import click

from .adapt import adapt as adapted


@click.command()
@click.argument("model")
@click.argument("out")
@click.option(
    "--words",
    required=True,
    metavar="FILE",
    help="New words, one a line, with their phones; guessed where there are none.",
)
@click.option(
    "--weight",
    type=float,
    help="Cost of each new word, -log of its probability; by default that of the model's words"
    " in the median.",
)
def adapt(model: str, out: str, words: str, weight: float | None) -> None:
    """Write OUT, a copy of the Vosk folder MODEL that knows new words.

    The words and their phones are printed as lines of a lexicon.
    """
    made = adapted(model, out, words, weight=weight)
    for word, phones in made.words:
        click.echo(f"{word} {' '.join(phones)}")
    click.echo(
        f"{len(made.words)} pronunciations, each with a cost of {made.weight:.3f};"
        f" {len(made.unseen)} pairs of phones that the model's words do not have",
        err=True,
    )
