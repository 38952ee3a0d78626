"""What a component is in PyTorch: the text that makes and calls its module, its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Store = Callable[[Any, Mapping[str, np.ndarray]], None]
F32 = np.float32


@dataclass(frozen=True)
class Layer:
    """A component in PyTorch.

    Attributes:
        make: the expression that makes the module; empty: there is none.
        call: applies it; {m} is the module, {x} the input.
        arrays: the module's state by the names of its tensors.
        store: puts changed tensors into a component; called with all of `arrays`' names.
        trained: whether its parameters are trained.
        frozen: parts of a trained module that are not, as what follows its name.
        helper: the class of the sources that `make` needs.
        note: what the module does not do as the component does.
        over_time: whether it wants [N, columns, T]; else [N, columns] serves as well.
    """

    make: str
    call: str = "{m}({x})"
    arrays: Arrays = field(default_factory=Arrays)
    store: Store | None = None
    trained: bool = True
    frozen: tuple[str, ...] = ()
    helper: str = ""
    note: str = ""
    over_time: bool = False

    def not_trained(self) -> tuple[str, ...]:
        """What follows the module's name where parameters are not trained."""
        return ("",) if self.arrays and not self.trained else self.frozen


def number_text(value: float) -> str:
    """A float32 in as few digits as tell it."""
    return repr(float(str(F32(value))))
