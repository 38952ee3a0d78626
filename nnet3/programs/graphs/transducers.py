"""Kaldi's and OpenFst's programs that change one transducer.

Source: Kaldi's `fstbin/fstrmsymbols.cc`, `fstbin/fstrmepslocal.cc`, `fstbin/fstaddselfloops.cc`,
`fstbin/fstpushspecial.cc`, `fstbin/fstminimizeencoded.cc`, `fstbin/fstisstochastic.cc`; OpenFst's
`fstarcsort`, `fstproject`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import click
import numpy as np

from ....framework.base.errors import FormatError, ShapeError, nearest
from ....kaldi.fst.algorithms import symbols as symbols_of
from ....kaldi.fst.algorithms.acceptors import connect
from ....kaldi.fst.algorithms.local_epsilons import remove_epsilons_locally
from ....kaldi.fst.algorithms.partition import minimize_unpushed
from ....kaldi.fst.algorithms.pushing import push_special, sums_of_states
from ....kaldi.fst.files.fst_io import read_fst
from ....kaldi.fst.fst import DELTA, Fst
from ....kaldi.tables.streams import Files
from ..base.graphs import save_fst
from ..base.program import Option, program
from ..base.saving import fail_unless
from ..base.symbols import read_symbols

FILES = ("[<fst-in>]", "[<fst-out>]")
"""Standard input and output where they are left out."""


def read(name: str) -> Fst:
    """The FST of a file that may be left out.

    Raises:
        FormatError: the file is none, or empty: a command before it in a pipe has failed.
    """
    reader = Files().reader(name or "-")
    if reader.offset == reader.size:
        raise reader.error("an FST was expected, but the file is empty")
    return read_fst(reader)


def write(fst: Fst, source: Fst, name: str) -> None:
    """Write what was made of `source`, with its tables of symbols."""
    save_fst(symbols_of.with_header_of(fst, source), name or "-")


def positive(value: float, name: str) -> float:
    """The value of an option that must be above 0. Raises FormatError: it is not."""
    if not 0 < value < math.inf:
        raise FormatError(f"--{name}={value:g}: a number above 0 is wanted")
    return value


def choice(value: str, known: Sequence[str], name: str) -> str:
    """The value of an option that must be one of some words. Raises FormatError: it is not."""
    if value not in known:
        raise FormatError(f"--{name}={value}{nearest(value, known)}: one of {', '.join(known)}")
    return value


@program(
    "fstrmsymbols",
    "Replace some input symbols of an FST with epsilon; or remove the arcs that have them"
    " (--remove-arcs), or add to their weights (--penalty).",
    ("<in-disambig-list>", *FILES),
    Option("apply-to-output", False, "The symbols are those of the output side"),
    Option("remove-from-output", False, "The same, by its former name"),
    Option("remove-arcs", False, "Remove the arcs that have the symbols"),
    Option("penalty", -math.inf, "Add this to the weights of arcs that have the symbols"),
)
def fstrmsymbols(options: SimpleNamespace, listed: str, source: str, output: str) -> None:
    penalized = options.penalty != -math.inf
    if penalized and options.remove_arcs:
        raise FormatError("only one of --remove-arcs and --penalty may be given")
    if not options.penalty < math.inf:  # also nan
        raise FormatError(f"--penalty={options.penalty:g}: a number is wanted")
    fst, symbols = read(source), read_symbols(listed)
    side = symbols_of.SIDES[options.apply_to_output or options.remove_from_output]
    if options.remove_arcs:
        made = symbols_of.remove_arcs(fst, symbols, side)
        if not made.states:
            options.program.warn("no path is left of the FST")
    elif penalized:
        made = symbols_of.penalize_symbols(fst, symbols, options.penalty, side)
    else:
        made = symbols_of.remove_symbols(fst, symbols, side)
    write(made, fst, output)


@program(
    "fstrmepslocal",
    "Remove those epsilons of an FST without which it has no more arcs and states than before.",
    FILES,
    Option("use-log", False, "Add the weights of paths as probabilities"),
    Option("stochastic-in-log", True, "Keep the sums of states as probabilities; else the best"),
)
def fstrmepslocal(options: SimpleNamespace, source: str, output: str) -> None:
    log, sums_in_log = options.use_log, options.stochastic_in_log
    if log and not sums_in_log:
        raise FormatError("--use-log=true and --stochastic-in-log=false exclude each other")
    fst = read(source)
    write(remove_epsilons_locally(fst, log=log, sums_in_log=sums_in_log), fst, output)


@program(
    "fstaddselfloops",
    "Add loops to the states of an FST that let disambiguation symbols pass: to those that are"
    " final, or that an arc with an output label leaves.",
    ("<in-disambig-list>", "<out-disambig-list>", *FILES),
)
def fstaddselfloops(
    options: SimpleNamespace, inputs: str, outputs: str, source: str, output: str
) -> None:
    fst = read(source)
    try:
        made = symbols_of.add_self_loops(fst, read_symbols(inputs), read_symbols(outputs))
    except ShapeError as error:
        raise FormatError(f"{source or 'standard input'}, {inputs}, {outputs}: {error}") from error
    write(made, fst, output)


@program(
    "fstpushspecial",
    "Push the weights of an FST so that the arcs and the end of each state add up to the same sum.",
    FILES,
    Option("delta", DELTA, "How far the logarithms of the sums may be apart"),
)
def fstpushspecial(options: SimpleNamespace, source: str, output: str) -> None:
    delta = positive(options.delta, "delta")
    fst = read(source)
    try:
        made, reached = push_special(connect(fst), delta)
    except ShapeError as error:
        raise FormatError(f"{source or 'standard input'}: {error}") from error
    if not reached:
        options.program.warn(f"the sums of states are not within {delta:g} after 200 steps")
    write(made, fst, output)


@program(
    "fstminimizeencoded",
    "Merge equal states of an FST, weights and both labels of arcs being one symbol; weights are"
    " not pushed.",
    FILES,
    Option("delta", DELTA, "Weights are rounded to multiples of this"),
)
def fstminimizeencoded(options: SimpleNamespace, source: str, output: str) -> None:
    delta = positive(options.delta, "delta")
    fst = read(source)
    write(minimize_unpushed(fst, delta), fst, output)


@program(
    "fstarcsort",
    "Sort the arcs of each state by input or output labels.",
    FILES,
    Option("sort-type", "ilabel", "What they are sorted by: ilabel or olabel"),
)
def fstarcsort(options: SimpleNamespace, source: str, output: str) -> None:
    side = choice(options.sort_type, symbols_of.SIDES, "sort-type")
    fst = read(source)
    write(symbols_of.sort_by(fst, side), fst, output)


@program(
    "fstproject",
    "Make an acceptor of the labels of one side of an FST.",
    FILES,
    Option("project-type", "input", "Whose labels stay: input or output"),
    Option("project-output", False, "Those of the output, by the former name"),
)
def fstproject(options: SimpleNamespace, source: str, output: str) -> None:
    side = choice(options.project_type, ("input", "output"), "project-type")
    side = "output" if options.project_output else side
    fst = read(source)
    labels = fst.olabel if side == "output" else fst.ilabel
    made = symbols_of.changed(fst, ilabel=labels, olabel=labels)
    known = fst.header
    table = known.output_symbols if side == "output" else known.input_symbols
    header = replace(made.header, input_symbols=table, output_symbols=table)
    save_fst(replace(made, header=header), output or "-")


@program(
    "fstisstochastic",
    "Print the least and the greatest cost of a state, all that it does added up; end with status 0"
    " where both are 0.",
    ("[<fst-in>]",),
    Option("delta", 0.01, "How far from 0 they may be"),
    Option("test-in-log", True, "Add probabilities; else the best one counts"),
)
def fstisstochastic(options: SimpleNamespace, source: str) -> None:
    fst = read(source)
    costs = sums_of_states(fst, log=options.test_in_log) if fst.states else np.zeros(1)
    click.echo(f"{costs.max():g} {costs.min():g}")
    fail_unless(np.abs(costs).max() <= options.delta)
