"""The command `opscope make-graph`."""

from __future__ import annotations

from typing import Any

import click

from ..language_model.smoothing import METHODS
from .make import make_graph as made


@click.command()
@click.argument("lang")
@click.argument("model")
@click.argument("out")
@click.option("--arpa", metavar="FILE", help="The grammar is an n-gram model.")
@click.option("--text", metavar="FILE", help="It is an n-gram model of these sentences.")
@click.option("--phrases", metavar="FILE", help="It has the lines of this file as its sentences.")
@click.option("--jsgf", metavar="FILE", help="It is written in JSGF.")
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
    "--look-ahead",
    is_flag=True,
    help="Write HCLr.fst and Gr.fst, which are composed while they are searched.",
)
@click.option(
    "--transition-scale",
    type=float,
    default=1.0,
    show_default=True,
    help="Of the probabilities of transitions that leave their state.",
)
@click.option(
    "--self-loop-scale",
    type=float,
    help="Of the probabilities of staying in a state or leaving it; 1 for chain models, else 0.1.",
)
@click.option("--remove-oov", is_flag=True, help="Leave out what has the word of oov.int.")
@click.option(
    "--skip-unknown",
    is_flag=True,
    help="Leave out what has words that LANG lacks; they are refused by default.",
)
def make_graph(lang: str, model: str, out: str, **options: Any) -> None:
    """Write the decoding graph OUT of LANG, MODEL and a grammar, as Kaldi's mkgraph.sh does.

    LANG is a folder of prepare_lang.sh or make-lang, MODEL one with final.mdl and tree. Without
    another grammar LANG's own is taken, G.fst.
    """
    made(lang, model, out, **options)
