"""NetBuilder code that builds a given net: its operators as expressions, loops as `with` blocks.

A value that one operator alone reads, and that has no name of its own, stands where it is read;
others become variables. A product with a parameter, a bias and an activation become one `b.fc`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.dtypes import is_float
from ...framework.ir.desc import INPUT, PARAMETER, STATE, make_op
from ...framework.ir.names import COPY_OP
from ...framework.ir.op_list import OpList, OpNode
from ...framework.ir.operation import Operator
from ...framework.ir.registry import REQUIRED, OperatorDef, lookup
from ...framework.passes.rewriter import Pattern, Rewriter
from ..builder import NetBuilder
from ..builder.methods import BUILDER_METHODS
from .python_text import (
    INDENT,
    Expr,
    Group,
    Infix,
    Names,
    Text,
    call,
    flat,
    literal,
    prose,
    string,
    wrapped,
)

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@"}
_ACTIVATIONS = frozenset({"relu", "sigmoid", "tanh"})
_WITH_WEIGHTS = frozenset({"embedding", "fc", "conv1d", "conv2d", "conv3d", "sequence_conv"})
_INLINE = 48  # columns that an expression inside another may have
_RESERVED = ("b", "np", "step", "l", "I", "O", "lookup", "build", "load", "load_file")


@dataclass(frozen=True)
class Style:
    """Choices for the code that the net itself does not determine.

    Attributes:
        stem: of a variable's name -> what its Python name is made from, and whether it was given by
            a person, so that it should be kept.
        init: of a parameter or state -> the arguments that `b.parameter` or `b.state` takes after
            the shape.
        levels: of sequences that inputs hold.
        notes: variable -> a comment above its declaration.
    """

    stem: Callable[[str], tuple[str, bool]] = lambda name: (name, True)
    init: Callable[[str], Mapping[str, Any]] = lambda name: {}
    levels: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


class Writer:
    """Writes the lines of a function that builds a net.

    Args:
        desc: forward operators.
        keep: variables that keep their names in the net that is built.
        style: see there.
    """

    def __init__(self, desc: OpList, keep: Iterable[str], style: Style | None = None) -> None:
        self.desc = desc
        self.keep = frozenset(keep)
        self.style = style or Style()
        self.lines: list[str] = []
        self.functions: set[str] = set()  # names that have to be imported
        kinds = {var.dtype for var in desc.vars if var.kind == PARAMETER}
        self._single = np.dtype(np.float64) not in kinds
        self._vars = {var.name: var for var in desc.vars}
        self._names = Names((*_RESERVED, "NetBuilder", "Scope"))
        self._python: dict[str, str] = {}
        self._pending: dict[str, Expr] = {}

    def write(self, indent: str = INDENT) -> list[str]:
        """All statements after the one that makes the builder `b`."""
        first = {name: -k for k, name in enumerate(reversed(list(_reads(self.desc.ops))))}
        for kinds in ((INPUT,), (PARAMETER, STATE)):
            declared = [var for var in self.desc.vars if var.kind in kinds]
            for var in sorted(declared, key=lambda var: first.get(var.name, 0)):
                self._declare(var, indent)
            if declared:
                self.lines.append("")
        self._block(self.desc.ops, indent)
        return self.lines

    # -- variables -----------------------------------------------------------------------------

    def _declare(self, var: Any, indent: str) -> None:
        note = self.style.notes.get(var.name)
        if note:
            self.lines.append(f"{indent}# {prose(note)}")
        dtype, kind = var.dtype, var.kind
        own = {}
        if kind == INPUT:
            if dtype is not None and not is_float(dtype):
                own["dtype"] = dtype
            if self.style.levels.get(var.name):
                own["levels"] = self.style.levels[var.name]
        else:
            own = dict(self.style.init(var.name))
            if kind == PARAMETER and var.stop_gradient:
                own["trainable"] = False
            if kind == PARAMETER and var.lr_factor is not None and var.lr_factor != 1:
                own["lr_factor"] = var.lr_factor
        function = {INPUT: "input", PARAMETER: "parameter"}.get(kind, "state")
        items = [string(var.name), literal(list(var.shape or ()))]
        first = own.pop("init", None)
        if first is not None:
            items.append(self._literal(first))
        named = {key: self._literal(value) for key, value in own.items()}
        self._assign(self._name(var.name), call(f"b.{function}", *items, **named), indent)

    def _literal(self, value: Any) -> Expr:
        expr = literal(value, self._single)
        if flat(expr).startswith("np."):
            self.functions.add("np")
        return expr

    def _name(self, var: str, suffix: str = "") -> str:
        """The Python name of a variable."""
        if var not in self._python:
            self._python[var] = self._names.new(self.style.stem(var)[0] + suffix)
        return self._python[var]

    def _read(self, var: str) -> Expr:
        """The expression that reads a variable."""
        pending = self._pending.pop(var, None)
        return pending if pending is not None else Text(self._name(var))

    def _assign(self, target: str, expr: Expr, indent: str) -> None:
        self.lines += wrapped(f"{target} = " if target else "", expr, indent)

    # -- operators -----------------------------------------------------------------------------

    def _block(self, ops: Sequence[OpNode], indent: str, read: Counter[str] | None = None) -> None:
        """Write operators; `read` counts further uses of their variables."""
        uses: Counter[str] = Counter(read or ())
        ops = Rewriter(ops).walk(*self._layers(self.keep.union(uses)))
        for op in ops:
            for name in op.input_names():
                uses[name] += 2 if op.type == "recurrent" else 1
        uses.update(name for name in self.keep)
        for op in ops:
            if op.type == "recurrent":
                self._recurrent(op, indent)
                continue
            outputs = op.outputs
            entry = lookup(op.type)
            written = [name for slot in entry.outputs for name in outputs.get(slot.name, ())]
            writes = {
                slot: names[0]
                for slot, names in outputs.items()
                if self._vars.get(names[0]) is not None
                and self._vars[names[0]].kind in (PARAMETER, STATE)
            }
            kept = written[0] if read is None and written[0] in self.keep and not writes else ""
            expr = self._expr(entry, op, kept, writes)
            shown = [
                name if uses[name] else "_"
                for slot in entry.outputs
                if not slot.intermediate and slot.name not in writes
                for name in outputs.get(slot.name, ("_",))
            ]
            alone = len(shown) == 1 and uses[shown[0]] == 1 and not kept and not writes
            if alone and op.type != "fc" and self._can_inline(shown[0], expr):
                self._pending[shown[0]] = expr
                continue
            if len(shown) == 1 and kept and uses[kept] == 1:  # a result that nothing reads
                shown = []
            targets = [name if name == "_" else self._name_of_result(name, op) for name in shown]
            self._assign(", ".join(targets), expr, indent)

    def _name_of_result(self, name: str, op: OpNode) -> str:
        _, given = self.style.stem(name)
        return self._name(name, "" if given else f"_{op.type.rpartition('.')[2]}")

    def _can_inline(self, name: str, expr: Expr) -> bool:
        _, given = self.style.stem(name)
        return not given and len(flat(expr)) <= _INLINE

    def _layers(self, fixed: frozenset[str]) -> tuple[Pattern, Pattern]:
        """Patterns that make fully connected layers of operators; `fixed` variables stay."""

        def linear(op: Operator, walk: Rewriter) -> list[OpNode] | None:
            reads = op.input_vars() if op.type == "add" else []
            for name, bias in zip(reads, reversed(reads), strict=True):
                product = walk.writer(name)
                if product is None or walk.uses[name] > 1 or name in fixed:
                    continue
                if self._is_product(product) and self._is(bias, 1):
                    x, w = product.input_names()
                    if self._width(w) == self._width(bias):
                        walk.erase(name)
                        return [make_op("fc", {"x": x, "w": w, "b": bias}, op.outputs)]
            return None

        def activated(op: Operator, walk: Rewriter) -> list[OpNode] | None:
            name = op.input_vars()[0] if op.type in _ACTIVATIONS else ""
            layer = walk.writer(name)
            if layer is None or layer.type != "fc" or walk.uses[name] > 1 or name in fixed:
                return None
            if layer.attrs:
                return None
            walk.erase(name)
            return [layer.changed(outputs=op.outputs, attrs={"activation": op.type})]

        return linear, activated

    def _is_product(self, op: OpNode) -> bool:
        """Whether an operator multiplies something by a parameter, a matrix."""
        if op.type != "matmul" or any(_given(lookup(op.type), op)):
            return False
        return self._is(op.input_names()[1], 2)

    def _is(self, name: str, rank: int) -> bool:
        var = self._vars.get(name)
        return var is not None and var.kind == PARAMETER and len(var.shape or ()) == rank

    def _width(self, name: str) -> int:
        """The last dimension of a parameter."""
        return (self._vars[name].shape or (0,))[-1]

    def _expr(self, entry: OperatorDef, op: OpNode, name: str, writes: Mapping[str, str]) -> Expr:
        reads = op.inputs
        attrs = {key: self._literal(value) for key, value in _given(entry, op)}
        items: dict[str, Expr] = {}
        for slot in entry.inputs:
            operands = [self._read(var) for var in reads.get(slot.name, ())]
            if slot.duplicable and operands and (op.type != "fc" or len(operands) > 1):
                items[slot.name] = Group("[", tuple(("", item) for item in operands), "]")
            elif operands:
                items[slot.name] = operands[0]
        if writes:
            return self._append(entry, items, attrs, writes)
        if op.type == "scale" and not name:
            scaled = _scaled(entry, op, items["x"], self._single)
            if scaled is not None:
                return scaled
        if name:
            attrs["name"] = string(name)
        expr = self._call(entry, items, attrs)
        if op.type in _INFIX and not attrs:
            left, right = items.values()
            return Infix(left, _INFIX[op.type], right, expr)
        return expr

    def _call(self, entry: OperatorDef, items: dict[str, Expr], attrs: dict[str, Expr]) -> Group:
        """`b.relu(x)`, or `b.add_op("cntk.log", x)` where NetBuilder has no method of the name."""
        first = []
        rest = dict(items)
        weights = entry.type in _WITH_WEIGHTS
        for slot in entry.inputs:
            if slot.name not in rest or (weights and first):
                break
            first.append(rest.pop(slot.name))
        if entry.type.isidentifier() and (weights or not _is_taken(entry.type)):
            return call(f"b.{entry.type}", *first, **rest, **attrs)
        return call("b.add_op", string(entry.type), *first, **rest, **attrs)

    def _append(
        self,
        entry: OperatorDef,
        items: Mapping[str, Expr],
        attrs: Mapping[str, Expr],
        writes: Mapping[str, str],
    ) -> Expr:
        """An operator that also writes variables that are there already."""
        self.functions.add("lookup")
        inputs = tuple(("", items.get(slot.name, Text("None"))) for slot in entry.inputs)
        given = Group("{", tuple((f'"{key}": ', value) for key, value in attrs.items()), "}")
        outputs = {slot: string(name) for slot, name in writes.items()}
        held = Group("{", tuple((f'"{key}": ', value) for key, value in outputs.items()), "}")
        operator = call("lookup", string(entry.type))
        return call("b.append", operator, Group("(", inputs), given, outputs=held)

    # -- loops ---------------------------------------------------------------------------------

    def _recurrent(self, op: OpNode, indent: str) -> None:
        desc = op.attrs["net"]
        step = desc.steps[0]
        inner = indent + INDENT
        options = {"reverse": Text("True")} if step.reverse else {}
        opened = flat(call("b.recurrent", string(desc.name), **options))
        if self.lines and self.lines[-1] and not self.lines[-1].endswith(":"):
            self.lines.append("")
        self.lines.append(f"{indent}with {opened} as step:")
        outside = self._python
        self._python = dict(outside)
        for link in step.static_links:
            self._python[link.inner] = self._name(link.outer)
        for link in step.in_links:
            outer = outside.get(link.outer) or self._name(link.outer)
            self._python[link.inner] = self._names.new(f"{outer}_t")
            self._assign(self._python[link.inner], call("step.input", Text(outer)), inner)
        shapes = {var.name: var.shape for var in step.net.vars}
        for memory in step.memories:
            shape = (shapes.get(memory.previous) or ())[1:]
            first = shape[0] if len(shape) == 1 else list(shape)
            own: dict[str, Any] = {}
            if memory.boot:
                own["boot"] = Text(outside[memory.boot])
            elif memory.boot_value:
                own["value"] = self._literal(memory.boot_value)
            if memory.delay > 1:
                own["delay"] = literal(memory.delay)
            expr = call("step.memory", literal(first), **own)
            if not self.style.stem(memory.previous)[1]:
                name = f"{self.style.stem(memory.state)[0]}_before"
                self._python[memory.previous] = self._names.new(name)
            self._assign(self._name(memory.previous), expr, inner)
        read = Counter({memory.state: 2 for memory in step.memories})
        read.update(link.inner for link in (*step.out_links, *step.sum_links) for _ in range(2))
        ops = []
        for each in step.net.ops:  # copies are made by the block itself
            if each.type == COPY_OP:
                (source,), (copy,) = each.input_names(), each.output_names()
                self._python[copy] = self._name(source)
            else:
                ops.append(each)
        self._block(ops, inner, read)
        for memory in step.memories:
            pair = Text(self._name(memory.previous)), Text(self._name(memory.state))
            self._assign("", call("step.update", *pair), inner)
        results = {}
        for number, link in enumerate(step.out_links):
            value = Text(self._name(link.inner))
            name = {} if not number and link.outer == desc.name else {"name": string(link.outer)}
            results[link.outer] = self._result(outside, link.outer, value.text)
            self._assign(results[link.outer], call("step.output", value, **name), inner)
        for link in step.sum_links:
            value = Text(self._name(link.inner))
            results[link.outer] = self._names.new(link.outer)
            expr = call("step.total", value, name=string(link.outer))
            self._assign(results[link.outer], expr, inner)
        for memory in step.memories:
            if memory.final:
                results[memory.final] = self._names.new(memory.final)
                value = Text(self._name(memory.previous))
                expr = call("step.final", value, name=string(memory.final))
                self._assign(results[memory.final], expr, inner)
        self._python = {**outside, **results}
        self.lines.append("")

    def _result(self, outside: Mapping[str, str], outer: str, inner: str) -> str:
        """The name of a loop's result: the name of its rows inside, which is free by then."""
        taken = inner in outside.values()
        return self._names.new(self.style.stem(outer)[0]) if taken else inner


def _reads(ops: Iterable[OpNode]) -> Iterator[str]:
    """The variables that operators read, in order; a loop's variables in its step's order."""
    for op in ops:
        if op.type == "recurrent":
            yield from _reads(op.attrs["net"].steps[0].net.ops)
        yield from op.input_names()


def _given(entry: OperatorDef, op: OpNode) -> list[tuple[str, Any]]:
    """The attributes of an operator that differ from their defaults, in the order of its class."""
    attrs = []
    for spec in entry.attrs:
        if spec.name in op.attrs:
            value = op.attrs[spec.name]
            default = spec.default
            if isinstance(value, tuple) and isinstance(default, (list, tuple)):
                default = tuple(default)
            if default is REQUIRED or type(value) is not type(default) or value != default:
                attrs.append((spec.name, value))
    return attrs


def _is_taken(name: str) -> bool:
    """Whether NetBuilder has something else of an operator's name."""
    return name in vars(NetBuilder) or name in BUILDER_METHODS


def _scaled(entry: OperatorDef, op: OpNode, x: Expr, single: bool) -> Expr | None:
    """scale * x + bias as one infix operator with a number, where it is no more than that."""
    values = {spec.name: spec.default for spec in entry.attrs} | dict(_given(entry, op))
    scale, bias = float(values["scale"]), float(values["bias"])
    expr = call("b.scale", x, scale=literal(scale, single), bias=literal(bias, single))
    if not bias:
        return Infix(literal(scale, single), "*", x, expr)
    if scale == 1:
        return Infix(x, "+", literal(bias, single), expr)
    if scale == -1:
        return Infix(literal(bias, single), "-", x, expr)
    return None


__all__ = ["Style", "Writer"]
