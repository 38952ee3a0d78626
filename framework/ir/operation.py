"""An operator as the runtime sees it: decoded once from its OpDesc, checked, no protobuf left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...proto import net_pb2 as pb
from ..base.errors import AttributeTypeError, SlotError, format_shape, nearest
from .desc import format_location, slot_map
from .names import EMPTY
from .registry import REQUIRED, OperatorDef, lookup


class Operator:
    """One entry of a net's list.

    Attributes:
        type, entry: the type and its registration.
        inputs, outputs: slot -> variable names; slots without variables are absent, and outputs
            that nobody needs are kept as `@EMPTY@` in duplicable slots only.
        attrs: every attribute, defaults filled in.
        accumulate: add to what the output holds (see `OperatorDef.accumulates`).
        index: place in the list; role: FORWARD, BACKWARD or OPTIMIZE; location: `file:line`.
    """

    __slots__ = (
        "accumulate",
        "attrs",
        "device",
        "entry",
        "index",
        "inputs",
        "location",
        "outputs",
        "role",
        "type",
    )

    def __init__(self, desc: pb.OpDesc, index: int = -1) -> None:
        self.type: str = desc.type
        self.index = index
        self.role: int = desc.role
        self.device: str = desc.device
        self.accumulate = False
        self.location = format_location(desc.source)
        self.inputs: dict[str, tuple[str, ...]] = {}
        self.outputs: dict[str, tuple[str, ...]] = {}
        self.entry: OperatorDef = lookup(desc.type, self.title())
        self._fill_slots(desc)
        self.attrs = check_attrs(self.entry, desc.attrs, self.title())

    def _fill_slots(self, desc: pb.OpDesc) -> None:
        for kind, given, known, target in (
            ("input", slot_map(desc.inputs), self.entry.input_slots, self.inputs),
            ("output", slot_map(desc.outputs), self.entry.output_slots, self.outputs),
        ):
            for name, variables in given.items():
                if name not in known:
                    raise SlotError(
                        f"{self.title()}: no {kind} slot {name!r}{nearest(name, known)};"
                        f" it has {', '.join(known) or 'none'}"
                    )
                slot = known[name]
                if not slot.duplicable:
                    if len(variables) > 1:
                        raise SlotError(
                            f"{self.title()}: {kind} slot {name!r} takes one variable,"
                            f" not {len(variables)}: {', '.join(variables)}"
                        )
                    variables = [v for v in variables if v != EMPTY]
                if variables:
                    target[name] = tuple(variables)
            for name, slot in known.items():
                if name not in target and not slot.optional and not slot.intermediate:
                    raise SlotError(f"{self.title()}: {kind} slot {name!r} is missing: {slot.doc}")

    def title(self) -> str:
        """`op 3 (affine)`, with the place in the source where it is known."""
        number = f"op {self.index} ({self.type})" if self.index >= 0 else f"op {self.type}"
        return f"{number} at {self.location}" if self.location else number

    def describe(self, why: str, metas: Mapping[str, Any]) -> str:
        """An error message: title, reason, and slot=variable, dtype and shape of every operand."""
        operands = []
        for slots in (self.inputs, self.outputs):
            for slot, names in slots.items():
                for name in names:
                    meta = metas.get(name)
                    shown = f" {meta[1]}{format_shape(meta[0])}" if meta else ""
                    operands.append(f"{slot}={name}{shown}")
        return f"{self.title()}: {why} ({', '.join(operands)})"

    def input_vars(self) -> list[str]:
        return [name for names in self.inputs.values() for name in names if name != EMPTY]

    def output_vars(self) -> list[str]:
        return [name for names in self.outputs.values() for name in names if name != EMPTY]

    def value_reads(self) -> list[str]:
        """Inputs whose values are read, not only their shapes."""
        slots = self.entry.input_slots
        return [
            name
            for slot, names in self.inputs.items()
            if not slots[slot].shape_only
            for name in names
            if name != EMPTY
        ]

    def __repr__(self) -> str:
        return f"<{self.title()}>"


def check_attrs(entry: OperatorDef, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """All attributes of an operator, decoded, checked and with defaults.

    Raises:
        AttributeTypeError: one is unknown, missing, of the wrong type or out of bounds.
    """
    for name in given:
        if name not in entry.attr_specs:
            raise AttributeTypeError(
                f"{where}: no attribute {name!r}{nearest(name, entry.attr_specs)};"
                f" it has {', '.join(entry.attr_specs) or 'none'}"
            )
    attrs = {}
    for name, spec in entry.attr_specs.items():
        if name in given:
            attrs[name] = spec.check(given[name], where)
        elif spec.default is REQUIRED:
            raise AttributeTypeError(
                f"{where}: attribute {name!r} ({spec.type}) is missing: {spec.doc}"
            )
        else:
            attrs[name] = spec.default
    return attrs
