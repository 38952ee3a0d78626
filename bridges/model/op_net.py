"""An op list with its arrays, as it is edited: what all edits of it share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import VariableError
from ...framework.base.sizes.shape import ArraySpec
from ...framework.editing.patterns import no_match
from ...framework.ir.desc import FORWARD, INPUT, PARAMETER, STATE, TEMPORARY, make_var
from ...framework.ir.infer import declared_spec, infer_one
from ...framework.ir.op_list import OpList, OpNode, VarDecl
from ...framework.ir.operation import Operator

GIVEN = (INPUT, PARAMETER, STATE)


@dataclass
class OpNet:
    """A net of operators that is edited.

    Attributes:
        net: its operators and variables.
        arrays: of its parameters and states.
        notes: what edits did besides, a line each.
    """

    net: OpList
    arrays: dict[str, np.ndarray]
    notes: list[str] = field(default_factory=list)

    def copy(self) -> OpNet:
        """Another one; arrays are shared, since edits replace them and write into none."""
        return OpNet(self.net.copy(), dict(self.arrays), list(self.notes))

    def var(self, name: str) -> VarDecl:
        """The declaration of a variable.

        Raises:
            VariableError: there is none.
        """
        for var in self.net.vars:
            if var.name == name:
                return var
        raise VariableError(no_match(name, self.names(), "variable"))

    def names(self) -> list[str]:
        """All variables."""
        return [var.name for var in self.net.vars]

    def parameters(self) -> list[str]:
        """The parameters' names."""
        return [var.name for var in self.net.vars if var.kind == PARAMETER]

    def writer(self, name: str) -> int:
        """The number of the operator that writes a variable first.

        Raises:
            VariableError: there is no such variable, or no operator writes it.
        """
        for number, op in enumerate(self.net.ops):
            if name in op.output_names():
                return number
        self.var(name)
        raise VariableError(f"no operator computes {name!r}: it is given")

    def readers(self, name: str) -> list[int]:
        """The numbers of the operators that read a variable."""
        return [i for i, op in enumerate(self.net.ops) if name in op.input_names()]

    def declare(self, var: VarDecl) -> None:
        """Declare a variable, in the place of one of its name."""
        for number, old in enumerate(self.net.vars):
            if old.name == var.name:
                self.net.vars[number] = var
                return
        self.net.vars.append(var)

    def parameter(self, name: str, value: np.ndarray, like: VarDecl | None = None) -> str:
        """Declare a new parameter with its numbers; its name.

        Args:
            like: the rate's factor and training of this parameter are taken over.

        Raises:
            VariableError: the name is taken.
        """
        if name in self.names():
            raise VariableError(f"there is a variable {name!r} already")
        var = make_var(name, value.shape, value.dtype, PARAMETER)
        if like is not None:
            var = var.changed(lr_factor=like.lr_factor, stop_gradient=like.stop_gradient)
        self.net.vars.append(var)
        self.arrays[name] = np.ascontiguousarray(value)
        return name

    def drop_training(self) -> None:
        """Take out gradients and updates: they are made for a net as it is, not as it becomes."""
        gone = [op for op in self.net.ops if op.role != FORWARD]
        if not gone:
            return
        self.net.ops = [op for op in self.net.ops if op.role == FORWARD]
        mentioned = {
            name for op in self.net.ops for name in (*op.input_names(), *op.output_names())
        }
        theirs = {name for op in gone for name in (*op.input_names(), *op.output_names())}
        self._forget(theirs - mentioned)
        self.notes.append(
            f"{len(gone)} operators of gradients and updates are gone: they were made for the net"
            " before; add_backward_ops and add_optimizer_ops make new ones"
        )

    def drop_unused(self) -> int:
        """Forget variables that nothing reads or writes, except for inputs; how many."""
        used = {n for op in self.net.ops for n in (*op.input_names(), *op.output_names())}
        used |= {v.view.base for v in self.net.vars if v.view is not None and v.name in used}
        lost = {v.name for v in self.net.vars if v.name not in used and v.kind != INPUT}
        self._forget(lost)
        return len(lost)

    def _forget(self, names: set[str]) -> None:
        self.net.vars = [var for var in self.net.vars if var.name not in names]
        for name in names & self.arrays.keys():
            del self.arrays[name]

    def _order(self) -> None:
        """Put operators after those whose results they read, where an edit has changed that.

        The order stays where a variable is written twice, or operators wait for each other: the
        verifier reports these.
        """
        ops = self.net.ops
        writers = {name: i for i, op in enumerate(ops) for name in op.output_names()}
        waits = [
            {writers[name] for name in op.input_names() if name in writers and writers[name] != i}
            for i, op in enumerate(ops)
        ]
        is_once = len(writers) == sum(len(op.output_names()) for op in ops)
        if not is_once or all(max(wait, default=-1) < i for i, wait in enumerate(waits)):
            return
        order: list[int] = []
        left = dict(enumerate(waits))
        while left:
            ready = next((i for i, wait in left.items() if left.keys().isdisjoint(wait)), None)
            if ready is None:
                return
            del left[ready]
            order.append(ready)
        self.net.ops = [ops[i] for i in order]

    def settle(self) -> None:
        """Infer the shapes of all results again; operators whose inputs are not known wait.

        Raises:
            ShapeError: an operator refuses what it reads.
        """
        self._order()
        declared = {var.name: var for var in self.net.vars}
        specs: dict[str, ArraySpec] = {}
        for name, var in declared.items():
            spec = declared_spec(var) if var.kind in GIVEN else None
            if spec is not None:
                specs[name] = spec
        by_name: dict[str, VarDecl] = {}
        for number, op in enumerate(self.net.ops):
            if op.role != FORWARD:
                continue
            operator = Operator(op, number)
            if any(name not in specs for name in operator.input_vars()):
                continue
            for name, spec in infer_one(operator, specs, declared).items():
                old = declared.get(name)
                if old is None or old.kind not in GIVEN:
                    specs[name] = spec
                    kind = TEMPORARY if old is None else old.kind
                    fresh = make_var(name, spec[0], spec[1], kind)
                    by_name[name] = (
                        fresh if old is None else old.changed(shape=spec[0], dtype=spec[1])
                    )
        self.net.vars = [by_name.pop(var.name, var) for var in self.net.vars] + [*by_name.values()]


def with_inputs(op: OpNode, names: Mapping[str, str]) -> OpNode:
    """The operator reading other variables; it writes the same."""
    inputs = {
        slot: tuple(names.get(one, one) for one in given) for slot, given in op.inputs.items()
    }
    return op.changed(inputs=inputs)


def leaves(net: OpList) -> list[str]:
    """The results that no operator reads: what a net gives."""
    read = {name for op in net.ops for name in op.input_names()}
    return [
        op.output_names()[0]
        for op in net.ops
        if op.role == FORWARD and op.output_names() and not read.intersection(op.output_names())
    ]
