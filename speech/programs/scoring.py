"""compute-wer and align-text.

Source: Kaldi's `bin/compute-wer.cc`, `bin/align-text.cc`, `util/text-utils.cc`.
"""

from __future__ import annotations

import re
from collections import deque
from types import SimpleNamespace

import click

from ...framework.base.errors import FormatError
from ...kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ...nnet3.programs.base.options import UNUSED
from ...nnet3.programs.base.program import Option, program
from ...nnet3.programs.base.saving import fail_unless
from ..scoring.edits import SHOWN, ErrorCounts, alignment
from ..scoring.sentences import MODES, sentences

_CONTROL = re.compile(r"[\x00-\x20\x7f]")


@program(
    "compute-wer",
    "Count the errors of hypotheses beside references, both lines of a key and words, and print the"
    " word error rate.",
    ("<ref-rspecifier>", "<hyp-rspecifier>"),
    Option(
        "mode",
        "strict",
        "present|all|strict: whether references without a hypothesis are left out, count as"
        " recognized empty, or end the program",
    ),
    Option("text", False, UNUSED),
)
def compute_wer(options: SimpleNamespace, reference: str, hypothesis: str) -> None:
    if options.mode not in MODES:
        raise FormatError(
            f'--mode option invalid: expected "present"|"all"|"strict", got {options.mode}'
        )
    counts = ErrorCounts()
    deque(sentences(reference, hypothesis, options.mode, counts), maxlen=0)
    click.echo("\n".join(counts.lines()))


@program(
    "align-text",
    "Align two texts, both lines of a key and words, with the least number of errors. Of each line,"
    " pairs of words are written.",
    ("<text1-rspecifier>", "<text2-rspecifier>", "<alignment-wspecifier>"),
    Option("special-symbol", "<eps>", "Stands where a word was inserted or deleted"),
    Option("separator", ";", "Stands between pairs"),
)
def align_text(options: SimpleNamespace, first: str, second: str, output: str) -> None:
    special = options.special_symbol
    others = RandomAccessTable(second, "token_vector")
    failed = 0
    with TableWriter(output, "token_vector") as writer:
        for key, words in read_table(first, "token_vector"):
            other = others.get(key)
            if other is None:
                options.program.warn(f"Key {key} is in {first}, but not in {second}")
                failed += 1
                continue
            for name, text in (("text1", words), ("text2", other)):
                _check(f"In {name}, the utterance {key}", text, special)
            pairs = alignment(words, other, SHOWN)
            tokens: list[str] = []
            for edit in pairs:
                left, right = edit.reference, edit.hypothesis
                tokens += [options.separator] * bool(tokens)
                tokens += [special if left is None else left, special if right is None else right]
            writer.write(key, tokens)
        done = writer.count
    options.program.log(f"Done {done} sentences, failed for {failed}")
    fail_unless(done)


def _check(what: str, words: list[str], special: str) -> None:
    """Raises FormatError: a word is broken, or is the one that stands for none."""
    if any(_CONTROL.search(word) for word in words):
        raise FormatError(
            f"{what} contains unprintable characters. That means there is a problem with the text"
            " (such as incorrect encoding)."
        )
    if special in words:
        raise FormatError(f"{what} contains the special symbol '{special}'. This is not allowed.")
