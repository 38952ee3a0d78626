"""Nets in memory: typed objects that passes, plans, builders and lowerings work on.

An `OpList` is a net: operators (`OpNode`) over declared variables (`VarDecl`). The objects say what
the messages of net.proto say, field by field; `messages.py` converts between the two. An OpNode or
VarDecl does not change once it is in a net, so nets share them; a pass that wants another one makes
it with `renamed` or `changed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..base.dtypes import to_dtype
from .names import EMPTY

SlotNames = dict[str, tuple[str, ...]]
"""The variables of each slot, by the slot's name; `@EMPTY@` where there is none."""


def real_names(slots: SlotNames) -> list[str]:
    """The variables in some slots, slot by slot: all names but `@EMPTY@`."""
    return [name for names in slots.values() for name in names if name != EMPTY]


class SourceLocation(NamedTuple):
    """Where a thing was written. Lines and columns count from 1; 0 means unknown."""

    file: str = ""
    line: int = 0
    column: int = 0


class RepeatedSlots(SlotNames):
    """Slots of a file in which a name comes twice, which the verifier refuses.

    Attributes:
        listed: every slot in the order of the file; the mapping itself holds the last of a name.
    """

    def __init__(self, listed: list[tuple[str, tuple[str, ...]]]) -> None:
        super().__init__(listed)
        self.listed = listed


class Checked(NamedTuple):
    """The result of checking an OpNode against its registration; equal nodes may share one.

    Attributes:
        entry: the `OperatorDef` of the type when it was checked; a node is checked again when the
            type has another one.
        attrs: every attribute, defaults filled in.
        is_whole: the slots are the node's, and the two that follow are empty.
        inputs, outputs: slots without the empty ones and without unneeded single outputs.
    """

    entry: object
    attrs: dict[str, Any]
    is_whole: bool
    inputs: SlotNames
    outputs: SlotNames


@dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """What operators share that are alike except for names.

    Attributes:
        checked: what checking such an operator finds; None of those that are like no other.
    """

    checked: Checked | None


@dataclass(slots=True, eq=False)
class OpNode:
    """An operator of a net, as it was written.

    Attributes:
        type: of the operator, a name in the registry.
        inputs, outputs: variable names by slot.
        attrs: the attributes that were given, as plain values (see `messages.attr_value`).
        role: FORWARD, BACKWARD or OPTIMIZE.
        device: "" = the place of the scope, else "cpu" or "gpu:N"; or "stage:N", the stage of a
            pipeline (see passes/ranks/stages.py).
        source: where it was written; None where it is not known.
        checked: what an earlier check of this node found; `Operator` fills and uses it.
        alike: the signature of the operator, see `Operator.signature`, which fills and uses it.
        listed: the names of each mapping of slots, where somebody asked.
    """

    type: str
    inputs: SlotNames
    outputs: SlotNames
    attrs: dict[str, Any] = field(default_factory=dict)
    role: int = 0
    device: str = ""
    source: SourceLocation | None = None
    checked: Checked | None = None
    alike: Signature | None = None
    listed: tuple[list[str], list[str]] | None = None

    def input_names(self) -> list[str]:
        """Every variable that it reads, slot by slot; `@EMPTY@` is none. Callers must not change
        the list."""
        return self._lists()[0]

    def output_names(self) -> list[str]:
        """Every variable that it writes, slot by slot; `@EMPTY@` is none. Callers must not change
        the list."""
        return self._lists()[1]

    def _lists(self) -> tuple[list[str], list[str]]:
        # Passes, plans and runs ask several times, of operators that nets share.
        if self.listed is None:
            self.listed = real_names(self.inputs), real_names(self.outputs)
        return self.listed

    def inner_nets(self) -> Iterator[tuple[str, OpList]]:
        """Attributes that are nets, by name."""
        for name in sorted(self.attrs):
            if isinstance(self.attrs[name], OpList):
                yield name, self.attrs[name]

    def renamed(self, names: Mapping[str, str]) -> OpNode:
        """The node with other variables; itself where it mentions none of `names`."""
        inputs, outputs = _renamed(self.inputs, names), _renamed(self.outputs, names)
        if inputs is self.inputs and outputs is self.outputs:
            return self
        checked = self.checked  # names are no matter of it where all slots hold something
        if checked is not None and not checked.is_whole:
            checked = None
        return OpNode(
            self.type, inputs, outputs, self.attrs, self.role, self.device, self.source, checked
        )

    def changed(self, **fields: Any) -> OpNode:
        """The node with other fields."""
        # Without `checked`: other attributes or slots must be checked again.
        new = OpNode(
            self.type, self.inputs, self.outputs, self.attrs, self.role, self.device, self.source
        )
        if fields.keys() <= _UNCHECKED:
            new.checked = self.checked
        for name, value in fields.items():
            setattr(new, name, value)
        return new


_UNCHECKED = frozenset({"role", "device", "source"})
"""Fields of an OpNode that a registration has nothing to do with."""


def _renamed(slots: SlotNames, names: Mapping[str, str]) -> SlotNames:
    """The same object where nothing changes."""
    # Most nodes mention none of the names: they are found to be so without making a new mapping.
    for given in slots.values():
        for name in given:
            if name in names:
                return {
                    slot: tuple([names.get(one, one) for one in variables])
                    for slot, variables in slots.items()
                }
    return slots


class View(NamedTuple):
    """A rectangle of another variable: rows and columns from begin to end; -1 is the last."""

    base: str
    row_begin: int = 0
    row_end: int = 0
    col_begin: int = 0
    col_end: int = 0

    def is_apart(self, other: View) -> bool:
        """Whether no element is in both rectangles, of one base, whatever its size."""
        rows = (self.row_begin, self.row_end), (other.row_begin, other.row_end)
        columns = (self.col_begin, self.col_end), (other.col_begin, other.col_end)
        return _are_apart(*rows) or _are_apart(*columns)


def _are_apart(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two ranges share no number; an end of -1 is the last of the base."""
    return 0 <= a[1] <= b[0] or 0 <= b[1] <= a[0]


class VarDecl:
    """The declaration of a variable of a net.

    Attributes:
        name: unique in the net.
        shape: -1 for an unknown dimension; None where even the rank is unknown.
        dtype: None where it is unknown. Reading it raises ShapeError where `unknown_dtype` is set.
        unknown_dtype: the number that a file gives for a dtype that we do not know; else 0.
        kind: TEMPORARY, INPUT, PARAMETER, STATE or OUTPUT.
        initializer: an operator with one output that fills the variable; None without one.
        lr_factor: multiplies the learning rate of a parameter; None is 1.
        stop_gradient: no gradient flows into or through the variable.
        view: the rectangle that it is of another variable; None where it is none.
        sequence_levels: levels of offsets that it carries; 0 is a plain array.
        source: where it was written; None where it is not known.
    """

    dtype: np.dtype | None

    __slots__ = (
        "dtype",
        "initializer",
        "kind",
        "lr_factor",
        "name",
        "sequence_levels",
        "shape",
        "source",
        "stop_gradient",
        "unknown_dtype",
        "view",
    )

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...] | None = None,
        dtype: np.dtype | int | None = None,
        kind: int = 0,
        initializer: OpNode | None = None,
        lr_factor: float | None = None,
        stop_gradient: bool = False,
        view: View | None = None,
        sequence_levels: int = 0,
        source: SourceLocation | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.unknown_dtype = 0
        if isinstance(dtype, int):
            self.unknown_dtype = dtype  # and `dtype` stays unset: see `__getattr__`
        else:
            self.dtype = dtype
        self.kind = kind
        self.initializer = initializer
        self.lr_factor = lr_factor
        self.stop_gradient = stop_gradient
        self.view = view
        self.sequence_levels = sequence_levels
        self.source = source

    def __getattr__(self, name: str) -> Any:
        """Only `dtype` can be unset: where a file gives a number that is no dtype.

        Raises:
            ShapeError: it is read.
        """
        if name == "dtype":
            return to_dtype(self.unknown_dtype)
        raise AttributeError(f"a VarDecl has no attribute {name!r}")

    def changed(self, **fields: Any) -> VarDecl:
        """The declaration with other fields."""
        copy = VarDecl(
            self.name,
            self.shape,
            self.unknown_dtype or self.dtype,
            self.kind,
            self.initializer,
            self.lr_factor,
            self.stop_gradient,
            self.view,
            self.sequence_levels,
            self.source,
        )
        for name, value in fields.items():
            setattr(copy, name, value)
        # Setting the one clears the other: `dtype` is read only where `unknown_dtype` is 0.
        if "dtype" in fields:
            copy.unknown_dtype = 0
        return copy

    def __repr__(self) -> str:
        return f"<VarDecl {self.name!r} {self.unknown_dtype or self.dtype} {self.shape}>"


@dataclass(slots=True)
class Link:
    """One variable seen from both sides: outside, and in each step."""

    outer: str
    inner: str


@dataclass(slots=True)
class MemoryDecl:
    """A state that a step hands to a later step, or a node to its parent; see net.proto."""

    state: str
    previous: str
    boot: str = ""
    boot_value: float = 0.0
    delay: int = 0
    final: str = ""
    child: int = 0


@dataclass(slots=True, eq=False)
class StepDecl:
    """How a RECURRENT or RECURSIVE net runs its inner net; net.proto has the same fields."""

    net: OpList = field(default_factory=lambda: OpList())
    in_links: list[Link] = field(default_factory=list)
    out_links: list[Link] = field(default_factory=list)
    static_links: list[Link] = field(default_factory=list)
    memories: list[MemoryDecl] = field(default_factory=list)
    reverse: bool = False
    arity: int = 0
    sum_links: list[Link] = field(default_factory=list)
    parents: str = ""
    positions: str = ""
    child_net: OpList | None = None
    child_links: list[Link] = field(default_factory=list)

    def copy(self) -> StepDecl:
        """Another one with lists of its own."""
        return StepDecl(
            self.net.copy(),
            [replace(link) for link in self.in_links],
            [replace(link) for link in self.out_links],
            [replace(link) for link in self.static_links],
            [replace(memory) for memory in self.memories],
            self.reverse,
            self.arity,
            [replace(link) for link in self.sum_links],
            self.parents,
            self.positions,
            None if self.child_net is None else self.child_net.copy(),
            [replace(link) for link in self.child_links],
        )


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpList:
    """A net: an ordered list of operators over named variables.

    Attributes:
        name: free.
        type: PLAIN, RECURRENT or RECURSIVE.
        vars, ops: the declared variables, and the operators in the order in which they run.
        steps: the inner nets of a RECURRENT or RECURSIVE net.
        metadata: free: who wrote it, label names, units.
        format_version: of the file that it was read from; 0 where it was not.
    """

    name: str = ""
    type: int = 0
    vars: list[VarDecl] = field(default_factory=list)
    ops: list[OpNode] = field(default_factory=list)
    steps: list[StepDecl] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    format_version: int = 0

    def copy(self) -> OpList:
        """Another net with lists of its own over the same operators and variables."""
        return OpList(
            self.name,
            self.type,
            list(self.vars),
            list(self.ops),
            [step.copy() for step in self.steps],
            dict(self.metadata),
            self.format_version,
        )
