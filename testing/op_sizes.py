"""Uses of an operator that differ from a test's case: axes 1 or 0 long, inputs that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..framework.base.errors import OpscopeError
from .op_setup import Case, Setup

_Axes = frozenset[tuple[str, int, int]]
"""Axes of a case's inputs: slot, place in the slot, number of the axis."""


def resized(setup: Setup, seen: set[str]) -> Iterator[Setup]:
    """Every use that the shape rule takes of those like `setup` with some axes 1, or 0, long.

    Each axis is made so alone, with those at its place that are as long, and with all that are as
    long; in the inputs or, where the rule refuses that, in attributes as well.

    Args:
        seen: the uses that were there before, as they print; this one's are added.
    """
    case = setup.case
    for axes, size in _groups(case).items():
        for length in (1, 0):
            if size <= length:
                continue
            cut = _cut(case, axes, length)
            for tried in (cut, replace(cut, attrs=_renumbered(case.attrs, size, length))):
                try:
                    made = setup.of_case(tried)
                except OpscopeError:
                    continue
                if (key := f"{made} {case.train} {dict(case.share)}") not in seen:
                    seen.add(key)
                    yield made
                break


def mistaken(case: Case) -> Iterator[Case]:
    """The case with one array of another rank or length, or floating where it is not."""
    for slot, value in case.inputs.items():
        listed = value if isinstance(value, list) else [value]
        for place, array in enumerate(listed):
            for wrong in _mistakes(np.asarray(array)):
                changed = [*listed[:place], wrong, *listed[place + 1 :]]
                given = changed if isinstance(value, list) else wrong
                yield replace(case, inputs={**case.inputs, slot: given})


def _mistakes(array: np.ndarray) -> Iterator[np.ndarray]:
    yield array[None]
    if array.dtype.kind != "f":
        yield array.astype(np.float64)
    if not array.size or not array.ndim:
        return
    yield array.reshape(-1) if array.ndim > 1 else array[0]
    for axis, size in enumerate(array.shape):
        yield array.take(range(size - 1), axis)
        yield array.take([*range(size), 0], axis)


def other_slots(setup: Setup) -> Iterator[tuple[Case, dict[str, list[str]]]]:
    """The case and its outputs with one optional slot fewer, or with one more output."""
    case, outputs = setup.case, setup.outputs
    for slot in setup.entry.inputs:
        if slot.optional and slot.name in case.inputs:
            inputs, offsets = (
                {name: value for name, value in given.items() if name != slot.name}
                for given in (case.inputs, case.offsets)
            )
            yield replace(case, inputs=inputs, offsets=offsets), outputs
    for slot in setup.entry.outputs:
        if slot.optional and slot.name not in outputs:
            yield case, {**outputs, slot.name: [slot.name]}
        elif slot.optional and len(outputs) > 1:
            yield case, {name: made for name, made in outputs.items() if name != slot.name}


def lowered(setup: Setup) -> Setup:
    """The use with 0 for each integer above it: labels and row numbers that point to what is left.

    Raises:
        OpscopeError: the shape rule or an attribute check refuses it.
    """
    lower = setup.case.mapped(lambda a: np.minimum(a, 0) if a.dtype.kind in "iu" else a)
    return setup.of_case(lower)


def _groups(case: Case) -> dict[_Axes, int]:
    """The axes that are resized together, and how long they are. Sequences keep their rows."""
    axes = [
        (slot, place, axis, size)
        for slot, value in case.inputs.items()
        for place, array in enumerate(value if isinstance(value, list) else [value])
        for axis, size in enumerate(np.shape(array))
        if axis or slot not in case.offsets
    ]
    groups: dict[_Axes, int] = {}
    for *_, axis, size in axes:
        groups[frozenset((s, p, a) for s, p, a, n in axes if n == size)] = size
        groups[frozenset((s, p, a) for s, p, a, n in axes if n == size and a == axis)] = size
    for slot, place, axis, size in axes:
        groups[frozenset([(slot, place, axis)])] = size
    return groups


def _cut(case: Case, axes: _Axes, length: int) -> Case:
    def cut(slot: str, place: int, array: Any) -> np.ndarray:
        array = np.asarray(array)
        whole = slice(None)
        spans = [
            slice(length) if (slot, place, axis) in axes else whole for axis in range(array.ndim)
        ]
        return array[(*spans, ...)]

    inputs = {
        slot: [cut(slot, place, array) for place, array in enumerate(value)]
        if isinstance(value, list)
        else cut(slot, 0, value)
        for slot, value in case.inputs.items()
    }
    return replace(case, inputs=inputs)


def _renumbered(attrs: Any, size: int, length: int) -> dict[str, Any]:
    """Attributes with `length` wherever they say `size`."""

    def changed(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(changed(item) for item in value)
        is_size = isinstance(value, int) and not isinstance(value, bool) and value == size
        return length if is_size else value

    return {name: changed(value) for name, value in attrs.items()}
