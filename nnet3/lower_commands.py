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

from typing import Any

import numpy as np

from ..framework.desc import BACKWARD, FORMAT_VERSION, FORWARD, encode_attr, make_op, make_var
from ..framework.names import grad_name, state_name
from ..proto import net_pb2 as pb
from .analyze import WRITE, Analysis
from .computation import Command, Computation, numbered_sources
from .compute import ComponentOps
from .compute.lowering import FROZEN
from .compute.marks import GOTO, LABEL, SEGMENT
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
    return Lowering(computation, name, natural_gradient).net


_Use = tuple[ComponentOps, dict[str, Any], dict[str, Any]]


class Lowering:
    """Makes the operators of one computation, in `net`."""

    def __init__(self, computation: Computation, name: str, natural_gradient: bool = False):
        self.computation = computation
        self.nodes = computation.topology.nodes
        self.net = pb.NetDesc(name=name, format_version=FORMAT_VERSION)
        if computation.need_model_derivative:
            self.net.metadata[MODEL_DERIVATIVE] = "true"
        self.role = FORWARD
        self.ops: dict[str, ComponentOps] = {}
        self.natural_gradient = natural_gradient
        # Components whose parameters, statistics, and what natural gradient keeps have variables.
        self.fields: set[str] = set()
        self.states: set[str] = set()
        self.memory: set[str] = set()
        self.arrays: dict[str, dict[str, str]] = {}  # component -> names of these variables
        self.uses: dict[tuple[str, int], _Use] = {}  # by component and precomputed indexes
        self.started: set[str] = set()  # components whose gradients hold something
        self.forward: dict[int, tuple[str, str, int]] = {}  # step -> its variables x, out; rows
        self.fills: dict[int, Command] = {}  # matrix -> how it is filled, not done yet
        self.copied: dict[int, str] = {}  # matrix -> what the caller gives, where it is copied
        self.packed: dict[int, tuple[str, float]] = {}  # matrix -> compressed variable, range
        self.names: list[str] = []  # of the variable of each sub-matrix
        types = [command.type for command in computation.commands]
        self.is_looped = types[-1:] == ["GotoLabel"]
        markers = types.count("NoOperationMarker")
        self.segments_left = markers if self.is_looped else markers - 1
        self.analysis = analysis = Analysis(computation, sets=True)
        self._declare()
        # Kaldi's components may add to what they find; the operators here set their results.
        if self.is_looped:  # what is handed to the next round is read there
            swaps = [c for c in computation.commands if c.type == "SwapMatrix"]
            analysis.taken |= {computation.submatrices[c.source].matrix for c in swaps}
        needless = needless_zeroing(analysis)
        for number, command in enumerate(computation.commands):
            if number not in needless:
                self._lower(command)

    # Variables

    def _io_names(self) -> dict[int, tuple[str, int]]:
        """Name and kind of the variables of matrices that the caller gives or takes."""
        computation = self.computation
        kinds: dict[int, tuple[str, int]] = {}
        for number, command in enumerate(computation.commands):
            if command.type in ("AcceptInput", "ProvideOutput"):
                matrix = computation.submatrices[command.target].matrix
                given = command.type == "AcceptInput"
                kind = pb.VarDesc.INPUT if given else pb.VarDesc.OUTPUT
                kinds[matrix] = self._io_name(number), kind
        return kinds

    def _io_name(self, number: int) -> str:
        """The name of what a command accepts or provides."""
        commands = self.computation.commands
        node = self.nodes[commands[number].node]
        word = "output" if node.is_output else "input"
        # A matrix may hold a value and then a derivative, so that does not tell which is meant.
        if (commands[number].type == "AcceptInput") == node.is_output:
            word += "_deriv"
        before = [c.type for c in commands[:number]].count("NoOperationMarker")
        segment = min(before, self.segments_left)
        return f"{word}.{node.name}:{segment}" if segment else f"{word}.{node.name}"

    def _declare(self) -> None:
        computation = self.computation
        kinds = self._io_names()
        self._declare_given(kinds)
        self.names = [""] * len(computation.submatrices)
        bases: list[str] = [""]
        for number, matrix in enumerate(computation.matrices[1:], 1):
            name, kind = kinds.get(number, (f"m{number}", pb.VarDesc.TEMPORARY))
            bases.append(name)
            dims = matrix.rows, matrix.cols
            self.net.vars.add(name=name, kind=kind, dtype=pb.FLOAT32, dims=dims, has_dims=True)
        for number, s in enumerate(computation.submatrices[1:], 1):
            self._declare_part(number, bases[s.matrix])

    def _declare_given(self, kinds: dict[int, tuple[str, int]]) -> None:
        """Variables of their own for inputs that become outputs, or are written over."""
        computation = self.computation
        inputs: dict[int, str] = {}
        changed: set[int] = set()
        matrix_of = [s.matrix for s in computation.submatrices]
        for number, command in enumerate(computation.commands):
            matrix = matrix_of[command.target]
            if command.type == "AcceptInput":
                inputs[matrix] = self._io_name(number)
            elif matrix in inputs and command.type == "ProvideOutput":
                changed.add(matrix)
            else:
                for s, mode in self.analysis.of_command[number]:
                    if mode & WRITE and matrix_of[s] in inputs:
                        changed.add(matrix_of[s])
        for matrix in changed:
            info, name = computation.matrices[matrix], inputs[matrix]
            self.copied[matrix] = name
            shape = (info.rows, info.cols)
            self.net.vars.append(make_var(name, shape, "float32", pb.VarDesc.INPUT))
            if kinds[matrix][1] == pb.VarDesc.INPUT:
                del kinds[matrix]

    def _declare_part(self, number: int, base: str) -> None:
        """The variable of a sub-matrix: that of its matrix, or a view of it."""
        if self.computation.is_whole(number):
            self.names[number] = base
            return
        _, row, rows, col, cols = self.computation.submatrices[number]
        name = self.names[number] = f"{base}.s{number}"
        view = {
            "base": base,
            "row_begin": row,
            "row_end": row + rows,
            "col_begin": col,
            "col_end": col + cols,
        }
        self.net.vars.add(name=name, dtype=pb.FLOAT32, dims=(rows, cols), has_dims=True, view=view)

    def _lower(self, command: Command) -> None:
        """Operators of one command.

        A matrix is filled only where it is touched for the first time: in the same part of the net
        as its reader.
        """
        computation = self.computation
        if command.type in ("AllocMatrix", "DeallocMatrix"):
            return
        if command.type == "SwapMatrix" and not self.is_looped:
            return  # one matrix takes the other's memory: the plan's work
        if command.type == "SetConst" and computation.is_whole(command.target):
            self.fills[computation.submatrices[command.target].matrix] = command
            return
        if self.fills:
            for matrix in sorted(computation.touched(command) & self.fills.keys()):
                self._set(self.fills.pop(matrix))
        if command.type in _METHODS:
            getattr(self, _METHODS[command.type])(command)

    def _op(self, op_type: str, inputs: Any, out: str, attrs: dict[str, Any]) -> None:
        self.net.ops.append(make_op(op_type, inputs, {"out": out}, attrs, role=self.role))

    # Commands

    def _marker(self, c: Command) -> None:
        if self.segments_left > 0:
            self.segments_left -= 1
            self._mark(c)
        else:
            self.role = BACKWARD

    def _mark(self, c: Command) -> None:
        self.net.ops.append(make_op("nnet3.mark", {}, {}, {"kind": _MARKS[c.type]}))

    def _accept(self, c: Command) -> None:
        matrix = self.computation.submatrices[c.target].matrix
        if matrix in self.copied:
            self._op("assign", {"x": self.copied[matrix]}, self.names[c.target], {})

    def _compress(self, c: Command) -> None:
        s = self.computation.submatrices[c.target]
        name = f"{self.names[c.target]}.packed"
        self.packed[s.matrix] = name, float(c.alpha)
        self.net.vars.append(make_var(name, (s.rows, s.cols), c.storage))
        attrs = {"range": float(c.alpha), "dtype": np.dtype(c.storage)}
        self._op("nnet3.compress", {"x": self.names[c.target]}, name, attrs)

    def _decompress(self, c: Command) -> None:
        """A new variable, so that the memory of the old one is free in between."""
        whole = self.computation.submatrices[c.target]
        packed, limit = self.packed.pop(whole.matrix)
        name = f"{packed.removesuffix('.packed')}.restored"
        self.net.vars.append(make_var(name, (whole.rows, whole.cols), "float32"))
        self._op("nnet3.decompress", {"x": packed}, name, {"range": limit})
        for number, s in enumerate(self.computation.submatrices):
            if s.matrix == whole.matrix:
                self._declare_part(number, name)

    def _set(self, c: Command) -> None:
        s = self.computation.submatrices[c.target]
        attrs = {"shape": [s.rows, s.cols], "value": float(c.alpha)}
        self._op("fill_constant", {}, self.names[c.target], attrs)

    def _matrix(self, c: Command) -> None:
        target, source = self.names[c.target], self.names[c.source]
        if c.type in ("MatrixCopy", "SwapMatrix"):
            if c.alpha == 1:
                self._op("assign", {"x": source}, target, {})
            else:
                self._op("scale", {"x": source}, target, {"scale": float(c.alpha)})
        elif c.alpha == 1:
            self._op("add", {"x": target, "y": source}, target, {})
        else:
            attrs = {"alpha": float(c.alpha)}
            self._op("nnet3.add_scaled", {"y": target, "x": source}, target, attrs)

    def _rows(self, c: Command) -> None:
        target, source = self.names[c.target], self.names[c.source]
        if c.type == "CopyRows":
            attrs = {"alpha": float(c.alpha), "rows": int_tensor(c.rows)}
            self._op("nnet3.copy_rows", {"x": source}, target, attrs)
            return
        ranges = c.type == "AddRowRanges"
        attrs = {"alpha": float(c.alpha), "ranges" if ranges else "rows": int_tensor(c.rows)}
        op_type = "nnet3.add_row_ranges" if ranges else "nnet3.add_rows"
        self._op(op_type, {"y": target, "x": source}, target, attrs)

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
            attrs = {"alpha": float(c.alpha), "rows": int_tensor(rows)}
            self._op("nnet3.add_rows", {"y": target, "x": self.names[c.target]}, target, attrs)

    def _component(self, c: Command) -> tuple[ComponentOps, dict[str, Any], dict[str, Any]]:
        """The component's operators, arguments for them, and the shapes of what is trained."""
        name = self.nodes[c.node].component_name
        key = name, c.precomputed
        if key not in self.uses:
            self.uses[key] = self._declare_component(c)
        ops, common, trained = self.uses[key]
        prefix = f"step{c.step}" if c.step >= 0 else f"update.{name}"
        return ops, {**common, "prefix": prefix, "rows": self._rows_out(c)}, trained

    def _declare_component(self, c: Command) -> _Use:
        """As `_component`, but what each command differs in; the variables are declared."""
        node = self.nodes[c.node]
        name = node.component_name
        ops = self.ops.get(name)
        if ops is None:
            ops = self.ops[name] = ComponentOps(node.component, self.natural_gradient)
        indexes = self.computation.precomputed[c.precomputed]
        recipe = ops.recipe(indexes, self._rows_out(c))
        if name not in self.fields:
            self.fields.add(name)
            names = self.arrays.setdefault(name, {})
            for field in (*recipe.parameters, *recipe.constants):
                names[f"{name}.{field}"] = f"{name}/{field}"
                names[f"{name}@D.{field}"] = grad_name(f"{name}/{field}")
            for field, array in recipe.parameters.items():
                self._declare_array(f"{name}/{field}", array, pb.VarDesc.PARAMETER)
            for field, array in recipe.constants.items():
                self._declare_state(f"{name}/{field}", array)
        common = {"parameters": name, "indexes": indexes, "rename": self.arrays[name]}
        return ops, common, {field: a.shape for field, a in recipe.parameters.items()}

    def _rows_out(self, c: Command) -> int:
        """The rows of the output of a component's command."""
        written = c.target if c.type == "Propagate" else c.deriv[2]
        return self.computation.submatrices[written].rows

    def _declare_array(
        self, name: str, array: np.ndarray, kind: int, value: pb.OpDesc | None = None
    ) -> None:
        var = make_var(name, array.shape, array.dtype, kind, initializer=value)
        self.net.vars.append(var)

    def _declare_state(self, name: str, array: np.ndarray) -> None:
        value = make_op("constant", {}, {"out": name}, {"value": array})
        self._declare_array(name, array, pb.VarDesc.STATE, value)

    def _statistics(self, name: str, c: Command, wanted: bool) -> str | None:
        """The prefix of a component's statistics where they are wanted; else None."""
        if wanted and name not in self.states:
            states = self.ops[name].states(name, self.computation.precomputed[c.precomputed])
            fields = [state.removeprefix(f"{name}.") for state in states]
            self.states.add(name)
            self.arrays[name] |= {f"{name}.{field}": f"{name}/{field}" for field in fields}
            for field, array in zip(fields, states.values(), strict=True):
                self._declare_state(f"{name}/{field}", array)
        return name if wanted else None

    def _memory(self, name: str, c: Command) -> str:
        """The prefix of what natural gradient keeps of a component."""
        if name not in self.memory:
            arrays = self.ops[name].memory(name, self.computation.precomputed[c.precomputed])
            fields = {given: given.removeprefix(f"{name}.") for given in arrays}
            self.memory.add(name)
            names = {
                given: state_name(f"{name}/{field}", "natural_gradient")
                for given, field in fields.items()
            }
            self.arrays[name] |= names
            for given, array in arrays.items():
                self._declare_state(names[given], array)
            if arrays and not any(var.name == FROZEN for var in self.net.vars):
                self._declare_state(FROZEN, np.zeros(1, np.float32))
        return name

    def _propagate(self, c: Command) -> None:
        ops, common, _ = self._component(c)
        states = self._statistics(common["parameters"], c, c.store_stats)
        x, out = self.names[c.source], self.names[c.target]
        made = ops.propagate(x, out, states=states, **common)
        self.forward[c.step] = x, out, self._rows_out(c)
        self.net.ops.extend(made)

    def _backprop(self, c: Command) -> None:
        ops, common, trained = self._component(c)
        name = common["parameters"]
        updates = c.type == "Backprop" and self.computation.need_model_derivative
        wanted = updates and bool(trained)
        in_deriv = self.names[c.deriv[3]] or None
        states = self._statistics(name, c, c.store_stats)
        if not wanted and in_deriv is None and states is None:
            return
        x, out = self._values(c, ops, common)
        made = ops.backprop(
            x,
            out,
            self.names[c.deriv[2]],
            in_deriv,
            param_derivs=f"{name}@D" if wanted else None,
            accumulate=wanted and name in self.started,
            states=states,
            memory=self._memory(name, c) if wanted and self.natural_gradient else None,
            **common,
        )
        if wanted and name not in self.started:
            self.started.add(name)
            for field, shape in trained.items():
                gradient = grad_name(f"{name}/{field}")
                self.net.vars.append(make_var(gradient, shape, "float32", pb.VarDesc.OUTPUT))
        self.net.ops.extend(made)

    def _values(self, c: Command, ops: ComponentOps, common: dict[str, Any]) -> tuple[str, str]:
        """The variables of the values that a backprop reads; some only for their shape.

        One that looks back at the rows of several steps, or at some of the rows of its step, does
        not find what the forward operators have left for it: they run once more.
        """
        value_in, value_out, out_deriv, in_deriv = (self.names[s] for s in c.deriv)
        x, out, rows = self.forward.get(c.step, ("", "", -1))
        if rows != self._rows_out(c):
            x, out = in_deriv or out_deriv, out_deriv
            if ops.keeps_temporaries(common["indexes"], common["rows"]):
                common["prefix"] = f"again{len(self.net.ops)}"
                out = f"{common['prefix']}.out"
                s = self.computation.submatrices[c.deriv[2]]
                self.net.vars.append(make_var(out, (s.rows, s.cols), "float32"))
                made = ops.propagate(value_in, out, **common)
                for op in made:
                    op.role = self.role
                self.net.ops.extend(made)
        return value_in or x, value_out or out


_METHODS = {
    "NoOperationMarker": "_marker",
    "NoOperationLabel": "_mark",
    "GotoLabel": "_mark",
    "SwapMatrix": "_matrix",
    "SetConst": "_set",
    "MatrixCopy": "_matrix",
    "MatrixAdd": "_matrix",
    "AddRows": "_rows",
    "CopyRows": "_rows",
    "CopyRowsMulti": "_rows_multi",
    "AddRowRanges": "_rows",
    "AddRowsMulti": "_rows_multi",
    "AddToRowsMulti": "_to_rows_multi",
    "CopyToRowsMulti": "_to_rows_multi",  # each row is copied to zeros
    "AcceptInput": "_accept",
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
