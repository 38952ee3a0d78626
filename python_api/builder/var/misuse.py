"""What is said where a Var is used as if it held numbers already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from ....framework.base.errors import ShapeError, VariableError, nearest
from ..calls import where
from ..methods import BUILDER_METHODS
from ..operator_methods import method_types
from ..typed_names import elsewhere
from .base import Handle


def no_numpy(x: Handle, function: str) -> NoReturn:
    """Raise: a function of NumPy's is called on a variable."""
    ours = elsewhere(function) or (function if function in method_types() else "")
    write = f"write b.{ours}" if ours else "`opscope ops` lists the operators"
    raise NoNumbersError(
        f"{where()}: np.{function} is of arrays, and {x!r} holds no numbers while the net is built;"
        f" {write}"
    )


_VALUES = ("item", "numpy", "tolist", "data", "value", "values", "detach", "cpu")
_GRADIENTS = ("grad", "backward", "requires_grad")


class NoNumbersError(VariableError, TypeError):
    """A Var stands where Python or NumPy wants a number; they expect a TypeError of it."""


def no_value(x: Handle, what: str) -> NoReturn:
    """Raise: a number is wanted while the net is built."""
    raise NoNumbersError(
        f"{where()}: {what}: {x!r} holds no numbers while the net is built; they come from"
        f" b.run(scope, feed=..., fetch=[{x.name!r}])"
    )


def no_truth(x: Handle) -> NoReturn:
    """Raise: a truth value is wanted, by `if`, `and`, `or`, `not`, `in`, or a chain a < x < b."""
    raise VariableError(
        f"{where()}: {x!r} is neither true nor false while the net is built. Instead of `if` choose"
        " elements by b.where(condition, x, y); instead of `and`, `or`, `not` and a < x < b write"
        " `&`, `|`, `~` and (a < x) & (x < b); look for a Var in a list by"
        " any(v is x for v in list); ask for None by `x is None`"
    )


def no_assignment(x: Handle) -> NoReturn:
    """Raise: elements cannot be set."""
    raise VariableError(
        f"{where()}: elements of {x!r} cannot be set; make a new variable, by"
        " b.where(condition, new, x) or b.scatter_add(x, ids, updates)"
    )


def no_membership(x: Handle) -> NoReturn:
    """Raise: `value in x`."""
    raise VariableError(
        f"{where()}: whether {x!r} holds a number is not known while the net is built; x == number"
        " says where it does"
    )


def known_length(x: Handle, what: str) -> int:
    """The first dimension.

    Raises:
        ShapeError: it is not known while the net is built, or there is none.
    """
    shape = x.shape
    if not shape or shape[0] < 0:
        why = "it has no axes" if shape == () else "its first dimension is not known yet"
        raise ShapeError(f"{where()}: {what} {x!r}: {why}")
    return shape[0]


def missing_attribute(x: Handle, name: str, known: Iterable[str]) -> str:
    """The message for x.name where a Var has no such attribute."""
    problem = f"{x!r} has no attribute {name!r}"
    if name in _VALUES:
        return f"{problem}: its value comes from b.run(scope, feed=..., fetch=[{x.name!r}])"
    if name in _GRADIENTS:
        return (
            f"{problem}: b.backward_from(cost) asks for gradients, and b.gradient(x) names the"
            " variable that holds one"
        )
    if name in BUILDER_METHODS or name in method_types():
        return f"{problem}: write b.{name}({x.name}, ...) with the builder b"
    ours = elsewhere(name)
    return f"{problem}: write b.{ours}" if ours else problem + nearest(name, known)
