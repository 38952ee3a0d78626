"""lattice-align-words, lattice-to-ctm-conf, nbest-to-ctm, lattice-mbr-decode.

Source: Kaldi's programs of these names in `latbin/`, `lat/sausages.cc`, `lat/word-align-lattice.h`.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from types import SimpleNamespace

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.files.posterior import Posterior
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.lattices.lattice import CompactLattice, single, top_sorted
from ....kaldi.lattices.transition_ids import TransitionIds
from ....kaldi.lattices.unfold import TooManyStates
from ....kaldi.tables.specifiers import is_specifier
from ....kaldi.tables.streams import open_output, open_reader
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ....nnet3.programs.base.options import UNUSED, errors_tell, shown
from ....nnet3.programs.base.program import KaldiCommand, Option, program
from ....nnet3.programs.base.saving import fail_unless
from ...lattice.bayes_risk import BayesRisk, minimum_bayes_risk
from ...lattice.times import timed_words
from ...lattice.word_align import word_aligned
from ...lattice.word_boundary import WordBoundaries

_KIND = "compact_lattice"
_SCALES = (
    Option("acoustic-scale", 1.0, "Factor for acoustic costs"),
    Option("lm-scale", 1.0, "Factor for graph costs"),
)
_FRAME_SHIFT = Option("frame-shift", 0.01, "Seconds of a frame")


@program(
    "lattice-align-words",
    "Make lattices whose arcs are words, each with its transition-ids, by the positions of phones"
    " in words.",
    ("<word-boundary-file>", "<model>", "<lattice-rspecifier>", "<lattice-wspecifier>"),
    Option("output-error-lats", True, "Write lattices that could not be aligned rightly as well"),
    Option("max-expand", 0.0, "If > 0, how many times as many states a lattice may get"),
    Option("test", False, UNUSED),
    Option("silence-label", 0, "Label of arcs of silence"),
    Option("partial-word-label", 0, "Label of arcs of words that are cut off and not known"),
    Option("reorder", True, "Self-loops stand after the transitions that leave their states"),
)
def lattice_align_words(
    options: SimpleNamespace, boundary_file: str, model: str, source: str, output: str
) -> None:
    transitions = TransitionIds.of(TransitionModel.read_from(open_reader(model)))
    boundaries = replace(
        WordBoundaries.read(boundary_file),
        silence_label=options.silence_label,
        partial_label=options.partial_word_label,
        reorder=options.reorder,
    )
    warn = options.program.warn
    done = failed = 0
    with TableWriter(output, _KIND) as writer:
        for key, lattice in shown(read_table(source, _KIND), "align", "lattices"):
            most = None
            if options.max_expand > 0:
                most = int(1000 + options.max_expand * lattice.states)
            right, aligned = lattice.start < 0, CompactLattice()
            if lattice.start >= 0:
                try:
                    with errors_tell(f"{source}: {key}"):
                        aligned, right = word_aligned(
                            lattice, transitions, boundaries, warn, most=most
                        )
                except TooManyStates as error:
                    warn(str(error))
            empty = aligned.start < 0
            if right and not empty:
                done += 1
                options.program.vlog(2, f"Aligned lattice for {key}")
                writer.write(key, top_sorted(aligned))
                continue
            failed += 1
            if right:
                warn(f"Lattice was empty for key {key}")
            elif not options.output_error_lats:
                warn(f"Lattice for {key} did not align correctly, producing no output.")
            elif empty:
                warn(f"Empty aligned lattice for {key}, producing no output.")
            else:
                warn(f"Outputting partial lattice for {key}")
                writer.write(key, top_sorted(aligned))
    options.program.log(f"Successfully aligned {done} lattices; {failed} had errors.")
    fail_unless(done > failed)


@program(
    "lattice-to-ctm-conf",
    "Write when the words with the least expected number of errors were spoken, and how sure each"
    " is. Lattices should be aligned with words.",
    ("<lattice-rspecifier>", "[<1best-rspecifier>]", "[<times-rspecifier>]", "<ctm-wxfilename>"),
    *_SCALES,
    Option("inv-acoustic-scale", 1.0, "The inverse of --acoustic-scale, in its place"),
    _FRAME_SHIFT,
    Option("confidence-digits", 2, "Digits after the point, of all numbers"),
    Option("decode-mbr", True, "Look for the words with the fewest errors; else the best path's"),
    Option("print-silence", False, "Write the empty places between words as well"),
)
def lattice_to_ctm_conf(
    options: SimpleNamespace, source: str, best: str, times: str, output: str
) -> None:
    warn = options.program.warn
    acoustic = options.acoustic_scale
    if options.inv_acoustic_scale != 1:
        if acoustic != 1 or options.inv_acoustic_scale == 0:
            raise FormatError(
                "--inv-acoustic-scale stands in place of --acoustic-scale, and is not 0"
            )
        acoustic = 1 / options.inv_acoustic_scale
    _check_plain(output)
    begins = RandomAccessTable(best, "int_vector") if best else None
    known = RandomAccessTable(times, "float_pair_vector") if times else None
    total = _Risks()
    shift, digits = single(options.frame_shift), max(options.confidence_digits, 0)
    with open_output(output) as file:
        for key, lattice in shown(read_table(source, _KIND), "decode", "lattices"):
            words = None
            if begins is not None:
                words = begins.get(key)
                if words is None:
                    warn(f"No 1-best present for utterance {key}")
                    continue
                if known is not None and key not in known:
                    warn(f"No 'times' present for utterance {key}")
                    continue
            with errors_tell(f"{source}: {key}"):
                found = minimum_bayes_risk(
                    lattice.scaled(options.lm_scale, acoustic),
                    decode=options.decode_mbr,
                    keep_silence=options.print_silence,
                    words=None if words is None else words.tolist(),
                )
            for word in found.words:
                begin, long = single(shift * word.begin), single(word.end - word.begin)
                file.write(
                    f"{key} 1 {begin:.{digits}f} {single(shift * long):.{digits}f} {word.label}"
                    f" {word.confidence:.{digits}f}\n".encode()
                )
            mean = _mean(sum(word.confidence for word in found.words), len(found.words))
            options.program.log(
                f"For utterance {key}, Bayes Risk {found.risk:g}, avg. confidence per-word {mean}"
            )
            total.add(found)
    total.tell(options.program, "Overall average")


@program(
    "nbest-to-ctm",
    "Write when the words of lattices of one path were spoken. They must be aligned with words.",
    ("<aligned-linear-lattice-rspecifier>", "<ctm-wxfilename>"),
    Option("print-silence", False, "Write arcs without a word as well"),
    _FRAME_SHIFT,
    Option("precision", 2, "Digits after the point; more if the frame shift wants them"),
)
def nbest_to_ctm(options: SimpleNamespace, source: str, output: str) -> None:
    shift, digits = single(options.frame_shift), max(options.precision, 0)
    if shift < single(0.01):
        digits = max(digits, 3)
    if shift < single(0.001):
        digits = max(digits, 4)
    _check_plain(output)
    done = failed = 0
    with open_output(output) as file:
        for key, lattice in shown(read_table(source, _KIND), "convert", "lattices"):
            try:
                words, _ = timed_words(lattice, keep_silence=options.print_silence)
            except ShapeError as error:
                options.program.warn(f"Format conversion failed for key {key}: {error}")
                failed += 1
                continue
            for word in words:
                begin, long = single(shift * word.begin), single(shift * (word.end - word.begin))
                file.write(f"{key} 1 {begin:.{digits}f} {long:.{digits}f} {word.label}\n".encode())
            done += 1
    options.program.log(f"Converted {done} linear lattices to ctm format; {failed} had errors.")
    fail_unless(done)


@program(
    "lattice-mbr-decode",
    "Write the words with the least expected number of errors, that number, what stands in each"
    " place with its probability, and begin and end of each place in frames.",
    (
        "<lattice-rspecifier>",
        "<transcriptions-wspecifier>",
        "[<bayes-risk-wspecifier>]",
        "[<sausage-stats-wspecifier>]",
        "[<times-wspecifier>]",
    ),
    *_SCALES,
    Option("one-best-times", False, "Write the times of the words, not of all places"),
    Option("word-symbol-table", "", UNUSED),
)
def lattice_mbr_decode(
    options: SimpleNamespace, source: str, words: str, risks: str, bins: str, times: str
) -> None:
    outputs = {"int_vector": words, "float": risks, "posterior": bins, "float_pair_vector": times}
    total = _Risks()
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(TableWriter(name, kind)) if name else None
            for kind, name in outputs.items()
        ]
        for key, lattice in shown(read_table(source, _KIND), "decode", "lattices"):
            with errors_tell(f"{source}: {key}"):
                found = minimum_bayes_risk(lattice.scaled(options.lm_scale, options.acoustic_scale))
            spans = found.spans
            if options.one_best_times:
                spans = [(word.begin, word.end) for word in found.words]
            values = (
                [word.label for word in found.words],
                found.risk,
                Posterior.from_frames(
                    [[(word.label, word.confidence) for word in each] for each in found.bins]
                ),
                spans,
            )
            for writer, value in zip(writers, values, strict=True):
                if writer is not None:
                    writer.write(key, value)
            total.add(found)
    total.tell(options.program, "Average")


class _Risks:
    """Sums of lattices, words and risks."""

    def __init__(self) -> None:
        self._lattices = self._words = 0
        self._risk = 0.0

    def add(self, found: BayesRisk) -> None:
        self._lattices += 1
        self._words += len(found.words)
        self._risk += found.risk

    def tell(self, program: KaldiCommand, what: str) -> None:
        """Log the means; no lattice at all is a failure."""
        program.log(f"Done {self._lattices} lattices.")
        program.log(
            f"{what} Bayes Risk per sentence is {_mean(self._risk, self._lattices)} and per word,"
            f" {_mean(self._risk, self._words)}"
        )
        fail_unless(self._lattices)


def _mean(total: float, count: int) -> str:
    return f"{total / count if count else math.nan:g}"


def _check_plain(output: str) -> None:
    """Raises FormatError: the name is a table's."""
    if is_specifier(output):
        raise FormatError(
            f"{output}: the output ctm file should not be a wspecifier: give a file, such as 1.ctm"
        )
