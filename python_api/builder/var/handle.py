"""Var: what the methods of a NetBuilder return, a handle of a variable."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ....framework.base.errors import format_shape


class Builder(Protocol):
    """What handles need of a NetBuilder."""

    def add_op(self, type: str, *inputs: Any, name: str = "", **given: Any) -> Any:  # noqa: A002
        """Append an operator."""
        ...

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """Shape of a variable as far as it is known."""
        ...

    def dtype_of(self, name: str) -> np.dtype | None:
        """Dtype of a variable, where it is known."""
        ...


class Var:
    """A variable of a NetBuilder: its name, and what is known of its shape and dtype.

    The usual infix operators append operators: `x @ w + b`, `-x`, `2 * x`.
    """

    __slots__ = ("builder", "name")

    def __init__(self, builder: Builder, name: str) -> None:
        self.builder = builder
        self.name = name

    @property
    def shape(self) -> tuple[int, ...] | None:
        """-1 for unknown dimensions; None where even the rank is unknown."""
        return self.builder.shape_of(self.name)

    @property
    def dtype(self) -> np.dtype | None:
        return self.builder.dtype_of(self.name)

    def _binary(self, op_type: str, other: Any, swapped: bool = False) -> Var:
        if not isinstance(other, Var):
            if op_type in _WITH_NUMBER and isinstance(other, (int, float)):
                scale, bias = _WITH_NUMBER[op_type](float(other), swapped)
                if scale is not None:
                    return self.builder.add_op("scale", self, scale=scale, bias=bias)
            other = self.builder.add_op(
                "fill_constant", shape=[], dtype=str(self.dtype or "float32"), value=float(other)
            )
        pair = (other, self) if swapped else (self, other)
        return self.builder.add_op(op_type, *pair)

    def __add__(self, other: Any) -> Var:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Var:
        return self._binary("add", other, True)

    def __sub__(self, other: Any) -> Var:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Var:
        return self._binary("sub", other, True)

    def __mul__(self, other: Any) -> Var:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Var:
        return self._binary("mul", other, True)

    def __truediv__(self, other: Any) -> Var:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Var:
        return self._binary("div", other, True)

    def __pow__(self, other: Any) -> Var:
        return self._binary("pow", other)

    def __matmul__(self, other: Var) -> Var:
        return self.builder.add_op("matmul", self, other)

    def __neg__(self) -> Var:
        return self.builder.add_op("neg", self)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Var {self.name}: {self.dtype or '?'}{format_shape(self.shape)}>"


# op(x, number) as scale * x + bias, with (number, swapped) -> (scale, bias); None: no such form.
_WITH_NUMBER = {
    "add": lambda c, swapped: (1.0, c),
    "sub": lambda c, swapped: (-1.0, c) if swapped else (1.0, -c),
    "mul": lambda c, swapped: (c, 0.0),
    "div": lambda c, swapped: (None, 0.0) if swapped or c == 0 else (1.0 / c, 0.0),
}


def as_var(builder: Builder, x: Var | str) -> Var:
    """A handle as it is; a name as a handle, which operators check."""
    return x if isinstance(x, Var) else Var(builder, x)
