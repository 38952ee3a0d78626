"""The commands of a computation, as Kaldi's NetworkComputation::Command.

Every kind of command has a constructor, `Command.propagate(...)`, `Command.matrix_add(...)` and so
on. Sub-matrices, nodes, steps and precomputed indexes are named by number; sub-matrix 0 is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

OF_MANY = frozenset({"AllocMatrices", "DeallocMatrices"})
"""Types of commands that list sub-matrices in place of row numbers."""

NO_DERIV = (0, 0, 0, 0)


@dataclass(slots=True)
class Command:
    """One command. Only a computation that owns it changes it (`Computation.own_commands`).

    Attributes:
        type: Kaldi's name without the k: AllocMatrix, SetConst, Propagate, MatrixAdd, ... Two are
            ours: AllocMatrices takes the memory of many matrices and sets it to zero,
            DeallocMatrices gives the memory of many back; see `Computation.explicit`.
        target: the sub-matrix that is written (AddToRowsMulti, CopyToRowsMulti: read).
        source: the sub-matrix that is read.
        alpha: the scale, or the constant of SetConst.
        rows: row numbers of AddRows and CopyRows, int32 [rows]; pairs of AddRowsMulti (sub-matrix,
            row) and AddRowRanges (begin, end), int32 [rows, 2]. Of AllocMatrices and
            DeallocMatrices the sub-matrices, each the whole of its matrix.
        node: the node of AcceptInput, ProvideOutput, Propagate and Backprop.
        step: the step of Propagate and Backprop, by which their memo is named. Of GotoLabel the
            number of the command that is the label.
        precomputed: number of the precomputed indexes; 0: none.
        deriv: of Backprop the sub-matrices (input value, output value, output derivative, input
            derivative).
        store_stats: the component stores statistics: Propagate from its values, Backprop from its
            derivatives, with self-repair.
        use_memo: Propagate leaves a memo for Backprop.
        storage: of CompressMatrix how an element is stored: uint8 or int16. `alpha` is then the
            greatest magnitude; 0 stands for the sign alone.
    """

    type: str
    target: int = 0
    source: int = 0
    alpha: float = 1.0
    rows: np.ndarray | None = None
    node: int = -1
    step: int = -1
    precomputed: int = 0
    deriv: tuple[int, int, int, int] = NO_DERIV
    store_stats: bool = False
    use_memo: bool = False
    storage: str = ""

    # The constructors are static and pass all by position: a compilation makes thousands of them,
    # and class methods or keywords would take up to twice the time.

    # Memory

    @staticmethod
    def alloc_matrix(target: int) -> Command:
        """Take memory, with undefined content."""
        return Command("AllocMatrix", target)

    @staticmethod
    def dealloc_matrix(target: int) -> Command:
        """Give memory back."""
        return Command("DeallocMatrix", target)

    @staticmethod
    def alloc_matrices(targets: Sequence[int] | np.ndarray) -> Command:
        """Take the memory of many matrices and set it to zero."""
        return Command("AllocMatrices", rows=np.array(targets, int))

    @staticmethod
    def dealloc_matrices(targets: Sequence[int] | np.ndarray) -> Command:
        """Give the memory of many matrices back."""
        return Command("DeallocMatrices", rows=np.array(targets, int))

    @staticmethod
    def swap_matrix(target: int, source: int) -> Command:
        """Exchange the memory of two matrices."""
        return Command("SwapMatrix", target, source)

    @staticmethod
    def compress_matrix(target: int, limit: float, storage: str) -> Command:
        """Store a matrix in fewer bits, cut at a magnitude; see `storage`."""
        return Command("CompressMatrix", target, alpha=limit, storage=storage)

    @staticmethod
    def decompress_matrix(target: int) -> Command:
        """Restore a compressed matrix."""
        return Command("DecompressMatrix", target)

    # Values

    @staticmethod
    def set_const(target: int, value: float) -> Command:
        """Set all elements to a value."""
        return Command("SetConst", target, 0, value)

    @staticmethod
    def matrix_copy(target: int, source: int) -> Command:
        """target = source."""
        return Command("MatrixCopy", target, source)

    @staticmethod
    def matrix_add(target: int, source: int, alpha: float) -> Command:
        """target += alpha * source."""
        return Command("MatrixAdd", target, source, alpha)

    @staticmethod
    def add_rows(target: int, source: int, alpha: float, rows: np.ndarray | None) -> Command:
        """target[i] += alpha * source[rows[i]] where rows[i] is not -1."""
        return Command("AddRows", target, source, alpha, rows)

    @staticmethod
    def add_rows_multi(target: int, alpha: float, pairs: np.ndarray) -> Command:
        """target[i] += alpha * the row that pairs[i] names."""
        return Command("AddRowsMulti", target, 0, alpha, pairs)

    @staticmethod
    def add_to_rows_multi(target: int, alpha: float, pairs: np.ndarray) -> Command:
        """The row that pairs[i] names += alpha * target[i]."""
        return Command("AddToRowsMulti", target, 0, alpha, pairs)

    @staticmethod
    def add_row_ranges(target: int, source: int, alpha: float, ranges: np.ndarray) -> Command:
        """target[i] += alpha * the sum of source[begin:end], with (begin, end) = ranges[i]."""
        return Command("AddRowRanges", target, source, alpha, ranges)

    # Nodes

    @staticmethod
    def accept_input(target: int, node: int) -> Command:
        """Take the caller's matrix for a node."""
        return Command("AcceptInput", target, 0, 1.0, None, node)

    @staticmethod
    def provide_output(target: int, node: int) -> Command:
        """Give the matrix of a node to the caller."""
        return Command("ProvideOutput", target, 0, 1.0, None, node)

    @staticmethod
    def propagate(
        node: int,
        step: int,
        value_in: int,
        value_out: int,
        precomputed: int,
        store_stats: bool,
        use_memo: bool,
    ) -> Command:
        """Run the component of a node forward."""
        return Command(
            "Propagate",
            value_out,
            value_in,
            1.0,
            None,
            node,
            step,
            precomputed,
            NO_DERIV,
            store_stats,
            use_memo,
        )

    @staticmethod
    def backprop(
        node: int,
        step: int,
        deriv: tuple[int, int, int, int],
        precomputed: int,
        store_stats: bool,
        use_memo: bool,
    ) -> Command:
        """Run the component of a node backward."""
        return Command(
            "Backprop", 0, 0, 1.0, None, node, step, precomputed, deriv, store_stats, use_memo
        )

    # Order

    @staticmethod
    def no_operation_permanent() -> Command:
        """A place that no pass removes."""
        return Command("NoOperationPermanent")

    @staticmethod
    def no_operation_marker() -> Command:
        """The end of a segment or of the forward part."""
        return Command("NoOperationMarker")

    @staticmethod
    def no_operation_label() -> Command:
        """The place to which `goto_label` goes back."""
        return Command("NoOperationLabel")

    @staticmethod
    def goto_label(label: int) -> Command:
        """Go back to the command of that number."""
        return Command("GotoLabel", step=label)

    # Changed commands

    def listed(self) -> np.ndarray:
        """`rows` of a command that has them."""
        assert self.rows is not None
        return self.rows

    def of_many(self) -> list[int]:
        """The sub-matrices of a command of `OF_MANY`."""
        return self.listed().tolist()

    def changed(self, **values: Any) -> Command:
        """A command that differs in these attributes."""
        result = Command(*_fields_of(self))
        for name, value in values.items():
            setattr(result, name, value)
        return result

    def as_type(
        self, type: str, target: int, source: int, rows: np.ndarray | None = None
    ) -> Command:
        """A command of another type on other rows, with the scale of this one."""
        return Command(type, target, source, self.alpha, rows)

    def without_model_update(self) -> Command:
        """Of a Backprop the command that leaves the parameters and statistics alone."""
        return Command(
            "BackpropNoModelUpdate",
            0,
            0,
            1.0,
            None,
            self.node,
            self.step,
            self.precomputed,
            self.deriv,
            False,
            self.use_memo,
        )


_fields_of = attrgetter(*Command.__dataclass_fields__)


def inputs_first(commands: list[Command]) -> list[Command]:
    """The commands with AcceptInput first and ProvideOutput last in each segment.

    The backward part counts as a segment.
    """
    ordered: list[Command] = []
    rest: list[Command] = []
    last: list[Command] = []
    for command in commands:
        kind = command.type
        if kind == "AcceptInput":
            ordered.append(command)
        elif kind == "ProvideOutput":
            last.append(command)
        elif kind == "NoOperationMarker":
            ordered += [*rest, *last, command]
            rest, last = [], []
        else:
            rest.append(command)
    return [*ordered, *rest, *last]


def insert(commands: list[Command], before: dict[int, list[Command]]) -> list[Command]:
    """The commands with others in between; these are listed by the number that they go before."""
    result: list[Command] = []
    begin = 0
    for number in sorted(before):
        result += commands[begin:number]
        result += before[number]
        begin = number
    return result + commands[begin:]
