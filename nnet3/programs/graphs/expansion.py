"""Kaldi's programs that expand a graph of phones: contexts, HMMs, self-loops.

Source: Kaldi's `fstbin/fstcomposecontext.cc`, `bin/make-ilabel-transducer.cc`,
`bin/make-h-transducer.cc`, `bin/add-self-loops.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.fst.fst import Fst
from ....kaldi.graphs.context import (
    Context,
    GrammarContext,
    Window,
    compose_context,
    is_symbol,
    read_windows,
    write_windows,
)
from ....kaldi.graphs.h_transducer import h_transducer
from ....kaldi.graphs.hmms import PhoneHmms, TransitionCosts
from ....kaldi.graphs.self_loops import add_self_loops as with_self_loops
from ....kaldi.tables.streams import open_output, open_reader
from ..base.graphs import save_fst
from ..base.options import BINARY
from ..base.program import Option, program
from ..base.saving import save
from ..base.symbols import read_symbols
from .transducers import FILES, read, write

_OFFSET = Option("nonterm-phones-offset", -1, "The phone #nonterm_bos, for grammars; -1: none")
_OFTEN_WRONG = "the list of disambiguation symbols is empty, which is most likely a mistake"


def _save_windows(windows: Sequence[Window], name: str, binary: bool) -> None:
    writer = Writer(binary)
    write_windows(windows, writer)
    save(writer, name)


def _save_labels(labels: Iterable[int], name: str) -> None:
    """Write a label a line; nowhere if there is no name."""
    if name:
        with open_output(name) as file:
            file.write("".join(f"{label}\n" for label in labels).encode())


def _hmms(tree: str, model: str) -> PhoneHmms:
    return PhoneHmms(
        ContextDependency.read(open_reader(tree)), TransitionModel.read_from(open_reader(model))
    )


@program(
    "fstcomposecontext",
    "Put phones in context in the place of the phones that an FST reads. What its new input labels"
    " stand for goes to another file.",
    ("<ilabels-output-file>", *FILES),
    BINARY,
    Option("read-disambig-syms", "", "File with the disambiguation symbols that the FST reads"),
    Option("write-disambig-syms", "", "File for those that the result reads"),
    Option("context-size", 3, "Phones of a context, with the phone itself"),
    Option("central-position", 1, "Place of the phone in its context, from 0 on"),
    _OFFSET,
)
def fstcomposecontext(options: SimpleNamespace, labels: str, source: str, output: str) -> None:
    width, central = options.context_size, options.central_position
    if options.write_disambig_syms and not options.read_disambig_syms:
        raise FormatError("--write-disambig-syms wants --read-disambig-syms")
    if options.nonterm_phones_offset >= 0 and (width, central) != (2, 1):
        raise FormatError("--nonterm-phones-offset wants --context-size=2 --central-position=1")
    fst = read(source)
    symbols = read_symbols(options.read_disambig_syms) if options.read_disambig_syms else []
    if not symbols:
        options.program.warn(_OFTEN_WRONG)
    context = (
        Context(symbols, width, central)
        if options.nonterm_phones_offset < 0
        else GrammarContext(symbols, options.nonterm_phones_offset)
    )
    made = compose_context(context, fst)
    windows = context.windows
    _save_windows(windows, labels, options.binary)
    _save_labels(
        [label for label, window in enumerate(windows) if is_symbol(window)],
        options.write_disambig_syms,
    )
    save_fst(made, output or "-")


@program(
    "make-ilabel-transducer",
    "Make the transducer that gives phones in context one label where their HMMs are equal.",
    (
        "<ilabel-info-right>",
        "<tree>",
        "<model>",
        "<ilabel-info-left>",
        "[<mapping-fst-out>]",
    ),
    BINARY,
    Option("write-disambig-syms", "", "File for the new labels of disambiguation symbols"),
    Option("old-to-new-mapping", "", "File for the new label of each old one"),
)
def make_ilabel_transducer(
    options: SimpleNamespace, labels: str, tree: str, model: str, fewer: str, output: str
) -> None:
    windows = read_windows(open_reader(labels))
    hmms = _hmms(tree, model)
    numbers: dict[object, int] = {}
    kept: list[Window] = []
    mapped = []
    for window in windows:
        key = window if not window or is_symbol(window) else hmms.of_window(window)
        mapped.append(numbers.setdefault(key, len(kept)))
        if mapped[-1] == len(kept):
            kept.append(window)
    _save_windows(kept, fewer, options.binary)
    symbols = [label for label, window in enumerate(kept) if is_symbol(window)]
    _save_labels(symbols, options.write_disambig_syms)
    _save_labels(mapped, options.old_to_new_mapping)
    zeros = np.zeros(len(mapped) - 1, np.int64)
    old = np.arange(1, len(mapped))
    save_fst(
        Fst.of_arcs(zeros, np.array(mapped[1:]), zeros, zeros, np.zeros(1), old), output or "-"
    )


@program(
    "make-h-transducer",
    "Make the transducer from transition-ids to phones in context, without self-loops.",
    ("<ilabel-info-file>", "<tree>", "<model>", "[<H-fst-out>]"),
    Option("transition-scale", 1.0, "Scale of transition probabilities (excluding self-loops)"),
    _OFFSET,
    Option("disambig-syms-out", "", "File for the disambiguation symbols that the result reads"),
)
def make_h_transducer(
    options: SimpleNamespace, labels: str, tree: str, model: str, output: str
) -> None:
    windows = read_windows(open_reader(labels))
    try:
        made, symbols = h_transducer(
            windows,
            _hmms(tree, model),
            scale=options.transition_scale,
            offset=max(options.nonterm_phones_offset, 0),
        )
    except FormatError as error:
        raise FormatError(f"{labels}, {tree}, {model}: {error}") from error
    _save_labels(symbols, options.disambig_syms_out)
    save_fst(made, output or "-")


@program(
    "add-self-loops",
    "Add the self-loops of HMM states, and the probabilities of staying in a state or leaving it,"
    " to an FST from transition-ids that are no self-loops.",
    ("<model>", *FILES),
    Option("self-loop-scale", 1.0, "Scale of self-loop probabilities"),
    Option("disambig-syms", "", "File with the disambiguation symbols that the FST reads"),
    Option("reorder", True, "Self-loops stand after the transition that leaves their state"),
)
def add_self_loops(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    symbols = read_symbols(options.disambig_syms) if options.disambig_syms else []
    costs = TransitionCosts(TransitionModel.read_from(open_reader(model)))
    fst = read(source)
    try:
        made = with_self_loops(
            fst, costs, options.self_loop_scale, symbols, reorder=options.reorder
        )
    except FormatError as error:
        raise FormatError(f"{source or 'standard input'}: {error}") from error
    write(made, fst, output)
