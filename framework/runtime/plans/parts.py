"""Arrays that are written where an operator would only copy them to, into parts of its result, or
read where it would copy them from.

What joins arrays says so in the registry (`OperatorDef.column_views`). An image with its channels
last that one kernel writes, and that is read to be joined along the channels and for nothing else,
is a view of the result from the start. A range of an image's channels, likewise, that only kernels
of images read and operators that join, is a view of the image (`takes_range`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ...ir.operation import Operator
from ...ir.registry import REFERENCE
from .steps import PlanStep


class Part(NamedTuple):
    """Where a variable lies in another one: its first channel there."""

    whole: str
    begin: int


def joined_parts(
    steps: Sequence[PlanStep], channels: dict[str, int], libraries: Collection[str]
) -> dict[str, Part]:
    """The variables that are parts of others.

    Args:
        channels: of the temporaries that have their channels last.
        libraries: of kernels.
    """
    readers = Counter(name for step in steps for name in step.reads)
    writers = Counter(name for step in steps for name in step.writes)
    written_in_place = {
        name for step in steps for name in step.writes if _writes_images(step, name, libraries)
    }
    parts: dict[str, Part] = {}
    for step in steps:
        op = step.operators[0]
        whole, names = _joined(op) if len(step.operators) == 1 else ("", ())
        if whole not in channels or whole in parts or writers[whole] > 1:
            continue
        begin = 0
        for name in names:
            if name not in channels:
                break  # what follows has no known place
            if (
                name in written_in_place
                and readers[name] == names.count(name) == writers[name] == 1
            ):
                parts[name] = Part(whole, begin)
            begin += channels[name]
    elsewhere = {
        name for step in steps for name in step.reads if not _reads_images(step, name, libraries)
    }
    for step in steps:
        op = step.operators[0]
        if len(step.operators) > 1 or op.entry.takes_range is None:
            continue
        (whole,), (name,) = op.inputs["x"], op.outputs["out"]
        if {whole, name} - channels.keys() or {whole, name} & parts.keys() or name in elsewhere:
            continue
        begin = op.entry.takes_range(op, channels[whole])
        if begin >= 0 and writers[whole] == writers[name] == 1:
            parts[name] = Part(whole, begin)
    return parts


def _joined(op: Operator) -> tuple[str, tuple[str, ...]]:
    """The result of an operator that joins arrays along their channels, and these."""
    views = op.entry.column_views
    if views is None or op.attrs.get("axis") != 1 or views[0] not in op.outputs:
        return "", ()
    return op.outputs[views[0]][0], op.inputs[views[1]]


def _writes_images(step: PlanStep, name: str, libraries: Collection[str]) -> bool:
    """Whether a fast kernel of images writes the variable, which takes them at any distance."""
    slots = step.operators[-1].outputs
    return _is_of_images(
        step, next((slot for slot, own in slots.items() if name in own), ""), libraries
    )


def _reads_images(step: PlanStep, name: str, libraries: Collection[str]) -> bool:
    """Whether a fast kernel of images reads the variable, and as such, or an operator joins it."""
    first, *others = step.operators
    if any(name in op.value_reads() for op in others):
        return False
    slots = [slot for slot, own in first.inputs.items() if name in own]
    if len(step.operators) == 1 and _joined(first)[0]:
        return True
    return len(slots) == 1 and _is_of_images(step, slots[0], libraries)


def _is_of_images(step: PlanStep, slot: str, libraries: Collection[str]) -> bool:
    first = step.operators[0]
    return not step.loops and any(
        kernel.library in libraries
        and kernel.library != REFERENCE
        and any(slot in group for group in kernel.channels_last)
        for kernel in first.entry.kernels
    )
