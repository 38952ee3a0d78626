"""Which temporaries lie in memory with their channels last.

An array [N, C, ...] of a temporary may lie in memory as [N, ..., C]: its shape is the same, its
strides are others. Kernels of images say which of their slots they take so and are faster with
(`KernelEntry.channels_last`); loops take any arrays that all lie alike. A temporary lies so where
everybody who reads or writes it takes it, and everybody whom it must lie alike with. One number a
channel, [N, C, 1, 1], lies in memory the same either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ...base.sizes.shape import ArraySpec, Shape
from ...fusion.compiled import native
from ...fusion.scalars.codegen import COLUMN, FULL, ONE
from ...ir.registry import REFERENCE
from .steps import PlanStep

_DTYPES = (*map(np.dtype, (np.float32, np.float64, np.uint8, np.int8)),)
_RANKS = 3, 4


class _Classes:
    """Classes of variables that must lie alike, and those among them that cannot lie so."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}
        self.refused: set[str] = set()
        self.wanted: set[str] = set()

    def root(self, name: str) -> str:
        """The name that stands for a class."""
        while (above := self._above.setdefault(name, name)) != name:
            name = above
        return name

    def tie(self, names: Iterable[str]) -> None:
        """Note that these lie alike."""
        roots = [self.root(name) for name in names]
        for other in roots[1:]:
            self._above[self.root(other)] = self.root(roots[0])

    def chosen(self) -> set[str]:
        """All members of classes that somebody wants and nothing refuses."""
        refused, wanted = (set(map(self.root, names)) for names in (self.refused, self.wanted))
        return {name for name in self._above if self.root(name) in wanted - refused}


def channels_last(
    steps: Iterable[PlanStep],
    specs: Mapping[str, ArraySpec],
    fixed: set[str],
    libraries: tuple[str, ...],
) -> set[str]:
    """The temporaries that lie in memory with their channels last.

    Args:
        fixed: variables whose memory is given, or shared with others.
        libraries: of kernels.
    """
    classes = _Classes()
    images = {spec for spec in set(specs.values()) if _is_image(*spec)}
    for step in steps if images else ():
        names = [name for name in (*step.reads, *step.writes) if specs[name] in images]
        if not names:
            continue
        classes.refused.update(name for name in names if name in fixed)
        if step.loops:
            _of_loops(step, names, specs, classes)
        else:
            _of_operator(step, names, classes, libraries)
    # Asked last: most nets have no kernel that wants such arrays, and need no native library here.
    if not classes.wanted or native.load("images", "float") is None:
        return set()
    return classes.chosen()


def _is_image(shape: Shape, dtype: np.dtype) -> bool:
    fits = len(shape) in _RANKS and dtype in _DTYPES and 0 not in shape
    return fits and not is_of_channels(shape)


def is_of_channels(shape: Shape, images: Shape | None = None) -> bool:
    """Whether an array has one number for each channel of each image.

    Args:
        images: shape of the images, against which it is broadcast; None: of any.
    """
    if images is not None:
        shape = (*(1,) * (len(images) - len(shape)), *shape)
    same = images is None or (len(images) == len(shape) and images[:2] == shape[:2])
    return same and len(shape) in _RANKS and all(size == 1 for size in shape[2:])


def _of_loops(
    step: PlanStep, names: list[str], specs: Mapping[str, ArraySpec], classes: _Classes
) -> None:
    members = [member for loop in step.loops for member in loop]
    # What a channel is multiplied with, say, follows either order; other operands that are
    # broadcast follow that of the shape alone.
    broadcast = any(
        operand.kind not in (FULL, ONE)
        and not (operand.kind == COLUMN and is_of_channels(specs[name][0], member.shape(specs)))
        for member in members
        for name, operand in member.reads.items()
    )
    shapes = {member.shape(specs) for member in members}
    classes.tie(names)
    # What is refused for one name is refused for its class.
    if broadcast or len(shapes) > 1:
        classes.refused.add(names[0])


def _of_operator(
    step: PlanStep, names: list[str], classes: _Classes, libraries: tuple[str, ...]
) -> None:
    first, last = step.operators[0], step.operators[-1]  # others are its tail
    slots = {
        name: slot
        for each in (first.inputs, last.outputs)
        for slot, own in each.items()
        for name in own
    }
    taken: set[str] = set()
    if step.epilogue is not None:  # what it reads lies as what it writes
        slots[step.epilogue.out] = next(iter(first.outputs))
        others = [name for name in names if name not in slots]
        slots.update(dict.fromkeys(others, ""))
        taken.update(others)
        classes.tie((*others, step.epilogue.out))
    for kernel in first.entry.kernels:
        if kernel.library not in libraries or kernel.device == "gpu":
            continue
        if kernel.spans is not None and len(step.operators) == 1:
            continue  # it computes no lone operator
        for group in kernel.channels_last:
            alike = [name for name in names if slots[name] in group]
            taken.update(alike)
            classes.tie(alike)
            # The reference takes such arrays, but gains nothing: it does not ask for them.
            if kernel.library != REFERENCE:
                classes.wanted.update(alike)
    classes.refused.update(set(names) - taken)
