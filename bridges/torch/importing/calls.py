"""What rules for ATen's operators are written with: arguments by the names of their schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, signature
from typing import Any, NoReturn, TypeVar

import numpy as np

from ....framework.base.dtypes import is_float
from ....operators.names import Name, names_in, names_of
from ...onnx.importing.calls import KINDS, Attributes, Call, Kind, NeedsValue, NotHere, Sizes, Value
from ...onnx.importing.graph import Node

DOMAIN = "aten"
"""The domain of the nodes that rules here know."""
COMPLEX = "complex"
"""The domain of those that take or give complex numbers, which are pairs of floats here."""
RULES: dict[tuple[str, str], Kind] = {}
"""(domain, operator) -> kind; filled by the modules in `kinds`. Files name none of these."""
_OPSET = 21
"""The operator set of the nodes that rules say in ONNX's words."""
TO_END = 2**63 - 1
"""The end of a slice that goes to the end."""


@dataclass(frozen=True)
class Ref:
    """An argument that another node computes.

    Attributes:
        number: among the node's inputs. is_size: it is a whole number, known from shapes.
        is_pair: it is of complex numbers.
    """

    number: int
    is_size: bool = False
    is_pair: bool = False


@dataclass(eq=False, slots=True)
class TorchNode(Node):
    """A call of one of PyTorch's operators.

    Attributes:
        full: its name with the overload. source: the line of the model that it stems from.
    """

    full: str = ""
    source: str = ""

    def title(self) -> str:
        """How errors name it."""
        place = f", {self.source}" if self.source else ""
        return f"node {self.name!r} ({self.full}{place})"


class Aten:
    """A node that becomes operators: its arguments, and what adds operators.

    Attributes:
        name: of the operator, without overload. given: its arguments, in order; see `get`.
        places: names of the arguments that may be given by position.
        dtypes: of the results. pairs: which of them are of complex numbers.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self.given: Mapping[str, Any] = call.node.attrs["arguments"]
        self.places: Sequence[str] = call.node.attrs["places"]
        self.name = call.node.op
        self.dtypes: list[np.dtype] = call.node.attrs["dtypes"]
        self.pairs: list[bool] = call.node.attrs["pairs"]

    @property
    def ours(self) -> Name:
        """Our operator of this name; see operators/names.py."""
        names = names_in("torch")[self.name]
        return next(
            (one for one in names if all(self.get(k) == v for k, v in one.fixed.items())), names[0]
        )

    def has(self, name: str) -> bool:
        """Whether the operator has an argument of this name, and it is not None."""
        return self.given.get(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """An argument: a number, text, list, or the `Value` of a tensor."""
        value = self.given.get(name)
        return default if value is None else self.resolved(value)

    def __getitem__(self, name: str) -> Any:
        if name not in self.given:
            self.fail(f"has no argument {name!r}")
        return self.resolved(self.given[name])

    def bound(self, parameters: Sequence[Parameter]) -> list[Any]:
        """The arguments that a rule takes: by their names in the schema, or else by position.

        Forms of an operator have other names for the same arguments: dims of `transpose` are axes
        of `swapaxes`. What the rule has a default for is known by its name alone; that default
        stands for None and for what the schema lacks.
        """
        asked = {one.name for one in parameters}
        values = []
        for at, one in enumerate(parameters):
            name = one.name
            needed = one.default is one.empty
            if needed and name not in self.given:
                if at >= len(self.places) or self.places[at] in asked:
                    self.fail(f"has no argument {name!r}")
                name = self.places[at]
            values.append(self.get(name, None if needed else one.default))
        return values

    def resolved(self, value: Any) -> Any:
        """An argument, as in `given`, as a number, text, list, or the `Value` of a tensor."""
        if isinstance(value, list):
            return [self.resolved(one) for one in value]
        if not isinstance(value, Ref):
            return value
        if value.is_size:
            size = self._call[value.number]
            if isinstance(size, Sizes):
                return size.sizes.reshape(-1)[0]
            return np.asarray(self._call.known(value.number)).reshape(-1)[0].item()
        return self._call[value.number]

    def tensor(self, name: str, dtype: Any = None) -> Value:
        """An argument as a tensor of a dtype; numbers become constants."""
        value = self[name]
        if not isinstance(value, Value):
            return self.const(value, dtype or self.dtypes[0])
        return value if dtype is None else self.cast(value, dtype)

    def array(self, value: Value) -> np.ndarray:
        """The numbers of a value: the node waits for them, and is no part of a net that lacks them.

        They do not become part of a signature, which would plan again for each of them.
        """
        if value.array is None or value.is_parameter:
            raise NeedsValue(replace(value, roots=None))
        return value.array

    def number(self, name: str) -> float | int | None:
        """An argument that is a number, or a tensor whose one number is known; else None."""
        value = self[name]
        if not isinstance(value, Value):
            return value
        plain = value.array is not None and not value.is_parameter and not value.ndim
        return value.array.item() if plain and value.array is not None else None

    def axis(self, name: str, rank: int) -> int:
        """An axis, counted from the front."""
        return self._call.axis(int(self[name]), rank)

    def axes(self, name: str, rank: int) -> list[int]:
        """Axes from the front, in order; all where none is given. A single number has none."""
        given = self.get(name)
        if not rank or given is None or given == []:
            return list(range(rank))
        given = given if isinstance(given, list) else [given]
        return sorted(self._call.axis(int(axis), rank) for axis in given)

    def op(self, op_type: str, *args: Any, **more: Any) -> Any:
        """Add an operator of the net; see `Call.op`."""
        return self._call.op(op_type, *args, **more)

    def onnx(self, op: str, *inputs: Value | None, **attrs: Any) -> Any:
        """What an operator of ONNX gives: what both have is a rule there."""
        call = self._call
        node = replace(call.node, op=op, domain="", version=_OPSET, attrs=attrs)
        lower = KINDS["", op].lower
        assert lower is not None, op
        return lower(call.like(node, inputs))

    def of_reals(self, given: Mapping[str, Any]) -> Any:
        """What the rule for real numbers gives: of these arguments, and others as they are."""
        inputs: list[Value] = []

        def referred(value: Any) -> Any:
            if isinstance(value, list):
                return [referred(one) for one in value]
            if not isinstance(value, Value):
                return value
            inputs.append(value)
            return Ref(len(inputs) - 1)

        call = self._call
        arguments = {name: referred(given.get(name, self.get(name))) for name in self.given}
        node = replace(call.node, domain=DOMAIN, attrs=call.node.attrs | {"arguments": arguments})
        lower = RULES[DOMAIN, self.name].lower
        assert lower is not None, self.name
        return lower(call.like(node, inputs))

    def on_host(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        """What an operator of ONNX gives that no net has: the node waits for the numbers."""
        call = self._call
        node = replace(call.node, op=op, domain="", version=_OPSET, attrs=attrs)
        evaluate = KINDS["", op].evaluate
        assert evaluate is not None, op
        return self.const(evaluate(call.like(node, inputs), *map(self.array, inputs)))

    def exact(self, function: Callable[..., Any], *values: Value) -> Value:
        """What NumPy gives of whole numbers, modulo 2^bits as in PyTorch: no operator multiplies
        these in all their bits, so the node waits for the numbers."""
        return self.const(function(*map(self.array, values)), self.dtypes[0])

    def const(self, array: Any, dtype: Any = None) -> Value:
        """A constant."""
        return self._call.const(array, dtype)

    def following(
        self, make: Callable[..., np.ndarray], shape: Sequence[Any], dtype: Any, *sizes: Any
    ) -> Value:
        """An array that follows from sizes, which may vary; see `Call.following`."""
        return self._call.following(make, shape, dtype, *sizes)

    def cast(self, value: Value, dtype: Any) -> Value:
        """A value of another dtype."""
        return self._call.cast(value, dtype)

    def reshaped(self, value: Value, dims: Sequence[int]) -> Value:
        """A value in another shape; see `Call.reshape`."""
        return self._call.reshape(value, dims)

    def moved(self, value: Value, perm: Sequence[int]) -> Value:
        """A value with its axes in another order."""
        in_order = list(perm) == list(range(value.ndim))
        return value if in_order else self.op("transpose", value, perm=list(perm))

    def part(self, value: Value, axis: int, start: int, end: int = TO_END) -> Value:
        """A range along an axis."""
        if start == 0 and end >= value.shape[axis]:
            return value
        return self.op("slice", value, axes=[axis], starts=[start], ends=[end])

    def grown(self, value: Value, offset: int = 0) -> Value:
        """A value whose axes of size 1 become as long as the axes of other tensors are.

        Args:
            value: as many dimensions as the node has sizes, 1 where a size may vary.
            offset: of its axes against the sizes.
        """
        for number, like in enumerate(self.get("likes", [])):
            if like is None or value.shape[number - offset] != 1:
                continue
            other, axis = like
            at = axis % other.ndim
            for each in range(other.ndim):
                other = other if each == at else self.part(other, each, 0, 1)
            shape = [1] * value.ndim
            shape[number - offset] = other.shape[at]
            zeros = self.op("fill_like", self.cast(self.reshaped(other, shape), value.dtype))
            value = self.op("logical_or" if value.dtype == np.bool_ else "add", value, zeros)
        return value

    def fail(self, why: str) -> NoReturn:
        """Refuse the node."""
        self._call.fail(why)

    def refuse_unless(self, condition: bool, why: str) -> None:
        """Refuse the node where a condition does not hold."""
        if not condition:
            self.fail(why)

    def wants(self, number: int) -> bool:
        """Whether a result is used."""
        return self._call.wants(number)


def wants_floats(n: Aten, *values: Value) -> None:
    """Leave the node where a value is not of floats."""
    if not all(is_float(value.dtype) for value in values):
        raise NotHere


Rule = Callable[..., Any]
"""(call, arguments of the operator...) -> the output value or several; see `Aten.bound`."""
_R = TypeVar("_R", bound=Rule)
_X = TypeVar("_X", bound=Callable[[Attributes], list[Node]])


def aten(*names: str, domain: str = DOMAIN, is_random: bool = False) -> Callable[[_R], _R]:
    """Decorator: the rule of operators, of all overloads and forms that it can read."""

    def add(rule: _R) -> _R:
        kind = Kind(lower=_lower(rule), is_random=is_random)
        RULES.update({(domain, name): kind for name in names})
        return rule

    return add


def aten_expands(*names: str) -> Callable[[_X], _X]:
    """Decorator: how operators are written out as other nodes."""

    def add(rule: _X) -> _X:
        RULES.update({(DOMAIN, name): Kind(expand=rule) for name in names})
        return rule

    return add


def aten_of(*types: str) -> Callable[[_R], _R]:
    """Decorator: the rule of all operators that the table of names has for some of ours."""
    return aten(*(word for op_type in types for word in names_of(op_type)["torch"].read))


def add_names(rule: Rule) -> None:
    """Take a rule for what the table of names has and no other rule knows."""
    for name, (first, *_) in names_in("torch").items():
        if first.is_plain:
            RULES.setdefault((DOMAIN, name), Kind(lower=_lower(rule)))


def known_form(domain: str, name: str) -> str | None:
    """The name under which an operator has a rule: its own, or the plain form's.

    In place (`relu_`), copying what would be a view (`view_copy`) and without checks
    (`_unsafe_view`) an operator computes what its plain form does.
    """
    forms = name, name.removesuffix("_"), name.removesuffix("_copy")
    forms = (*forms, name.removeprefix("_unsafe_"), name.removeprefix("unsafe_"))
    return next((form for form in forms if (domain, form) in RULES), None)


def _lower(rule: Rule) -> Callable[[Call], Any]:
    _, *parameters = signature(rule).parameters.values()

    @wraps(rule)  # errors name it
    def lower(call: Call) -> Any:
        n = Aten(call)
        return rule(n, *n.bound(parameters))

    return lower
