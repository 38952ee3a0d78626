"""Sizes as values: what nodes compute of shapes, while shapes hold sizes that may vary.

The rules of nodes say it in operators, as they do for nets; here these compute with arrays of
`Dim`s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....framework.base.sizes.dims import Dim
from ....framework.ir.registry import lookup
from .calls import (
    Call,
    Emits,
    Kind,
    NeedsValue,
    NotHere,
    Share,
    Sizes,
    Value,
    array_of,
    constant_of,
    numbers_of,
)
from .graph import Node

_TO_END = 2**63 - 1
"""The end of a slice that goes to the end."""


def of_sizes(node: Node, kind: Kind, inputs: Sequence[Value | None], where: str) -> Any:
    """The outputs of a node, some of whose inputs are sizes; None where it wants plain numbers."""
    call = Call(node, where, inputs, _OnSizes())
    try:
        if kind.takes_sizes and kind.evaluate is not None:
            given = [None if value is None else numbers_of(value) for value in inputs]
            outputs = constant_of(kind.evaluate(call, *given))
        elif kind.lower is not None:
            outputs = kind.lower(call)
        else:
            return None
    except (NotHere, NeedsValue, IndexError, ValueError):  # plain numbers tell what is wrong
        return None
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


class _OnSizes(Emits):
    """Computes operators as they are added; see `Emits`."""

    def emit(
        self,
        op_type: str,
        args: Sequence[Any],
        outs: Sequence[str] | int,
        attrs: dict[str, Any],
        into: Mapping[str, Value] | None = None,
    ) -> Any:
        """See `Call.op`."""
        compute = _COMPUTE.get(op_type)
        if (compute is None and op_type not in _SHARES) or into or any(arg is None for arg in args):
            raise NotHere
        specs = lookup(op_type).attr_specs
        known = {name: attrs.get(name, spec.default) for name, spec in specs.items()}
        lists = [arg if isinstance(arg, list) else [arg] for arg in args]
        values = [[v if isinstance(v, Value) else constant_of(v) for v in many] for many in lists]
        dtype = next(v.dtype for many in values for v in many if v.dtype.kind != "b")
        arrays: list[list[Any]] = [[numbers_of(value) for value in many] for many in values]
        if dtype.kind == "f" and (op_type in _SHARES or op_type in _MOVES):
            compute = _SHARES.get(op_type, compute)
            assert compute is not None, "see above"
            arrays = [[_shares(array) for array in many] for many in arrays]
        elif dtype.kind not in "iu" or compute is None:
            raise NotHere
        found = compute(known, *(a if isinstance(g, list) else a[0]
                                 for a, g in zip(arrays, args, strict=True)))  # fmt: skip
        result = array_of(found)
        if op_type in _COMPARED:
            return constant_of(result.astype(bool))
        return constant_of(result, dtype if "dtype" not in known else known["dtype"])


def _rest(attrs: Mapping[str, Any], x: Any, y: Any) -> Any:
    if not np.all(x >= 0) or not np.all(y > 0):  # signs are those of x here, of y in Python
        raise NotHere
    return x % y


def _slice(attrs: Mapping[str, Any], x: Any, **_: Any) -> Any:
    steps = attrs["steps"] or [1] * len(attrs["axes"])
    spans = zip(attrs["starts"], attrs["ends"], steps, strict=True)
    cuts = [slice(None)] * x.ndim
    for axis, (start, end, step) in zip(attrs["axes"], spans, strict=True):
        cuts[axis] = slice(start, end if step > 0 or end >= -x.shape[axis] else None, step)
    return x[tuple(cuts)]


def _reshape(attrs: Mapping[str, Any], x: Any) -> Any:
    return x.reshape([x.shape[k] if dim == 0 else dim for k, dim in enumerate(attrs["shape"])])


def _cast(attrs: Mapping[str, Any], x: Any) -> Any:
    if attrs["dtype"].kind not in "iu":
        raise NotHere
    return x


def _shares(array: Any) -> np.ndarray:
    """Floats as shares, where fractions are short enough to be exact."""
    found = np.empty(array.shape, object)
    for at, one in np.ndenumerate(array):
        if not isinstance(one, Share):
            parts = (one, 1) if isinstance(one, Dim) else float(one).as_integer_ratio()
            if parts[1] > _SHORT:
                raise NotHere
            one = Share(*parts)
        found[at] = one
    return found


def _floor(attrs: Mapping[str, Any], x: Any) -> Any:
    return _each(lambda one: one.number // one.by, x)


def _ceil(attrs: Mapping[str, Any], x: Any) -> Any:
    return _each(lambda one: -(-one.number // one.by), x)


def _each(compute: Callable[[Share], Any], x: np.ndarray) -> np.ndarray:
    found = np.empty(x.shape, object)
    for at, one in np.ndenumerate(x):
        found[at] = Share(compute(one), 1)
    return found


_SHORT = 64
"""Denominators up to which products with sizes are exact in all dtypes of floats."""
_SHARES: dict[str, Callable[..., Any]] = {
    "add": lambda attrs, x, y: x + y,
    "sub": lambda attrs, x, y: x - y,
    "mul": lambda attrs, x, y: x * y,
    "div": lambda attrs, x, y: x / y,
    "floor": _floor,
    "ceil": _ceil,
}
"""Operators on floats that stand for shares of sizes."""
_MOVES = ("concat", "stack", "gather", "slice", "reshape", "squeeze", "unsqueeze", "expand")
"""Operators that move numbers, whatever they are."""
_COMPARED: dict[str, Callable[..., Any]] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
_BOTH: dict[str, Callable[..., Any]] = {
    **_COMPARED,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floor_divide": np.floor_divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
_COMPUTE: dict[str, Callable[..., Any]] = {
    **{name: lambda attrs, x, y, f=f: f(x, y) for name, f in _BOTH.items()},
    "fmod": _rest,
    "where": lambda attrs, c, x, y: np.where(c.astype(bool), x, y),
    "cast": _cast,
    "concat": lambda attrs, x: np.concatenate(x, attrs["axis"]),
    "stack": lambda attrs, x: np.stack(x, attrs["axis"]),
    "gather": lambda attrs, x, ids: np.take(x, ids.astype(np.int64), attrs["axis"]),
    "slice": _slice,
    "reshape": _reshape,
    "squeeze": lambda attrs, x: np.squeeze(x, tuple(attrs["axes"])),
    "unsqueeze": lambda attrs, x: np.expand_dims(x, tuple(attrs["axes"])),
    "expand": lambda attrs, x: np.broadcast_to(x, attrs["shape"]),
}
"""Operators on whole numbers that stand for sizes: (attributes, arrays...) -> array."""


# -- sizes in nets ---------------------------------------------------------------------------------


def made_of(value: Sizes) -> tuple[Callable[..., np.ndarray], list[Any]]:
    """What makes the array of sizes that are numbers to a net, and the sizes that it takes."""
    shares = [one if isinstance(one, Share) else Share(one, 1) for one in value.sizes.flat]
    shape, dtype = value.shape, value.dtype
    parts = [one.by for one in shares]

    def make(*numbers: int) -> np.ndarray:
        exact = [n if by == 1 else n / by for n, by in zip(numbers, parts, strict=True)]
        return np.array(exact, dtype).reshape(shape)

    return make, [one.number for one in shares]


def plain_shape(shape: Sequence[Any]) -> list[int]:
    """A shape as a net declares it: -1 for sizes that may vary."""
    return [-1 if isinstance(dim, Dim) else dim for dim in shape]


# -- sizes in attributes ---------------------------------------------------------------------------


def without_dims(op_type: str, attrs: Mapping[str, Any], given: Sequence[int]) -> dict[str, Any]:
    """Attributes of an operator for any sizes: copied, left open, or counted from the end.

    What cannot be said so is a plain number, and holds for that size alone.

    Args:
        given: the shape of the first input.
    """
    plain = dict(attrs)
    if op_type == "reshape":
        plain["shape"] = _open(attrs["shape"], given, copied=0, left=True)
    elif op_type == "expand":
        new = len(attrs["shape"]) - len(given)
        plain["shape"] = _open(attrs["shape"], [None] * new + [*given], copied=-1, left=False)
    elif op_type == "slice":
        sizes = [given[axis] for axis in attrs["axes"]]
        for key, at_end in ("starts", 0), ("ends", _TO_END):
            pairs = zip(attrs[key], sizes, strict=True)
            plain[key] = [_from_end(place, size, at_end) for place, size in pairs]
    for name, value in plain.items():
        if isinstance(value, Dim):
            plain[name] = int(value)
        elif isinstance(value, (list, tuple)):
            plain[name] = [int(one) if isinstance(one, Dim) else one for one in value]
    return plain


def _open(dims: Sequence[Any], given: Sequence[Any], *, copied: int, left: bool) -> list[Any]:
    """A shape attribute: `copied` where sizes are those of the input, -1 for one that is left."""
    result = list(dims)
    for at, dim in enumerate(dims):
        if isinstance(dim, Dim) and at < len(given) and dim.is_same(given[at]):
            result[at] = copied
    last = max((at for at, dim in enumerate(result) if isinstance(dim, Dim)), default=-1)
    if left and last >= 0 and -1 not in dims:
        result[last] = -1
    return result


def _from_end(place: Any, size: Any, at_end: int) -> Any:
    """A bound of a slice as a number, which counts from the end where that varies."""
    if not isinstance(place, Dim):
        return place
    away = place - size
    if isinstance(away, Dim) or away > 0 or (away == 0 and not at_end):
        return place
    return away or at_end
