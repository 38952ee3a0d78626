"""A node by its rule, at once: operators are computed as the rule adds them, without a net.

On the host values change from round to round of a loop: a net for each would be planned, run once
and kept for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ....framework.base.backend import CPUPlace
from ....framework.base.context import OpContext
from ....framework.base.dtypes import DTYPES
from ....framework.base.errors import OpscopeError, RunError
from ....framework.base.options.settings import current
from ....framework.base.scope import Scope
from ....framework.base.sizes.shape import ArraySpec
from ....framework.base.untrusted.values import check_fill
from ....framework.ir.desc import make_op
from ....framework.ir.infer import infer_one
from ....framework.ir.kernel_args import RunState
from ....framework.ir.operation import Operator
from ....framework.ir.registry import lookup
from ....framework.runtime.binding import bind_operator
from .calls import Emits, NotHere, Value
from .graph import Node
from .loop_budget import LoopBudget


def known(array: np.ndarray) -> Value:
    """An array as the value of an operator."""
    return Value("", array.shape, array.dtype, array)


class HostFrame:
    """What kernels see of the frame that binds them: there are no plan and no packed weights."""

    train = False
    xp = np

    def __init__(self) -> None:
        self.place = CPUPlace()
        self.state = RunState(self.place)
        self.state.context = OpContext(train=False)
        self.scope = Scope(self.place)

    def scratch(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Memory that a kernel writes and reads within one call."""
        return np.empty(tuple(shape), dtype)

    def offsets(self, name: str) -> tuple[np.ndarray, ...]:
        """Sequence offsets of a variable: ONNX has none."""
        del name
        return ()


class RunsAtOnce(Protocol):
    """The engine, as far as it is wanted here."""

    loops: LoopBudget
    frame: HostFrame

    def evaluate(self, node: Node, env: Mapping[str, Any]) -> Sequence[Any]: ...


class AtOnce(Emits):
    """Computes operators as they are added; see `Emits`.

    Args:
        node: whose rule it is. inputs: of the node. engine: that computes it.
    """

    def __init__(self, node: Node, inputs: Sequence[np.ndarray | None], engine: RunsAtOnce) -> None:
        self._node = node
        self._engine = engine
        self._held = sum([array.nbytes for array in inputs if array is not None])

    def evaluate(self, node: Node, env: Mapping[str, Any]) -> Sequence[Any]:
        """See `Call.evaluate`."""
        return self._engine.evaluate(node, env)

    def emit(
        self,
        op_type: str,
        args: Sequence[Any],
        outs: Sequence[str] | int,
        attrs: dict[str, Any],
        into: Mapping[str, Value] | None = None,
    ) -> Any:
        """See `Call.op`. States keep what they are: on the host nothing is trained."""
        entry = lookup(op_type)
        arrays: dict[str, np.ndarray] = {}
        inputs: dict[str, list[str]] = {}
        for slot, arg in zip(entry.inputs, args, strict=False):
            if arg is None:
                continue
            names = inputs[slot.name] = []
            for given in arg if isinstance(arg, list) else [arg]:
                array = np.asarray(given.array if isinstance(given, Value) else given, order="C")
                if array.dtype not in DTYPES:
                    raise NotHere
                names.append(f"in{len(arrays)}")
                arrays[names[-1]] = array
        if isinstance(outs, int):
            outputs = {entry.outputs[0].name: [f"out{k}" for k in range(outs)]}
        else:
            outputs = {slot: [slot] for slot in outs}
        written = [name for names in outputs.values() for name in names]
        outputs |= {slot: [slot] for slot in into or {}}
        op = Operator(make_op(op_type, inputs, outputs, attrs))
        specs: dict[str, ArraySpec] = {n: (a.shape, a.dtype) for n, a in arrays.items()}
        results = infer_one(op, specs, {})
        self._check_room(results)
        specs |= results
        arrays |= {name: np.empty(*spec) for name, spec in results.items()}
        call = bind_operator(op, arrays, specs, self._engine.frame, current().libraries)
        _run(call, op, specs)
        values = [known(arrays[name]) for name in written]
        return values[0] if len(values) == 1 and outs in (1, ("out",)) else values

    def _check_room(self, results: Mapping[str, ArraySpec]) -> None:
        makes = sum([math.prod(shape) * dtype.itemsize for shape, dtype in results.values()])
        if makes > self._held:
            check_fill([makes], 1, self._node.title())
        if makes > self._engine.loops.room:
            self._engine.loops.refuse(makes)


def _run(call: Callable[[], Any], op: Operator, specs: Mapping[str, ArraySpec]) -> None:
    try:
        call()
    except OpscopeError:
        raise
    except Exception as error:  # of values that do not fit, such as a place beyond the end
        raise RunError(op.describe(f"failed: {type(error).__name__}: {error}", specs)) from error
