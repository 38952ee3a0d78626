"""`new NodeFunction`: a function that makes one node, from the names of its parameters.

The library declares most of its functions so:

    TransposeDimensions = new NodeFunction [
        operation = 'TransposeDimensions' ; parameters = '_ axis1 axis2' ; inputs = '_'
        options = [ ... ]
    ]

`parameters` (by default `inputs`) names the positional parameters. Those among `inputs` are the
node's inputs; the others, and the `options` with their defaults, are its attributes. Each function
also has the option `tag`.
"""

from __future__ import annotations

from .failures import Failure
from .language.syntax import Expression
from .nodes import as_input_nodes, make_node, plain
from .values import (
    Function,
    Overload,
    Path,
    Record,
    RuntimeType,
    Thunk,
    Value,
    flatten,
    force,
)


class NodeFunction(Function):
    """A function that makes a node of one kind."""

    __slots__ = ("_expression", "_inputs", "_operation", "_session", "_values")

    def __init__(self, record: Record, expression: Expression):
        self._session = record.session
        self._expression = expression
        self._operation = _text(record, "operation")
        self._inputs = _text(record, "inputs").split()
        parameters = _text(record, "parameters" if "parameters" in record.members else "inputs")
        options = record.own("options")
        optional = dict(options.members) if isinstance(options, Record) else {}
        super().__init__(parameters.split(), {**optional, "tag": ""})
        self._values = [name for name in self.parameters if name not in self._inputs]

    def call(self, arguments: list[Value], named: dict[str, Value], path: Path) -> Value:
        given = dict(zip(self.parameters, arguments, strict=True))
        options = self.complete(named) if named else self.optional
        attributes = {name: plain(force(given[name])) for name in self._values}
        for name, value in options.items():
            if name != "tag":
                attributes[name] = plain(force(value))
        values = [force(given[name]) for name in self._inputs]
        first = given[self._inputs[0]] if self._inputs else None
        where = first.expression if isinstance(first, Thunk) else self._expression
        inputs = as_input_nodes(self._session, values, where)
        node = make_node(self._session, self._operation, path, inputs, attributes, self._expression)
        tag = force(options["tag"])
        if tag:
            node.tags.append(str(tag))
        return node


def _text(record: Record, name: str) -> str:
    value = record.own(name)
    if not isinstance(value, str):
        raise Failure(f"{name!r} must be a string", record.expression)
    return value


def node_function(record: Record, path: Path, where: Expression) -> NodeFunction:
    """The constructor of the class `NodeFunction`."""
    return NodeFunction(record, where)


def overload(record: Record, path: Path, where: Expression) -> Overload:
    """The constructor of the class `Overload`, of the array `functions`."""
    functions = flatten(record.get("functions"))
    if not functions or not all(isinstance(function, Function) for function in functions):
        raise Failure("'functions' must be an array of functions", where)
    return Overload(functions)


NODE_FUNCTION_TYPES = {
    "NodeFunction": RuntimeType(node_function),
    "Overload": RuntimeType(overload),
}
