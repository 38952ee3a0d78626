"""The variables of a step: which a trace leaves open, and how the arrays of a frame lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....native.arguments import ALIGNED, WRITEABLE
from ...fusion.laid import Laid
from ..plans.plan import Plan, PlanStep

FLAGS = ALIGNED | WRITEABLE
"""Those that the fields of a step depend on, as well as on sizes."""


def variables_of(step: PlanStep) -> list[str]:
    """All variables of a step's operators, each once."""
    names = [name for op in step.operators for name in (*op.input_vars(), *op.output_vars())]
    return list(dict.fromkeys(names))


class Operands:
    """The variables of a step: those that its kernel may know, and those that differ from frame to
    frame.

    Attributes:
        fixed: parameters and constants, which are arrays of all frames.
        ranks, itemsizes: of all others.
    """

    def __init__(self, plan: Plan, step: PlanStep, arrays: Mapping[str, Any]) -> None:
        self.fixed: dict[str, Any] = {}
        self.ranks: dict[str, int] = {}
        self.itemsizes: dict[str, int] = {}
        self._plan = plan
        for name in variables_of(step):
            if name not in arrays:
                continue
            if self.is_fixed(name):
                self.fixed[name] = arrays[name]
            else:
                self.ranks[name] = arrays[name].ndim
                self.itemsizes[name] = arrays[name].itemsize

    def is_fixed(self, name: str) -> bool:
        """Whether a variable has the same array in all frames."""
        return name in self._plan.fixed

    def sizes(self, arrays: Mapping[str, Any]) -> list[int]:
        """Of all arrays in a row: sizes, steps in elements, address."""
        sizes: list[int] = []
        for name in self.ranks:
            array = arrays[name]
            itemsize = array.itemsize
            sizes += array.shape
            sizes += [step // itemsize for step in array.strides]
            sizes.append(array.ctypes.data)
        return sizes

    def suits(self, arrays: Mapping[str, Any]) -> bool:
        """Whether all arrays are of NumPy, and lie so that elements may be counted."""
        return all(
            type(array) is np.ndarray
            and array.flags.aligned
            and not any([step % array.itemsize for step in array.strides])
            for array in (arrays[name] for name in self.ranks)
        )

    def laid(self, arrays: Mapping[str, Any], sizes: Sequence[Any]) -> dict[str, Any]:
        """What stands for the arrays, of such sizes."""
        result = dict(self.fixed)
        at = 0
        for name, rank in self.ranks.items():
            array = arrays[name]
            shape, steps = sizes[at : at + rank], sizes[at + rank : at + 2 * rank]
            strides = [step * array.itemsize for step in steps]
            address = sizes[at + 2 * rank]
            result[name] = Laid(array.dtype, shape, strides, address, array.flags.writeable)
            at += 2 * rank + 1
        return result

    def addresses(self) -> set[int]:
        """Places of the addresses among the sizes."""
        ends = np.cumsum([2 * rank + 1 for rank in self.ranks.values()])
        return {int(end) - 1 for end in ends}


def flags_of(array: Any) -> int:
    """The flags of an array that the fields of a step depend on."""
    return array.flags.num & FLAGS
