"""What every handle of a variable knows: its builder, its name, and what is known of its array."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ....framework.base.errors import format_shape


class Builder(Protocol):
    """What handles need of a NetBuilder."""

    @property
    def name(self) -> str:
        """Of the net."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Of parameters: the dtype that integers become where floats are needed."""
        ...

    def add_op(self, type: str, /, *inputs: Any, **given: Any) -> Any:  # noqa: A002
        """Append an operator."""
        ...

    def shape_of(self, var: str, /) -> tuple[int, ...] | None:
        """Shape of a variable as far as it is known."""
        ...

    def dtype_of(self, var: str, /) -> np.dtype | None:
        """Dtype of a variable, where it is known."""
        ...


class Handle:
    """A variable of a builder, without operators."""

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
        """None where it is unknown."""
        return self.builder.dtype_of(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Var {self.name}: {self.dtype or '?'}{format_shape(self.shape)}>"
