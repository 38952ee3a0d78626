"""Kaldi's programs for alignments, posteriors and trees that its training scripts call.

Source: Kaldi's `bin/ali-to-pdf.cc`, `ali-to-phones.cc`, `ali-to-post.cc`, `am-info.cc`,
`copy-int-vector.cc`, `hmm-info.cc`, `post-to-tacc.cc`, `scale-post.cc`, `show-transitions.cc`,
`tree-info.cc`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import click
import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount, repeated
from ...kaldi.files.context_dependency import ContextDependency, answers
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.files.matrix_io import is_number
from ...kaldi.files.phone_segments import PhoneSplitter, Segments
from ...kaldi.files.posterior import Posterior
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.tables.specifiers import is_specifier
from ...kaldi.tables.streams import open_output, open_reader
from ...kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from .base.options import BINARY
from .base.program import Option, program
from .base.saving import fail_unless, save
from .base.table_copies import are_tables, write_table


def _read_model(name: str) -> TransitionModel:
    """The transition model at the beginning of a file, an acoustic model for example."""
    return TransitionModel.read_from(open_reader(name))


def _checked(ids: np.ndarray, count: int, place: str) -> np.ndarray:
    """Transition-ids. Raises FormatError: one of them is none."""
    if len(ids) and not 0 < ids.min() <= ids.max() < count:
        raise FormatError(f"{place}: a transition-id is none of 1 to {count - 1}")
    return ids


@program(
    "ali-to-pdf",
    "Turn alignments, transition-ids, into the numbers of pdfs.",
    ("<model>", "<alignments-rspecifier>", "<pdfs-wspecifier>"),
)
def ali_to_pdf(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    pdfs = _read_model(model).transitions().pdf
    entries = (
        (key, pdfs[_checked(ids, len(pdfs), f"{source}: {key}")])
        for key, ids in read_table(source, "int_vector")
    )
    done = write_table(output, "int_vector", entries)
    options.program.log(f"Converted {done} alignments to pdf sequences.")


@program(
    "ali-to-phones",
    "Turn alignments, transition-ids, into the phones that they go through.",
    ("<model>", "<alignments-rspecifier>", "<phone-transcript-wspecifier|ctm-wxfilename>"),
    Option("ctm-output", False, "Write lines of a ctm file, with 1 for the channel"),
    Option("frame-shift", 0.01, "Seconds from frame to frame, for the times in the ctm file"),
    Option("per-frame", False, "Write the phone of each frame"),
    Option("write-lengths", False, "Write each phone with its number of frames"),
)
def ali_to_phones(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    if options.per_frame + options.write_lengths + options.ctm_output > 1:
        raise FormatError("only one of --per-frame, --write-lengths and --ctm-output can be given")
    splitter = PhoneSplitter(_read_model(model))
    program = options.program
    done = 0

    def segments() -> Iterator[tuple[str, Segments]]:
        nonlocal done
        for key, ids in read_table(source, "int_vector"):
            try:
                split = splitter.split(ids)
            except FormatError as error:
                raise FormatError(f"{source}: {key}: {error}") from error
            if not split.whole:
                program.warn(f"{key}: the alignment begins or ends within a phone")
            done += 1
            yield key, split

    if options.ctm_output:
        with open_output(output) as file:
            for key, split in segments():
                file.write(_ctm_lines(key, split, options.frame_shift).encode())
    else:
        kind = "int_pair_vector" if options.write_lengths else "int_vector"
        with TableWriter(output, kind) as writer:
            for key, split in segments():
                phones, frames = split.phones, split.frames
                if options.write_lengths:
                    writer.write(key, np.stack((phones, frames), axis=1))
                else:
                    writer.write(key, repeated(phones, frames) if options.per_frame else phones)
    program.log(f"Done {done} utterances.")


def _ctm_lines(key: str, segments: Segments, shift: float) -> str:
    """A line for each phone: utterance, channel, begin and duration in seconds, phone."""
    digits = 2 if float(np.float32(shift)) >= 0.01 else 3  # the float next to 0.01 is below it
    durations = np.float32(shift) * segments.frames.astype(np.float32)
    begins = np.cumsum(np.append(np.float32(0), durations[:-1]), dtype=np.float32)
    columns = begins.tolist(), durations.tolist(), segments.phones.tolist()
    return "".join(
        f"{key} 1 {begin:.{digits}f} {duration:.{digits}f} {phone}\n"
        for begin, duration, phone in zip(*columns, strict=False)
    )


@program(
    "ali-to-post",
    "Turn alignments into posteriors: each integer with the weight 1.",
    ("<alignments-rspecifier>", "<posteriors-wspecifier>"),
)
def ali_to_post(options: SimpleNamespace, source: str, output: str) -> None:
    entries = ((key, _ones(ids)) for key, ids in read_table(source, "int_vector"))
    done = write_table(output, "posterior", entries)
    options.program.log(f"Converted {done} alignments.")
    fail_unless(done)


def _ones(ids: np.ndarray) -> Posterior:
    weights = np.ones(len(ids), np.float32)
    return Posterior(np.arange(len(ids) + 1), np.asarray(ids, np.int32), weights)


@program(
    "scale-post",
    "Multiply posteriors with a number, or each utterance's with its own.",
    ("<post-rspecifier>", "<scale|scale-rspecifier>", "<post-wspecifier>"),
)
def scale_post(options: SimpleNamespace, source: str, scale: str, output: str) -> None:
    table = RandomAccessTable(scale, "float") if is_specifier(scale) else None
    if table is None and not is_number(os.fsencode(scale)):
        raise FormatError(f"{scale} is neither a number nor a table of numbers")
    missing = 0
    with TableWriter(output, "posterior") as writer:
        for key, posterior in read_table(source, "posterior"):
            factor = np.float32(scale) if table is None else table.get(key)
            if factor is None:
                missing += 1
            elif factor == 0:
                none = np.zeros(0, np.int32), np.zeros(0, np.float32)
                writer.write(key, Posterior(0 * posterior.starts, *none))
            else:
                weights = posterior.weights * np.float32(factor)
                writer.write(key, Posterior(posterior.starts, posterior.ids, weights))
        done = writer.count
    options.program.log(f"Done {done} posteriors;  {missing} had no scales.")
    fail_unless(done)


@program(
    "copy-int-vector",
    "Copy vectors of integers, such as alignments: a table to a table, or a file to a file.",
    ("<in>", "<out>"),
    BINARY,
)
def copy_int_vector(options: SimpleNamespace, source: str, output: str) -> None:
    if not are_tables(source, output):
        writer = Writer(options.binary)
        writer.write_int_vector(open_reader(source).read_int_vector())
        save(writer, output)
        options.program.log(f"Copied vector to {output}")
        return
    done = write_table(output, "int_vector", read_table(source, "int_vector"))
    options.program.log(f"Copied {done} vectors of int32.")
    fail_unless(done)


@program(
    "post-to-tacc",
    "Add up the weights of posteriors by transition-id, or by pdf.",
    ("<model>", "<post-rspecifier>", "<accs>"),
    BINARY,
    Option("per-pdf", False, "Add up by pdf"),
)
def post_to_tacc(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    transitions = _read_model(model).transitions()
    counts = np.zeros(len(transitions.pdf))
    done = 0
    for key, posterior in read_table(source, "posterior"):
        ids = _checked(posterior.ids, len(counts), f"{source}: {key}")
        np.add.at(counts, ids, posterior.weights)
        done += 1
    if options.per_pdf:
        options.program.log("accumulate counts per pdf-id")
        # Kaldi's program leaves out the last transition-id, so that its counts are these.
        pdfs = transitions.pdf[1:-1]
        counts = bincount(pdfs, counts[1:-1], transitions.num_pdfs)
    writer = Writer(options.binary)
    writer.write_vector(counts.astype(np.float32))
    save(writer, output)
    options.program.log(
        f"Done computing transition stats over {done} utterances; wrote stats to {output}"
    )
    fail_unless(done)


@program("tree-info", "Print the number of pdfs of a decision tree, and its window.", ("<tree>",))
def tree_info(options: SimpleNamespace, source: str) -> None:
    tree = ContextDependency.read(open_reader(source))
    click.echo(f"num-pdfs {max(answers(tree.tree, {})) + 1}")
    click.echo(f"context-width {tree.width}")
    click.echo(f"central-position {tree.central}")


def _tell_sizes(model: str) -> None:
    """Print the sizes of the transition model at the beginning of a file."""
    read = _read_model(model)
    transitions = read.transitions()
    click.echo(f"number of phones {len(read.phones)}")
    click.echo(f"number of pdfs {transitions.num_pdfs}")
    click.echo(f"number of transition-ids {len(transitions.state) - 1}")
    click.echo(f"number of transition-states {len(read.tuples)}")


@program(
    "am-info",
    "Print the sizes of an acoustic model of any type; only its transition model is read.",
    ("<model-in>",),
)
def am_info(options: SimpleNamespace, model: str) -> None:
    _tell_sizes(model)


@program("hmm-info", "Print the sizes of a transition model.", ("<model-in>",))
def hmm_info(options: SimpleNamespace, model: str) -> None:
    _tell_sizes(model)


@program(
    "show-transitions",
    "Print the states of a transition model and their transitions, with counts of pdfs if given.",
    ("<phones-symbol-table>", "<transition/model-file>", "[<occs-file>]"),
)
def show_transitions(options: SimpleNamespace, symbols: str, model: str, counts: str) -> None:
    names = _symbols(symbols)
    read = _read_model(model)
    transitions = read.transitions()
    occupied = open_reader(counts).read_vector(np.float64) if counts else None
    if occupied is not None and len(occupied) != transitions.num_pdfs:
        raise FormatError(f"{counts}: {len(occupied)} counts of {transitions.num_pdfs} pdfs")
    number = 0
    lines = []
    for state, (phone, place, *pdfs) in enumerate(read.tuples.tolist(), 1):
        if phone not in names:
            raise FormatError(f"{symbols}: the phone {phone} has no name")
        kind = "pdf = {}" if read.is_hmm else "forward-pdf = {} self-loop-pdf = {}"
        told = kind.format(*pdfs)
        lines.append(f"Transition-state {state}: phone = {names[phone]} hmm-state = {place} {told}")
        for target, _ in read.entries[read.entry_of[phone]][place].transitions:
            number += 1
            line = f" Transition-id = {number} p = {np.exp(read.log_probs[number]):g}"
            if occupied is not None:
                line += f" count of pdf = {occupied[transitions.pdf[number]]:g}"
            lines.append(line + (" [self-loop]" if target == place else f" [{place} -> {target}]"))
    click.echo("\n".join(lines))


def _symbols(name: str) -> dict[int, str]:
    """The names of numbers in a text file of lines NAME NUMBER. Raises FormatError: it is none."""
    reader = open_reader(name)
    names: dict[int, str] = {}
    while reader.offset < reader.size:
        start = reader.offset
        words = reader.read_line().split()
        if len(words) != 2 or not words[1].isascii() or not words[1].isdigit():
            raise reader.error("a line NAME NUMBER was expected", start)
        names[int(words[1])] = words[0]
    return names
