"""The difference of two nets as text, for both are op lists: in operators or in one dialect.

An operator is known by what it writes, a component by its name; arrays by their variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.errors import format_shape
from ..ir.desc import KIND_NAMES
from ..ir.op_list import OpList, OpNode, VarDecl

_SHOWN = 120  # characters of a value

Arrays = Mapping[str, np.ndarray]


@dataclass
class Difference:
    """What differs between two nets.

    Attributes:
        removed, added: what only the old net has, and only the new one, a line each.
        changed: what differs in what both have: its name, and lines of changes.
    """

    removed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    changed: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.changed)

    def __str__(self) -> str:
        """A line for each thing that went (`-`), came (`+`) or changed (`~`), then a count."""
        lines = [f"- {line}" for line in self.removed] + [f"+ {line}" for line in self.added]
        for name, changes in self.changed.items():
            lines.append(f"~ {name}")
            lines += [f"    {change}" for change in changes]
        if not lines:
            return "no difference"
        counts = len(self.removed), len(self.added), len(self.changed)
        return "\n".join([*lines, "{} removed, {} added, {} changed".format(*counts)])


def difference(old: OpList, old_arrays: Arrays, new: OpList, new_arrays: Arrays) -> Difference:
    """What differs from `old` to `new`."""
    result = Difference()
    ops, then = _table(new), _table(old)
    vars_, vars_then = ({var.name: var for var in net.vars} for net in (new, old))
    for key, op in then.items():
        if key not in ops:
            result.removed.append(_shown(op, vars_then))
    for key, op in ops.items():
        if key not in then:
            result.added.append(_shown(op, vars_))
            continue
        attrs = _op_changes(then[key], op)
        declared = _var_changes(key, op, vars_then, vars_)
        changes = _without_repeats([*attrs], [*declared])
        if changes:
            result.changed[key] = changes
    _array_changes(result, (old, old_arrays, vars_then), (new, new_arrays, vars_))
    for key in {**old.metadata, **new.metadata}:
        before, now = old.metadata.get(key, "none"), new.metadata.get(key, "none")
        if before != now:
            result.changed.setdefault("network", []).append(f"{key}: {before} -> {now}")
    names, order = list(ops), list(then)
    both = [key for key in order if key in ops]
    # Listed only where nothing else differs: added and removed operators shift the order as well.
    if not result and both != [key for key in names if key in then]:
        result.changed.setdefault("network", []).append("the order of operators")
    return result


def _without_repeats(attrs: list[str], declared: list[str]) -> list[str]:
    """Changes of attributes and declarations; in CNTK an attribute tells the shape, too, and one
    the factor of rates."""
    words = {line.partition(":")[0] for line in declared}
    kept = [line for line in attrs if line.partition(":")[0] != "shape" or "shape" not in words]
    if any(line.startswith("learningRate:") for line in attrs):
        declared = [line for line in declared if not line.startswith(("factor of rates", "kind"))]
    return [*kept, *declared]


def _table(net: OpList) -> dict[str, OpNode]:
    """Operators by what they are called; later ones of one name get a number."""
    table: dict[str, OpNode] = {}
    for op in net.ops:
        stem = next(iter(op.output_names()), "")
        if op.type.endswith(".component"):
            stem = f"component {op.attrs.get('name')}"
        stem = stem or op.type
        key = stem
        number = 1
        while key in table:
            number += 1
            key = f"{stem}#{number}"
        table[key] = op
    return table


def _shown(op: OpNode, vars_: Mapping[str, VarDecl]) -> str:
    """A line about an operator that went or came."""
    own = op.attrs
    if op.type.endswith(".component"):
        sizes = (f"{name.rpartition('/')[2]} {_spec(vars_.get(name))}" for name in op.input_names())
        return " ".join(
            [f"component {own.get('name')}: {own.get('type')}", ", ".join(sizes)]
        ).strip()
    name = next(iter(op.output_names()), op.type)
    what = own.get("descriptor") or own.get("component") or ", ".join(op.input_names())
    kind = op.type.partition(".")[2] or op.type
    return f"{name} = {kind}({what}) {_spec(vars_.get(name))}".rstrip()


def _spec(var: VarDecl | None) -> str:
    return "" if var is None or var.shape is None else format_shape(var.shape)


def _op_changes(old: OpNode, new: OpNode) -> Iterator[str]:
    if old.type != new.type:
        yield f"type: {old.type} -> {new.type}"
    before, now = old.input_names(), new.input_names()
    if before != now:
        yield f"reads: {', '.join(before) or 'nothing'} -> {', '.join(now) or 'nothing'}"
    for name in {**old.attrs, **new.attrs}:
        then, here = old.attrs.get(name), new.attrs.get(name)
        if not _same(then, here):
            yield f"{name}: {_value(then)} -> {_value(here)}"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=True) if a is not None and b is not None else False
    if isinstance(a, OpList) and isinstance(b, OpList):
        return a is b or not difference(a, {}, b, {})
    # 1 == 1.0 == True in Python, but they are attributes of other types.
    return a == b and type(a) is type(b)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, OpList):
        return f"a net of {len(value.ops)} operators"
    text = repr(value) if isinstance(value, str) else f"{value}"
    if isinstance(value, float):
        text = f"{value:.6g}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def _var_changes(
    key: str, op: OpNode, old: Mapping[str, VarDecl], new: Mapping[str, VarDecl]
) -> Iterator[str]:
    for name in op.output_names():
        for change in _declared(old.get(name), new.get(name)):
            yield change if name == key else f"{name}: {change}"


def _declared(then: VarDecl | None, now: VarDecl | None) -> Iterator[str]:
    """What differs in the declarations of a variable."""
    if then is None or now is None:
        return
    if then.shape != now.shape:
        yield f"shape: {_spec(then)} -> {_spec(now)}"
    if then.kind != now.kind:
        yield f"kind: {_KINDS[then.kind]} -> {_KINDS[now.kind]}"
    if then.lr_factor != now.lr_factor:
        yield f"factor of rates: {_value(then.lr_factor)} -> {_value(now.lr_factor)}"
    if then.stop_gradient != now.stop_gradient:
        yield "not trained any more" if now.stop_gradient else "trained again"


_KINDS = [name.lower() for name in KIND_NAMES]


def _array_changes(
    diff: Difference,
    before: tuple[OpList, Arrays, Mapping[str, VarDecl]],
    now: tuple[OpList, Arrays, Mapping[str, VarDecl]],
) -> None:
    """What differs in variables that no operator writes: parameters, states, inputs."""
    written = {name for net in (before[0], now[0]) for op in net.ops for name in op.output_names()}
    for name, var in before[2].items():
        if name not in now[2] and name not in written and "/" not in name:
            diff.removed.append(f"{name} {_spec(var)}")
    for name, var in now[2].items():
        then = before[2].get(name)
        if then is None:
            if name not in written and "/" not in name:
                diff.added.append(f"{name} {_spec(var)}")
            continue
        lines = list(_declared(then, var)) if name not in written else []
        lines += _numbers(before[1].get(name), now[1].get(name)) if then.shape == var.shape else []
        if lines:
            diff.changed.setdefault(name, []).extend(lines)


def _numbers(a: np.ndarray | None, b: np.ndarray | None) -> Iterator[str]:
    if a is None or b is None or a is b:
        return
    if a.shape != b.shape:
        yield f"numbers: {list(a.shape)} -> {list(b.shape)}"
    elif a.dtype != b.dtype:
        yield f"numbers: {a.dtype} -> {b.dtype}"
    elif not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        count = int(np.count_nonzero(a != b))
        # In float64, where unsigned and whole numbers do not wrap around.
        most = float(np.abs(np.asarray(b, np.float64) - a).max())
        yield f"{count} of {a.size} numbers differ, by at most {most:.4g}"
