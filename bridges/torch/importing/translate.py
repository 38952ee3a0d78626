"""A `torch.export` program as a graph of nodes, arrays beside it.

Programs are read by their attributes alone: graph, signature, state. torch itself is not imported.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....framework.base.dtypes import to_dtype
from ....framework.base.errors import FormatError, ShapeError
from ...onnx.importing.graph import Graph, InputInfo, Model, Node
from .calls import COMPLEX, DOMAIN, RULES, Ref, TorchNode, known_form
from .control import CONTROL_CALLS, OPSET, calls_of, is_block
from .merging import Merged, merged_rows

WHERE = "ExportedProgram"
_CHECKS = ("_assert", "sym_constrain_range", "_assert_async", "_assert_scalar")
"""How the names of operators begin that only check what they are given."""
_VIEWS = ("getitem",)
_SIZED = {
    "arange": "end", "slice": "end", "expand": "size",
    "zeros": "size", "ones": "size", "full": "size",
    "new_zeros": "size", "new_ones": "size", "new_full": "size",
}  # fmt: skip
"""Operators that sizes of other tensors make larger, and the argument that holds these."""
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@dataclass
class Program:
    """What a program says, in our terms.

    Attributes:
        model: its graph and arrays.
        trained: names of parameters. states: names of buffers of floats.
        dims: input -> its dimensions, numbers or expressions of sizes that may vary.
        ranges: symbol of a size -> least and most.
        names: name in the state dict -> name of the parameter that it shares.
        changed: buffer that the program changes -> the output that is its new value.
    """

    model: Model
    trained: set[str]
    states: set[str]
    dims: dict[str, tuple[Any, ...]]
    ranges: dict[Any, tuple[int, float]]
    names: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)


def array_of(tensor: Any) -> np.ndarray:
    """A tensor's values in an array of its own."""
    plain = tensor.detach().cpu()
    if plain.dtype.is_complex:  # pairs
        whole = plain.resolve_conj().numpy()
        return np.stack([whole.real, whole.imag], -1)
    dtype = dtype_of(plain.dtype)
    if dtype.name == "bfloat16":
        return plain.float().numpy().astype(dtype)
    return np.array(plain.contiguous().numpy())


def dtype_of(dtype: Any) -> np.dtype:
    """The NumPy dtype of a torch.dtype; for complex numbers the dtype of their parts."""
    name = str(dtype).removeprefix("torch.")
    return to_dtype({"complex64": "float32", "complex128": "float64"}.get(name, name))


def _is_pair(value: Any) -> bool:
    """Whether a value is a tensor of complex numbers, which are pairs here."""
    return getattr(getattr(value, "dtype", None), "is_complex", False)


def _refuse_complex(value: Any, what: str) -> None:
    if _is_pair(value):
        raise FormatError(f"{WHERE}: {what} is of complex numbers")


def source_of(node: Any) -> str:
    """The line of the model that a node stems from, as file:line; empty where it is not known."""
    frames = re.findall(r'File "([^"]*)", line (\d+)', node.meta.get("stack_trace") or "")
    home = os.path.dirname(getattr(sys.modules.get("torch"), "__file__", "") or "")
    own = [frame for frame in frames if not (home and frame[0].startswith(home))]
    return ":".join((own or frames)[-1]) if frames else ""


def is_operator(node: Any) -> bool:
    """Whether a node calls an operator of PyTorch's registry."""
    return hasattr(node.target, "_schema") and hasattr(node.target, "namespace")


def name_of(node: Any) -> tuple[str, str, str]:
    """Domain, name under which rules know it, and full name of what a node calls."""
    if is_operator(node):
        domain = COMPLEX if _is_complex(node) else node.target.namespace
        plain = node.target._schema.name.split("::")[-1]
        return domain, known_form(domain, plain) or plain, str(node.target)
    name = getattr(node.target, "__name__", str(node.target))
    return "size" if _is_size(node.meta.get("val")) else "", name, name


def _is_complex(node: Any) -> bool:
    """Whether an operator takes or gives complex numbers."""
    values = [node.meta.get("val"), *(one.meta.get("val") for one in node.all_input_nodes)]
    tensors = [one for value in values for one in (value if isinstance(value, tuple) else [value])]
    return any(map(_is_pair, tensors))


def unknown(program: Any) -> list[Any]:
    """The nodes whose operators have no rule here."""
    nodes = []
    for module, node in calls_of(program.graph_module):
        if node.op == "get_attr" and is_block(module, node):
            continue
        if node.op in ("call_module", "get_attr"):
            nodes.append(node)
        elif node.op == "call_function":
            domain, name, _ = name_of(node)
            known = (domain, name) in RULES or name in (*_VIEWS, *CONTROL_CALLS)
            if not known and not name.startswith(_CHECKS):
                nodes.append(node)
    return nodes


def _mutates(node: Any) -> bool:
    return bool(is_operator(node) and node.target._schema.is_mutable)


def needs_functions(program: Any) -> bool:
    """Whether operators change tensors that others may read, so that they must be replaced."""
    for _, node in calls_of(program.graph_module):
        if node.op != "call_function" or not _mutates(node):
            continue
        changed: Any = node.args[0] if node.args else None
        fresh = (
            changed is not None
            and getattr(changed, "op", "") == "call_function"
            and len(changed.users) == 1
            and is_operator(changed)
            and (_mutates(changed) or not _aliases(changed))
        )
        if not fresh:
            return True
    return False


def _aliases(node: Any) -> bool:
    """Whether an operator's result may be its input's memory."""
    return any(argument.alias_info is not None for argument in node.target._schema.arguments)


def _is_call(node: Any, *names: str) -> bool:
    """Whether something is a call of one of ATen's operators."""
    call = getattr(node, "op", "") == "call_function" and is_operator(node)
    return call and name_of(node)[1] in names


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, float, bool)) or type(value).__name__.startswith("Sym")


class Reader:
    """Reads one program, whose operators are all known. Raises as `from_torch`."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.arrays: dict[str, np.ndarray] = {}
        self.imported = Program(
            Model(WHERE, Graph((), (), []), self.arrays, [], [], 0), set(), set(), {}, {}
        )
        self._env: dict[Any, Any] = {}
        self._names: set[str] = set()
        self._nodes: list[Node] = []
        self._merged: Mapping[Any, Merged] = merged_rows(program.graph)
        self._changed = {
            spec.target
            for spec in program.graph_signature.output_specs
            if spec.kind.name == "BUFFER_MUTATION"
        }

    def read(self) -> Program:
        """The program as a graph."""
        inputs = self._inputs()
        self._read(self.program.graph_module)
        outputs, infos = self._outputs()
        model = self.imported.model
        model.graph = Graph(tuple(inputs), tuple(outputs), _read_by_any(self._nodes, outputs))
        model.outputs = infos
        for symbol, limits in self.program.range_constraints.items():
            lower, upper = (str(end).lstrip("-").isdigit() for end in (limits.lower, limits.upper))
            self.imported.ranges[symbol] = (
                int(limits.lower) if lower else 0,
                float(limits.upper) if upper else np.inf,
            )
        return self.imported

    # -- inputs and parameters -------------------------------------------------------------------

    def _inputs(self) -> list[str]:
        nodes = {n.name: n for n in self.program.graph.nodes if n.op == "placeholder"}
        shared: dict[Any, str] = {}
        given = []
        for spec in self.program.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            kind = spec.kind.name
            if kind == "USER_INPUT":
                given.append((spec, node))
                continue
            if kind not in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                raise FormatError(f"{WHERE}: input {spec.arg.name!r} is a {kind.lower()}")
            self._env[node] = self._load(spec, kind, shared)
        names = []
        for spec, node in given:
            if hasattr(spec.arg, "value"):  # a number or None that is part of the program
                self._env[node] = spec.arg.value
            else:
                names.append(self._user_input(node))
        return names

    def _load(self, spec: Any, kind: str, shared: dict[Any, str]) -> str:
        name, program = spec.target, self.program
        tensor = program.state_dict.get(name)
        if tensor is None:
            tensor = program.constants[name]
        key = tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
        if kind == "PARAMETER" and key[0] and key in shared:
            self.imported.names[name] = shared[key]
            return shared[key]
        shared[key] = name
        self._names.add(name)
        try:
            self.arrays[name] = array_of(tensor)
        except ShapeError as error:
            raise FormatError(f"{WHERE}: {name!r}: {error}") from None
        if kind == "PARAMETER":
            (self.imported.trained if tensor.requires_grad else self.imported.states).add(name)
        elif (
            kind == "BUFFER"
            and self.arrays[name].dtype.kind in "fV"
            and (name in program.state_dict or name in self._changed)
        ):
            self.imported.states.add(name)
        return name

    def _user_input(self, node: Any) -> str:
        name = self._free(node.name)
        value = node.meta["val"]
        _refuse_complex(value, f"input {name!r}")
        self._env[node] = name
        if _is_size(value):
            info = InputInfo(name, np.dtype(np.int64), ())
        else:
            dims = tuple(_dim(dim) for dim in value.shape)
            self.imported.dims[name] = dims
            shape = tuple(dim if isinstance(dim, int) else str(dim) for dim in dims)
            info = InputInfo(name, dtype_of(value.dtype), shape)
        self.imported.model.inputs.append(info)
        return name

    def _free(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    # -- nodes -----------------------------------------------------------------------------------

    def _read(self, module: Any) -> None:
        for node in module.graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "get_attr":
                self._env[node] = module.get_submodule(node.target)

    def _call(self, node: Any) -> None:
        domain, name, full = name_of(node)
        if name in CONTROL_CALLS and not domain:
            return self._control(node)
        if name == "getitem":
            source, number = node.args
            self._env[node] = self._env[source][number]
            return
        if name.startswith(_CHECKS):
            return
        arguments = self._arguments(node)
        called = node
        if node in self._merged:
            called = self._merged[node].linear
            arguments = self._rows_kept(node, self._merged[node])
            domain = DOMAIN
            name = "linear"
        if domain in (DOMAIN, COMPLEX) and name in _SIZED:
            arguments["likes"] = self._likes(node, arguments[_SIZED[name]])
        inputs: list[str] = []
        templates = {key: self._template(value, inputs) for key, value in arguments.items()}
        value = node.meta.get("val")
        several = isinstance(value, (tuple, list))
        values = list(value) if several else [value]
        outputs = self._results(node, values, several)
        dtypes = [
            np.dtype(np.int64) if one is None or _is_size(one) else dtype_of(one.dtype)
            for one in values
        ]
        attrs = {
            "arguments": templates,
            "dtypes": dtypes,
            "pairs": list(map(_is_pair, values)),
            "places": _places_of(called),
        }
        self._nodes.append(
            TorchNode(
                name,
                domain,
                1,
                node.name,
                tuple(inputs),
                outputs,
                attrs,
                (),
                RULES[domain, name],
                full,
                source_of(node),
            )
        )

    def _control(self, node: Any) -> None:
        """An operator that calls graphs."""
        op, inputs, attrs = CONTROL_CALLS[node.target.__name__](self, *node.args, **node.kwargs)
        outputs = self._results(node, list(node.meta["val"]), True)
        inner = dict.fromkeys(
            name for graph in attrs.values() if isinstance(graph, Graph) for name in graph.captures
        )
        self._nodes.append(
            TorchNode(
                op, "", OPSET, node.name, tuple(inputs), outputs, attrs, tuple(inner), None,
                str(node.target), source_of(node),
            )
        )  # fmt: skip

    def names(self, values: Sequence[Any]) -> list[str]:
        """The names of values; numbers become constants."""
        found = []
        for value in values:
            name = self._env[value] if hasattr(value, "meta") else self._free("number")
            if not hasattr(value, "meta"):
                held = {"value": np.array(value)}
                self._nodes.append(Node("Constant", "", OPSET, name, (), (name,), held))
            found.append(name)
        return found

    def fresh(self, values: Sequence[Any]) -> list[str]:
        """New names, one for each value."""
        return [self._free(getattr(value, "name", "step")) for value in values]

    def block(self, holder: Any, given: Sequence[str]) -> list[str]:
        """Read the nodes of a block for some values; the names of its results."""
        module = self._env[holder]
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._env.update(zip(places, given, strict=True))
        self._merged = {**self._merged, **merged_rows(module.graph)}
        self._read(module)
        (results,) = next(node for node in module.graph.nodes if node.op == "output").args
        return self.names(results if isinstance(results, (list, tuple)) else [results])

    @contextmanager
    def inside(self) -> Iterator[list[Node]]:
        """Nodes that are read meanwhile go into a list of their own."""
        around = self._nodes
        self._nodes = nodes = []
        try:
            yield nodes
        finally:
            self._nodes = around

    def _likes(self, node: Any, given: Any) -> list[Any]:
        """For each size the tensor and axis that it is of, where it may vary; else None.

        The first states of recurrent layers are left as they are: constants, which all rows share.
        """
        sizes = given if isinstance(given, (list, tuple)) else [given]
        if any(_is_call(user, *_RECURRENT) for user in node.users):
            return [None] * len(sizes)
        return [list(size.args) if _is_call(size, "sym_size") else None for size in sizes]

    def _results(self, node: Any, values: list[Any], several: bool) -> tuple[str, ...]:
        """The names of a node's outputs; those that nothing reads have none."""
        if not several:
            self._env[node] = self._free(node.name)
            return (self._env[node],)
        read = {user.args[1]: user for user in node.users if user.args[:1] == (node,)}
        names = [
            self._free(f"{node.name}.{k}") if k in read and read[k].users else ""
            for k in range(len(values))
        ]
        self._env[node] = names
        return tuple(names)

    def _rows_kept(self, node: Any, merged: Merged) -> dict[str, Any]:
        """A view of rows before a linear layer: what `merged_rows` found."""
        inputs: list[str] = []
        templates = {
            "self": self._template(merged.source, inputs),
            "size": self._template(list(merged.shape), inputs),
        }
        name = self._free(f"{node.name}_rows")
        dtype = dtype_of(merged.source.meta["val"].dtype)
        kind = RULES[DOMAIN, "view"]
        self._nodes.append(
            TorchNode(
                "view", DOMAIN, 1, name, tuple(inputs), (name,),
                {"arguments": templates, "dtypes": [dtype], "pairs": [False],
                 "places": list(templates)}, (), kind,
                "aten.view.default",
                source_of(node),
            )
        )  # fmt: skip
        arguments = self._arguments(merged.linear)
        arguments["input"] = _Named(name)
        return arguments

    def _arguments(self, node: Any) -> dict[str, Any]:
        """All arguments of a call by the names of its schema."""
        if not is_operator(node):
            return {f"arg{k}": value for k, value in enumerate(node.args)}
        arguments: dict[str, Any] = {}
        for k, argument in enumerate(node.target._schema.arguments):
            if k < len(node.args):
                arguments[argument.name] = node.args[k]
            elif argument.name in node.kwargs:
                arguments[argument.name] = node.kwargs[argument.name]
            else:
                arguments[argument.name] = argument.default_value
        return arguments

    def _template(self, value: Any, inputs: list[str]) -> Any:
        """An argument: numbers and texts as they are, results of nodes as `Ref`."""
        if isinstance(value, _Named):
            inputs.append(value.name)
            return Ref(len(inputs) - 1)
        if isinstance(value, (list, tuple)):
            return [self._template(one, inputs) for one in value]
        if hasattr(value, "op") and hasattr(value, "meta"):  # a node
            name = self._env[value]
            if not isinstance(name, str):
                return name
            inputs.append(name)
            held = value.meta.get("val")
            return Ref(len(inputs) - 1, _is_size(held), _is_pair(held))
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            return value
        return str(value)  # dtypes, devices, layouts

    # -- outputs ---------------------------------------------------------------------------------

    def _outputs(self) -> tuple[list[str], list[InputInfo]]:
        node = next(n for n in self.program.graph.nodes if n.op == "output")
        specs = self.program.graph_signature.output_specs
        wanted: list[Any] = []
        changed: dict[str, Any] = {}
        for spec, given in zip(specs, node.args[0], strict=True):
            kind = spec.kind.name
            if kind == "BUFFER_MUTATION":
                if not self._is_statistic(spec.target, given):
                    changed[spec.target] = given
            elif kind not in ("USER_OUTPUT", "LOSS_OUTPUT"):
                raise FormatError(f"{WHERE}: {kind.lower()} of {spec.target!r} is not supported")
            else:
                wanted.append(given)
        labels = _labels(self.program.call_spec.out_spec, "")
        if len(labels) != len(wanted):
            labels = [str(k) for k in range(len(wanted))]
        names, infos = [], []
        for buffer, given in changed.items():
            if buffer not in self.imported.states:
                place = source_of(given)
                raise FormatError(
                    f"{WHERE}: buffer {buffer!r} is changed, by {given.name!r} ({place})"
                )
            labels.append(f"{buffer}.after")
            self.imported.changed[buffer] = labels[-1]
        for label, given in zip(labels, (*wanted, *changed.values()), strict=True):
            if not hasattr(given, "meta"):
                continue  # None or a number: nothing computes it
            name = self._free(f"output{label}" if not label or label[0] in "._" else label)
            value = given.meta["val"]
            _refuse_complex(value, f"output {name!r}")
            names.append(self._env[given])
            dims = () if _is_size(value) else tuple(_dim(dim) for dim in value.shape)
            dtype = np.dtype(np.int64) if _is_size(value) else dtype_of(value.dtype)
            shape = tuple(dim if isinstance(dim, int) else str(dim) for dim in dims)
            infos.append(InputInfo(name, dtype, shape))
        return names, infos

    def _is_statistic(self, target: str, given: Any) -> bool:
        """Whether a buffer is changed by normalization in training, as our operators do it."""
        source = given.args[0] if getattr(given, "args", ()) else None
        if target.rsplit(".", 1)[-1] == "num_batches_tracked":
            return True  # a count that only a momentum of None would read, which is refused
        return name_of(given)[1] == "getitem" and "batch_norm" in name_of(source)[1]


def _read_by_any(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    """The nodes whose results are read: checks, which are left out, leave what they checked."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(node.reads())
    return kept[::-1]


def _places_of(node: Any) -> list[str]:
    """Names of the arguments that a call may give by position."""
    if not is_operator(node):
        return []
    return [one.name for one in node.target._schema.arguments if not one.kwarg_only]


@dataclass(frozen=True)
class _Named:
    """An argument that stands for a value by its name."""

    name: str


def _dim(dim: Any) -> Any:
    """A dimension as a number, or as the expression of sizes that may vary."""
    if isinstance(dim, int):
        return dim
    expression = dim.node.expr
    return expression if expression.free_symbols else int(expression)


def _labels(spec: Any, path: str) -> list[str]:
    """Paths of the leaves of nested outputs: keys of dicts, numbers in tuples."""
    children = list(getattr(spec, "children_specs", None) or spec.children())
    if not children:
        return [path]
    keys = spec.context if getattr(spec.type, "__name__", "") == "dict" else None
    labels = []
    for k, child in enumerate(children):
        part = str(keys[k]) if keys is not None else str(k)
        top = part if keys is not None else f"_{part}"
        labels += _labels(child, f"{path}.{part}" if path else top)
    return labels
