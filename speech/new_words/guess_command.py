"""The command `opscope guess-pronunciations`."""

from __future__ import annotations

import click

from ...framework.base.untrusted.opener import read_text
from ..lexicon.entries import text_lines
from ..pronunciation.guesser import Guesser
from .lexicons import known_pronunciations


@click.command()
@click.argument("lexicon")
@click.argument("words", nargs=-1)
@click.option("--words", "listed", metavar="FILE", help="Words, the first of each line.")
@click.option(
    "--count",
    type=click.IntRange(1, 20),
    default=1,
    show_default=True,
    help="Pronunciations of each word, the most likely first.",
)
@click.option("--probabilities", is_flag=True, help="Print a probability before the phones.")
def guess_pronunciations(
    lexicon: str, words: tuple[str, ...], listed: str | None, count: int, probabilities: bool
) -> None:
    """Print pronunciations of WORDS, guessed from LEXICON, as lines of a lexicon.

    LEXICON is a file or a folder, as for make-lang, or the folder of a Vosk model, whose graph
    knows them.
    """
    wanted = list(words)
    if listed is not None:
        lines = text_lines(read_text(listed, "surrogateescape"), listed)
        wanted += [fields[0] for _, fields in lines]
    if not wanted:
        raise click.UsageError("no word is given")
    guesser = Guesser.trained(known_pronunciations(lexicon))
    for word in wanted:
        for guess in guesser.guess(word, count):
            share = f"{max(guess.probability, 1e-4):.4f} " if probabilities else ""
            click.echo(f"{word} {share}{' '.join(guess.phones)}")
