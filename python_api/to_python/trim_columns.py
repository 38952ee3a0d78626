"""A pass for nets from CNTK: column vectors [d x 1] lose the one, idle `reshape`s go.

NDL's biases are such columns, and what they are added to then carries the one from operator to
operator, between pairs of `reshape`. Elements stay the same, in the same order.
"""

from __future__ import annotations

from ...framework.ir.desc import (
    INPUT,
    OUTPUT,
    PARAMETER,
    STATE,
    OpList,
    make_op,
)
from ...framework.ir.names import inner_name
from ...framework.ir.op_list import OpNode
from ...framework.runtime.plain_net import PlainNet

_ELEMENTWISE = frozenset(
    {"abs", "add", "div", "exp", "mul", "neg", "relu", "scale", "sigmoid", "square", "sub", "tanh"}
)


def trim_columns(desc: OpList) -> OpList:
    """The net without the ones of column vectors; results that are columns also lose it."""
    whole: set[str] = set()
    while True:
        trim = _Trim(desc, whole)
        if not trim.needed_whole:
            return trim.net
        whole |= trim.needed_whole


class _Trim:
    """One attempt: trims all parameters and memories that are columns, except those in `whole`.

    Afterwards `needed_whole` names those that the next attempt must not trim either."""

    def __init__(self, desc: OpList, whole: set[str]) -> None:
        self.needed_whole: set[str] = set()
        self.net = desc.copy()
        self._blocked = whole
        self._shapes = _shapes(desc)
        self._kept = {var.name for var in desc.vars if var.kind == OUTPUT}
        self._columns: set[str] = set()  # parameters [1, d] that are [d] now
        self._short: dict[str, str] = {}  # [rows, 1, d] -> the variable [rows, d] of its elements
        self._same: dict[str, str] = {}  # a variable that is gone -> what stands for it
        self._ops: list[OpNode] = []
        for number, var in enumerate(self.net.vars):
            shape = var.shape or ()
            if var.kind in (PARAMETER, STATE) and len(shape) == 2 and shape[0] == 1:
                if var.name not in whole:
                    self._columns.add(var.name)
                    self.net.vars[number] = var.changed(shape=shape[1:])
        for op in desc.ops:
            self._take(op)
        self.net.ops = self._ops

    def _take(self, op: OpNode) -> None:
        if op.type == "recurrent":
            self._take_loop(op)
            return
        reads = op.input_names()
        out = next(iter(op.output_names()), "")
        column = self._is_column(out)
        if op.type == "reshape":
            if self._drop_reshape(reads[0], out, op.attrs["shape"]):
                return
        elif op.type in _ELEMENTWISE and column and any(name in self._short for name in reads):
            if all(name in self._short or self._is_row(name) for name in reads):
                self._append(op, {name: self._short.get(name, name) for name in reads})
                self._short[out] = out
                return
        self.needed_whole |= self._columns & set(reads)
        self._append(op, {name: self._now(name) for name in reads})

    def _take_loop(self, op: OpNode) -> None:
        """A loop: what is a column outside is one inside, and the other way round."""
        net = op.attrs["net"].copy()
        outside = self._ops
        step = net.steps[0]
        short, same = self._short, self._same
        inner_short, inner_same = dict(short), dict(same)
        for link in step.in_links:
            trimmed = link.outer in short
            link.outer = short.get(link.outer) or self._now(link.outer)
            inner_same.pop(link.inner, None)
            inner_short.pop(link.inner, None)
            if trimmed:
                inner_short[link.inner] = link.inner
        for link in step.static_links:
            link.outer = self._now(link.outer)
        trimmed_memories = set()
        for memory in step.memories:
            if memory.boot:
                memory.boot = self._now(memory.boot)
            elif self._is_column(memory.previous) and memory.previous not in self._blocked:
                inner_short[memory.previous] = memory.previous
                trimmed_memories.add(memory.previous)
        self._ops = []
        self._short = inner_short
        self._same = inner_same
        for each in step.net.ops:
            self._take(each)
        for memory in step.memories:
            state = memory.state
            if memory.previous in trimmed_memories and state not in self._short:
                self.needed_whole.add(memory.previous)
            trim = memory.previous in trimmed_memories
            memory.state = self._short.get(state, state) if trim else self._now(state)
        results = {}
        for link in (*step.out_links, *step.sum_links):
            if link.inner in self._short:
                link.inner = self._short[link.inner]
                results[link.outer] = link.outer
            else:
                link.inner = self._now(link.inner)
        step.net.ops = self._ops
        for number, var in enumerate(step.net.vars):
            if var.name in trimmed_memories and var.shape is not None:
                step.net.vars[number] = var.changed(shape=(var.shape[0], *var.shape[2:]))
        self._ops = outside
        self._short = {**short, **results}
        self._same = same
        links = {
            "x": [link.outer for link in step.in_links],
            "static": [link.outer for link in step.static_links],
            "boot": [memory.boot for memory in step.memories if memory.boot],
        }
        inputs = {slot: tuple(links[slot]) for slot in op.inputs}
        self._ops.append(op.changed(inputs=inputs, attrs={**op.attrs, "net": net}))

    def _append(self, op: OpNode, reads: dict[str, str]) -> None:
        """Append an operator that reads other variables than before."""
        self._ops.append(op.changed(inputs=op.renamed(reads).inputs))

    def _dims(self, name: str) -> tuple[int, ...]:
        """The shape of a variable; () where it is unknown."""
        return self._shapes.get(name) or ()

    def _is_column(self, name: str) -> bool:
        shape = self._dims(name)
        return len(shape) == 3 and shape[:2] == (-1, 1)

    def _width(self, name: str) -> int:
        """The last dimension of a column."""
        shape = self._shapes.get(name)
        return shape[-1] if shape else 0

    def _is_row(self, name: str) -> bool:
        """Whether a value broadcasts with rows [rows, d] as it does with [rows, 1, d]."""
        shape = self._shapes.get(name)
        return name in self._columns or (shape is not None and len(shape) < 2 and -1 not in shape)

    def _drop_reshape(self, x: str, out: str, wanted: tuple[int, ...]) -> bool:
        """Do without a reshape, if it only puts a one in or takes it out, or does nothing."""
        shape = self._dims(x)
        short = self._short.get(x)
        column = False
        source = self._same.get(x, x)
        if self._is_column(out) and wanted[:2] == (0, 1) and shape == (-1, self._width(out)):
            column = True
        elif short is not None and wanted == (0, self._width(x)):
            source = short
        elif short is not None and self._shapes[out] == shape:
            column = True
            source = short
        elif x in self._columns and wanted == shape[-1:] and out not in self._kept:
            source = x
        elif short is not None or wanted[:1] != (0,) or self._shapes[out] != shape:
            return False
        if out in self._kept:  # the result's name goes to the operator that makes it
            is_written = any(source in op.output_names() for op in self._ops)
            if source in self._kept or not is_written:
                return False
            self._rename(source, out)
            source = out
        (self._short if column else self._same)[out] = source
        return True

    def _rename(self, name: str, out: str) -> None:
        for number, op in enumerate(self._ops):
            self._ops[number] = op.renamed({name: out})
        self._same = {key: out if held == name else held for key, held in self._same.items()}
        self._same[name] = out
        self._short = {key: out if held == name else held for key, held in self._short.items()}

    def _now(self, name: str) -> str:
        """The variable to read for an operator that depends on a variable's dimensions."""
        if name in self._same:
            return self._same[name]
        short = self._short.get(name)
        if short is None:
            return name
        whole = inner_name(name, "0")
        if not any(whole in op.output_names() for op in self._ops):
            shape = (0, 1, self._width(name))
            self._ops.append(make_op("reshape", {"x": short}, {"out": whole}, {"shape": shape}))
        return whole


def _shapes(desc: OpList) -> dict[str, tuple[int, ...] | None]:
    """The shapes of all variables, as far as they are known; also of those inside loops, whose
    names are no others' in nets from CNTK."""
    net = PlainNet(OpList(desc.name))
    inside = {}
    for var in desc.vars:
        if var.kind in (INPUT, PARAMETER, STATE):
            net.add_var(var)
    for op in desc.ops:
        net.add_op(op)
        if op.type == "recurrent":
            step = op.attrs["net"].steps[0]
            inner = step.net.copy()
            known = {var.name for var in inner.vars}
            for link in (*step.in_links, *step.static_links):
                if link.inner not in known:
                    outer = net.vars[link.outer]
                    inner.vars.append(outer.changed(name=link.inner, kind=INPUT))
            inside |= _shapes(inner)
    return inside | {name: var.shape for name, var in net.vars.items()}


__all__ = ["trim_columns"]
