"""A compiled computation as an op list: the commands in operators, sub-matrices as view variables.

Matrices become variables `m1`, `m2`, ...; those that the caller gives or takes are called
`input.NODE`, `output.NODE`, `output_deriv.NODE` and `input_deriv.NODE`. Parameters are variables
`COMPONENT/FIELD`, their plain gradients `COMPONENT/FIELD@GRAD`. Other arrays of a component (the
transform of a batch norm in test mode, say) are states that carry their values as initializers.
Statistics that a computation stores are float64 states `COMPONENT/FIELD`, which the operators
add to. The plan that runs the list allocates and releases memory: a matrix that is set to zero
before use becomes a `fill_constant`, and a deallocation nothing. What the caller gives
keeps its value: an input that a later command writes to is copied first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ...framework.base.python.cached import cached_property
from ...framework.ir.desc import BACKWARD, FORWARD, INPUT, OUTPUT, PARAMETER, TEMPORARY, make_op
from ...framework.ir.messages import FORMAT_VERSION
from ...framework.ir.names import grad_name
from ...framework.ir.op_list import OpList, OpNode
from ..compiler.computation import Command, Computation, SubMatrix, numbered_sources
from ..components import ComponentOps
from ..components.base.lowered_op import LoweredOp, of_indexes
from ..components.base.lowering import FROZEN, OUT, X
from ..components.base.template import Template
from ..operators.marks import GOTO, LABEL, SEGMENT
from .composite_rows import split_composites
from .matrix_lifetimes import MatrixLifetimes
from .variables import Declarations

MODEL_DERIVATIVE = "model_derivative"
"""The metadata entry of a net whose request wants derivatives of parameters. Those that no operator
computes are zero."""


def lower_computation(
    computation: Computation, name: str = "computation", natural_gradient: bool = False
) -> OpList:
    """The net that runs a computation; backward operators have the role BACKWARD.

    Args:
        natural_gradient: components that have natural gradient make their gradients by it. Its
            matrices are states `COMPONENT/FIELD@NATURAL_GRADIENT`.
    """
    return Lowering(split_composites(computation.explicit())[0], name, natural_gradient).net


_Forward = tuple[str, str, str, int]
"""Names that a forward step has used: prefix of temporaries, variables x and out; and its rows."""
_NOT_RUN: _Forward = "", "", "", -1


class _Component:
    """A component in use: its operators, and which of its variables are declared."""

    def __init__(self, ops: ComponentOps, trained: dict[str, tuple[int, ...]]) -> None:
        self.ops = ops
        self.trained = trained  # parameters and their shapes
        self.has_states = self.has_memory = self.has_gradient = False


class Lowering:
    """Makes the operators of one computation, in `net`."""

    def __init__(self, computation: Computation, name: str, natural_gradient: bool = False):
        self.computation = computation
        self.nodes = computation.topology.nodes
        self.variables = Declarations()
        self.ops: list[OpNode] = []
        self.appended = 0  # how often operators were appended; makes names in `_values_again`
        self._set_role(FORWARD)
        self.natural_gradient = natural_gradient
        self.has_frozen = False
        self.has_model_derivative = computation.need_model_derivative
        self.components_by_name: dict[str, _Component] = {}
        self.components: dict[int, _Component] = {}  # by node
        self.forward: dict[int, _Forward] = {}  # by step
        self.copied: dict[int, str] = {}  # matrix -> the caller's variable that it is a copy of
        self.packed: dict[int, tuple[str, float]] = {}  # matrix -> compressed variable, range
        self.names: list[str] = []  # of the variable of each sub-matrix
        # See `spans.CommandSpans`.
        self.starts: list[int] = []
        self.matrix_variables: list[str] = []
        self.restored: dict[int, tuple[int, str]] = {}
        self.submatrices = computation.submatrices
        self.matrix_of = [s[0] for s in self.submatrices]
        commands = computation.commands
        # Numbers and types of the few commands that are looked at beforehand.
        self.marked = [(n, c.type) for n, c in enumerate(commands) if c.type in _MARKED]
        self.component_options = natural_gradient, any([c.store_stats for c in commands])
        self.is_looped = bool(commands) and commands[-1].type == "GotoLabel"
        markers = [kind for _, kind in self.marked].count("NoOperationMarker")
        self.segments_left = markers if self.is_looped else markers - 1
        self.io_names = self._name_io()  # by command
        self._lower()
        metadata = {MODEL_DERIVATIVE: "true"} if self.has_model_derivative else {}
        self.net = OpList(
            name,
            vars=self.variables.vars,
            ops=self.ops,
            metadata=metadata,
            format_version=FORMAT_VERSION,
        )

    def _lower(self) -> None:
        lifetimes = MatrixLifetimes(
            self.computation, self.matrix_of, self._begins(), self.is_looped
        )
        self._declare(lifetimes.changed_inputs)
        methods: dict[str, Callable[[Command], None]] = {
            command_type: getattr(self, name) for command_type, name in _METHODS.items()
        }
        if not self.is_looped:  # the plan gives one matrix the memory of the other
            del methods["SwapMatrix"]
        method_of, fills = methods.get, lifetimes.fills
        ops = self.ops
        start = self.starts.append
        for number, command in enumerate(self.computation.commands):
            method = method_of(command.type)
            start(len(ops))
            if method is not None:
                if number in fills:
                    for fill in fills[number]:
                        self._fill(fill)
                method(command)

    def _begins(self) -> list[int]:
        """Numbers of the commands that fill whole matrices, or accept an input."""
        commands, is_whole = self.computation.commands, self.computation.is_whole
        return [
            number
            for number, kind in self.marked
            if kind == "AcceptInput" or (kind == "SetConst" and is_whole(commands[number].target))
        ]

    @cached_property
    def compressed(self) -> dict[int, list[tuple[int, SubMatrix]]]:
        """The sub-matrices of every matrix that is compressed, with their numbers."""
        commands = self.computation.commands
        matrix_of = self.matrix_of
        parts: dict[int, list[tuple[int, SubMatrix]]] = {
            matrix_of[commands[n].target]: [] for n, kind in self.marked if kind == "CompressMatrix"
        }
        for number, matrix in enumerate(matrix_of):
            if matrix in parts:
                parts[matrix].append((number, self.submatrices[number]))
        return parts

    # Variables

    def _name_io(self) -> dict[int, str]:
        """The variables that commands accept and provide, by number of the command."""
        names = {}
        segment = 0
        for number, kind in self.marked:
            if kind == "NoOperationMarker":
                segment = min(segment + 1, self.segments_left)
            elif kind in _IO:
                node = self.nodes[self.computation.commands[number].node]
                word = "output" if node.is_output else "input"
                # A matrix may hold a value and then a derivative, so that does not show which.
                if (kind == "AcceptInput") == node.is_output:
                    word += "_deriv"
                name = f"{word}.{node.name}"
                names[number] = f"{name}:{segment}" if segment > 0 else name
        return names

    def _io_of_matrices(self) -> dict[int, tuple[str, int]]:
        """Name and kind of the variables of matrices that the caller gives or takes."""
        kinds = {}
        for number, name in self.io_names.items():
            command = self.computation.commands[number]
            kind = INPUT if command.type == "AcceptInput" else OUTPUT
            kinds[self.matrix_of[command.target]] = name, kind
        return kinds

    def _declare(self, changed_inputs: set[int]) -> None:
        """The variables of matrices, and of sub-matrices, which are views of them."""
        kinds = self._io_of_matrices()
        self._declare_copied(kinds, changed_inputs)
        matrices = [("", 0, 0)]
        for number, matrix in enumerate(self.computation.matrices[1:], 1):
            name, kind = kinds.get(number) or (f"m{number}", TEMPORARY)
            matrices.append(self.variables.matrix(name, matrix.rows, matrix.cols, kind))
        self.matrix_variables = [variable for variable, _, _ in matrices]
        self.names = self.variables.views(enumerate(self.submatrices), matrices)

    def _declare_copied(self, kinds: dict[int, tuple[str, int]], changed_inputs: set[int]) -> None:
        """Variables of their own for inputs that become outputs, or are written over."""
        for number, name in self.io_names.items():
            command = self.computation.commands[number]
            matrix = self.matrix_of[command.target]
            if command.type == "AcceptInput" and matrix in changed_inputs:
                self.copied[matrix] = name
        for matrix, name in self.copied.items():
            info = self.computation.matrices[matrix]
            self.variables.matrix(name, info.rows, info.cols, INPUT)
            if kinds[matrix][1] == INPUT:
                del kinds[matrix]

    # Commands

    def _op(self, op_type: str, inputs: Any, out: str, attrs: dict[str, Any]) -> None:
        self.appended += 1
        self.ops.append(make_op(op_type, inputs, {"out": out}, attrs, role=self.role))

    def _from(self, x: str, op_type: str, out: str, rows: Any = None, **attrs: Any) -> None:
        """An operator of the table `_FROM_X`, which holds the array `rows` where it has one."""
        self.appended += 1
        _from_x(op_type, self.role, *attrs.items()).append(self.ops, (x, out), rows)

    def _marker(self, c: Command) -> None:
        if self.segments_left > 0:
            self.segments_left -= 1
            self._mark(c)
        else:
            self._set_role(BACKWARD)

    def _set_role(self, role: int) -> None:
        """Set the role of the operators that follow."""
        self.role = role
        ops: list[OpNode] = []
        _from_x("assign", role).append(ops, (X, OUT))
        self.assigned = ops[0].checked  # what every copy shares

    def _mark(self, c: Command) -> None:
        self.appended += 1
        self.ops.append(make_op("nnet3.mark", {}, {}, {"kind": _MARKS[c.type]}))

    def _accept(self, c: Command) -> None:
        name = self.copied.get(self.matrix_of[c.target])
        if name is not None:
            self._from(name, "assign", self.names[c.target])

    def _provide(self, c: Command) -> None:
        """Nothing: the caller reads the variable."""

    def _compress(self, c: Command) -> None:
        s = self.submatrices[c.target]
        name = f"{self.names[c.target]}.packed"
        self.packed[s.matrix] = name, float(c.alpha)
        self.variables.array(name, (s.rows, s.cols), np.dtype(c.storage))
        attrs = {"range": float(c.alpha), "dtype": np.dtype(c.storage)}
        self._from(self.names[c.target], "nnet3.compress", name, **attrs)
        self._move_last_to_writer({self.names[number] for number, _ in self.compressed[s.matrix]})

    def _move_last_to_writer(self, names: set[str]) -> None:
        """Put the last operator right after the one that last wrote one of these variables.

        What comes between them only reads: the matrix is in the cache still, and an operator that
        is now the last to read it may have its memory.
        """
        last = self.ops.pop()
        at = len(self.ops)
        while at and names.isdisjoint(self.ops[at - 1].output_names()):
            at -= 1
        self.ops.insert(at, last)
        number = len(self.starts)
        while number and self.starts[number - 1] >= at:
            number -= 1
            self.starts[number] += 1

    def _decompress(self, c: Command) -> None:
        """A new variable, so that the memory of the old one is free in between."""
        whole = self.submatrices[c.target]
        packed, limit = self.packed.pop(whole.matrix)
        name = f"{packed.removesuffix('.packed')}.restored"
        matrix = self.variables.matrix(name, whole.rows, whole.cols)
        self.restored[len(self.starts) - 1] = whole.matrix, name
        self._from(packed, "nnet3.decompress", name, range=limit)
        numbered = self.compressed[whole.matrix]
        names = self.variables.views(numbered, {whole.matrix: matrix})
        for (number, _), view in zip(numbered, names, strict=True):
            self.names[number] = view

    def _set(self, c: Command) -> None:
        if not self.computation.is_whole(c.target):  # else just before its first use: see `_lower`
            self._fill(c)

    def _fill(self, c: Command) -> None:
        s = self.submatrices[c.target]
        attrs = {"shape": [s.rows, s.cols], "value": float(c.alpha)}
        self._op("fill_constant", {}, self.names[c.target], attrs)

    def _copy(self, c: Command) -> None:
        source, target = self.names[c.source], self.names[c.target]
        if c.alpha == 1:
            self.appended += 1
            read, written = {"x": (source,)}, {"out": (target,)}
            node = OpNode("assign", read, written, {}, self.role, "", None, self.assigned)
            self.ops.append(node)
        else:
            self._from(source, "scale", target, scale=float(c.alpha))

    def _add(self, c: Command) -> None:
        target, source = self.names[c.target], self.names[c.source]
        if c.alpha == 1:
            self._from(source, "add", target)
        else:
            self._from(source, "nnet3.add_scaled", target, alpha=float(c.alpha))

    def _rows(self, c: Command) -> None:
        target, source = self.names[c.target], self.names[c.source]
        rows = np.asarray(c.rows, np.int32)
        self._from(source, _ROWS[c.type], target, rows, alpha=float(c.alpha))

    def _rows_multi(self, c: Command) -> None:
        sources, pairs = numbered_sources(c.rows)
        names = [self.names[s] for s in sources]
        target = self.names[c.target]
        attrs = {"alpha": float(c.alpha), "pairs": int_tensor(pairs)}
        if c.type == "CopyRowsMulti":
            self._op("nnet3.copy_rows_multi", {"x": names}, target, attrs)
        else:
            self._op("nnet3.add_rows_multi", {"y": target, "x": names}, target, attrs)

    def _to_rows_multi(self, c: Command) -> None:
        """One operator for each matrix that is added to."""
        targets, pairs = numbered_sources(c.rows)
        sizes = [self.submatrices[s].rows for s in targets]
        ends = np.cumsum(sizes)
        rows = np.full(sum(sizes), -1, np.int32)  # of all, one below the other
        real = np.flatnonzero(pairs[:, 0] >= 0)
        number, row = pairs[real].T
        rows[(ends - sizes)[number] + row] = real
        for submatrix, mine in zip(targets, np.split(rows, ends[:-1]), strict=True):
            target = self.names[submatrix]
            self._from(self.names[c.target], "nnet3.add_rows", target, mine, alpha=float(c.alpha))

    def _component(self, c: Command, out: int) -> tuple[_Component, Any, int]:
        """The component of a command, its precomputed indexes, and the rows of its output `out`."""
        indexes = self.computation.precomputed[c.precomputed]
        rows = self.submatrices[out][2]
        component = self.components.get(c.node)
        return component or self._component_of(c.node, indexes, rows), indexes, rows

    def _component_of(self, node: int, indexes: Any = None, rows: int = -1) -> _Component:
        """The component of a node that is used for the first time."""
        name = self.nodes[node].component_name
        component = self.components_by_name.get(name)
        if component is None:
            component = self.components_by_name[name] = self._declare_component(node, indexes, rows)
        self.components[node] = component
        return component

    def _declare_component(self, node: int, indexes: Any, rows: int) -> _Component:
        """Declare the variables of a component that is used for the first time."""
        component, name = self.nodes[node].component, self.nodes[node].component_name
        ops = ComponentOps(component, name, *self.component_options)
        trained = ops.parameters(indexes, rows)
        for variable, array in trained.items():
            self.variables.array(variable, array.shape, array.dtype, PARAMETER)
        for variable, array in ops.constants(indexes, rows).items():
            self.variables.state(variable, array)
        return _Component(ops, {variable: array.shape for variable, array in trained.items()})

    def _declare_statistics(self, component: _Component, indexes: Any) -> None:
        if not component.has_states:
            component.has_states = True
            for name, array in component.ops.states(indexes).items():
                self.variables.state(name, array)

    def _declare_memory(self, component: _Component, indexes: Any) -> None:
        """The variables of natural gradient, and the one that all components share."""
        if component.has_memory:
            return
        component.has_memory = True
        arrays = component.ops.memory(indexes)
        for name, array in arrays.items():
            self.variables.state(name, array)
        if arrays and not self.has_frozen:
            self.has_frozen = True
            self.variables.state(FROZEN, np.zeros(1, np.float32))

    def _propagate(self, c: Command) -> None:
        component, indexes, rows = self._component(c, c.target)
        x, out = self.names[c.source], self.names[c.target]
        prefix = f"step{c.step}"
        if c.store_stats:
            self._declare_statistics(component, indexes)
        self.appended += 1
        component.ops.propagate(
            self.ops,
            x,
            out,
            prefix=prefix,
            indexes=indexes,
            rows=rows,
            statistics=c.store_stats,
        )
        self.forward[c.step] = prefix, x, out, rows

    def _backprop(self, c: Command) -> None:
        component, indexes, rows = self._component(c, c.deriv[2])
        trained = c.type == "Backprop" and self.has_model_derivative and component.trained != {}
        names, (s_in, s_out, s_out_deriv, s_in_deriv) = self.names, c.deriv
        out_deriv, in_deriv = names[s_out_deriv], names[s_in_deriv]
        if c.store_stats:
            self._declare_statistics(component, indexes)
        if not (trained or in_deriv or c.store_stats):
            return
        prefix, x, out, rows_forward = self.forward.get(c.step, _NOT_RUN)
        if rows_forward != rows:
            prefix, x, out = self._values_again(c, component.ops, indexes, rows)
        if trained and self.natural_gradient:
            self._declare_memory(component, indexes)
        self.appended += 1
        component.ops.backprop(
            self.ops,
            names[s_in] or x,
            names[s_out] or out,
            out_deriv,
            in_deriv or None,
            prefix=prefix,
            trained=trained,
            indexes=indexes,
            rows=rows,
            accumulate=trained and component.has_gradient,
            statistics=c.store_stats,
            natural=trained and self.natural_gradient,
        )
        if trained and not component.has_gradient:
            component.has_gradient = True
            for name, shape in component.trained.items():
                self.variables.array(grad_name(name), shape, _FLOAT, OUTPUT)

    def _values_again(
        self, c: Command, ops: ComponentOps, indexes: Any, rows: int
    ) -> tuple[str, str, str]:
        """The prefix of temporaries and variables x and out of a backprop with rows of its own.

        These are rows of several steps, or some of the rows of its step. The temporaries of
        the forward operators have other rows, so these operators run once more.
        """
        value_in, _, out_deriv, in_deriv = [self.names[s] for s in c.deriv]
        x = in_deriv or out_deriv
        out = out_deriv
        if c.step >= 0:
            prefix = f"step{c.step}"
        else:
            prefix = f"update.{self.nodes[c.node].component_name}"
        if ops.keeps_temporaries(indexes, rows):
            prefix = f"again{self.appended}"
            out = f"{prefix}.out"
            self.variables.matrix(out, rows, self.submatrices[c.deriv[2]].cols)
            options = {"prefix": prefix, "indexes": indexes, "rows": rows, "role": self.role}
            self.appended += 1
            ops.propagate(self.ops, value_in, out, **options)
        return prefix, x, out


_FLOAT = np.dtype(np.float32)
_TO = {"x": X}
_ADD = {"y": OUT, "x": X}
# Operators from x to out, or to out + f(x): their inputs, and the attribute that holds an array.
_FROM_X: dict[str, tuple[dict[str, str], str]] = {
    "assign": (_TO, ""),
    "scale": (_TO, ""),
    "add": ({"x": OUT, "y": X}, ""),
    "nnet3.add_scaled": (_ADD, ""),
    "nnet3.compress": (_TO, ""),
    "nnet3.decompress": (_TO, ""),
    "nnet3.copy_rows": (_TO, "rows"),
    "nnet3.add_rows": (_ADD, "rows"),
    "nnet3.add_row_ranges": (_ADD, "ranges"),
}
_ROWS = {
    "CopyRows": "nnet3.copy_rows",
    "AddRows": "nnet3.add_rows",
    "AddRowRanges": "nnet3.add_row_ranges",
}
_IO = frozenset({"AcceptInput", "ProvideOutput"})
_MARKED = _IO | {"SetConst", "CompressMatrix", "NoOperationMarker"}
_METHODS = {
    "NoOperationMarker": "_marker",
    "NoOperationLabel": "_mark",
    "GotoLabel": "_mark",
    "SwapMatrix": "_copy",
    "SetConst": "_set",
    "MatrixCopy": "_copy",
    "MatrixAdd": "_add",
    "AddRows": "_rows",
    "CopyRows": "_rows",
    "CopyRowsMulti": "_rows_multi",
    "AddRowRanges": "_rows",
    "AddRowsMulti": "_rows_multi",
    "AddToRowsMulti": "_to_rows_multi",
    "CopyToRowsMulti": "_to_rows_multi",  # each row is copied to zeros
    "AcceptInput": "_accept",
    "ProvideOutput": "_provide",
    "CompressMatrix": "_compress",
    "DecompressMatrix": "_decompress",
    "Propagate": "_propagate",
    "Backprop": "_backprop",
    "BackpropNoModelUpdate": "_backprop",
}
_MARKS = {"NoOperationMarker": SEGMENT, "NoOperationLabel": LABEL, "GotoLabel": GOTO}


@lru_cache(maxsize=1024)
def _from_x(op_type: str, role: int, *attrs: tuple[str, Any]) -> Template:
    """An operator of the table `_FROM_X`, from x to out."""
    slots, array = _FROM_X[op_type]
    known = {array: of_indexes(), **dict(attrs)} if array else dict(attrs)
    return Template([LoweredOp.of(op_type, slots, {"out": OUT}, known)], role)


def int_tensor(array: Any) -> np.ndarray:
    """An array of int32 for an attribute."""
    return np.ascontiguousarray(array, np.int32)
