"""Kaldi's programs that copy tables: features, matrices, FSTs; what sizes matrices have.

Source: Kaldi's `featbin/copy-feats.cc`, `subsample-feats.cc`, `subset-feats.cc`,
`bin/copy-matrix.cc`, `bin/matrix-dim.cc`, `fstbin/fstcopy.cc`.
"""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import click
import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.compressed import CompressedMatrix, Compression
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.tables.specifiers import is_specifier
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import TableWriter, read_table
from ..base.options import BINARY, shown
from ..base.program import Option, program
from ..base.saving import fail_unless, save
from ..base.table_copies import are_tables, first_words, write_table

_FIRST = 10
_LEAST = 1e-20  # of a number whose logarithm is taken


@program(
    "copy-feats",
    "Copy features: a table to a table, or a file to a file.",
    ("<feature-in>", "<feature-out>"),
    BINARY,
    Option("compress", False, "Write a table in compressed form"),
    Option("compression-method", 1, "How it is compressed, 1 to 7"),
    Option("write-num-frames", "", "Wspecifier of the number of frames of each utterance"),
)
def copy_feats(options: SimpleNamespace, source: str, output: str) -> None:
    if not are_tables(source, output):
        if options.compress or options.write_num_frames:
            raise FormatError("--compress and --write-num-frames want tables, not files")
        _save_matrix(open_reader(source).read_matrix(np.float32), output, options.binary)
        options.program.log(f"Copied features from {source} to {output}")
        return
    method = options.compression_method
    if method not in Compression.__members__.values():
        raise FormatError(f"--compression-method={method} is none of 1 to 7")
    lengths: list[tuple[str, int]] = []
    kind = "compressed_matrix" if options.compress else "matrix"
    with TableWriter(output, kind) as writer:
        for key, matrix in shown(read_table(source, "matrix"), "copy", "utterances"):
            lengths.append((key, len(matrix)))
            if options.compress:
                writer.write(key, CompressedMatrix.compress(matrix, Compression(method)))
            else:
                writer.write(key, matrix)
    if options.write_num_frames:
        write_table(options.write_num_frames, "int", lengths)
    options.program.log(f"Copied {len(lengths)} feature matrices.")
    fail_unless(lengths)


@program(
    "subsample-feats",
    "Copy every n'th frame of features, or with a negative n each frame so many times.",
    ("<in-rspecifier>", "<out-wspecifier>"),
    Option("n", 1, "Take every n'th frame; if negative, repeat each frame -n times"),
    Option("offset", 0, "The first frame that is taken"),
)
def subsample_feats(options: SimpleNamespace, source: str, output: str) -> None:
    step, offset = options.n, options.offset
    if not step or offset < 0 or (step < 0 and offset):
        raise FormatError(f"--n={step}, --offset={offset}: no such frames")
    failed = before = after = 0
    with TableWriter(output, "matrix") as writer:
        for key, matrix in shown(read_table(source, "matrix"), "copy", "utterances"):
            rows = matrix[offset::step] if step > 0 else np.repeat(matrix, -step, axis=0)
            before, after = before + len(matrix), after + len(rows)
            if not len(rows):
                options.program.warn(
                    f"For utterance {key}, output would have no rows, producing no output."
                )
                failed += 1
                continue
            writer.write(key, rows)
        done = writer.count
    log = options.program.log
    log(f"Processed {done} feature matrices; {failed} with errors.")
    log(f"Processed {before} input frames and {after} output frames.")
    fail_unless(done)


@program(
    "subset-feats",
    "Copy the features of some utterances: of the first n, or of those that a file names or does"
    " not name.",
    ("<in-rspecifier>", "<out-wspecifier>"),
    Option("n", _FIRST, "Copy the first n feature matrices"),
    Option("include", "", "Text file whose lines begin with the keys that are copied"),
    Option("exclude", "", "Text file whose lines begin with the keys that are not copied"),
)
def subset_feats(options: SimpleNamespace, source: str, output: str) -> None:
    listed = options.include or options.exclude
    if (options.include and options.exclude) or (listed and options.n != _FIRST):
        raise FormatError("Should not have more than one of --include, --exclude and --n option!")
    if options.n < 1:
        raise FormatError(f"Invalid option --n={options.n}. Should be at least 1")
    entries = shown(read_table(source, "matrix"), "copy", "utterances")
    if not listed:
        write_table(output, "matrix", islice(entries, options.n))
        return
    keys = first_words(listed)
    total = 0
    with TableWriter(output, "matrix") as writer:
        for key, matrix in entries:
            total += 1
            if (key in keys) == bool(options.include):
                writer.write(key, matrix)
        done = writer.count
    options.program.log(f" Wrote {done} out of {total} utterances.")
    fail_unless(done)


@program(
    "copy-matrix",
    "Copy matrices, changed by options: a table to a table, or a file to a file.",
    ("<matrix-in>", "<matrix-out>"),
    BINARY,
    Option("scale", 1.0, "Factor for all numbers, before what follows"),
    Option("apply-log", False, "Take logarithms, of 1e-20 where a number is smaller"),
    Option("apply-exp", False, "Take exponentials"),
    Option("apply-softmax-per-row", False, "Take the softmax of each row"),
    Option("apply-power", 1.0, "Power that numbers are raised to, after all else"),
)
def copy_matrix(options: SimpleNamespace, source: str, output: str) -> None:
    if options.apply_log + options.apply_exp + options.apply_softmax_per_row > 1:
        raise FormatError("Only one of apply-log, apply-exp and apply-softmax-per-row can be given")
    if not are_tables(source, output):
        matrix = _changed(open_reader(source).read_matrix(np.float32), options)
        _save_matrix(matrix, output, options.binary)
        options.program.log(f"Copied matrix to {output}")
        return
    matrices = shown(read_table(source, "matrix"), "copy", "matrices")
    done = write_table(output, "matrix", ((key, _changed(m, options)) for key, m in matrices))
    options.program.log(f"Copied {done} matrices.")
    fail_unless(done)


def _changed(matrix: np.ndarray, options: SimpleNamespace) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if options.scale != 1:
            matrix = matrix * np.float32(options.scale)
        if options.apply_log:
            matrix = np.log(np.maximum(matrix, np.float32(_LEAST)))
        if options.apply_exp:
            matrix = np.exp(matrix)
        if options.apply_softmax_per_row and matrix.size:
            powers = np.exp(matrix - matrix.max(1, keepdims=True))
            matrix = powers / powers.sum(1, keepdims=True)
        if options.apply_power != 1:
            matrix = np.power(matrix, np.float32(options.apply_power))
    return matrix


@program(
    "matrix-dim",
    "Print the rows and columns of a matrix, or of all matrices of a table.",
    ("<matrix-in>",),
)
def matrix_dim(options: SimpleNamespace, source: str) -> None:
    if not is_specifier(source):
        rows, columns = open_reader(source).read_matrix(np.float32).shape
        click.echo(f"{rows}\t{columns}")
        return
    count = 0
    for key, matrix in read_table(source, "matrix"):
        click.echo(f"{key}\t{matrix.shape[0]}\t{matrix.shape[1]}")
        count += 1
    if not count:
        options.program.warn(f"No features read from rspecifier '{source}'")
        raise click.exceptions.Exit(1)


@program("fstcopy", "Copy tables of FSTs.", ("<fst-rspecifier>", "<fst-wspecifier>"))
def fstcopy(options: SimpleNamespace, source: str, output: str) -> None:
    done = write_table(output, "fst", shown(read_table(source, "fst"), "copy", "FSTs"))
    options.program.log(f"Copied {done} FSTs.")
    fail_unless(done)


def _save_matrix(matrix: np.ndarray, name: str, binary: bool) -> None:
    writer = Writer(binary)
    writer.write_matrix(matrix)
    save(writer, name)
