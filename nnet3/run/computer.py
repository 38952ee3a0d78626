"""NnetComputer: running a compiled request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.backend import Place, to_host
from ...framework.base.errors import ShapeError, VariableError, check_kind, nearest
from ...framework.base.python.cached import new_rlock
from ...framework.base.scope import Scope, Variable
from ...framework.ir.desc import BACKWARD, INPUT, OUTPUT, PARAMETER, STATE
from ...framework.ir.names import grad_name
from ...framework.ir.op_list import OpList
from ...framework.runtime.executor import bound_bytes
from ...framework.runtime.plain_net import PlainNet
from ...framework.runtime.plans.memory import WorkspaceOwner
from ...proto import net_pb2 as pb
from ..components import part_of, set_statistic
from ..lower.commands import MODEL_DERIVATIVE
from ..lower.spans import CommandSpans
from ..lower.variables import first_value
from ..network.for_inference import Model, nnet_of
from .input_arrays import float_array, warn_of_nan
from .trace import CommandTrace, root_mean_square

_loading = new_rlock()
"""Held while a computer puts the arrays of its network into a scope that others share."""


class NnetComputer:
    """Computes a compiled request for a network: forward, then backward.

    Example:
        request = simple_request("final.mdl", frames=20)
        computer = NnetComputer(compile_request("final.mdl", request), "final.mdl")
        computer.accept_input("input", frames)
        computer.run()
        scores = computer.get_output("output")

    If the request has derivatives, continue:
        computer.accept_input("output", output_deriv)
        computer.run()
        gradient = computer.model_derivative()

    Args:
        net: what `compile_request` gave; or a net of it, which several computers may then share.
        nnet: the network whose parameters are used (or an acoustic model, or the path of a file);
            the same as, or of the same structure as, the one that was compiled. On the CPU its
            arrays are read where they are, without a copy: call `reload` after a change of the
            network. Whether components are in test mode was settled by `compile_request`.
        place: where to compute; the CPU by default.
        shared: a scope for the arrays of the network, which several computers may then share; its
            place is where they compute. By default each computer has its own.
        spans: the commands of the net, which `say` gets as they are run: see `CommandTrace`.
        say: takes lines.
        owner: of this computer and others; one of them runs at a time.
    """

    def __init__(
        self,
        net: OpList | pb.NetDesc | PlainNet,
        nnet: Model,
        place: Place | None = None,
        shared: Scope | None = None,
        spans: CommandSpans | None = None,
        say: Callable[[str], None] = print,
        owner: WorkspaceOwner | None = None,
    ):
        if not isinstance(net, PlainNet):
            if not isinstance(net, OpList):  # a message; protobuf is slow to load
                check_kind(net, OpList | pb.NetDesc, "the compiled request (see compile_request)")
        check_kind(shared, Scope | None, "shared")
        self._nnet = nnet_of(nnet)
        self._net = net if isinstance(net, PlainNet) else PlainNet(net, check=False)
        self._scope = (owner or WorkspaceOwner()).lend(Scope(place, parent=shared))
        self._arrays = self._scope if shared is None else shared
        self._vars = self._net.vars
        roles = [op.role for op in self._net.operators]
        self._count = len(roles)
        self._middle = roles.index(BACKWARD) if BACKWARD in roles else len(roles)
        self._has_model_derivative = MODEL_DERIVATIVE in self._net.metadata
        self._inputs = [name for name, var in self._vars.items() if var.kind == INPUT]
        self._accepted: set[str] = set()
        self._ran_forward = self._ran_backward = False
        self._load(lambda name: name not in self._arrays.names())
        self._trace: CommandTrace | None = None
        if spans is not None:
            self._trace = CommandTrace(self._net, spans, say, self._size_of_parameters)

    def nbytes(self) -> int:
        """The memory that goes with the computer, without the network's parameters."""
        return bound_bytes(self._net.operators, self._scope)

    def release(self) -> None:
        """Let go of what is bound: nothing uses the computer any more."""
        self._scope.dissolve()

    def reload(self) -> None:
        """Read the network's parameters again, after they were changed."""
        self._load(lambda name: True)

    def _load(self, wanted: Callable[[str], bool]) -> None:
        with _loading:  # a variable that another thread has made may hold no value yet
            for var in self._vars.values():
                if var.kind == PARAMETER and wanted(var.name):
                    array = np.asarray(self._parameter(var.name), var.dtype)
                    self._take(self._arrays.var(var.name), array)
                elif var.kind == STATE and wanted(var.name):
                    self._arrays.var(var.name).set(first_value(var).copy())

    def _size_of_parameters(self, component: str) -> float:
        return root_mean_square(self._nnet.components[component].vectorize())

    def _take(self, variable: Variable, array: np.ndarray) -> None:
        """Read an array of the network where it is, if that can be; else copy it."""
        if self._arrays.place.kind == "cpu" and array.flags.c_contiguous:
            variable.share(array)
        else:
            variable.set(array)

    def _component(self, name: str) -> tuple[Any, str]:
        """The component that a variable belongs to, and the rest of the variable's name."""
        component, _, path = name.partition("/")
        if component not in self._nnet.components:
            hint = nearest(component, self._nnet.components)
            raise VariableError(f"the network has no component '{component}'{hint}")
        return self._nnet.components[component], path

    def _parameter(self, name: str) -> np.ndarray:
        array = getattr(*part_of(*self._component(name)))
        wanted = self._vars[name].shape
        if array.shape != wanted:
            raise ShapeError(
                f"{name} is {list(array.shape)}, and was {list(wanted or ())} when compiled"
            )
        return array

    def accept_input(self, name: str, matrix: Any, quiet: bool = False) -> None:
        """Give the rows of an input node, or the derivatives at an output node.

        Args:
            name: of the node.
            matrix: [rows, columns].
            quiet: no warning of NaN and infinities in the rows of an input node.

        Raises:
            VariableError: the computation takes no such thing.
            ShapeError: the matrix has the wrong size.
        """
        candidates = [f"input.{name}", f"output_deriv.{name}"]
        variable = next((v for v in candidates if self._kind(v) == INPUT), None)
        if variable is None:
            raise VariableError(
                f"the computation takes no '{name}'; it takes {self._listed(INPUT)}"
            )
        array = self._checked(name, variable, matrix)
        if not quiet and variable.startswith("input."):
            warn_of_nan(array, f"the input '{name}'")
        if variable.startswith("input."):
            self._ran_forward = self._ran_backward = False
        elif not self._ran_forward:
            raise VariableError(f"run the forward part before giving derivatives at '{name}'")
        self._scope.var(variable).set(array)
        self._accepted.add(variable)

    def _checked(self, name: str, variable: str, matrix: Any) -> np.ndarray:
        """A matrix that was given, if it has the size of its variable."""
        declared = self._vars[variable]
        array = np.asarray(float_array(matrix, f"the input '{name}'"), declared.dtype)
        rows, cols = declared.shape or (0, 0)
        if array.shape != (rows, cols):
            actual = " x ".join(map(str, array.shape)) or "one number"
            raise ShapeError(
                f"the input '{name}' wants {rows} rows of {cols} columns, you gave {actual}"
            )
        return array

    def run(self) -> None:
        """Computes the outputs; called again, with derivatives at the outputs, the derivatives.

        Raises:
            VariableError: something was not given.
        """
        if self._ran_forward:
            self._demand("output_deriv.")
            nothing = self._middle == self._count and not self._has_model_derivative
            if self._ran_backward or nothing:
                raise VariableError("there is nothing left to run; give new inputs")
            self._execute(self._middle, self._count)
            self._ran_backward = True
            return
        self._demand("input.")
        if self._trace is not None:
            self._trace.reset()
        self._execute(0, self._middle)
        self._ran_forward = True

    def _execute(self, begin: int, end: int) -> None:
        """Run operators; where commands are reported, those up to the next input or output."""
        if self._trace is not None:
            self._trace.run(self._scope)
        else:
            self._net.run(self._scope, begin=begin, end=end)

    def get_output(self, name: str, *, copy: bool = True) -> np.ndarray:
        """The value of an output node, or, after the backward part, the derivative at an input.

        Args:
            copy: False: where it lies, to be read and left alone; the next run writes over it.

        Raises:
            VariableError: there is no such thing, or it is not computed yet.
        """
        if self._kind(f"output.{name}") == OUTPUT:
            if not self._ran_forward:
                raise VariableError(f"output '{name}' is not computed yet: call run()")
            return self._value(f"output.{name}", copy)
        if self._kind(f"input_deriv.{name}") == OUTPUT:
            if not self._ran_backward:
                raise VariableError(f"the derivative at '{name}' is not computed yet")
            return self._value(f"input_deriv.{name}", copy)
        raise VariableError(f"the computation gives no '{name}'; it gives {self._listed(OUTPUT)}")

    def model_derivative(self) -> np.ndarray:
        """The plain gradient of all parameters, float32, in the order of `Nnet.vectorize`.

        Raises:
            VariableError: it was not asked for, or the backward part has not run.
        """
        if not self._ran_backward or not self._has_model_derivative:
            raise VariableError("the model's derivative was not computed")
        parts = [np.zeros(0, np.float32)]
        for name, component in self._nnet.components.items():
            if not component.is_updatable:
                continue
            fields = [
                v for v in self._vars if v.startswith(f"{name}/") and grad_name(v) in self._vars
            ]
            if not fields:
                parts.append(np.zeros(component.num_parameters, np.float32))
            parts += [self._value(grad_name(field)).reshape(-1) for field in fields]
        return np.concatenate(parts)

    def store_statistics(self) -> None:
        """Hand the statistics that runs have collected to the components of the network.

        They are collected where the request has `store_component_stats`, on from what the network
        held when it was compiled; computers that share a scope add to the same sums.
        """
        for var in self._vars.values():
            if var.kind == STATE and var.dtype == np.float64:
                set_statistic(*self._component(var.name), self._value(var.name))

    def _value(self, variable: str, copy: bool = True) -> np.ndarray:
        value = self._scope.get(variable)
        return value.numpy() if copy else to_host(value.array)

    def _kind(self, variable: str) -> int | None:
        var = self._vars.get(variable)
        return None if var is None else var.kind

    def _listed(self, kind: int) -> str:
        names = [v.partition(".")[2] for v, var in self._vars.items() if var.kind == kind]
        return ", ".join(repr(n) for n in dict.fromkeys(names) if n and "/" not in n) or "nothing"

    def _demand(self, prefix: str) -> None:
        for name in self._inputs:
            if name.startswith(prefix) and name not in self._accepted:
                raise VariableError(f"'{name.removeprefix(prefix)}' was not given")
