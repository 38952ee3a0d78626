"""compute-wer, align-text and lattice-oracle.

Source: Kaldi's `bin/compute-wer.cc`, `bin/align-text.cc`, `util/text-utils.cc`,
`latbin/lattice-oracle.cc`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import deque
from types import SimpleNamespace

import click

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.values import whole_number
from ...kaldi.lattices.operations import connected
from ...kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ...nnet3.programs.base.options import UNUSED, errors_tell, shown
from ...nnet3.programs.base.program import Option, program
from ...nnet3.programs.base.saving import fail_unless
from ...nnet3.programs.base.table_copies import first_words
from ..fst.words import Words
from ..scoring.edits import SHOWN, ErrorCounts, alignment
from ..scoring.oracle import oracle, path_of
from ..scoring.sentences import MODES, sentences
from .acoustic_model import SpokenWords
from .decoder_options import SYMBOLS

_LAST_LABEL = (1 << 31) - 1
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


@program(
    "lattice-oracle",
    "Find the path of each lattice with the fewest errors beside a reference, and count them.",
    (
        "<test-lattice-rspecifier>",
        "<reference-rspecifier>",
        "<transcriptions-wspecifier>",
        "[<edit-distance-wspecifier>]",
    ),
    SYMBOLS,
    Option("wildcard-symbols", "", "Labels of words that do not count, with : between them"),
    Option("wildcard-symbols-list", "", "File of such words, a line each; wants a table of words"),
    Option("write-lattices", "", "Wspecifier of lattices with the paths that were found"),
)
def lattice_oracle(
    options: SimpleNamespace, source: str, references: str, words: str, distances: str
) -> None:
    log, warn = options.program.log, options.program.warn
    wild = _wildcards(options)
    spoken = SpokenWords(options.word_symbol_table)
    known = RandomAccessTable(references, "int_vector")
    total = ErrorCounts()
    done = failed = 0
    outputs = {"int_vector": words, "int": distances, "compact_lattice": options.write_lattices}
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(TableWriter(name, kind)) if name else None
            for kind, name in outputs.items()
        ]
        for key, lattice in shown(read_table(source, "compact_lattice"), "score", "lattices"):
            reference = known.get(key)
            if reference is None:
                warn(f"No reference present for utterance {key}")
                failed += 1
                continue
            done += 1
            if not connected(lattice).states:
                warn(f"Best-path failed for key {key}")
                failed += 1
                continue
            counts = ErrorCounts()
            with errors_tell(f"{source}: {key}"):
                edits = oracle(lattice, reference.tolist(), wild)
                heard = [edit.hypothesis for edit in edits if edit.hypothesis is not None]
                path = path_of(lattice, heard, wild) if options.write_lattices else None
            for each in (counts, total):
                each.add(edits)
            log(f"{_told(counts)} sub ]")
            log(f"For utterance {key}, best cost {counts.errors}")
            for writer, value in zip(writers, (heard, counts.errors, path), strict=True):
                if writer is not None:
                    writer.write(key, value)
            said = [edit.reference for edit in edits if edit.reference is not None]
            spoken.tell(f"{key} (oracle)", heard)
            spoken.tell(f"{key} (reference)", said)
    log(f"Overall {_told(total)} substitutions ]")
    log(f"Scored {done} lattices, {failed} not present in ref.")


def _told(counts: ErrorCounts) -> str:
    """Counts in the words of Kaldi's program, up to the number of substitutions."""
    rate = 100 * counts.errors / counts.words if counts.words else counts.word_error_rate
    shown_rate = "-nan" if math.isnan(rate) else f"{rate:g}"
    return (
        f"%WER {shown_rate} [ {counts.errors} / {counts.words}, {counts.insertions} insertions,"
        f" {counts.deletions} deletions, {counts.substitutions}"
    )


def _wildcards(options: SimpleNamespace) -> frozenset[int]:
    """The labels that do not count.

    Raises:
        FormatError: one is no number, or no word of the table.
    """
    listed = options.wildcard_symbols_list
    if not listed:
        texts = [text for text in options.wildcard_symbols.split(":") if text]
        what = "--wildcard-symbols"
        return frozenset(whole_number(text, what, 0, _LAST_LABEL) for text in texts)
    if options.wildcard_symbols or not options.word_symbol_table:
        raise FormatError(
            "--wildcard-symbols-list wants --word-symbol-table, and no --wildcard-symbols"
        )
    table = Words.read(options.word_symbol_table)
    labels = {word: table.find(word) for word in first_words(listed)}
    missing = sorted(word for word, label in labels.items() if label is None)
    if missing:
        raise FormatError(f"{listed}: Can't find symbol in symbol table: {missing[0]}")
    options.program.warn("--wildcard-symbols-list option deprecated.")
    return frozenset(label for label in labels.values() if label is not None)
