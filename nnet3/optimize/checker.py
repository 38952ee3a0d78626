"""The checker of computations: everything that can be wrong with a list of commands.

It may run after the compiler and between any two passes. Source: ComputationChecker in Kaldi's
nnet-analyze.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ..compiler.analyze import BACKPROPS, READ, SIZING, WRITE, Analysis, Cover, accesses
from ..compiler.command import Command
from ..compiler.computation import Computation, SubMatrix
from ..components.base.component import Component, Properties
from ..index.indexes import distinct

_KNOWN_STORAGE = ("uint8", "int16")


def check_computation(computation: Computation, rewrites: bool = True) -> None:
    """Checks commands, the life of matrices, and that nothing is read before it is written.

    Args:
        computation: it may be looped. Messages number its explicit commands.
        rewrites: whether something may be written to after it was read, as in a computation with
            merged matrices; never in one as it was compiled.

    Raises:
        ShapeError: sizes or row numbers that do not fit; the command is named.
        OpscopeError: anything else; the command and the matrix are named.
    """
    checker = _Checker(computation.explicit())
    checker.commands()
    checker.analyze()
    checker.life()
    checker.contents(rewrites)
    checker.compression()


class _Checker:
    def __init__(self, computation: Computation):
        self.computation = computation
        self.submatrices = computation.submatrices
        self.number = -1
        self.memos: dict[int, int] = {}  # step -> the Propagate whose memo is not used yet

    def fail(
        self, text: str, kind: type[OpscopeError] = OpscopeError, number: int = -1
    ) -> NoReturn:
        at = self.number if number < 0 else number
        raise kind(f"command c{at} ({self.computation.commands[at].type}): {text}")

    def want(self, fits: bool, text: str) -> None:
        if not fits:
            self.fail(text)

    def same(self, what: str, a: int, b: int) -> None:
        if a != b:
            self.fail(f"{what}: {a} and {b}", ShapeError)

    def name(self, number: int) -> str:
        """A sub-matrix as Kaldi prints it."""
        return self.computation._name(number)

    # Single commands

    def commands(self) -> None:
        """Numbers in range, sizes that fit each other and the components."""
        if self.submatrices[0].rows or self.computation.matrices[0].rows:
            raise OpscopeError("sub-matrix 0 and matrix 0 stand for none, and are not empty")
        for number, s in enumerate(self.submatrices[1:], 1):
            if not 0 < s.matrix < len(self.computation.matrices):
                raise OpscopeError(f"sub-matrix {number} is of a matrix m{s.matrix}, which is not")
            matrix = self.computation.matrices[s.matrix]
            rows, cols = (s.row, s.row + s.rows, matrix.rows), (s.col, s.col + s.cols, matrix.cols)
            if any(begin < 0 or begin >= end or end > size for begin, end, size in (rows, cols)):
                raise ShapeError(
                    f"sub-matrix {number} is rows {rows[0]}:{rows[1]}, columns {cols[0]}:{cols[1]}"
                    f" of m{s.matrix}, which has {matrix.rows} rows and {matrix.cols} columns"
                )
        for number, info in enumerate(self.computation.matrices):
            if info.indexes is not None and len(info.indexes) != info.rows:
                count = len(info.indexes)
                raise ShapeError(f"m{number} has {info.rows} rows and says what {count} are")
        for number, command in enumerate(self.computation.commands):
            self.number = number
            check = _CHECKS.get(command.type)
            if check is None:
                self.fail("there is no such command")
            for s in (command.target, command.source, *command.deriv):
                self.want(0 <= s < len(self.submatrices), f"there is no sub-matrix {s}")
            check(self, command)
        if self.memos:
            step, number = next(iter(self.memos.items()))
            self.fail(f"no backprop uses the memo of step {step}", number=number)

    def whole(self, number: int) -> None:
        self.want(number > 0, "it names no matrix")
        self.want(self.computation.is_whole(number), f"{self.name(number)} is not a whole matrix")

    def real(self, *numbers: int) -> list[SubMatrix]:
        for number in numbers:
            self.want(number > 0, "a sub-matrix is missing")
        return [self.submatrices[number] for number in numbers]

    def _sizing(self, c: Command) -> None:
        self.whole(c.target)
        if c.type == "SwapMatrix":
            self.whole(c.source)
            a, b = self.real(c.target, c.source)
            self.same("rows of the matrices", a.rows, b.rows)
            self.same("columns of the matrices", a.cols, b.cols)

    def _set(self, c: Command) -> None:
        self.real(c.target)

    def _io(self, c: Command) -> None:
        self.whole(c.target)
        nodes = self.computation.topology.nodes
        self.want(0 <= c.node < len(nodes), f"there is no node {c.node}")

    def _matrix(self, c: Command) -> None:
        a, b = self.real(c.target, c.source)
        self.same("rows of target and source", a.rows, b.rows)
        self.same("columns of target and source", a.cols, b.cols)
        if c.target == c.source:  # scaling in place
            self.want(c.type == "MatrixCopy" and c.alpha != 1, "target and source are the same")

    def _rows(self, c: Command) -> None:
        a, b = self.real(c.target, c.source)
        self.same("columns of target and source", a.cols, b.cols)
        self.want(c.target != c.source, "target and source are the same")
        self.listed(c.rows, a.rows)
        if c.type == "AddRowRanges":
            begin, end = c.listed()[:, 0], c.listed()[:, 1]
            none = (begin == -1) & (end == -1)
            bad = ~none & ((begin < 0) | (end <= begin) | (end > b.rows))
            if bad.any():
                row = int(bad.argmax())
                self.fail(
                    f"row {row} adds the rows {begin[row]}:{end[row]} of {b.rows}", ShapeError
                )
            return
        self.bounded(c.listed(), b.rows, -1)

    def listed(self, rows: np.ndarray | None, count: int) -> None:
        if rows is None:
            self.fail("it has no list of rows")
        self.same("entries of its list and rows of its target", len(rows), count)

    def bounded(self, rows: np.ndarray, count: int, least: int) -> None:
        if len(rows) and (rows.min() < least or rows.max() >= count):
            worst = int(rows.max()) if rows.max() >= count else int(rows.min())
            self.fail(f"row {worst} of a matrix of {count} rows", ShapeError)

    def _rows_multi(self, c: Command) -> None:
        (target,) = self.real(c.target)
        self.listed(c.rows, target.rows)
        subs, rows = c.listed()[:, 0], c.listed()[:, 1]
        none = subs == -1
        self.want(bool((rows[none] == -1).all()), "a row of no sub-matrix that is not -1")
        for s in distinct(subs[~none]).tolist():
            self.want(0 < s < len(self.submatrices), f"there is no sub-matrix {s}")
            self.want(s != c.target, "it reads and writes the same sub-matrix")
            part = self.submatrices[s]
            self.same(f"columns of the target and of {self.name(s)}", target.cols, part.cols)
            self.bounded(rows[subs == s], part.rows, 0)
        if c.type in ("AddToRowsMulti", "CopyToRowsMulti"):
            pairs = c.listed()[~none]
            single = len(np.unique(pairs, axis=0)) == len(pairs)
            self.want(single, "two rows go to the same row")

    def component(self, c: Command) -> tuple[Component, int]:
        nodes = self.computation.topology.nodes
        there = 0 <= c.node < len(nodes) and nodes[c.node].kind == "component"
        self.want(there, f"node {c.node} has no component")
        component = nodes[c.node].component
        flags = int(component.properties)
        known = 0 <= c.precomputed < len(self.computation.precomputed)
        self.want(known, f"there are no precomputed indexes {c.precomputed}")
        if flags & Properties.SIMPLE:
            self.want(not c.precomputed, "a simple component takes no precomputed indexes")
        else:
            indexes = self.computation.precomputed[c.precomputed]
            wanted = component.indexes_type
            self.want(
                isinstance(indexes, wanted),
                f"a {component.type} takes indexes of the kind {wanted.__name__}, not"
                f" {type(indexes).__name__}",
            )
        return component, flags

    def _propagate(self, c: Command) -> None:
        component, flags = self.component(c)
        (out,) = self.real(c.target)
        self.same("columns of the output", out.cols, component.output_dim)
        if c.source or flags & Properties.SIMPLE:
            (source,) = self.real(c.source)
            self.same("columns of the input", source.cols, component.input_dim)
            if flags & Properties.SIMPLE:
                self.same("rows of input and output", source.rows, out.rows)
        if c.source == c.target:
            able = bool(flags & Properties.PROPAGATE_IN_PLACE)
            self.want(able, f"a {component.type} cannot run in place")
        if c.use_memo:
            self.want(c.step not in self.memos, f"step {c.step} has a memo already")
            self.memos[c.step] = self.number

    def _backprop(self, c: Command) -> None:
        component, flags = self.component(c)
        value_in, value_out, out_deriv, in_deriv = c.deriv
        self.want(out_deriv > 0, "there is no output derivative")
        needs = ((value_in, Properties.BACKPROP_NEEDS_INPUT, "input"),)
        needs += ((value_out, Properties.BACKPROP_NEEDS_OUTPUT, "output"),)
        for number, flag, word in needs:
            self.want(number > 0 or not flags & flag, f"the value of its {word} is missing")
        updates = c.type == "Backprop" and flags & Properties.UPDATABLE
        if not in_deriv and not updates and c.type == "Backprop":
            self.fail("it has no effect")
        if in_deriv == out_deriv:
            able = bool(flags & Properties.BACKPROP_IN_PLACE)
            self.want(able, f"the backprop of a {component.type} cannot run in place")
        shapes = [self.submatrices[s] for s in c.deriv]
        dims = (component.input_dim, component.output_dim) * 2
        words = ("input", "output", "output derivative", "input derivative")
        dims = (dims[0], dims[1], dims[1], dims[0])
        for number, s, dim, word in zip(c.deriv, shapes, dims, words, strict=True):
            if number:
                self.same(f"columns of the {word}", s.cols, dim)
        pairs = [(0, 3), (1, 2)] + ([(2, 3)] if flags & Properties.SIMPLE else [])
        for a, b in pairs:
            if c.deriv[a] and c.deriv[b]:
                self.same(f"rows of {words[a]} and {words[b]}", shapes[a].rows, shapes[b].rows)
        if c.use_memo and self.memos.pop(c.step, None) is None:
            self.fail(f"step {c.step} has left no memo")

    def _compress(self, c: Command) -> None:
        self.whole(c.target)
        if c.type == "CompressMatrix":
            self.want(c.storage in _KNOWN_STORAGE, f"nothing is stored as {c.storage!r}")
            fits = 0 < c.alpha <= 1000 or (c.alpha == 0 and c.storage == "uint8")
            self.want(fits, f"a range of {c.alpha:g} in {c.storage}")

    def _nothing(self, c: Command) -> None:
        if c.type == "GotoLabel":
            commands = self.computation.commands
            there = 0 <= c.step < self.number and commands[c.step].type == "NoOperationLabel"
            self.want(there, f"c{c.step} is no label")
            self.want(self.number == len(commands) - 1, "it is not the last command")

    # The life of matrices

    def analyze(self) -> None:
        self.analysis = Analysis(self.computation)

    def life(self) -> None:
        """Memory is taken once, before all use, and given up at most once, after it."""
        commands = self.computation.commands
        nodes = self.computation.topology.nodes
        looped = bool(commands) and commands[-1].type == "GotoLabel"
        end = len(commands)
        if looped:  # the last commands hand matrices to the next round
            end -= 1
            while end and commands[end - 1].type == "SwapMatrix":
                end -= 1
        held: dict[int, bool] = {}
        for number, command in enumerate(commands[:end]):
            self.number = number
            target = self.submatrices[command.target].matrix
            if command.type in SIZING:
                if command.type == "SwapMatrix":
                    source = self.submatrices[command.source].matrix
                    self.want(held.get(source, False), f"m{source} has no memory to hand on")
                    held[source] = False
                if command.type == "DeallocMatrix":
                    self.want(held.get(target, False), f"m{target} has no memory to give up")
                    held[target] = False
                else:
                    self.want(target not in held, f"m{target} was given memory before")
                    held[target] = True
                continue
            if command.type == "AcceptInput":
                held[target] = True
            for s, _ in accesses(command, nodes):
                matrix = self.submatrices[s].matrix
                if not held.get(matrix, False):
                    when = "after its memory was given up" if matrix in held else "without memory"
                    self.fail(f"{self.name(s)} is used {when}")

    def contents(self, rewrites: bool) -> None:
        """Nothing is read before it is written, nor, but where allowed, written after that."""
        for number, info in enumerate(self.computation.matrices):
            listed = self.analysis.of_matrix[number]
            if not listed:
                continue
            written, read = Cover(info.cols), Cover(info.cols)
            if number in self.analysis.zeroed:
                written.add(SubMatrix(number, 0, info.rows, 0, info.cols))
            for command, mode, s in listed:
                part = self.submatrices[s]
                kind = self.computation.commands[command].type
                if mode & READ and kind != "CompressMatrix" and not written.contains(part):
                    self.fail(f"{self.name(s)} is read before it is written", number=command)
                if mode & WRITE:
                    if not rewrites and read.touches(part):
                        self.fail(f"{self.name(s)} is changed after it was read", number=command)
                    written.add(part)
                else:
                    read.add(part)

    def compression(self) -> None:
        """A compressed matrix is restored before it is used, on the other side of the marker."""
        commands = self.computation.commands
        for number, command in enumerate(commands):
            if command.type not in ("CompressMatrix", "DecompressMatrix"):
                continue
            self.number = number
            matrix = self.submatrices[command.target].matrix
            listed = [a[0] for a in self.analysis.of_matrix[matrix]]
            at = listed.index(number)
            if command.type == "DecompressMatrix":
                before = commands[listed[at - 1]].type if at else ""
                self.want(before == "CompressMatrix", f"m{matrix} is not compressed")
                continue
            after = listed[at + 1] if at + 1 < len(listed) else -1
            there = after >= 0 and commands[after].type == "DecompressMatrix"
            self.want(there, f"m{matrix} is not restored before its next use")
            between = [c.type for c in commands[number:after]]
            self.want("NoOperationMarker" in between, f"m{matrix} is restored in the same part")
            if command.alpha == 0:
                users = [commands[n] for n in listed[at + 2 :]]
                nodes = self.computation.topology.nodes
                signs = all(
                    user.type in BACKPROPS
                    and nodes[user.node].component.type == "RectifiedLinearComponent"
                    for user in users
                )
                self.want(signs, f"more than the signs of m{matrix} is wanted")


_CHECKS: dict[str, Callable[[_Checker, Command], None]] = {
    **dict.fromkeys(("AllocMatrix", "DeallocMatrix", "SwapMatrix"), _Checker._sizing),
    "SetConst": _Checker._set,
    **dict.fromkeys(("AcceptInput", "ProvideOutput"), _Checker._io),
    **dict.fromkeys(("MatrixCopy", "MatrixAdd"), _Checker._matrix),
    **dict.fromkeys(("AddRows", "CopyRows", "AddRowRanges"), _Checker._rows),
    **dict.fromkeys(
        ("AddRowsMulti", "CopyRowsMulti", "AddToRowsMulti", "CopyToRowsMulti"),
        _Checker._rows_multi,
    ),
    "Propagate": _Checker._propagate,
    **dict.fromkeys(("Backprop", "BackpropNoModelUpdate"), _Checker._backprop),
    **dict.fromkeys(("CompressMatrix", "DecompressMatrix"), _Checker._compress),
    **dict.fromkeys(
        (
            "NoOperation",
            "NoOperationPermanent",
            "NoOperationMarker",
            "NoOperationLabel",
            "GotoLabel",
        ),
        _Checker._nothing,
    ),
}
