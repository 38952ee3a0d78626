"""Kaldi's and OpenFst's programs that compose transducers.

Source: Kaldi's `fstbin/fsttablecompose.cc`; OpenFst's `fstcompose`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from ....framework.base.errors import FormatError
from ....kaldi.fst.algorithms.compose import compose, invert
from ....kaldi.fst.fst import Fst
from ....kaldi.tables.specifiers import is_specifier
from ....kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ..base.graphs import save_fst
from ..base.program import Option, program
from ..base.saving import fail_unless
from .transducers import choice, read

_FILTERS = ("alt_sequence", "auto", "match", "sequence")
_Composed = Callable[[Fst, Fst], Fst]


_OPTIONS = (
    Option("connect", True, "Leave out states that are on no path"),
    Option(
        "compose-filter", "sequence", f"One of {', '.join(_FILTERS)}; only alt_sequence differs"
    ),
)


def _composer(options: SimpleNamespace) -> _Composed:
    choice(options.compose_filter, _FILTERS, "compose-filter")

    def composed(one: Fst, two: Fst) -> Fst:
        made = (
            # epsilons of the second FST before those of the first
            invert(compose(invert(two), invert(one), connected=options.connect))
            if options.compose_filter == "alt_sequence"
            else compose(one, two, connected=options.connect)
        )
        made.header.input_symbols = one.header.input_symbols
        made.header.output_symbols = two.header.output_symbols
        return made

    return composed


@program("fstcompose", "Compose two FSTs.", ("<fst1-in>", "<fst2-in>", "[<fst-out>]"), *_OPTIONS)
def fstcompose(options: SimpleNamespace, first: str, second: str, output: str) -> None:
    save_fst(_composer(options)(read(first), read(second)), output or "-")


@program(
    "fsttablecompose",
    "Compose two FSTs; or an FST with each of a table, or those of two tables with equal keys.",
    ("<fst1-in>", "<fst2-in>", "[<fst-out>]"),
    *_OPTIONS,
    Option("match-side", "left", "left or right; taken for Kaldi's scripts, both sides are fast"),
)
def fsttablecompose(options: SimpleNamespace, first: str, second: str, output: str) -> None:
    choice(options.match_side, ("left", "right"), "match-side")
    composed = _composer(options)
    tables = is_specifier(first), is_specifier(second)
    if any(tables) != is_specifier(output):
        raise FormatError(
            f"{first}, {second}, {output}: a table is written where one is read, else a file"
        )
    if not any(tables):
        save_fst(composed(read(first), read(second)), output or "-")
    elif all(tables):
        _compose_tables(options, composed, first, second, output)
    elif tables[0]:
        raise FormatError(f"{first}: the first FST may be a table only if the second one is")
    else:
        _compose_each(options, composed, first, second, output)


def _compose_each(
    options: SimpleNamespace, composed: _Composed, first: str, second: str, output: str
) -> None:
    """One FST with each of a table."""
    fst = read(first)
    done = 0
    with TableWriter(output, "fst") as writer:
        for key, other in read_table(second, "fst"):
            writer.write(key, composed(fst, other))
            done += 1
    options.program.log(f"Composed {done} FSTs.")
    fail_unless(done)


def _compose_tables(
    options: SimpleNamespace, composed: _Composed, first: str, second: str, output: str
) -> None:
    """The FSTs of two tables with equal keys."""
    done = failed = 0
    warn = options.program.warn
    others = RandomAccessTable(second, "fst")
    with TableWriter(output, "fst") as writer:
        for key, fst in read_table(first, "fst"):
            other = others.get(key)
            made = None if other is None else composed(fst, other)
            if made is not None and made.states:
                writer.write(key, made)
                done += 1
                continue
            failed += 1
            warn(
                f"No such key {key} in {second}." if made is None else f"Empty output for key {key}"
            )
    options.program.log(f"Successfully composed {done} FSTs, errors or empty output on {failed}")
