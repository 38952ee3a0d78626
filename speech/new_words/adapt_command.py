"""The command `opscope adapt`."""

from __future__ import annotations

from typing import Any

import click

from ..language_model.smoothing import METHODS
from .adapt import adapt as adapted


@click.command()
@click.argument("model")
@click.argument("out", required=False)
@click.option("--out", "named_out", metavar="OUT", help="OUT, by name.")
@click.option(
    "--words",
    "--add",
    metavar="FILE",
    help="New words, one a line, with their phones; guessed where there are none. Probabilities may"
    " stand before the phones.",
)
@click.option("--lm", "--arpa", "arpa", metavar="FILE", help="Another grammar: an n-gram model.")
@click.option("--text", metavar="FILE", help="Another grammar: an n-gram model of these sentences.")
@click.option(
    "--order",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    help="Words of the longest n-grams of --text.",
)
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="witten-bell",
    show_default=True,
    help="How n-grams that --text lacks get a probability.",
)
@click.option(
    "--skip-unknown",
    is_flag=True,
    help="Leave out of --lm and --text what has words that are not known; they are refused by"
    " default.",
)
@click.option(
    "--weight",
    type=float,
    help="Cost of each new word that the grammar lacks, -log of its probability; by default the"
    " median of the grammar's words.",
)
def adapt(model: str, out: str | None, named_out: str | None, **options: Any) -> None:
    """Write OUT, a copy of the Vosk folder MODEL with new words, another grammar, or both.

    The words and their phones are printed as lines of a lexicon. A folder with HCLG.fst wants --lm
    or --text.
    """
    wanted = [path for path in (out, named_out) if path is not None]
    if len(wanted) != 1:
        raise click.UsageError("OUT, where the copy is written, is wanted once")
    made = adapted(model, wanted[0], **options)
    for word, phones in made.words:
        click.echo(f"{word} {' '.join(phones)}")
    click.echo(
        f"{len(made.words)} pronunciations, each with a cost of {made.weight:.3f};"
        f" {len(made.unseen)} pairs of phones that the model's words do not have",
        err=True,
    )
