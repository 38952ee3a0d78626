"""What rules for ONNX operators are written with: their table, values of a net, calls of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from ....framework.base.errors import FormatError, RunError
from ....framework.base.sizes.dims import Dim
from ....operators.names import Name, names_in
from .graph import Graph, Node

_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that give the elements of their first input in order."""


@dataclass(eq=False, slots=True)
class Value:
    """A value of a net under construction.

    Attributes:
        name: of the net's variable; "" for a constant that no operator has read yet.
        shape, dtype: as they will be.
        array: its value where that is known; of a parameter the one it has now.
        roots: the small inputs of the net that it is computed from, if it is from these alone.
        is_parameter: whether it is trained, so that nothing is computed from it beforehand.
        label: what the variable of a constant is called; "" after the node that reads it.
        made_by: the call of the node that made it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    array: np.ndarray | None = None
    roots: frozenset[str] | None = None
    is_parameter: bool = False
    label: str = ""
    made_by: Call | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_known(self) -> bool:
        """Whether its value is known."""
        return self.array is not None

    @property
    def is_one(self) -> bool:
        """Whether it is one number."""
        return self.shape in ((), (1,))

    @property
    def dequantized(self) -> Call | None:
        """The call of DequantizeLinear that made it, if one did."""
        made = self.made_by
        return made if made is not None and made.node.op == "DequantizeLinear" else None

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f" or self.dtype.name == "bfloat16"


@dataclass(frozen=True)
class Share:
    """A share of a size that may vary: number / by, as sizes times fractions are."""

    number: Any
    by: int

    def __add__(self, other: Share) -> Share:
        return Share(self.number * other.by + other.number * self.by, self.by * other.by)

    def __sub__(self, other: Share) -> Share:
        return Share(self.number * other.by - other.number * self.by, self.by * other.by)

    def __mul__(self, other: Share) -> Share:
        return Share(self.number * other.number, self.by * other.by)

    def __truediv__(self, other: Share) -> Share:
        if isinstance(other.number, Dim) or other.number <= 0:
            raise NotHere
        return Share(self.number * other.by, self.by * other.number)

    def __float__(self) -> float:
        return float(self.number) / self.by

    @property
    def whole(self) -> Any:
        """The number without its fraction."""
        number = self.number
        return number // self.by if number >= 0 else -(-number // self.by)


class Sizes(Value):
    """Numbers that follow from sizes which may vary.

    Attributes:
        sizes: numbers, `Dim`s, and of floats `Share`s, an array of objects. `array` has them as
            plain numbers: what reads that holds for these sizes alone.
    """

    def __init__(self, sizes: np.ndarray, dtype: Any) -> None:
        self.sizes = sizes
        super().__init__("", sizes.shape, np.dtype(dtype))

    @property
    def array(self) -> np.ndarray | None:
        return self.sizes.astype(self.dtype)

    @array.setter
    def array(self, value: np.ndarray | None) -> None:
        assert value is None

    @property
    def is_known(self) -> bool:
        return True


def constant_of(array: Any, dtype: Any = None) -> Value:
    """Numbers as a value; `Sizes` where some of them may vary."""
    found = array_of(array)
    if found.dtype == object and any(isinstance(one, (Dim, Share)) for one in found.flat):
        kind = "i" if dtype is None else np.dtype(dtype).kind
        if kind in "iu":
            numbers = [one.whole if isinstance(one, Share) else one for one in found.flat]
            return Sizes(np.fromiter(numbers, object).reshape(found.shape), dtype or np.int64)
        if kind == "f":
            return Sizes(found, dtype)
    found = np.asarray(array, dtype)
    return Value("", found.shape, found.dtype, found)


def array_of(given: Any) -> np.ndarray:
    """A number, or a list, as an array: of objects where there are sizes that may vary."""
    if isinstance(given, Dim):
        return np.fromiter([given], object).reshape(())
    if isinstance(given, (list, tuple)) and any(isinstance(one, Dim) for one in given):
        return np.fromiter(given, object)
    return np.asarray(given)


def numbers_of(value: Value) -> np.ndarray | None:
    """The value of a constant, its sizes as they are."""
    return value.sizes if isinstance(value, Sizes) else value.array


class NeedsValue(Exception):
    """A rule wants the value of an input, whose shape alone is known."""

    def __init__(self, value: Value) -> None:
        super().__init__(value.name)
        self.value = value


class NotHere(Exception):
    """A rule has no operators for these inputs: a form of the node for the host serves, if any."""


class Attributes:
    """A node as rules see it: attributes, version, number of outputs."""

    def __init__(self, node: Node, where: str) -> None:
        self.node = node
        self.version = node.version
        self.where = where

    @property
    def ours(self) -> Name:
        """Our operator of the node's name; see operators/names.py."""
        first, *others = names_in("onnx")[self.node.op]
        for name in others:
            if all(self.attr(key) == value for key, value in name.fixed.items()):
                return name
        return first

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute of the kind that its default has (a list is as good as a tuple).

        Raises:
            FormatError: it is of another kind.
        """
        value = self.node.attrs.get(name)
        if value is None:
            return default
        fits = {
            int: (int,),
            float: (float, int),
            str: (str,),
            tuple: (list,),
            list: (list,),
            bool: (int,),
        }.get(type(default))
        if fits and not isinstance(value, fits):
            self.fail(f"attribute {name!r} is {_kind(value)}")
        if isinstance(default, bool):
            return bool(value)
        return value

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        """An attribute that is a list of whole numbers."""
        value = self.node.attrs.get(name)
        if value is None:
            return None if default is None else list(default)
        if not isinstance(value, list) or not all(isinstance(one, int) for one in value):
            self.fail(f"attribute {name!r} is {_kind(value)}, a list of whole numbers is wanted")
        return value

    def graph(self, name: str) -> Graph:
        """An attribute that is a graph."""
        value = self.node.attrs.get(name)
        if not isinstance(value, Graph):
            self.fail(f"attribute {name!r} is no graph")
        return value

    @property
    def outputs(self) -> int:
        """How many outputs are named, up to the last one."""
        return len(self.node.outputs)

    def wants(self, number: int) -> bool:
        """Whether an output is used."""
        return number < len(self.node.outputs) and bool(self.node.outputs[number])

    def fail(self, why: str) -> NoReturn:
        """Refuse the node."""
        raise FormatError(f"{self.where}: {self.node.title()}: {why}")

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < max(rank, 1):
            raise RunError(f"{self.where}: {self.node.title()}: axis {axis} of {rank} dimensions")
        return axis % max(rank, 1)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


class Adds(Protocol):
    """What adds operators: a call of a node, of whichever system it is."""

    def op(self, op_type: str, *args: Any, **more: Any) -> Any: ...

    def const(self, array: Any, dtype: Any = None) -> Value: ...

    def cast(self, value: Value, dtype: Any) -> Value: ...

    def following(
        self, make: Callable[..., np.ndarray], shape: Sequence[Any], dtype: Any, *sizes: Any
    ) -> Value: ...

    def fail(self, why: str) -> NoReturn: ...


class Emits(Protocol):
    """What adds operators to a net, or computes them at once."""

    def emit(
        self,
        op_type: str,
        args: Sequence[Any],
        outs: Sequence[str] | int,
        attrs: dict[str, Any],
        into: Mapping[str, Value] | None = None,
    ) -> Any: ...

    def evaluate(self, node: Node, env: Mapping[str, Any]) -> Sequence[Any]:
        """See `Call.evaluate`."""
        raise NotHere

    def following(
        self,
        make: Callable[..., np.ndarray],
        shape: Sequence[Any],
        dtype: Any,
        sizes: Sequence[Any],
    ) -> Value:
        """See `Call.following`; sizes vary in nets alone."""
        raise NotHere


class Call(Attributes):
    """A node that becomes operators of a net."""

    def __init__(
        self, node: Node, where: str, inputs: Sequence[Value | None], stage: Emits
    ) -> None:
        super().__init__(node, where)
        self.inputs = list(inputs)
        self._stage = stage

    def __getitem__(self, number: int) -> Value:
        value = self.get(number)
        if value is None:
            self.fail(f"input {number} is missing")
        return value

    def like(self, node: Node, inputs: Sequence[Value | None]) -> Call:
        """A call of another node, whose operators go where those of this one do."""
        return Call(node, self.where, inputs, self._stage)

    def get(self, number: int) -> Value | None:
        """An input; None where it is left out."""
        return self.inputs[number] if number < len(self.inputs) else None

    def with_first(self, value: Value) -> Call:
        """The same call of another first input."""
        return Call(self.node, self.where, [value, *self.inputs[1:]], self._stage)

    def evaluate(self, env: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs of the node on the host, for arrays by the names of its inputs."""
        return self._stage.evaluate(self.node, env)

    def known(self, number: int, default: Any = None) -> Any:
        """The array of an input, `default` where it is left out.

        Raises:
            NeedsValue: it is not known before the net runs.
        """
        value = self.get(number)
        if value is None:
            return default
        if value.array is None:
            raise NeedsValue(value)
        return value.array

    def known_ints(self, number: int, default: Sequence[int] | None = None) -> list[int] | None:
        """The whole numbers of an input; see `known`."""
        value = self.get(number)
        if isinstance(value, Sizes):
            return value.sizes.reshape(-1).tolist()
        array = self.known(number)
        if array is None:
            return None if default is None else list(default)
        return list(map(int, np.asarray(array).reshape(-1).tolist()))

    def op(
        self,
        op_type: str,
        *args: Any,
        outs: Sequence[str] | int = 1,
        into: Mapping[str, Value] | None = None,
        **attrs: Any,
    ) -> Any:
        """Add an operator of the net.

        Args:
            op_type: its type.
            args: the variables of its input slots in order: values, arrays, None, lists of these.
            outs: the names of output slots, or the number of outputs of the first, which is
                duplicable.
            into: further output slots, and the states that they update.
            attrs: its attributes.

        Returns:
            The output, a list of several.
        """
        return self._stage.emit(op_type, args, outs, attrs, into)

    def const(self, array: Any, dtype: Any = None) -> Value:
        """A constant."""
        return constant_of(array, dtype)

    def following(
        self, make: Callable[..., np.ndarray], shape: Sequence[Any], dtype: Any, *sizes: Any
    ) -> Value:
        """An array that follows from sizes, which may vary: it is made when the net comes with
        others.

        Args:
            make: gives it, by the sizes as numbers. shape: of it, in terms of the sizes.
        """
        if not any(isinstance(one, Dim) for one in (*shape, *sizes)):
            return self.const(make(*sizes), dtype)
        return self._stage.following(make, shape, dtype, sizes)

    def cast(self, value: Value, dtype: Any) -> Value:
        """A value of another dtype."""
        dtype = np.dtype(dtype)
        if value.dtype == dtype:
            return value
        if value.is_known and not value.is_parameter:
            return self.const(numbers_of(value), dtype)
        return self.op("cast", value, dtype=dtype)

    def reshape(self, value: Value, dims: Sequence[int]) -> Value:
        """A value in another shape, of which one dimension may be -1: what is left.

        Arrays without elements are constants: to the operator 0 is a dimension of its input.
        """
        if tuple(dims) == value.shape:
            return value
        made = value.made_by
        if made is not None and made.node.op in _RESHAPES:
            source = made[0]
            if len(dims) == source.ndim and all(map(_is_same, dims, source.shape)):
                return source
        if 0 in value.shape:
            return self.const(np.zeros([max(dim, 0) for dim in dims], value.dtype))
        return self.op("reshape", value, shape=list(dims))


def _is_same(size: Any, other: Any) -> bool:
    """Whether two sizes are the same ones, without a condition of sizes that may vary."""
    return size is other or (isinstance(size, int) and isinstance(other, int) and size == other)


Evaluate = Callable[..., Any]
"""(attributes, input arrays...) -> the output array or several."""
Lower = Callable[[Call], Any]
"""Adds operators and gives the output value or several."""
Expand = Callable[[Attributes], list[Node]]
"""Nodes that stand for a node: what computes its outputs from its inputs, whatever their shapes."""


@dataclass
class Kind:
    """How an operator of ONNX is computed.

    Attributes:
        evaluate: on the host, by NumPy. lower: by operators of a net. expand: by other nodes.
        of_integers: by operators of a net, where integers stand for its inputs; else it gives None.
        follows: by arrays that follow from sizes which may vary, where its inputs are such sizes.
        is_random: two runs differ.
        takes_sizes: whether `evaluate` computes with sizes that may vary as with numbers.
    """

    evaluate: Evaluate | None = None
    lower: Lower | None = None
    expand: Expand | None = None
    of_integers: Lower | None = None
    follows: Lower | None = None
    is_random: bool = False
    takes_sizes: bool = False


KINDS: dict[tuple[str, str], Kind] = {}
"""(domain, operator) -> kind; filled by the modules in `kinds`."""
CONTROL = ("If", "Loop", "Scan", "SequenceMap")
"""Operators that run graphs; `control` knows them."""

_E = TypeVar("_E", bound=Evaluate)
_L = TypeVar("_L", bound=Lower)
_X = TypeVar("_X", bound=Expand)


def failed(where: str, node: Node, rule: Callable[..., Any], error: Exception) -> RunError:
    """The error of a node whose rule raised what is no error of this package."""
    rule = getattr(rule, "func", rule)  # of a partial function
    name = f"{rule.__module__.removeprefix('opscope.')}.{rule.__qualname__}"
    message = f"{type(error).__name__}: {error}"
    return RunError(f"{where}: {node.title()}: its rule {name} failed: {message}")


def kind_of(node: Node) -> Kind | None:
    """The kind of a node; None where there is none."""
    return node.kind or KINDS.get((node.domain, node.op))


def _rules(names: Sequence[str], domain: str, field: str) -> Callable[[Any], Any]:
    """Decorator: a function is a field of the kinds of some operators."""

    def add(function: Any) -> Any:
        for name in names:
            setattr(KINDS.setdefault((domain, name), Kind()), field, function)
        return function

    return add


def evaluates(*names: str, domain: str = "", is_random: bool = False) -> Callable[[_E], _E]:
    """Decorator: how operators are computed on the host."""

    def add(function: _E) -> _E:
        for name in names:
            kind = KINDS.setdefault((domain, name), Kind())
            kind.evaluate = function
            kind.is_random |= is_random
        return function

    return add


def lowers(*names: str, domain: str = "") -> Callable[[_L], _L]:
    """Decorator: how operators become those of a net."""

    return _rules(names, domain, "lower")


def of_integers(*names: str, domain: str = "") -> Callable[[_L], _L]:
    """Decorator: how operators become those of a net where integers stand for their inputs."""

    return _rules(names, domain, "of_integers")


def follows(*names: str, domain: str = "") -> Callable[[_L], _L]:
    """Decorator: how operators are computed where their inputs are sizes which may vary."""

    return _rules(names, domain, "follows")


def expands(*names: str, domain: str = "") -> Callable[[_X], _X]:
    """Decorator: how operators are written out as other nodes."""

    return _rules(names, domain, "expand")
