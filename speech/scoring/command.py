"""The command `opscope wer`."""

from __future__ import annotations

import os

import click

from ...framework.base.files.atomic import check_writable, write_atomically
from ...kaldi.tables.specifiers import is_specifier
from .edits import ErrorCounts
from .page import page as page_of
from .sentences import MODES, sentences


@click.command()
@click.argument("reference", metavar="REF")
@click.argument("hypothesis", metavar="HYP")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="strict",
    show_default=True,
    help="References without a hypothesis are refused, left out, or count as recognized empty.",
)
@click.option("--page", metavar="PAGE", help="Write an HTML page with all errors in context.")
def wer(reference: str, hypothesis: str, mode: str, page: str | None) -> None:
    """Print the word error rate of HYP, which was recognized, beside REF, which was said.

    Each is a file of lines, a key and then the words, as Kaldi's `text` has them, or a table of
    such lines. The output has the lines of Kaldi's compute-wer.
    """
    if page is not None:
        check_writable(page)
    counts = ErrorCounts()
    scored = sentences(_specifier(reference), _specifier(hypothesis), mode, counts)
    wrong = [each for each in scored if any(edit.kind != "correct" for edit in each.edits)]
    if page is not None:
        title = f"{os.path.basename(hypothesis)} beside {os.path.basename(reference)}"
        write_atomically(page, page_of(title, counts, wrong).encode("utf-8", "replace"))
    click.echo("\n".join(counts.lines()))


def _specifier(name: str) -> str:
    """The rspecifier of a table, or of a file of lines."""
    return name if is_specifier(name) else f"ark:{name}"
