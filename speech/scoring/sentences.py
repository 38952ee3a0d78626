"""References and hypotheses of a table, sentence by sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...framework.base.errors import FormatError
from ...kaldi.tables.tables import RandomAccessTable, read_table
from .edits import Edit, ErrorCounts, alignment

MODES = ("strict", "present", "all")


class Sentence(NamedTuple):
    """A sentence with the edits that make its hypothesis of the reference."""

    key: str
    edits: list[Edit[str]]


def sentences(
    reference: str, hypothesis: str, mode: str, counts: ErrorCounts
) -> Iterator[Sentence]:
    """The sentences that are scored, in the order of the references.

    Args:
        reference, hypothesis: rspecifiers of lines of words.
        mode: what becomes of references without a hypothesis: `strict` refuses them, `present`
            leaves them out, `all` takes an empty sentence.
        counts: gets the errors.

    Raises:
        FormatError: a table cannot be read, or lacks a key where `mode` is `strict`.
    """
    said = RandomAccessTable(hypothesis, "token_vector")
    for key, words in read_table(reference, "token_vector"):
        heard = said.get(key)
        if heard is None:
            if mode == "strict":
                raise FormatError(f"No hypothesis for key {key} and strict mode specifier.")
            counts.absent += 1
            if mode == "present":
                continue
        edits = alignment(words, heard or [])
        counts.add(edits)
        yield Sentence(key, edits)
