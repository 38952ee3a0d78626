"""Kaldi's program that determinizes transducers.

Source: Kaldi's `fstbin/fstdeterminizestar.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.fst.algorithms.determinize_star import determinize_star
from ....kaldi.fst.fst import DELTA, Fst
from ....kaldi.tables.tables import TableWriter, read_table
from ..base.program import Option, program
from ..base.table_copies import are_tables
from .transducers import FILES, positive, read, write


@program(
    "fstdeterminizestar",
    "Determinize FSTs and remove their epsilons in one step: a file to a file, or a table to a"
    " table.",
    FILES,
    Option("use-log", False, "Add the weights of paths as probabilities"),
    Option("delta", DELTA, "Weights that differ by no more are equal"),
    Option("max-states", -1, "Fail where it takes more states than this"),
)
def fstdeterminizestar(options: SimpleNamespace, source: str, output: str) -> None:
    delta = positive(options.delta, "delta")

    def determinized(fst: Fst, name: str) -> Fst:
        try:
            return determinize_star(fst, delta, options.max_states, log=options.use_log)
        except ShapeError as error:
            raise FormatError(f"{name}: {error}") from error

    if not are_tables(source, output):
        fst = read(source)
        write(determinized(fst, source or "standard input"), fst, output)
        return
    with TableWriter(output, "fst") as writer:
        for key, fst in read_table(source, "fst"):
            try:
                writer.write(key, determinized(fst, key))
            except FormatError as error:
                options.program.warn(f"left out: {error}")
