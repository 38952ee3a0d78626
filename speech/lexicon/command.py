"""The command `opscope make-lang`."""

from __future__ import annotations

from typing import Any

import click

from ...framework.base.options.field_options import field_options
from .lang import make_lang as made
from .lang_files import LangOptions


@click.command()
@click.argument("lexicon")
@click.argument("out")
@field_options(LangOptions)
def make_lang(lexicon: str, out: str, **options: Any) -> None:
    """Write the lang folder OUT of LEXICON, as Kaldi's prepare_lang.sh does.

    LEXICON is a file with a word and its phones in each line, or a folder with phone lists, as
    Kaldi's `dict` folders are.
    """
    made(lexicon, out, **options)
