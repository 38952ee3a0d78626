"""The arguments of shape rules, and arithmetic of shapes with unknown (-1) dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from ..dtypes import FLOATS
from ..errors import ShapeError, format_shape
from .dims import Dim

Shape = tuple[int, ...]
ArraySpec = tuple[Shape, np.dtype]
"""Shape and dtype of a variable."""
MOST_BYTES = (1 << 63) - 1
"""What dimensions other than 0 may multiply to: NumPy and CuPy count in int64."""
Levels = tuple[np.ndarray, ...]
"""Offsets of the sequences in a variable, outermost level first; () for a plain array."""


class OperatorView(Protocol):
    """The part of an operator that rules and kernels use (see operation.py).

    Attributes:
        type: name of the operator type. entry: its registration.
        inputs, outputs: slot -> variable names; slots without variables are absent.
        attrs: every attribute, defaults filled in.
        accumulate: add to what the output holds (see `OperatorDef.accumulates`).
        role: FORWARD, BACKWARD or OPTIMIZE. device: where it wants to run, "" for anywhere.
    """

    type: str
    entry: Any
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]]
    attrs: dict[str, Any]
    accumulate: bool
    role: int
    device: str

    def input_vars(self) -> list[str]:
        """All input variables."""
        ...

    def output_vars(self) -> list[str]:
        """All output variables that somebody needs."""
        ...

    def title(self) -> str:
        """What the operator is called in messages: `op 3 (affine)`, and where it was written."""
        ...

    def describe(self, why: str, specs: Mapping[str, Any]) -> str:
        """An error message that names the operator and all its operands."""
        ...


class ShapeArgs:
    """The shapes and dtypes of an operator's inputs; a shape rule sets the outputs'.

    Dimensions may be -1 (unknown) while a net is built; at run time all are known. A rule is a
    function of shapes, dtypes and attributes alone, and of offsets where it asks for them.

    Attributes:
        results, result_offsets: of outputs, as the rule has set them.
        reads_offsets: whether it has asked for offsets, or set some.
    """

    def __init__(
        self,
        op: OperatorView,
        specs: Mapping[str, ArraySpec],
        offsets: Mapping[str, Levels] | None = None,
    ) -> None:
        self.op = op
        self.attrs: dict[str, Any] = op.attrs
        self.results: dict[str, ArraySpec] = {}
        self._specs = specs
        self.result_offsets: dict[str, Levels] = {}
        self._offsets = offsets
        self.reads_offsets = False

    def is_whole(self) -> bool:
        """Whether everything is known, as it is at run time: offsets, and all dimensions."""
        if self._offsets is None:
            return False
        return all(-1 not in self._specs[name][0] for name in self.op.input_vars())

    def has(self, slot: str) -> bool:
        """Whether a slot, input or output, holds a variable."""
        return slot in self.op.inputs or slot in self.op.outputs

    def specs(self, slot: str) -> list[ArraySpec]:
        """Shape and dtype of every variable of an input slot."""
        return [self._specs[name] for name in self.op.inputs.get(slot, ())]

    def shapes(self, slot: str) -> list[Shape]:
        return [spec[0] for spec in self.specs(slot)]

    def _spec(self, slot: str) -> ArraySpec:
        names = self.op.inputs.get(slot)
        if not names:
            self.fail(f"input slot {slot!r} is missing, which it needs here")
        return self._specs[names[0]]

    def __getitem__(self, slot: str) -> Shape:
        """Shape of the one variable of an input slot."""
        return self._spec(slot)[0]

    def dtype(self, slot: str) -> np.dtype:
        return self._spec(slot)[1]

    @property
    def inputs_by_name(self) -> Mapping[str, ArraySpec]:
        """Shape and dtype of every variable that is known so far."""
        return self._specs

    @property
    def offsets_by_name(self) -> Mapping[str, Levels] | None:
        """Offsets of the inputs that hold sequences; None while a net is built.

        Who hands them to another rule notes whether that has read them.
        """
        return self._offsets

    def input_spec(self, name: str) -> ArraySpec:
        """Shape and dtype of an input variable by its name."""
        return self._specs[name]

    def input_offsets(self, name: str) -> Levels | None:
        """As `offsets`, of an input variable by its name."""
        self.reads_offsets = True
        return None if self._offsets is None else self._offsets.get(name, ())

    def offsets(self, slot: str) -> Levels | None:
        """Sequence offsets of an input; None while a net is built, () for a plain array."""
        self.reads_offsets = True
        if self._offsets is None:
            return None
        names = self.op.inputs.get(slot)
        if not names:
            self.fail(f"input slot {slot!r} is missing, which it needs here")
        return self._offsets.get(names[0], ())

    def set_offsets(self, slot: str, levels: Levels | None) -> None:
        """Offsets of an output slot's variables.

        Without this an output takes the offsets of the first input that has as many rows.
        """
        if levels is not None:
            self.reads_offsets = True
            self.result_offsets.update((name, levels) for name in self.op.outputs.get(slot, ()))

    def copy_offsets(self, slot: str, source: str) -> None:
        """Each of an output slot's variables gets the offsets of its counterpart in `source`."""
        pairs = zip(self.op.outputs.get(slot, ()), self.op.inputs.get(source, ()), strict=False)
        for name, counterpart in pairs:
            levels = self.input_offsets(counterpart)
            if levels is not None:
                self.result_offsets[name] = levels

    def finish_offsets(self) -> dict[str, Levels]:
        """Offsets of all outputs, inherited ones included."""
        if self._offsets:
            for name, (shape, _) in self.results.items():
                if name not in self.result_offsets and shape:
                    for source in self.op.input_vars():
                        # As many rows is taken for the same rows: what reorders or picks rows sets
                        # its own offsets.
                        if source in self._offsets and self._specs[source][0][:1] == shape[:1]:
                            self.result_offsets[name] = self._offsets[source]
                            break
        return self.result_offsets

    def rank(self, slot: str, *allowed: int) -> Shape:
        """The shape of `slot`, checked to have one of the `allowed` ranks."""
        shape = self[slot]
        if len(shape) not in allowed:
            wanted = " or ".join(str(rank) for rank in allowed)
            self.fail(f"{slot} wants {wanted} dimensions and has {len(shape)}")
        return shape

    def floats(self, *slots: str) -> np.dtype:
        """The one floating dtype that all the given slots share."""
        dtypes = {dtype for slot in slots for _, dtype in self.specs(slot)}
        if len(dtypes) != 1 or next(iter(dtypes)) not in FLOATS:
            given = ", ".join(f"{s}: {'/'.join(str(m[1]) for m in self.specs(s))}" for s in slots)
            self.fail(f"wants one floating dtype for all of these, has {given}")
        return dtypes.pop()

    def float_dtype(self, wanted: str) -> np.dtype:
        """The attribute `dtype`, checked to be a floating one; `wanted` begins the error."""
        dtype = self.attrs["dtype"]
        if dtype not in FLOATS:
            self.fail(f"{wanted}, not {dtype}")
        return dtype

    def integers(self, slot: str) -> np.dtype:
        """The dtype of `slot`, checked to be an integer."""
        dtype = self.dtype(slot)
        if dtype.kind not in "iu":
            self.fail(f"{slot} wants an integer dtype and has {dtype}")
        return dtype

    def same(self, what: str, *dims: int) -> int:
        """The one value of dimensions that must agree, unknown ones aside."""
        known = [dim for dim in dims if dim >= 0]
        if any([dim != known[0] for dim in known[1:]]):
            self.fail(f"{what} must agree and are {', '.join(str(dim) for dim in dims)}")
        return known[0] if known else -1

    def same_shape(self, what: str, *shapes: Shape) -> Shape:
        """The one shape of several that must agree, unknown dimensions aside."""
        if len({len(shape) for shape in shapes}) > 1:
            self.fail(f"{what} must have one shape: {', '.join(map(format_shape, shapes))}")
        try:
            return tuple(self.same(what, *dims) for dims in zip(*shapes, strict=True))
        except ShapeError:
            self.fail(f"{what} must have one shape: {', '.join(map(format_shape, shapes))}")

    def broadcast(self, *shapes: Shape) -> Shape:
        """NumPy's broadcasting, with unknown dimensions."""
        rank = max((len(shape) for shape in shapes), default=0)
        padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
        out = []
        for dims in zip(*padded, strict=True):
            # An unknown dimension may turn out to be 1 or the known one: either way the known one
            # results.
            known = [dim for dim in dims if dim not in (1, -1)]
            if any([dim != known[0] for dim in known[1:]]):
                shown = " and ".join(format_shape(shape) for shape in shapes)
                self.fail(f"the shapes {shown} do not broadcast together")
            # 1 against unknown stays unknown: the unknown one decides.
            out.append(known[0] if known else (-1 if -1 in dims else 1))
        return tuple(out)

    def axis(self, axis: int, rank: int, what: str = "axis") -> int:
        """`axis` counted from the front.

        Raises:
            ShapeError: it is not below `rank`.
        """
        if not -rank <= axis < rank:
            self.fail(f"{what} {axis} is out of range for {rank} dimensions")
        return axis % rank

    def set(self, slot: str, *specs: ArraySpec | tuple[Sequence[int], Any]) -> None:
        """Shape and dtype of an output slot's variables; slots left out of the net are ignored."""
        names = self.op.outputs.get(slot)
        if not names:
            return
        if len(names) != len(specs):
            self.fail(f"output slot {slot!r} wants {len(specs)} variables and has {len(names)}")
        for name, (shape, dtype) in zip(names, specs, strict=True):
            sizes = [dim if isinstance(dim, Dim) else int(dim) for dim in shape]
            self.results[name] = (tuple(sizes), np.dtype(dtype))

    def fail(self, why: str) -> NoReturn:
        """Refuse the inputs; the message gets operator, slots, shapes and place in the source."""
        raise ShapeError(self.op.describe(why, self._specs))


ShapeRule = Callable[[ShapeArgs], None]


def format_spec(spec: ArraySpec) -> str:
    """`float32[?, 784]`: dtype and shape."""
    return f"{spec[1]}{format_shape(spec[0])}"


def layout_hint(given: Shape, wanted: Shape | None) -> str:
    """How images that do not fit become ones that do, where only their channels are elsewhere."""
    rank = len(given)
    if wanted is None or rank != len(wanted) or not 3 <= rank <= 5:
        return ""
    last = rank - 1
    spatial = "DHW"[5 - rank :]
    ours, theirs = f"[N, C, {', '.join(spatial)}]", f"[N, {', '.join(spatial)}, C]"
    first = (0, last, *range(1, last))
    other = (0, *range(2, rank), 1)
    for order, there, here in ((first, theirs, ours), (other, ours, theirs)):
        if fits(tuple(given[axis] for axis in order), wanted):
            return f"; it looks like {there}, and {here} is wanted: np.transpose(x, {order})"
    return ""


def fits(shape: Shape, pattern: Shape) -> bool:
    """Whether two shapes agree, unknown dimensions aside."""
    return shape == pattern or (
        len(shape) == len(pattern)
        and all(a == b or a < 0 or b < 0 for a, b in zip(shape, pattern, strict=True))
    )


def nbytes_of(spec: ArraySpec) -> int:
    """The bytes of an array whose dimensions are all known."""
    return math.prod(spec[0]) * spec[1].itemsize


def count(shape: Sequence[int]) -> int:
    """Number of elements; -1 where a dimension is unknown."""
    total = 1
    for dim in shape:
        if dim < 0:
            return -1
        total *= dim
    return total


def same_as(slot: str, *outputs: str) -> ShapeRule:
    """Rule: every output (or those named) has the shape and dtype of the input `slot`."""

    def rule(s: ShapeArgs) -> None:
        spec = (s[slot], s.dtype(slot))
        for out in outputs or s.op.outputs:
            s.set(out, spec)

    return rule
