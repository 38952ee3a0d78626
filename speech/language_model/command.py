"""The commands `opscope make-lm` and `opscope perplexity`."""

from __future__ import annotations

import click

from ...framework.base.files.atomic import atomic_file
from ...framework.base.untrusted.opener import open_text
from .arpa import arpa_lines, read_arpa
from .changes import interpolated, pruned
from .counting import RESERVED, Text, text_of
from .perplexity import perplexity as perplexity_of
from .smoothing import METHODS

_OF_TABLES = ("<eps>", *RESERVED)


@click.command()
@click.argument("text")
@click.option("--out", required=True, metavar="ARPA", help="The file that the model goes to.")
@click.option(
    "--order",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    help="Words of the longest n-grams.",
)
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="kneser-ney",
    show_default=True,
    help="How unseen n-grams get a probability.",
)
@click.option(
    "--words",
    metavar="FILE",
    help="The words of the model, one a line or a symbol table; by default the text's words.",
)
@click.option(
    "--mix", metavar="ARPA", help="Another model, whose probabilities are mixed with TEXT's."
)
@click.option(
    "--weight",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Of TEXT where it is mixed with another model.",
)
@click.option(
    "--prune",
    type=click.FloatRange(0),
    metavar="CHANGE",
    help="Leave out n-grams without which the perplexity grows by less than this, relative to what"
    " it is; 1e-8 is common.",
)
def make_lm(
    text: str,
    out: str,
    order: int,
    method: str,
    words: str | None,
    mix: str | None,
    weight: float,
    prune: float | None,
) -> None:
    """Make an n-gram model of TEXT, a sentence a line, and write it as an ARPA file.

    TEXT may be a model itself, a file whose name ends in .arpa, to be mixed or pruned.
    """
    if text.endswith(".arpa"):
        model = read_arpa(text)
    else:
        model = METHODS[method](_read(text, None if words is None else _words(words)), order)
    if mix is not None:
        model = interpolated(model, read_arpa(mix), weight)
    if prune is not None:
        model = pruned(model, prune)
    with atomic_file(out) as file:
        for part in arpa_lines(model):
            file.write(part.encode("utf-8", "surrogateescape"))
    counts = ", ".join(f"{len(ngrams)} {n}-grams" for n, ngrams in enumerate(model.orders, 1))
    click.echo(f"{out}: {counts}", err=True)


@click.command()
@click.argument("model")
@click.argument("text")
def perplexity(model: str, text: str) -> None:
    """Print how well the n-gram model in the ARPA file MODEL fits TEXT, a sentence a line."""
    found = perplexity_of(read_arpa(model), _read(text))
    rows = {
        "sentences": found.sentences,
        "words": found.words,
        "unknown words": found.unknown,
        "log10 of the probability": f"{found.log10:.4f}",
        "perplexity": f"{found.value:.4f}",
    }
    if found.unknown and found.with_unknown is not None:
        rows["perplexity with unknown words"] = f"{found.with_unknown:.4f}"
    for name, value in rows.items():
        click.echo(f"{name:<30} {value}")
    for order, used in enumerate(found.used, 1):
        click.echo(f"{f'words by {order}-grams':<30} {used}")


def _read(path: str, vocabulary: list[str] | None = None) -> Text:
    with open_text(path, "surrogateescape") as file:
        return text_of(file, path, vocabulary)


def _words(path: str) -> list[str]:
    """The first word of each line, without what symbol tables have besides words."""
    with open_text(path, "surrogateescape") as file:
        words = [line.split()[0] for line in file if line.strip()]
    return [word for word in words if word not in _OF_TABLES and not word.startswith("#")]
