"""compute-wer, compute-wer-bootci, align-text and lattice-oracle.

Source: Kaldi's `bin/compute-wer.cc`, `bin/compute-wer-bootci.cc`, `bin/align-text.cc`,
`util/text-utils.cc`, `latbin/lattice-oracle.cc`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import deque
from types import SimpleNamespace

import click
import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.values import whole_number
from ....kaldi.lattices.operations import connected
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ....nnet3.programs.base.options import UNUSED, errors_tell, shown
from ....nnet3.programs.base.program import Option, program
from ....nnet3.programs.base.saving import fail_unless
from ....nnet3.programs.base.table_copies import first_words
from ...fst.words import Words
from ...scoring.bootstrap import Bootstrap
from ...scoring.edits import SHOWN, ErrorCounts, alignment, fixed
from ...scoring.oracle import oracle, path_of
from ...scoring.sentences import MODES, sentences
from ..decoding.acoustic_model import SpokenWords
from ..decoding.decoder_options import SYMBOLS

_LAST_LABEL = (1 << 31) - 1
_CONTROL = re.compile(r"[\x00-\x20\x7f]")

_MODE = Option(
    "mode",
    "strict",
    "present|all|strict: whether references without a hypothesis are left out, count as"
    " recognized empty, or end the program",
)


@program(
    "compute-wer",
    "Count the errors of hypotheses beside references, both lines of a key and words, and print the"
    " word error rate.",
    ("<ref-rspecifier>", "<hyp-rspecifier>"),
    _MODE,
    Option("text", False, UNUSED),
)
def compute_wer(options: SimpleNamespace, reference: str, hypothesis: str) -> None:
    _check_mode(options)
    counts = ErrorCounts()
    deque(sentences(reference, hypothesis, options.mode, counts), maxlen=0)
    click.echo("\n".join(counts.lines()))


def _check_mode(options: SimpleNamespace) -> None:
    """Raises FormatError: there is no such mode."""
    if options.mode not in MODES:
        raise FormatError(
            f'--mode option invalid: expected "present"|"all"|"strict", got {options.mode}'
        )


@program(
    "compute-wer-bootci",
    "Print the word error rate of hypotheses with its 95% confidence interval, by drawing sentences"
    " again and again; of two sets of hypotheses also how probably the second one is better.",
    ("<ref-rspecifier>", "<hyp-rspecifier>", "[<hyp2-rspecifier>]"),
    _MODE,
    Option("replications", 10000, "How often sentences are drawn"),
)
def compute_wer_bootci(options: SimpleNamespace, reference: str, first: str, second: str) -> None:
    _check_mode(options)
    if options.replications < 1:
        raise FormatError(f"--replications={options.replications} must be positive")
    sets = [first, second] if second else [first]
    counted = [_errors(options.mode, reference, name) for name in sets]
    keys = [key for key in counted[0] if all(key in each for each in counted)]
    if not keys:
        raise FormatError(f"{reference}: no sentence can be scored")
    words = np.array([counted[0][key][1] for key in keys])
    errors = [np.array([each[key][0] for key in keys]) for each in counted]
    bootstrap = Bootstrap(len(keys), options.replications)
    hundred = np.float32(100)
    intervals = [bootstrap.interval(each, words) for each in errors]
    for number, (mean, half) in enumerate(intervals, 1):
        low, high = hundred * mean - hundred * half, hundred * mean + hundred * half
        click.echo(
            f"Set{number}: %WER {fixed(hundred * mean)} 95% Conf Interval"
            f" [ {fixed(low)}, {fixed(high)} ]"
        )
    if second:
        better = hundred * bootstrap.improvement(*errors)
        click.echo(f"Probability of Set2 improving Set1: {fixed(better)}")


def _errors(mode: str, reference: str, hypothesis: str) -> dict[str, tuple[int, int]]:
    """Errors and words of each sentence."""
    found: dict[str, tuple[int, int]] = {}
    for key, edits in sentences(reference, hypothesis, mode, ErrorCounts()):
        counts = ErrorCounts()
        counts.add(edits)
        found[key] = counts.errors, counts.words
    return found


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
