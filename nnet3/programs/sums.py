"""Kaldi's programs that add up matrices and vectors: matrix-sum, matrix-sum-rows, vector-sum.

Source: Kaldi's `bin/matrix-sum.cc`, `matrix-sum-rows.cc`, `vector-sum.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from ...framework.base.errors import FormatError
from ...kaldi.files import matrix_io
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.tables.specifiers import is_specifier
from ...kaldi.tables.streams import open_reader
from ...kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from .base.program import Option, program
from .base.saving import fail_unless, save

_BINARY = Option("binary", True, "Write output in binary mode, where it is a single file")
_PLURAL = {"matrix": "matrices", "vector": "vectors"}
_FORMS = (
    " Tables to a table, key by key: <rspecifier>... <wspecifier>; a table to a file: <rspecifier>"
    " <file>; files to a file: <file>... <file>."
)


@program(
    "matrix-sum",
    "Add matrices." + _FORMS,
    ("<in>...", "<out>"),
    _BINARY,
    Option("scale1", 1.0, "Factor of the first table, where the output is a table"),
    Option("scale2", 1.0, "Factor of the second table, where the output is a table"),
    Option("average", False, "Divide by the number of inputs; not for a single table"),
)
def matrix_sum(options: SimpleNamespace, *files: str) -> None:
    scales = [options.scale1, options.scale2]
    _sum("matrix", options, files, scales, average_of_table=False)


@program(
    "vector-sum",
    "Add vectors." + _FORMS,
    ("<in>...", "<out>"),
    _BINARY,
    Option("average", False, "Divide by the number of vectors of a single table"),
)
def vector_sum(options: SimpleNamespace, *files: str) -> None:
    _sum("vector", options, files, [], average_of_table=True)


@program(
    "matrix-sum-rows",
    "Add up the rows of each matrix of a table.",
    ("<matrix-rspecifier>", "<vector-wspecifier>"),
)
def matrix_sum_rows(options: SimpleNamespace, source: str, output: str) -> None:
    done = rows = 0
    with TableWriter(output, "vector") as writer:
        for key, matrix in read_table(source, "matrix"):
            writer.write(key, matrix.sum(axis=0, dtype=np.float64))
            done += 1
            rows += len(matrix)
    options.program.log(f"Summed rows {done} matrices, {rows} rows in total.")
    fail_unless(done)


def _sum(
    kind: str,
    options: SimpleNamespace,
    files: Sequence[str],
    scales: list[float],
    average_of_table: bool,
) -> None:
    """Choose the form by the kind of the names: tables or files."""
    *inputs, output = files
    tables = [is_specifier(name) for name in inputs]
    if is_specifier(output):
        _sum_tables(kind, options, inputs, output, scales)
        return
    if set(scales) - {1.0}:
        raise FormatError("--scale1 and --scale2 are for tables that are added to a table")
    if tables == [True]:
        if options.average and not average_of_table:
            raise FormatError("--average has no meaning for a single table of matrices")
        _sum_table(kind, options, inputs[0], output)
    elif any(tables):
        raise FormatError("some of the inputs are tables, some are files")
    else:
        _sum_files(kind, options, inputs, output, options.average and not average_of_table)


def _sum_tables(
    kind: str, options: SimpleNamespace, inputs: list[str], output: str, scales: list[float]
) -> None:
    log, warn = options.program.log, options.program.warn
    factors = [*scales, *[1.0] * len(inputs)][: len(inputs)]
    if options.average and scales:
        factors = [1.0 / len(inputs)] * len(inputs)
    others = [RandomAccessTable(name, kind) for name in inputs[1:]]
    done = used = missing = 0
    with TableWriter(output, kind) as writer:
        for key, first in read_table(inputs[0], kind):
            total = first * np.float32(factors[0])
            used += 1
            for name, table, factor in zip(inputs[1:], others, factors[1:], strict=True):
                value = table.get(key)
                if value is None:
                    warn(f"No {kind} found for {key}, rspecifier: {name}")
                    missing += 1
                    continue
                used += 1
                if value.shape != total.shape:
                    warn(
                        f"Dimension mismatch for {key}: {list(value.shape)} of {name} and"
                        f" {list(total.shape)} of {inputs[0]}"
                    )
                    continue
                total += value * np.float32(factor)
            writer.write(key, total)
            done += 1
    log(
        f"Processed {done} utterances: with a total of {used} {_PLURAL[kind]} across"
        f" {len(inputs)} different systems"
    )
    log(f"Produced output for {done} utterances; {missing} total missing {_PLURAL[kind]}")
    fail_unless(done and missing < done - missing)


def _sum_table(kind: str, options: SimpleNamespace, source: str, output: str) -> None:
    total: np.ndarray | None = None
    done = failed = 0
    for key, value in read_table(source, kind):
        if not len(value):
            options.program.warn(f"Zero {kind} input for key {key}")
            failed += 1
        elif total is not None and value.shape != total.shape:
            options.program.warn(
                f"Dimension mismatch for key {key}: {list(value.shape)} and {list(total.shape)}"
            )
            failed += 1
        else:
            total = value.astype(np.float64) if total is None else total + value
            done += 1
    if total is None:
        total = np.zeros((0, 0) if kind == "matrix" else 0)
    _write(total / done if options.average and done else total, output, options.binary)
    options.program.log(
        f"Summed {done} {_PLURAL[kind]}, {failed} with errors; wrote sum to {output}"
    )
    fail_unless(done and failed < done)


def _sum_files(
    kind: str, options: SimpleNamespace, inputs: list[str], output: str, average: bool
) -> None:
    """Smaller ones count as filled up with zeros."""
    read = matrix_io.read_matrix if kind == "matrix" else matrix_io.read_vector
    values = [read(open_reader(name), np.float32) for name in inputs]
    total = np.zeros(np.max([value.shape for value in values], axis=0), np.float32)
    for value in values:
        total[tuple(slice(size) for size in value.shape)] += value
    _write(total / np.float32(len(values)) if average else total, output, options.binary)
    options.program.log(f"Summed {len(inputs)} {_PLURAL[kind]}; wrote sum to {output}")


def _write(value: np.ndarray, name: str, binary: bool) -> None:
    writer = Writer(binary)
    write = matrix_io.write_matrix if value.ndim == 2 else matrix_io.write_vector
    write(writer, value.astype(np.float32))
    save(writer, name)
