"""A compiled computation as an op list: the commands in operators, sub-matrices as view variables.

Matrices become variables `m1`, `m2`, ...; those that the caller gives or takes are called
`input.NODE`, `output.NODE`, `output_deriv.NODE` and `input_deriv.NODE`. Parameters are variables
`COMPONENT/FIELD`, their plain gradients `COMPONENT/FIELD@GRAD`; what a component holds besides (the
transform of a batch norm in test mode, say) are states that carry their values as initialisers.
Where statistics are stored, they are states `COMPONENT/FIELD`, too, float64, which the operators
add to. Allocation and release of memory are left to the plan that runs the list: a matrix that is
set to zero before use becomes a `fill_constant`, and a deallocation nothing. What the caller gives
keeps its value: a matrix that is given and then changed is a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ..framework.desc import (
    BACKWARD,
    FORMAT_VERSION,
    FORWARD,
    INPUT,
    OUTPUT,
    PARAMETER,
    TEMPORARY,
    encode_attr,
    make_op,
)
from ..framework.names import grad_name
from ..proto import net_pb2 as pb
from .analyze import WRITE, Analysis
from .composite_rows import split_composites
from .computation import Command, Computation, numbered_sources
from .compute import ComponentOps
from .compute.component_ops import Templates
from .compute.lowering import FROZEN, OUT, X
from .compute.marks import GOTO, LABEL, SEGMENT
from .compute.step import Step, of_indexes
from .compute.template import Template
from .lower_variables import Declarations
from .optimize.zeroing import needless_zeroing

MODEL_DERIVATIVE = "model_derivative"
"""The entry in a net's metadata that tells that the parameters' derivatives were asked for. Those
that nothing computes are zero."""


def lower_computation(
    computation: Computation, name: str = "computation", natural_gradient: bool = False
) -> pb.NetDesc:
    """The net that runs a computation; backward operators have the role BACKWARD.

    Args:
        natural_gradient: the gradients of components that have natural gradient are made by it;
            what it keeps are states `COMPONENT/FIELD@NATURAL_GRADIENT`.
    """
    return Lowering(split_composites(computation), name, natural_gradient).net


class _Component:
    """A component in use: its operators, and what of its variables is declared."""

    def __init__(self, ops: ComponentOps, trained: dict[str, tuple[int, ...]]) -> None:
        self.ops = ops
        self.trained = trained  # parameters and their shapes
        self.has_states = self.has_memory = self.has_gradient = False


class Lowering:
    """Makes the operators of one computation, in `net`."""

    def __init__(self, computation: Computation, name: str, natural_gradient: bool = False):
        self.computation = computation
        self.nodes = computation.topology.nodes
        self.net = pb.NetDesc(name=name, format_version=FORMAT_VERSION)
        if computation.need_model_derivative:
            self.net.metadata[MODEL_DERIVATIVE] = "true"
        self.variables = Declarations(self.net.vars)
        self.ops = self.net.ops
        self.role = FORWARD
        self.natural_gradient, self.has_frozen = natural_gradient, False
        self.components: dict[str, _Component] = {}
        self.shared: dict[Hashable, Templates] = {}  # of components with the same operators
        self.templates: dict[Hashable, Template] = {}  # of commands, by type and attributes
        self.forward: dict[int, tuple[str, str, int]] = {}  # step -> its variables x, out; rows
        self.fills: dict[int, Command] = {}  # matrix -> how it is filled, not done yet
        self.copied: dict[int, str] = {}  # matrix -> what the caller gives, where it is copied
        self.packed: dict[int, tuple[str, float]] = {}  # matrix -> compressed variable, range
        self.names: list[str] = []  # of the variable of each sub-matrix
        self.matrix_of = [s.matrix for s in computation.submatrices]
        types = [command.type for command in computation.commands]
        self.wanted = natural_gradient, any(c.store_stats for c in computation.commands)
        self.is_looped = types[-1:] == ["GotoLabel"]
        markers = types.count("NoOperationMarker")
        self.segments_left = markers if self.is_looped else markers - 1
        self.io_names = self._name_io(types)  # by command
        self._lower()

    def _lower(self) -> None:
        analysis = Analysis(self.computation, sets=True)
        self._declare(analysis)
        # Kaldi's components may add to what they find; the operators here set their results.
        if self.is_looped:  # what is handed to the next round is read there
            swaps = [c for c in self.computation.commands if c.type == "SwapMatrix"]
            analysis.taken |= {self.matrix_of[c.source] for c in swaps}
        needless = needless_zeroing(analysis)
        methods: dict[str, Callable[[Command], None]] = {
            command_type: getattr(self, name) for command_type, name in _METHODS.items()
        }
        if not self.is_looped:  # one matrix takes the other's memory: the plan's work
            del methods["SwapMatrix"]
        for number, command in enumerate(self.computation.commands):
            method = methods.get(command.type)
            if method is None or number in needless:
                continue
            if command.type == "SetConst" and self.computation.is_whole(command.target):
                self.fills[self.matrix_of[command.target]] = command
                continue
            if self.fills:
                self._fill(command, analysis.of_command[number])
            method(command)

    def _fill(self, command: Command, accesses: list[tuple[int, int]]) -> None:
        """Fill what a command touches, where nothing has done so before.

        So a matrix is filled in the same part of the net as its first reader.
        """
        touched = {self.matrix_of[s] for s, _ in accesses}
        if command.type == "SwapMatrix":
            touched |= {self.matrix_of[command.target], self.matrix_of[command.source]}
        for matrix in sorted(touched & self.fills.keys()):
            self._set(self.fills.pop(matrix))

    # Variables

    def _name_io(self, types: list[str]) -> dict[int, str]:
        """The names of what commands accept and provide."""
        names = {}
        segment = 0
        for number, command_type in enumerate(types):
            if command_type == "NoOperationMarker":
                segment = min(segment + 1, self.segments_left)
            elif command_type in ("AcceptInput", "ProvideOutput"):
                node = self.nodes[self.computation.commands[number].node]
                word = "output" if node.is_output else "input"
                # A matrix may hold a value and then a derivative, so that does not tell which.
                if (command_type == "AcceptInput") == node.is_output:
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

    def _declare(self, analysis: Analysis) -> None:
        """The variables of matrices, and of sub-matrices, which are views of them."""
        matrices = self.computation.matrices
        kinds = self._io_of_matrices()
        self._declare_given(kinds, analysis)
        bases = [""]
        for number, matrix in enumerate(matrices[1:], 1):
            name, kind = kinds.get(number) or (f"m{number}", TEMPORARY)
            self.variables.matrix(name, matrix.rows, matrix.cols, kind)
            bases.append(name)
        sizes = [(matrix.rows, matrix.cols) for matrix in matrices]
        self.names = self.variables.parts(enumerate(self.computation.submatrices), bases, sizes)

    def _declare_given(self, kinds: dict[int, tuple[str, int]], analysis: Analysis) -> None:
        """Variables of their own for inputs that become outputs, or are written over."""
        commands = self.computation.commands
        for accepted, name in self.io_names.items():
            matrix = self.matrix_of[commands[accepted].target]
            if commands[accepted].type == "AcceptInput" and any(
                number > accepted
                and (mode & WRITE or commands[number].type == "ProvideOutput")
                and commands[number].type != "AcceptInput"
                for number, _, mode in analysis.of_matrix[matrix]
            ):
                self.copied[matrix] = name
        for matrix, name in self.copied.items():
            info = self.computation.matrices[matrix]
            self.variables.matrix(name, info.rows, info.cols, INPUT)
            if kinds[matrix][1] == INPUT:
                del kinds[matrix]

    # Commands

    def _op(self, op_type: str, inputs: Any, out: str, attrs: dict[str, Any]) -> None:
        self.ops.append(make_op(op_type, inputs, {"out": out}, attrs, role=self.role))

    def _from(self, x: str, op_type: str, out: str, rows: Any = None, **attrs: Any) -> None:
        """An operator of the table `_FROM_X`, which holds the array `rows` where it has one."""
        key = (op_type, *attrs.items()) if attrs else op_type
        template = self.templates.get(key)
        if template is None:
            slots, array = _FROM_X[op_type]
            if array:
                attrs[array] = of_indexes()
            step = Step.of(op_type, slots, {"out": OUT}, attrs)
            template = self.templates[key] = Template([step], self.role)
        template.append(self.ops, {X: x, OUT: out}, indexes=rows)

    def _marker(self, c: Command) -> None:
        if self.segments_left > 0:
            self.segments_left -= 1
            self._mark(c)
        else:
            self.role = BACKWARD
            for template in self.templates.values():
                template.set_role(BACKWARD)

    def _mark(self, c: Command) -> None:
        self.ops.append(make_op("nnet3.mark", {}, {}, {"kind": _MARKS[c.type]}))

    def _accept(self, c: Command) -> None:
        name = self.copied.get(self.matrix_of[c.target])
        if name is not None:
            self._from(name, "assign", self.names[c.target])

    def _provide(self, c: Command) -> None:
        """Nothing: the caller reads the variable."""

    def _compress(self, c: Command) -> None:
        s = self.computation.submatrices[c.target]
        name = f"{self.names[c.target]}.packed"
        self.packed[s.matrix] = name, float(c.alpha)
        self.variables.array(name, (s.rows, s.cols), c.storage)
        attrs = {"range": float(c.alpha), "dtype": np.dtype(c.storage)}
        self._from(self.names[c.target], "nnet3.compress", name, **attrs)

    def _decompress(self, c: Command) -> None:
        """A new variable, so that the memory of the old one is free in between."""
        whole = self.computation.submatrices[c.target]
        packed, limit = self.packed.pop(whole.matrix)
        name = f"{packed.removesuffix('.packed')}.restored"
        self.variables.matrix(name, whole.rows, whole.cols)
        self._from(packed, "nnet3.decompress", name, range=limit)
        numbers = [number for number, m in enumerate(self.matrix_of) if m == whole.matrix]
        parts = [(number, self.computation.submatrices[number]) for number in numbers]
        size = {whole.matrix: (whole.rows, whole.cols)}
        names = self.variables.parts(parts, {whole.matrix: name}, size)
        for number, part in zip(numbers, names, strict=True):
            self.names[number] = part

    def _set(self, c: Command) -> None:
        s = self.computation.submatrices[c.target]
        attrs = {"shape": [s.rows, s.cols], "value": float(c.alpha)}
        self._op("fill_constant", {}, self.names[c.target], attrs)

    def _copy(self, c: Command) -> None:
        target, source = self.names[c.target], self.names[c.source]
        if c.alpha == 1:
            self._from(source, "assign", target)
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
        sources, pairs = numbered_sources(c.rows)
        for number, submatrix in enumerate(sources):
            mine = np.flatnonzero(pairs[:, 0] == number)
            rows = np.full(self.computation.submatrices[submatrix].rows, -1, np.int32)
            rows[pairs[mine, 1]] = mine
            target = self.names[submatrix]
            self._from(self.names[c.target], "nnet3.add_rows", target, rows, alpha=float(c.alpha))

    def _component(self, c: Command, out: int) -> tuple[_Component, Any, int]:
        """The component of a command, its precomputed indexes, and the rows of its output `out`.

        At the first use of a component its variables are declared.
        """
        node = self.nodes[c.node]
        indexes = self.computation.precomputed[c.precomputed]
        rows = self.computation.submatrices[out].rows
        found = self.components.get(node.component_name)
        if found is None:
            ops = ComponentOps(node.component, node.component_name, *self.wanted, self.shared)
            trained = ops.parameters(indexes, rows)
            found = _Component(ops, {name: array.shape for name, array in trained.items()})
            self.components[node.component_name] = found
            for name, array in trained.items():
                self.variables.array(name, array.shape, array.dtype, PARAMETER)
            for name, array in ops.constants(indexes, rows).items():
                self.variables.state(name, array)
        return found, indexes, rows

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
        if c.store_stats:
            self._declare_statistics(component, indexes)
        component.ops.propagate(
            self.ops,
            x,
            out,
            prefix=f"step{c.step}",
            indexes=indexes,
            rows=rows,
            statistics=c.store_stats,
        )
        self.forward[c.step] = x, out, rows

    def _backprop(self, c: Command) -> None:
        component, indexes, rows = self._component(c, c.deriv[2])
        updates = c.type == "Backprop" and self.computation.need_model_derivative
        trained = updates and bool(component.trained)
        in_deriv = self.names[c.deriv[3]] or None
        if c.store_stats:
            self._declare_statistics(component, indexes)
        if not (trained or in_deriv or c.store_stats):
            return
        prefix, x, out = self._values(c, component.ops, indexes, rows)
        if trained and self.natural_gradient:
            self._declare_memory(component, indexes)
        component.ops.backprop(
            self.ops,
            x,
            out,
            self.names[c.deriv[2]],
            in_deriv,
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

    def _values(
        self, c: Command, ops: ComponentOps, indexes: Any, rows: int
    ) -> tuple[str, str, str]:
        """The variables of the values that a backprop reads, some only for their shape, and the
        prefix of temporaries.

        One that looks back at the rows of several steps, or at some of the rows of its step, does
        not find what the forward operators have left for it: they run once more.
        """
        value_in, value_out, out_deriv, in_deriv = [self.names[s] for s in c.deriv]
        prefix = f"step{c.step}" if c.step >= 0 else f"update.{self.nodes[c.node].component_name}"
        x, out, rows_forward = self.forward.get(c.step, ("", "", -1))
        if rows_forward != rows:
            x, out = in_deriv or out_deriv, out_deriv
            if ops.keeps_temporaries(indexes, rows):
                first = len(self.ops)
                prefix = f"again{first}"
                out = f"{prefix}.out"
                self.variables.matrix(out, rows, self.computation.submatrices[c.deriv[2]].cols)
                ops.propagate(self.ops, value_in, out, prefix=prefix, indexes=indexes, rows=rows)
                for op in self.ops[first:]:
                    op.role = self.role
        return prefix, value_in or x, value_out or out


_FLOAT = np.dtype(np.float32)
_TO, _ADD = {"x": X}, {"y": OUT, "x": X}
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


def int_tensor(array: Any) -> pb.Attr:
    """An attribute that holds an array of int32."""
    return encode_attr(np.ascontiguousarray(array, np.int32), "tensor")
