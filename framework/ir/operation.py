"""An operator as the runtime sees it: an OpNode checked against its registration.

Also the plain operators that a composite one (`fc`, a nested plain net) stands for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...proto import net_pb2 as pb
from ..base.errors import AttributeTypeError, SlotError, format_shape, nearest
from .desc import SlotMap, caller_location, format_location, make_op
from .messages import op_from_message
from .names import EMPTY
from .op_list import Checked, OpNode, Signature, SlotNames, SourceLocation, real_names
from .registry import REGISTERED, OperatorDef, lookup
from .schema import REQUIRED, Slot

SlotsGiven = SlotMap | Sequence["str | Sequence[str] | None"] | str | None
"""The variables of an operator's inputs or outputs: by slot, or a list in the order of the slots.

In a list a name stands for a slot of one variable, a list of names for a slot that takes several,
and None for a slot that is left out; slots at the end that need nothing may be missing.
"""


def node_of(
    op: OpNode | pb.OpDesc | str,
    inputs: SlotsGiven,
    outputs: SlotsGiven,
    attrs: Mapping[str, Any] | None,
) -> OpNode:
    """The arguments of `Net.add_op` as a node: a made one, or type, slots and attributes.

    Raises:
        SlotError: lists with other slots than the operator has.
    """
    if isinstance(op, str):
        source = caller_location()
        read = _by_slot(op, "input", inputs)
        return make_op(op, read, _by_slot(op, "output", outputs), attrs, source=source)
    return op if isinstance(op, OpNode) else op_from_message(op)


def _by_slot(op_type: str, kind: str, given: SlotsGiven) -> SlotMap:
    """Variables by slot."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    entry = lookup(op_type)
    if kind == "input":
        slots = list(entry.input_slots.values())
        needed = entry.required_inputs
    else:
        slots = list(entry.output_slots.values())
        needed = entry.required_outputs
    listed = [given] if isinstance(given, str) else list(given)
    order = ", ".join(f"[{s.name}, ...]" if s.duplicable else s.name for s in slots) or "none"
    required = [n for n, slot in enumerate(slots, 1) if slot in needed]
    if not max(required, default=0) <= len(listed) <= len(slots):
        raise SlotError(
            f"{op_type}: {len(listed)} {kind}s are listed, {', '.join(map(repr, listed))}; its"
            f" {kind} slots are, in this order: {order}"
        )
    by_slot: dict[str, str | Sequence[str]] = {}
    for slot, names in zip(slots, listed, strict=False):
        # A single name where several are wanted is refused, though it is clear: a variable more
        # would change its meaning silently.
        if isinstance(names, str) == slot.duplicable and names is not None:
            wants = "a list of variables" if slot.duplicable else "one variable"
            raise SlotError(
                f"{op_type}: {kind} slot {slot.name!r} takes {wants}, not {names!r}; its {kind}"
                f" slots are, in this order: {order}"
            )
        if names is not None:
            by_slot[slot.name] = names
    return by_slot


_Listed = tuple[SlotNames | None, list[str]]
"""Slots and the variables in them. Slots are replaced, never changed; a pair, since threads that
share an operator must not find the names of one with the slots of another."""
_NONE: _Listed = (None, [])


class Operator:
    """One entry of a net's list.

    Args:
        node: checked unless that was done before; see `OpNode.checked`.
        index: place in the list; -1 where it is in none.

    Attributes:
        node: as it was written.
        type, entry: the type and its registration.
        inputs, outputs: slot -> variable names; slots without variables are absent, and outputs
            that nothing needs are kept as `@EMPTY@` in duplicable slots only.
        attrs: every attribute, defaults filled in; not to be changed.
        accumulate: add to what the output holds (see `OperatorDef.accumulates`).
        index: place in the list; role: FORWARD, BACKWARD or OPTIMIZE.

    Raises:
        UnknownOperatorError, SlotError, AttributeTypeError: the node is wrong.
    """

    __slots__ = (
        "accumulate",
        "attrs",
        "device",
        "_reads",
        "_writes",
        "entry",
        "index",
        "inputs",
        "node",
        "outputs",
        "role",
        "_signature",
        "type",
        "_value_reads",
    )

    def __init__(self, node: OpNode, index: int = -1) -> None:
        self.node = node
        self.type = node.type
        self.index = index
        self.role = node.role
        self.device = node.device
        self.accumulate = False
        self._reads = self._writes = self._value_reads = _NONE
        self._signature = _UNSIGNED
        checked = node.checked
        entry = REGISTERED.get(node.type)
        if entry is None or checked is None or checked.entry is not entry:
            self.entry: OperatorDef = entry or lookup(node.type, self.title())
            checked = node.checked = self._check(node)
            node.alike = None
        else:
            self.entry = entry
        self.attrs: dict[str, Any] = checked.attrs
        if checked.is_whole:
            self.inputs = node.inputs
            self.outputs = node.outputs
        else:
            self.inputs = checked.inputs
            self.outputs = checked.outputs

    def _check(self, node: OpNode) -> Checked:
        """The node against its registration: slots first, then attributes."""
        entry = self.entry
        inputs = self._used(node.inputs, "input", entry.input_slots, entry.required_inputs)
        outputs = self._used(node.outputs, "output", entry.output_slots, entry.required_outputs)
        if entry.outputs and not any(n != EMPTY for names in outputs.values() for n in names):
            raise SlotError(
                f"{self.title()} writes nothing: give one of {', '.join(entry.output_slots)}"
            )
        attrs = check_attrs(entry, node.attrs, self)
        if inputs is node.inputs and outputs is node.outputs:
            return Checked(entry, attrs, True, {}, {})
        return Checked(entry, attrs, False, inputs, outputs)

    def _used(
        self, given: SlotNames, kind: str, known: Mapping[str, Slot], required: tuple[Slot, ...]
    ) -> SlotNames:
        """The slots that hold something; the same object where all of them do."""
        used = given
        for name, variables in given.items():
            if name not in known:
                raise SlotError(
                    f"{self.title()}: no {kind} slot {name!r}{nearest(name, known)};"
                    f" it has {', '.join(known) or 'none'}"
                )
            if not known[name].duplicable:
                if len(variables) > 1:
                    raise SlotError(
                        f"{self.title()}: {kind} slot {name!r} takes one variable,"
                        f" not {len(variables)}: {', '.join(variables)}"
                    )
                if EMPTY in variables:
                    variables = ()
            if not variables:
                used = {slot: names for slot, names in used.items() if slot != name}
        for slot in required:
            if slot.name not in used:
                raise SlotError(f"{self.title()}: {kind} slot {slot.name!r} is missing: {slot.doc}")
        return used

    @property
    def location(self) -> str:
        """`file:line` where it was written; "" where that is not known."""
        return format_location(self.node.source)

    def __str__(self) -> str:
        return self.title()

    def title(self) -> str:
        """`op 3 (affine)`, with the place in the source where it is known."""
        number = f"op {self.index} ({self.type})" if self.index >= 0 else f"op {self.type}"
        location = self.location
        return f"{number} at {location}" if location else number

    def describe(self, why: str, specs: Mapping[str, Any]) -> str:
        """An error message: title, reason, and slot=variable, dtype and shape of every operand."""
        operands = []
        for slots in (self.inputs, self.outputs):
            for slot, names in slots.items():
                for name in names:
                    spec = specs.get(name)
                    shown = f" {spec[1]}{format_shape(spec[0])}" if spec else ""
                    operands.append(f"{slot}={name}{shown}")
        return f"{self.title()}: {why} ({', '.join(operands)})"

    def input_vars(self) -> list[str]:
        """The variables that it reads, slot by slot; callers must not change the list."""
        node = self.node
        if self.inputs is node.inputs:
            listed = node.listed  # hundreds of thousands of calls: without another one
            return node.input_names() if listed is None else listed[0]
        slots, names = self._reads
        if slots is not self.inputs:
            slots = self.inputs
            names = real_names(slots)
            self._reads = slots, names
        return names

    def output_vars(self) -> list[str]:
        """The variables that it writes, slot by slot; callers must not change the list."""
        node = self.node
        if self.outputs is node.outputs:
            listed = node.listed
            return node.output_names() if listed is None else listed[1]
        slots, names = self._writes
        if slots is not self.outputs:
            slots = self.outputs
            names = real_names(slots)
            self._writes = slots, names
        return names

    def signature(self) -> Signature | None:
        """What its shape rule depends on beside its inputs' shapes: one object for all operators
        that are alike except for names. None where attributes are no plain values: nets, arrays."""
        node = self.node
        if self.inputs is node.inputs and self.outputs is node.outputs:
            known = node.alike
            if known is None:
                known = node.alike = _signature_of(self)
                # Of operators that are alike the attributes are kept once.
                if known.checked is not None:
                    node.checked = known.checked
                    self.attrs = known.checked.attrs
        else:
            inputs, outputs, known = self._signature
            if inputs is not self.inputs or outputs is not self.outputs:
                known = _signature_of(self)
                self._signature = self.inputs, self.outputs, known
        return known if known.checked is not None else None

    def results(self) -> list[str]:
        """The outputs that are not there for the operator's own gradient alone; callers must not
        change the list."""
        left_out = self.entry.intermediate
        return _without(left_out, self.outputs) if left_out else self.output_vars()

    def value_reads(self) -> list[str]:
        """Inputs whose values are read, not only their shapes; callers must not change the list."""
        left_out = self.entry.shape_only
        if not left_out:
            node = self.node
            if node.listed is not None and self.inputs is node.inputs:
                return node.listed[0]
            return self.input_vars()
        slots, names = self._value_reads
        if slots is not self.inputs:
            names = _without(left_out, self.inputs)
            self._value_reads = self.inputs, names
        return names

    def overwritten(self) -> list[str]:
        """Variables that it writes while it may still read them.

        A slot that says `inplace`, and `param_out` beside `param`, may hold what it is made of.
        """
        reads = set(self.value_reads())
        if reads.isdisjoint(self.output_vars()):
            return []
        clashing = []
        slots = self.entry.input_slots
        for slot, names in self.outputs.items():
            shared = self.entry.output_slots[slot].inplace or slot.removesuffix("_out")
            for number, name in enumerate(names):
                places = [
                    (other, place)
                    for other, read in self.inputs.items()
                    if not slots[other].shape_only
                    for place, one in enumerate(read)
                    if one == name
                ]
                if name in reads and places != [(shared, number)]:
                    clashing.append(name)
        return clashing

    def __repr__(self) -> str:
        return f"<{self.title()}>"


_UNSIGNED: tuple[SlotNames | None, SlotNames | None, Signature] = (None, None, Signature(None))
_PLAIN = (int, float, str, np.dtype, type(None))
_MOST_SIGNATURES = 1 << 12
_SIGNATURES: dict[Any, Signature] = {}


def _signature_of(op: Operator) -> Signature:
    key: list[Any] = [op.entry, len(op.inputs)]
    for name, value in op.attrs.items():
        if type(value) in (list, tuple):
            if not all([isinstance(one, _PLAIN) for one in value]):
                return _UNSIGNED[-1]
            value = tuple([one or repr(one) for one in value])
        elif not isinstance(value, _PLAIN):
            return _UNSIGNED[-1]
        key += name, value or repr(value)  # 0.0 equals -0.0, and loops may differ in that
    for of in (op.inputs, op.outputs):
        for slot, names in of.items():
            empty = EMPTY in names
            key += slot, tuple([name == EMPTY for name in names]) if empty else len(names)
    if len(_SIGNATURES) >= _MOST_SIGNATURES:
        _SIGNATURES.clear()
    whole = tuple(key)
    known = _SIGNATURES.get(whole)
    if known is None:
        checked = Checked(op.entry, op.attrs, True, {}, {})
        known = _SIGNATURES.setdefault(whole, Signature(checked))
    return known


def _without(left_out: Collection[str], listed: SlotNames) -> list[str]:
    """The variables of all slots but some."""
    return [
        name
        for slot, names in listed.items()
        if slot not in left_out
        for name in names
        if name != EMPTY
    ]


def results_of(
    operators: Iterable[Operator], bases: Mapping[str, str], *, by_value: bool
) -> set[str]:
    """The variables whose last values no operator reads: what a list of operators computes.

    A name that is read and written again has a new value, which nothing may have read. What only a
    gradient would read is no result.

    Args:
        bases: view -> its base, which stands for it. by_value: whether one that looks at a shape
            alone reads nothing: a gradient looks at a cost's shape, and the cost is a result.
    """
    results: set[str] = set()
    for op in operators:
        # Reads come off before writes go on: an operator that updates a variable makes a new result
        # of it.
        results.difference_update(
            roots_of(op.value_reads() if by_value else op.input_vars(), bases)
        )
        results.update(roots_of(op.output_vars(), bases))
        for slot in op.entry.intermediate:
            results.difference_update(roots_of(op.outputs.get(slot, ()), bases))
    return results


def roots_of(names: Sequence[str], bases: Mapping[str, str]) -> Sequence[str]:
    """The variables whose memory some are in."""
    return [bases.get(name, name) for name in names] if bases else names


def check_attrs(entry: OperatorDef, given: Mapping[str, Any], where: object) -> dict[str, Any]:
    """All attributes of an operator, checked and with defaults.

    Args:
        given: as `messages.attr_value` gives them.
        where: what prints as the operator, for errors.

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
            value = given[name]
            allowed = spec.is_free or value is spec.default
            as_it_is = allowed and type(value) is spec.scalar_type
            # `value is spec.default`: a default lies within the bounds by definition.
            attrs[name] = value if as_it_is else spec.check(value, where)
        elif spec.default is REQUIRED:
            raise AttributeTypeError(
                f"{where}: attribute {name!r} ({spec.type}) is missing: {spec.doc}"
            )
        else:
            attrs[name] = spec.default
    return attrs


def expand_op(op: OpNode, *, keep_whole: bool = False) -> list[OpNode]:
    """The plain operators that a composite one expands to, at all depths; a plain one itself.

    Args:
        keep_whole: leave those as they are that nets keep whole (see `OperatorDef`).

    Raises:
        SlotError, AttributeTypeError: a composite operator is wrongly used.
    """
    entry = REGISTERED.get(op.type) or lookup(op.type)
    expand = entry.expand
    if expand is None or (keep_whole and entry.whole):
        return [op]
    Operator(op)  # checks slots and attributes, which errors then name as the caller wrote them
    expanded = []
    for inner in expand(op):
        written = inner.source if inner.source is not None and inner.source.file else op.source
        written, device = written or SourceLocation(), inner.device or op.device
        slots = inner.inputs, inner.outputs
        named = OpNode(inner.type, *slots, inner.attrs, op.role, device, written, inner.checked)
        expanded += expand_op(named, keep_whole=keep_whole)
    return expanded
