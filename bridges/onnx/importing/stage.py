"""A stage: the part of a graph that one net computes, for inputs of given shapes and dtypes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....framework.base.dtypes import DTYPES
from ....framework.base.errors import FormatError, OpscopeError, RunError
from ....framework.base.sizes.dims import Dim, Dims
from ....framework.base.sizes.shape import ArraySpec
from ....framework.base.untrusted.values import Fills
from ....framework.ir.desc import INPUT, PARAMETER, STATE, make_op, make_var
from ....framework.ir.infer import InferredOpen, infer_one
from ....framework.ir.op_list import OpList, OpNode, VarDecl
from ....framework.ir.operation import Operator
from ....framework.ir.registry import lookup
from .calls import (
    CONTROL,
    Attributes,
    Call,
    Kind,
    NeedsValue,
    NotHere,
    Sizes,
    Value,
    constant_of,
    failed,
    kind_of,
)
from .counted import OF_NUMBERS, as_scan
from .cutting import part_of
from .graph import Graph, Node, instantiated
from .loops import Body, Loop, boots, loop_op, without_unread
from .sizes import made_of, of_sizes, plain_shape, without_dims
from .types import is_trained, mixed_types
from .unrolling import unrolled

_FROZEN = ("DequantizeLinear", "DynamicQuantizeLSTM.weights")
"""Operators of constants that are computed beforehand, although their scale is a parameter: weights
would be converted, or cut, in every run."""
_CUT = tuple(f"{kind}.{part}" for kind in ("RNN", "GRU", "LSTM") for part in ("weights", "biases"))
"""Operators of parameters that are computed beforehand, and again when a parameter has changed."""
_SMALL = 64
"""Inputs up to so many elements may become part of a signature by their values."""
_FEW = 8
"""Nodes of a branch that is computed whether it is chosen or not."""
_SLICED = 9
"""An operator set in which Squeeze has its axes as an attribute."""


_Pairs = Sequence[tuple[str, str]]
"""The names of an output in both branches."""


class Promote(Exception):
    """Inputs whose values must be part of the signature."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(*names)
        self.names = names


@dataclass(eq=False)
class Stage:
    """What lowering gives.

    Attributes:
        net: the operators; may be none.
        feeds: value -> the input variable that it is fed to.
        fetches: value -> variable to read after the run.
        constants: variable -> array, to be put in the scope.
        folded: value -> array that was computed beforehand.
        host: nodes to compute on the host after the net, in order.
        rest: nodes of later stages.
        parameters: those that the net reads.
        follows: variable -> what gives its array, and the sizes that this takes.
        derived: nodes that were computed beforehand of parameters, with the variables of their
            outputs, whose arrays are among the constants.
        makes: bytes of all that is fetched.
        dims: the sizes that may vary, and what the stage holds for; None: for one signature alone.
    """

    net: OpList
    feeds: dict[str, str] = field(default_factory=dict)
    fetches: dict[str, str] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    folded: dict[str, Any] = field(default_factory=dict)
    host: list[Node] = field(default_factory=list)
    rest: list[Node] = field(default_factory=list)
    parameters: set[str] = field(default_factory=set)
    follows: dict[str, tuple[Callable[..., np.ndarray], tuple[Any, ...]]] = field(
        default_factory=dict
    )
    derived: list[tuple[Node, list[str]]] = field(default_factory=list)
    makes: Any = 0
    dims: Dims | None = None


class Store(ABC):
    """What all stages of a model share.

    Attributes:
        where: names the model in errors.
        constants: value -> array that nothing changes. labeled: their variables have their names.
        parameters: value -> array that was loaded; what is trained lies in the scope.
        states: parameters that no gradient changes, such as running statistics.

    Args:
        where: see above. arrays: value -> array.
        trained: names of parameters; None: arrays of floats are.
        states: names of states, which are in the scope as parameters are.
    """

    def __init__(
        self,
        where: str,
        arrays: Mapping[str, np.ndarray],
        trained: Collection[str] | None = None,
        states: Collection[str] = (),
    ) -> None:
        self.where = where
        self.states = frozenset(states)
        self.parameters = {
            name: array
            for name, array in arrays.items()
            if array.dtype in DTYPES
            and (is_trained(array) if trained is None else name in trained or name in states)
        }
        self.labeled = trained is not None
        self._written: dict[int, tuple[Node, list[Node]]] = {}
        self.constants = {n: a for n, a in arrays.items() if n not in self.parameters}

    @abstractmethod
    def current(self, name: str) -> np.ndarray:
        """The value that a parameter has now."""

    @abstractmethod
    def evaluate(self, node: Node, env: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs of a node on the host."""

    def written_out(self, node: Node) -> list[Node] | None:
        """The nodes that a node stands for, always the same ones; None where it is itself.

        A loop among them keeps the nets of its body from one signature of inputs to the next.
        """
        kind = kind_of(node)
        if kind is None or kind.expand is None:
            return None
        known = self._written.get(id(node))
        if known is None:
            try:
                nodes = kind.expand(Attributes(node, self.where))
            except OpscopeError:
                raise
            except Exception as error:
                raise failed(self.where, node, kind.expand, error) from error
            known = self._written[id(node)] = node, nodes
        return known[1]


class Lowering:
    """Lowers nodes as far as they do not depend on data.

    Args:
        store: constants and parameters.
        specs: value -> shape and dtype of what comes in and a net can hold.
        known: value -> array (or other thing) of what comes in and is part of the signature.
        foreign: values that come in and no net can hold.
        may_promote: whether inputs' values may become part of the signature where a rule asks.
        unroll: whether loops with a known number of rounds are written out.
        dims: those of the sizes in `specs` that may vary.
        may_derive: whether what is made of parameters alone may be computed beforehand.
    """

    def __init__(
        self,
        store: Store,
        specs: Mapping[str, ArraySpec],
        known: Mapping[str, Any],
        foreign: set[str],
        *,
        may_promote: bool,
        unroll: bool = False,
        dims: Dims | None = None,
        may_derive: bool = True,
    ) -> None:
        self._store = store
        self._values: dict[str, Value] = {}
        self._foreign = set(foreign)
        self._may_promote = may_promote
        self._unroll = unroll
        self._may_derive = may_derive and not unroll  # a net that trains reads the parameters
        self._fills = Fills()
        self._specs: dict[str, ArraySpec] = {}
        self._declared: dict[str, VarDecl] = {}
        self._ops: list[OpNode] = []
        self._writers: dict[str, int] = {}
        self._rest: list[tuple[Node, bool]] = []
        self._waiting: set[str] = set()
        self._unranked: list[tuple[Node, _Pairs]] = []
        self._cuts: dict[str, Node] = {}
        self._prefix = ""
        self._numbered = 0
        self._rounds = 0
        self.stage = Stage(OpList(), dims=dims)
        for name, (shape, dtype) in specs.items():
            variable = self._free(name)
            small = math.prod(shape) <= _SMALL
            roots = frozenset([name]) if small else None
            self._values[name] = Value(variable, tuple(shape), dtype, roots=roots)
            self.stage.feeds[name] = variable
            self._specs[variable] = tuple(shape), np.dtype(dtype)
            self._declared[variable] = make_var(variable, plain_shape(shape), dtype, INPUT)
        for name, array in known.items():
            if isinstance(array, np.ndarray):
                self._values[name] = Value("", array.shape, array.dtype, array)
            else:
                self._foreign.add(name)

    # -- variables -----------------------------------------------------------------------------

    def _free(self, name: str) -> str:
        free_name = name or "value"
        number = 1
        while free_name in self._specs:
            number += 1
            free_name = f"{name}/{number}"
        return free_name

    def _declare(self, var: VarDecl) -> None:
        self._declared[var.name] = var
        assert var.shape is not None and var.dtype is not None
        self._specs[var.name] = var.shape, var.dtype

    def variable(self, given: Any) -> str:
        """The variable of a value, made where it is a constant that has none yet."""
        value = given if isinstance(given, Value) else constant_of(given)
        if isinstance(value, Sizes) and self.stage.dims is not None and not value.name:
            value.name = self._numbers(value)
        if not value.name:
            assert value.array is not None
            if value.dtype not in DTYPES:
                raise NotHere
            value.name = self._free(value.label or f"{self._prefix}/const")
            self._declare(make_var(value.name, value.shape, value.dtype, STATE, stop_gradient=True))
            self.stage.constants[value.name] = value.array
        return value.name

    def _find(self, name: str) -> Value | None:
        value = self._values.get(name)
        if value is not None:
            return value
        store = self._store
        if name in store.constants:
            array = store.constants[name]
            label = name if store.labeled else ""
            value = Value("", array.shape, array.dtype, array, label=label)
        elif name in store.parameters:
            array = store.current(name)
            value = Value(name, array.shape, array.dtype, array, is_parameter=True)
            if name not in self._declared:
                still = name in store.states
                kind = STATE if still else PARAMETER
                self._declare(make_var(name, array.shape, array.dtype, kind, stop_gradient=still))
        if value is not None:
            self._values[name] = value
        return value

    def emit(
        self,
        op_type: str,
        args: Sequence[Any],
        outs: Sequence[str] | int,
        attrs: dict[str, Any],
        into: Mapping[str, Value] | None = None,
    ) -> Any:
        """See `Call.op`."""
        entry = lookup(op_type)
        inputs: dict[str, Any] = {}
        read: list[Value] = []
        for slot, arg in zip(entry.inputs, args, strict=False):
            if arg is None:
                continue
            many = arg if isinstance(arg, list) else [arg]
            values = [v if isinstance(v, Value) else constant_of(v) for v in many]
            inputs[slot.name] = [self.variable(value) for value in values]
            read += values
        if isinstance(outs, int):
            slots = [(entry.outputs[0].name, outs)]
        else:
            slots = [(slot, 1) for slot in outs]
        names = []
        outputs: dict[str, list[str]] = {}
        for slot, count in slots:
            for _ in range(count):
                self._numbered += 1
                names.append(self._free(f"{self._prefix}/{self._numbered}"))
                outputs.setdefault(slot, []).append(names[-1])
        for slot, value in (into or {}).items():
            outputs[slot] = [self.variable(value)]
        if self._unroll:  # gradients read what operators note beside their results
            for slot in entry.outputs:
                if slot.intermediate and slot.name not in outputs:
                    self._numbered += 1
                    outputs[slot.name] = [self._free(f"{self._prefix}/{self._numbered}")]
        if self.stage.dims is not None:
            attrs = without_dims(op_type, attrs, read[0].shape if read else ())
        node = make_op(op_type, inputs, outputs, attrs)
        operator = Operator(node, len(self._ops))
        inferred = () if self.stage.dims is None else (InferredOpen(),)
        results = infer_one(operator, self._specs, self._declared, None, *inferred)
        roots = None
        if read and all(value.roots is not None or value.is_known for value in read):
            roots = frozenset[str]().union(*(v.roots for v in read if v.roots))
        produced = []
        written = {value.name for value in (into or {}).values()}
        for name in results:
            if name in written:
                continue
            self._specs[name] = results[name]
            self._writers[name] = len(self._ops)
        for name in names:
            produced.append(Value(name, results[name][0], results[name][1], roots=roots))
        self._ops.append(node)
        return produced[0] if len(produced) == 1 and outs in (1, ("out",)) else produced

    def evaluate(self, node: Node, env: Mapping[str, Any]) -> Sequence[Any]:
        """See `Call.evaluate`."""
        return self._store.evaluate(node, env)

    def _numbers(self, value: Sizes) -> str:
        """The variable of sizes that are numbers to a net."""
        make, sizes = made_of(value)
        return self.following(make, value.shape, value.dtype, sizes).name

    def following(
        self,
        make: Callable[..., np.ndarray],
        shape: Sequence[Any],
        dtype: Any,
        sizes: Sequence[Any],
    ) -> Value:
        """See `Call.following`: an input of the net."""
        name = self._free(f"{self._prefix}/sizes")
        dtype = np.dtype(dtype)
        self._declare(make_var(name, plain_shape(shape), dtype, INPUT, stop_gradient=True))
        self._specs[name] = tuple(shape), dtype
        self.stage.follows[name] = make, tuple(sizes)
        return Value(name, tuple(shape), dtype)

    # -- nodes ---------------------------------------------------------------------------------

    def lower(self, nodes: Sequence[Node], wanted: Sequence[str]) -> Stage:
        """The stage of as many nodes as can be.

        Args:
            nodes: in order. wanted: values that are read at the end.

        Raises:
            Promote: values must become part of the signature.
            OpscopeError: a node is wrong.
        """
        self._lower_all(nodes)
        while self._choose_unranked(wanted):
            pass
        self._finish(wanted)
        return self.stage

    def _lower_all(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op == "SequenceAt" and (cut := self._cuts.get(node.inputs[0])):
                parts = part_of(cut, node, self._find, self._store.where)
                if parts is not None:
                    self._lower_all(parts)
                    continue
            if node.op == "SplitToSequence":  # of a constant, too: its parts are tensors
                self._cuts[node.outputs[0]] = node
            if any(name in self._waiting for name in node.reads()):
                self._defer(node, host=False)
            else:
                self._lower_one(node)

    def _defer(self, node: Node, *, host: bool) -> None:
        self._rest.append((node, host))
        self._waiting.update(name for name in node.outputs if name)

    def _lower_one(self, node: Node) -> None:
        names = node.reads()
        if any(name in self._foreign for name in names):
            return self._defer(node, host=True)
        values = {name: self._find(name) for name in names}
        lost = next((name for name, value in values.items() if value is None), None)
        if lost is not None:
            raise FormatError(f"{self._store.where}: {node.title()}: {lost!r} has no value")
        kind = kind_of(node)
        if node.op in CONTROL and not node.domain:
            return self._control(node, values)
        assert kind is not None
        written = self._store.written_out(node)
        if written is not None:
            self._check_types(node, [values[name] if name else None for name in node.inputs])
            return self._lower_all(written)
        known = all(value is not None and value.is_known for value in values.values())
        trained = any(value is not None and value.is_parameter for value in values.values())
        known &= not kind.is_random
        inputs = [values[name] if name else None for name in node.inputs]
        if known and not (trained and kind.lower and node.op not in _FROZEN):
            if not self._fold_sizes(node, kind, inputs) and not self._follow(node, kind, inputs):
                self._fold(node, values)
        elif kind.lower is None:
            return self._defer(node, host=True)
        elif known and node.op in _CUT and self._may_derive and self._are_stored(values):
            self._derive(node, values)
        else:
            self._call(node, inputs)
            if known:
                self._note_arrays(node, values)
        made = self._values.get(node.outputs[0])
        if made is not None and (made.made_by is None or node.op == "DequantizeLinear"):
            made.made_by = Call(node, self._store.where, inputs, self)
        return None

    def _note_arrays(self, node: Node, values: Mapping[str, Value | None]) -> None:
        """What small parameters give has a value as they have: factors of Resize, put together."""
        arrays = {name: value.array for name, value in values.items() if value is not None}
        outputs = [self._values.get(name) for name in node.outputs]
        small = all(array is not None and array.size <= _SMALL for array in arrays.values())
        if not small or all(value is None or value.array is not None for value in outputs):
            return
        for value, array in zip(outputs, self._store.evaluate(node, arrays), strict=False):
            if value is not None and value.array is None and isinstance(array, np.ndarray):
                value.array = array
                value.is_parameter = True

    def _call(self, node: Node, inputs: list[Value | None]) -> None:
        kind = kind_of(node)
        assert kind is not None and kind.lower is not None
        self._check_types(node, inputs)
        before = len(self._ops)
        self._prefix = next((name for name in node.outputs if name), node.name)
        self._numbered = 0
        if any(value and value.dtype not in DTYPES for value in inputs):
            return self._defer(node, host=True)
        try:
            call = Call(node, self._store.where, inputs, self)
            outputs = None if kind.of_integers is None else kind.of_integers(call)
            if outputs is None:
                outputs = kind.lower(call)
        except NeedsValue as error:
            self._undo(before)
            value = error.value
            if value.roots and self._may_promote:
                raise Promote(value.roots) from None
            return self._defer(node, host=True)
        except NotHere:
            self._undo(before)
            if kind.evaluate is None:
                raise self._refused(node, inputs) from None
            self._defer(node, host=True)
            return
        except OpscopeError as error:
            if node.title() in str(error):
                raise
            raise RunError(f"{self._store.where}: {node.title()}: {error}") from error
        except Exception as error:  # a mistake in the rule, which the host must not hide
            raise failed(self._store.where, node, kind.lower, error) from error
        results = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        for name, value in zip(node.outputs, results, strict=False):
            if name and value is not None:
                self._values[name] = self._named(value, name)

    def _check_types(self, node: Node, inputs: Sequence[Value | None]) -> None:
        if wrong := mixed_types(node, [value and value.dtype for value in inputs]):
            raise FormatError(f"{self._store.where}: {node.title()}: {wrong}")

    def _refused(self, node: Node, inputs: Sequence[Value | None]) -> OpscopeError:
        dtypes = ", ".join(str(value.dtype) for value in inputs if value)
        return RunError(
            f"{self._store.where}: {node.title()}: not supported for inputs of {dtypes}"
        )

    def _undo(self, count: int) -> None:
        for op in self._ops[count:]:
            for name in op.output_names():
                if name not in self._declared:
                    self._specs.pop(name, None)
        del self._ops[count:]

    def _named(self, value: Value, name: str) -> Value:
        """The value under the node's own name where an operator of this node has made it."""
        writer = self._writers.get(value.name)
        free = name not in self._specs
        if writer is None or not value.name.startswith(f"{self._prefix}/") or not free:
            return value
        change = {value.name: name}
        for number in range(writer, len(self._ops)):
            self._ops[number] = self._ops[number].renamed(change)
        self._specs[name] = self._specs.pop(value.name)
        self._writers[name] = writer
        value.name = name
        return value

    def _fold(self, node: Node, values: Mapping[str, Value | None]) -> None:
        arrays = {name: value.array for name, value in values.items() if value is not None}
        with self._fills:  # what is computed beforehand is there as long as the stage
            results = self._store.evaluate(node, arrays)
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                self._put(name, result)

    def _are_stored(self, values: Mapping[str, Value | None]) -> bool:
        """Whether all are the model's own arrays: what is computed of parameters, or is another
        name of one, follows them only where a net reads it."""
        store = self._store
        return all(
            (value.is_parameter and name in store.parameters)
            or value.array is store.constants.get(name)
            for name, value in values.items()
            if value is not None
        )

    def _derive(self, node: Node, values: Mapping[str, Value | None]) -> None:
        """As `_fold`, of parameters: what is made of them is not looked at, as it may change."""
        arrays = {name: value.array for name, value in values.items() if value is not None}
        with self._fills:
            results = self._store.evaluate(node, arrays)
        made = [
            Value("", one.shape, one.dtype, one, is_parameter=True, label=name)
            for name, one in zip(node.outputs, results, strict=False)
        ]
        self._values.update(zip(node.outputs, made, strict=False))
        self.stage.derived.append((node, [self.variable(value) for value in made]))

    def _fold_sizes(self, node: Node, kind: Kind, inputs: Sequence[Value | None]) -> bool:
        """As `_fold`, with sizes that may vary; False where there are none, or they do not do."""
        if not any(isinstance(value, Sizes) for value in inputs):
            return False
        results = of_sizes(node, kind, inputs, self._store.where)
        if results is None:
            return False
        self._values.update(
            (name, value)
            for name, value in zip(node.outputs, results, strict=False)
            if name and value is not None
        )
        return True

    def _follow(self, node: Node, kind: Kind, inputs: Sequence[Value | None]) -> bool:
        """As `_fold_sizes`, by an array that is made for the sizes of each run."""
        if kind.follows is None or not any(isinstance(value, Sizes) for value in inputs):
            return False
        self._prefix = node.outputs[0]
        self._numbered = 0
        try:
            self._values[node.outputs[0]] = kind.follows(
                Call(node, self._store.where, inputs, self)
            )
        except NotHere:
            return False
        return True

    def _put(self, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self._values[name] = Value("", value.shape, value.dtype, value)
        else:
            self.stage.folded[name] = value
            self._foreign.add(name)

    # -- graphs inside ---------------------------------------------------------------------------

    def _control(self, node: Node, values: Mapping[str, Value | None]) -> None:
        attributes = Attributes(node, self._store.where)
        if node.op == "If":
            condition = values[node.inputs[0]]
            if condition is not None and condition.array is not None:
                chosen = bool(condition.array.reshape(-1)[0])
                graph = attributes.graph("then_branch" if chosen else "else_branch")
                return self._inline(node, graph, {})
            if self._unroll and self._both(node, attributes):
                return None
            if condition is not None and condition.roots and self._may_promote:
                raise Promote(condition.roots)
            if self._are_light(node) and self._both(node, attributes):
                return None
        if node.op == "Scan" and not self._unroll and self._recur(attributes, values):
            return None
        if node.op == "Loop" and self._as_scan(attributes):
            return None
        if self._unroll and node.op in ("Loop", "Scan"):
            written = unrolled(attributes, values, self._store.constants)
            if written is not None:
                self._lower_all(written)
                return None
        return self._defer(node, host=True)

    def _as_scan(self, n: Attributes) -> bool:
        """Lower a Loop that is a Scan; False for another one."""
        nodes = as_scan(n, self._find, self._store.evaluate)
        if nodes is None:
            return False
        scan, *others = nodes
        attributes = Attributes(scan, self._store.where)
        values = {name: self._find(name) for name in scan.reads()}
        if self._unroll:
            written = unrolled(attributes, values, self._store.constants)
            if written is None:
                return False
            self._lower_all(written)
        elif not self._recur(attributes, values):
            return False
        self._lower_all(others)
        return True

    def _recur(self, n: Attributes, values: Mapping[str, Value | None]) -> bool:
        """Lower a Scan to the operator `recurrent`; False where it, or its body, is none."""
        loop = Loop.of(n, values) if n.version >= 9 else None
        if loop is None:
            return False
        graph = n.graph("body")
        body = self._body_of(graph, loop)
        if body is None:
            return False
        self._prefix = next(filter(None, n.node.outputs), n.node.name)
        self._numbered = 0
        call = Call(n.node, self._store.where, [], self)
        rows = []
        for value in loop.scanned:
            if loop.rows == 1:
                batch = call.reshape(value, [1, loop.steps, *value.shape[2:]])
            else:
                batch = call.op("transpose", value, perm=[1, 0, *range(2, value.ndim)])
            rows.append(call.op("sequence_rows", batch).name)
        first = [self.variable(state) if boots(state) else "" for state in loop.states]
        statics = {body.names[name]: self.variable(v) for name, v in loop.captured.items()}
        inputs = [body.names[name] for name in graph.inputs]
        title = self._free(f"{self._prefix}/loop")
        op, finals, outs = loop_op(title, loop, rows, body, inputs, first, statics)
        self._ops.append(op)
        results: list[Value] = []
        for names, written, lead in (
            (finals, body.results[: len(finals)], (loop.rows,)),
            (outs, body.results[len(finals) :], (loop.rows * loop.steps,)),
        ):
            for name, value in zip(names, written, strict=True):
                self._specs[name] = (*lead, *value.shape[1:]), value.dtype
                self._writers[name] = len(self._ops) - 1
                results.append(Value(name, *self._specs[name]))
        for at in range(len(finals), len(results)):
            batch = self._batch(call, results[at], loop)
            if loop.rows == 1:
                results[at] = call.reshape(batch, [loop.steps, 1, *batch.shape[2:]])
            else:
                results[at] = call.op("transpose", batch, perm=[1, 0, *range(2, batch.ndim)])
        for name, value in zip(n.node.outputs, results, strict=False):
            if name:
                self._values[name] = value
        return True

    def _batch(self, call: Call, rows: Value, loop: Loop) -> Value:
        """The results of all rounds, sequence after sequence, as [N, T, ...]."""
        sizes = loop.rows, loop.steps
        varying = [isinstance(size, Dim) for size in sizes]
        # All are as long. As many rows as sequences would still count as these.
        if not all(varying) and (varying[1] or loop.steps > 1):
            return call.reshape(rows, [*sizes, *rows.shape[1:]])
        steps: Any = {} if isinstance(loop.steps, Dim) else {"steps": loop.steps}
        batch: Value = call.op("sequence_pad", rows, **steps)
        batch.shape = (*sizes, *batch.shape[2:])  # offsets come with a run
        self._specs[batch.name] = batch.shape, batch.dtype
        return batch

    def _body_of(self, graph: Graph, loop: Loop) -> Body | None:
        """The body of a loop, lowered for one round; None where a net cannot hold all of it."""
        given = [((loop.rows, *value.shape[1:]), value.dtype) for value in loop.states]
        given += [(value.shape[1:], value.dtype) for value in loop.scanned]
        specs = dict(zip(graph.inputs, given, strict=True))
        specs |= {name: (value.shape, value.dtype) for name, value in loop.captured.items()}
        inner = Lowering(
            self._store,
            specs,
            {},
            set(),
            may_promote=False,
            dims=self.stage.dims,
            may_derive=False,
        )
        inner._lower_all(graph.nodes)
        found = [inner._find(name) for name in graph.outputs]
        results = [value for value in found if value is not None and value.array is None]
        made = inner.stage.constants or inner.stage.follows
        if inner._rest or made or len(results) < len(found):
            return None
        sizes = [value.shape for value in loop.states]
        same = zip(results, sizes, strict=False)
        if any(one.shape[1:] != size[1:] or one.shape[0] != loop.rows for one, size in same):
            return None
        names = {name: inner._values[name].name for name in specs}
        return Body(inner._ops, results, names)

    def _inline(self, node: Node, graph: Graph, values: Mapping[str, str]) -> None:
        self._rounds += 1
        inner = instantiated(graph, values, f"@{self._rounds}")
        nodes = list(inner.nodes)
        for out, name in zip(inner.outputs, node.outputs, strict=False):
            if name:
                nodes.append(Node("Identity", "", 13, name, (out,), (name,), {}))
        self._lower_all(nodes)

    def _are_light(self, node: Node) -> bool:
        """Whether both branches compute a few numbers, in less time than a cut of the net takes."""
        for graph in node.graphs():
            if any(one.op not in OF_NUMBERS or one.domain for one in graph.nodes):
                return False
            read = [self._find(name) for name in graph.captures]
            if len(graph.nodes) > _FEW or any(
                value is None or math.prod(value.shape) > _SMALL for value in read
            ):
                return False
        return True

    def _both(self, node: Node, attributes: Attributes) -> bool:
        """Compute both branches, and of each result choose one: no cut, and gradients flow.

        That is one net for either; False where the branches differ in shapes, or depend on data.
        """
        branches = []
        for key in ("then_branch", "else_branch"):
            names = tuple(f"{out}/{key}" if out else "" for out in node.outputs)
            self._inline(replace(node, outputs=names), attributes.graph(key), {})
            branches.append(names)
        pairs = list(zip(*branches, strict=True))
        unlike = []
        for pair in pairs:
            then, other = (self._values.get(name) if name else None for name in pair)
            if pair[0] and (not then or not other):
                return False
            if then and other and then.shape != other.shape:
                unlike.append((then, other))
        if unlike:
            if all(a.ndim + b.ndim == 1 and a.is_one and b.is_one for a, b in unlike):
                self._unranked.append((node, pairs))
            return False
        self._choose(node, pairs)
        return True

    def _choose(self, node: Node, pairs: _Pairs) -> None:
        """Lower an If to one choice for each output."""
        condition = f"{next(filter(None, node.outputs))}/condition"
        known = {"axes": [0]} if self._values[node.inputs[0]].ndim else None
        nodes = [Node("Squeeze" if known else "Identity", "", _SLICED, node.name,
                      node.inputs[:1], (condition,), known or {})]  # fmt: skip
        for pair, out in zip(pairs, node.outputs, strict=True):
            if out:
                nodes.append(Node("Where", "", 16, node.name, (condition, *pair), (out,), {}))
        self._lower_all(nodes)

    def _choose_unranked(self, wanted: Sequence[str]) -> bool:
        """Lower a deferred If whose branches give a number with and without a dimension to [1],
        where nothing that reads it tells the two apart; False where there is none."""
        while self._unranked:
            node, pairs = self._unranked.pop()
            rest = [one for one, _ in self._rest]
            if node not in rest or not self._is_unread_rank(node, rest, wanted):
                continue
            rest.remove(node)
            self._rest, self._waiting = [], set()
            self._choose(node, pairs)
            self._lower_all(rest)
            return True
        return False

    def _is_unread_rank(self, choice: Node, rest: Sequence[Node], wanted: Sequence[str]) -> bool:
        """Whether all that reads its outputs computes number by number, with a tensor that has
        dimensions in the end."""
        unranked = {name for name in choice.outputs if name}
        for node in rest:
            if node is choice or unranked.isdisjoint(node.reads()):
                continue
            if node.op not in OF_NUMBERS or node.domain or node.version < 7:
                return False
            others = [self._find(name) for name in node.inputs if name not in unranked]
            if not any(value is not None and value.ndim for value in others):
                unranked.update(node.outputs)
        return unranked.isdisjoint(wanted)

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self, wanted: Sequence[str]) -> None:
        stage = self.stage
        ready = set(self._values) | self._foreign
        read = {name for node, _ in self._rest for name in node.reads()}.union(wanted)
        for node, host in self._rest:
            if node.outputs[0] in self._cuts and node.outputs[0] not in read:
                continue  # its parts are slices
            if host and all(self._is_ready(name, ready) for name in node.reads()):
                stage.host.append(node)
                ready.update(name for name in node.outputs if name)
            else:
                stage.rest.append(node)
        needed = [name for node in (*stage.host, *stage.rest) for name in node.reads()]
        for name in dict.fromkeys((*needed, *wanted)):
            value = self._values.get(name)
            if value is None or name in self._store.parameters or name in self._store.constants:
                continue
            if value.is_known and not value.is_parameter:
                stage.folded[name] = value.array
            elif name not in stage.feeds:
                stage.fetches[name] = value.name
                stage.makes += math.prod(value.shape) * value.dtype.itemsize
        passed = {stage.feeds[name] for name in wanted if self._unroll and name in stage.feeds}
        self._prune({*stage.fetches.values(), *passed})  # an output may be an input as it is

    def _is_ready(self, name: str, ready: set[str]) -> bool:
        return name in ready or name in self._store.parameters or name in self._store.constants

    def _prune(self, wanted: set[str]) -> None:
        """The operators that something reads, and their variables."""
        kept: list[OpNode] = []
        for op in reversed(self._ops):
            if any(name in wanted and name not in self._declared for name in op.output_names()):
                kept.append(op)
                wanted.update(op.input_names())
        ops = [without_unread(op, wanted) for op in kept[::-1]]
        used = {name for op in ops for name in (*op.input_names(), *op.output_names())}
        used |= wanted
        stage = self.stage
        stage.net.ops = ops
        stage.net.vars = [var for name, var in self._declared.items() if name in used]
        for op in ops:
            for name in op.output_names():
                if name in self._declared:
                    continue
                shape, dtype = self._specs[name]
                stage.net.vars.append(make_var(name, plain_shape(shape), dtype))
        stage.constants = {n: a for n, a in stage.constants.items() if n in used}
        stage.follows = {n: one for n, one in stage.follows.items() if n in used}
        stage.parameters = {var.name for var in stage.net.vars if var.kind == PARAMETER}
        stage.feeds = {value: name for value, name in stage.feeds.items() if name in used}
