"""FSTs as text with words in the place of labels: OpenFst's `fstcompile` and `fstprint`.

`fst_io` reads the text without words that Kaldi's archives hold.

Source: OpenFst's `compile.h`, `print.h`, `symbol-table.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.values import shown, whole_number
from ..fst import Fst, SymbolTable
from ..fst_properties import simple_properties

_MOST = (1 << 31) - 2
_ARC = "'from to ilabel olabel [weight]'"
_ACCEPTOR_ARC = "'from to label [weight]'"


def parse_symbols(text: str, name: str) -> SymbolTable:
    """The table that lines `symbol label` give; `name` is that of the file.

    Raises:
        FormatError: a line is something else, or a symbol or a label comes twice.
    """
    texts: dict[int, str] = {}
    labels: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split()
        if not fields:
            continue
        what = f"{name}: line {number}"
        if len(fields) != 2:
            raise FormatError(f"{what}: a symbol and its label are wanted")
        label = whole_number(fields[1], what, 0, _MOST)
        if label in texts or fields[0] in labels:
            raise FormatError(f"{what}: the symbol {shown(fields[0])} or its label comes twice")
        texts[label] = fields[0]
        labels[fields[0]] = label
    return SymbolTable(name, max(texts, default=-1) + 1, texts)


class FstCompiler:
    """Reads lines of arcs and final states; the first state of the first line is the start.

    Args:
        inputs, outputs: the symbols that stand for labels; None: the labels themselves do.
        acceptor: arcs have one label. keep_numbers: states have the numbers that the text gives
            them; else they are numbered as they come.
    """

    def __init__(
        self,
        inputs: SymbolTable | None = None,
        outputs: SymbolTable | None = None,
        *,
        acceptor: bool = False,
        keep_numbers: bool = False,
    ) -> None:
        self._acceptor = acceptor
        self._keep_numbers = keep_numbers
        sides = (inputs,) if acceptor else (inputs, outputs)
        self._names = [table.name if table else "" for table in sides]
        self._labels: list[Mapping[str, int] | None] = [
            {text: label for label, text in table.texts.items()} if table else None
            for table in sides
        ]

    def compile(self, text: str, name: str) -> Fst:
        """The FST of a text.

        Raises:
            FormatError: a line is none of an FST, has a symbol that is not in its table, a weight
                that is no number; with `name` and the number of the line.
        """
        self._number: dict[int, int] = {}
        labeled = 2 + len(self._labels)
        arcs: list[tuple[int, ...]] = []
        weights: list[float] = []
        finals: dict[int, float] = {}
        start = -1
        lines = 0
        for line, row in enumerate(text.split("\n"), 1):
            fields = row.split()
            if not fields:
                continue
            lines += 1
            what = f"{name}: line {line}"
            if not (len(fields) <= 2 or labeled <= len(fields) <= labeled + 1):
                form = _ACCEPTOR_ARC if self._acceptor else _ARC
                raise FormatError(f"{what}: {form} or 'final [weight]' is wanted")
            state = self._state(fields[0], what)
            start = state if start < 0 else start
            weight = _weight(fields, labeled if len(fields) > 2 else 1, what)
            if len(fields) <= 2:
                finals[state] = weight
                continue
            target = self._state(fields[1], what)
            symbols = zip(fields[2:labeled], self._labels, self._names, strict=True)
            labels = [_label(*each, what) for each in symbols]
            arcs.append((state, target, labels[0], labels[-1]))
            weights.append(weight)
        states = max(self._number.values(), default=-1) + 1
        if states > 2 * lines:
            raise FormatError(f"{name}: the FST has a state {states - 1}, but far fewer lines")
        final = np.full(states, np.inf, np.float32)
        final[list(finals)] = list(finals.values())
        source, target, ilabel, olabel = np.array(arcs, np.int64).reshape(-1, 4).T
        fst = Fst.of_arcs(source, ilabel, np.array(weights), target, final, olabel, start)
        fst.header.properties = simple_properties(fst)
        return fst

    def _state(self, text: str, what: str) -> int:
        given = whole_number(text, what, 0, _MOST)
        return self._number.setdefault(given, given if self._keep_numbers else len(self._number))


def _label(text: str, labels: Mapping[str, int] | None, table: str, what: str) -> int:
    if labels is None:
        return whole_number(text, what, 0, _MOST)
    if text not in labels:
        raise FormatError(f"{what}: {shown(text)} is none of the symbols of {table}")
    return labels[text]


def _weight(fields: list[str], place: int, what: str) -> float:
    """The weight that stands last in a line, or 0."""
    if len(fields) <= place:
        return 0.0
    try:
        weight = float(fields[place])
    except ValueError:
        weight = math.nan
    if not weight > -math.inf:
        raise FormatError(f"{what}: {shown(fields[place])} is no weight")
    return weight


def print_fst(
    fst: Fst,
    inputs: SymbolTable | None = None,
    outputs: SymbolTable | None = None,
    *,
    acceptor: bool = False,
    show_weight_one: bool = False,
    digits: int = 9,
) -> str:
    """The lines of an FST, those of the start state first.

    Args:
        inputs, outputs: symbols in the place of labels; None: the labels.
        acceptor: only the input label of each arc. show_weight_one: also weights that are 0.
        digits: of weights.

    Raises:
        FormatError: an arc has a label that the table does not have.
    """
    sides = [(fst.ilabel, inputs)] if acceptor else [(fst.ilabel, inputs), (fst.olabel, outputs)]
    weights = [_ending(weight, show_weight_one, digits) for weight in fst.weight.tolist()]
    columns = [map(str, fst.nextstate.tolist()), *(_symbols(*side) for side in sides)]
    rows = ["\t".join(row) for row in zip(*columns, strict=True)]
    begin, final = fst.begin.tolist(), fst.final.tolist()
    lines: list[str] = []
    for state in (fst.start, *(s for s in range(fst.states) if s != fst.start)):
        if state < 0:
            continue
        arcs = range(begin[state], begin[state + 1])
        lines += [f"{state}\t{rows[arc]}{weights[arc]}\n" for arc in arcs]
        # a state without arcs is named even where it is not final, or it would be lost
        if final[state] < math.inf or not arcs:
            lines.append(f"{state}{_ending(final[state], show_weight_one, digits)}\n")
    return "".join(lines)


def _symbols(labels: np.ndarray, table: SymbolTable | None) -> list[str]:
    if table is None:
        return list(map(str, labels.tolist()))
    try:
        return [table.texts[label] for label in labels.tolist()]
    except KeyError as error:
        raise FormatError(f"{table.name}: no symbol has the label {error.args[0]}") from None


def _ending(weight: float, shows_one: bool, digits: int) -> str:
    """The last column of a line."""
    if weight == 0 and not shows_one:
        return ""
    return "\tInfinity" if weight == math.inf else f"\t{weight:.{digits}g}"
