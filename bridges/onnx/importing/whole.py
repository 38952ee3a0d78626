"""A model as one net of operators, to be trained and saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....framework.base.errors import ShapeError
from ....framework.base.untrusted.values import check_fill
from ....framework.ir.desc import OUTPUT, make_op, make_var
from ....framework.ir.op_list import OpList, OpNode, VarDecl
from .engine import Engine, lower_part
from .graph import Model
from .stage import Promote, Stage

Given = Mapping[str, "Sequence[int | str | None] | np.ndarray"]
"""Input -> shape, in which -1, None or a name is a size that may vary; or the array that it always
is."""

Variants = tuple[Mapping[str, tuple[int, ...]], Mapping[str, tuple[int, ...]]]
"""Input -> shape, twice: sizes that differ may vary."""
_ROWS = "rows"
_ANY = "N"
"""Stands for any size, along whichever axis: `N,3,N,N`; other names are one size each."""
_UNITS = (32, 4, 1)
"""Sizes are multiples of these, as long as a model takes none of the former."""
_Shapes = Mapping[str, "tuple[int, ...] | None"]


def two_shapes(model: Model, given: Given) -> list[Variants]:
    """Shapes of the inputs for two sets of sizes, several times: what differs may vary.

    First dimensions are rows, of which there may be any number; others are sizes that a model may
    refuse if they are too small, or no multiples of something.

    Raises:
        ShapeError: a shape is missing.
    """
    shapes: dict[str, list[int | str]] = {}
    for info in model.inputs:
        value = given.get(info.name)
        if isinstance(value, np.ndarray):
            continue
        shape = info.shape if value is None else tuple(value)
        if shape is None or info.dtype is None:
            raise ShapeError(f"{model.path}: give the shape of the input {info.name!r}")
        shapes[info.name] = [
            dim
            if isinstance(dim, int) and dim >= 0
            else _ROWS
            if at == 0
            else dim
            if isinstance(dim, str) and dim != _ANY
            else f"{_ANY}{at}"
            for at, dim in enumerate(shape)
        ]
    names = dict.fromkeys(d for dims in shapes.values() for d in dims if isinstance(d, str))
    others = [name for name in names if name != _ROWS]
    variants: list[Variants] = []
    for unit in _UNITS if others else (1,):
        pairs = {name: (2 * unit * (at + 1), 3 * unit * (at + 1)) for at, name in enumerate(others)}
        pairs[_ROWS] = (2, 3)
        first, second = (
            {
                name: tuple(pairs[dim][k] if isinstance(dim, str) else dim for dim in dims)
                for name, dims in shapes.items()
            }
            for k in range(2)
        )
        variants.append((first, second))
    return variants


def whole_net(model: Model, engine: Engine, given: Given, name: str, variants: Variants) -> OpList:
    """The net of a model for inputs of given shapes.

    The values of constants go into the engine's scope.

    Raises:
        ShapeError: a shape is missing or wrong; nodes depend on data; a size cannot vary.
    """
    fixed = {n: value for n, value in given.items() if isinstance(value, np.ndarray)}
    two = _built(model, engine, _stage(model, engine, variants[0], fixed), name)
    if variants[0] == variants[1]:
        return two
    three = _built(model, engine, _stage(model, engine, variants[1], fixed), name)
    return _free(model.path, two, three)


def _stage(
    model: Model,
    engine: Engine,
    shapes: Mapping[str, tuple[int, ...]],
    fixed: Mapping[str, np.ndarray],
) -> Stage:
    graph = model.graph
    names = dict(zip((info.name for info in model.inputs), graph.inputs, strict=True))
    env: dict[str, Any] = {}
    for info in model.inputs:
        if info.dtype is not None:
            what = f"{model.path}: input {info.name!r}"
            check_fill(shapes.get(info.name, ()), info.dtype.itemsize, what)
        if info.name in fixed:
            env[names[info.name]] = fixed[info.name]
        else:
            assert info.dtype is not None
            env[names[info.name]] = np.broadcast_to(info.dtype.type(0), shapes[info.name])
    try:
        stage = lower_part(
            engine,
            graph.nodes,
            {name: place for place, name in enumerate(graph.inputs)},
            {names[name] for name in fixed},
            env,
            graph.outputs,
            may_promote=True,
            unroll=True,
        )
    except Promote as error:
        shown = ", ".join(sorted(error.names))
        raise ShapeError(
            f"{model.path}: shapes depend on the value of {shown}: give an array for it"
        ) from None
    left = [node.title() for node in (*stage.host, *stage.rest)]
    if left:
        shown = "; ".join(left[:8]) + (f"; and {len(left) - 8} more" if len(left) > 8 else "")
        raise ShapeError(
            f"{model.path}: cannot become one net: what these give depends on data, or has no"
            f" operator here: {shown}"
        )
    return stage


def _built(model: Model, engine: Engine, stage: Stage, name: str) -> OpList:
    """A stage as a net with named outputs, its constants in the scope."""
    renamed = _place_constants(engine, stage)
    ops = [op.renamed(renamed) for op in stage.net.ops]
    variables = {renamed.get(v.name, v.name): v for v in stage.net.vars}
    variables = {
        name: v if v.name == name else v.changed(name=name) for name, v in variables.items()
    }
    written = {out for op in ops for out in op.output_names()}
    for info, value in zip(model.outputs, model.graph.outputs, strict=True):
        source = stage.fetches.get(value, value)
        source = renamed.get(source, source)
        folded = stage.folded.get(value, engine.constants.get(value))
        if folded is None and source not in variables:
            raise ShapeError(f"{model.path}: no node computes the output {info.name!r}")
        if folded is not None:
            array = np.asarray(folded)
            ops.append(make_op("constant", {}, {"out": info.name}, {"value": array}))
            variables[info.name] = make_var(info.name, array.shape, array.dtype, OUTPUT)
        elif source in written and source == info.name:
            variables[source] = variables[source].changed(kind=OUTPUT)
        else:
            spec = variables[source]
            ops.append(make_op("assign", {"x": source}, {"out": info.name}))
            variables[info.name] = make_var(info.name, spec.shape, spec.dtype, OUTPUT)
    return OpList(name, vars=list(variables.values()), ops=ops, metadata=dict(model.metadata))


def _place_constants(engine: Engine, stage: Stage) -> dict[str, str]:
    """Put constants into the scope; those whose names hold something else get another one."""
    renamed = {}
    scope = engine.scope
    taken = {op_name for op in stage.net.ops for op_name in op.output_names()}
    for name, array in stage.constants.items():
        free_name = name
        number = 1
        while not _is_free(scope, free_name, array) or (free_name != name and free_name in taken):
            number += 1
            free_name = f"{name}/{number}"
        if free_name not in scope:
            scope.var(free_name).set(array)
        if free_name != name:
            renamed[name] = free_name
    return renamed


def _is_free(scope: Any, name: str, array: np.ndarray) -> bool:
    variable = scope.find(name)
    if variable is None:
        return True
    held = variable.numpy()
    return held.dtype == array.dtype and np.array_equal(
        held, array, equal_nan=held.dtype.kind == "f"
    )


def _free(path: str, two: OpList, three: OpList) -> OpList:
    """The net that both are, for two and for three rows: where they differ stands -1."""
    if len(two.ops) != len(three.ops):
        raise ShapeError(f"{path}: the nodes depend on the first dimension: give it")
    shapes = [{var.name: var.shape for var in net.vars} for net in (two, three)]
    ops: list[OpNode] = []
    for a, b in zip(two.ops, three.ops, strict=True):
        ops += _free_op(path, a, b, shapes)
    others = {var.name: var for var in three.vars}
    variables: list[VarDecl] = []
    for var in two.vars:
        other = others.get(var.name)
        if other is None or var.shape is None or other.shape is None:
            variables.append(var)
        else:
            dims = tuple(a if a == b else -1 for a, b in zip(var.shape, other.shape, strict=True))
            variables.append(var.changed(shape=dims))
    return OpList(two.name, vars=variables, ops=ops, metadata=two.metadata)


def _free_op(path: str, two: OpNode, three: OpNode, shapes: Sequence[_Shapes]) -> list[OpNode]:
    same = two.type == three.type and two.outputs == three.outputs and two.inputs == three.inputs
    if same and _equal(two.attrs, three.attrs):
        return [two]
    if same and two.type in ("reshape", "expand"):
        pairs = list(zip(two.attrs["shape"], three.attrs["shape"], strict=True))
        source = next(iter(two.input_names()))
        given = list(zip(*(shapes_of[source] or () for shapes_of in shapes), strict=True))
        rule = _free_reshape if two.type == "reshape" else _free_expand
        freed = rule(two, given, pairs)
        if freed is not None:
            return freed
    out = next(iter(two.output_names()), "")
    raise ShapeError(
        f"{path}: the first dimension, or another, cannot vary: it is part of the operator"
        f" {two.type!r} that makes {out!r}. Give the dimension"
    )


_Pairs = Sequence[tuple[int, int]]


def _free_expand(op: OpNode, given: _Pairs, pairs: _Pairs) -> list[OpNode] | None:
    new = len(pairs) - len(given)
    dims = [_free_dim(k - new, pair, given, -1) for k, pair in enumerate(pairs)]
    if None in dims:
        return None
    return [make_op(op.type, op.inputs, op.outputs, {"shape": dims})]


def _free_reshape(op: OpNode, given: _Pairs, pairs: _Pairs) -> list[OpNode] | None:
    """A reshape with 0 and -1 where sizes vary.

    One that splits or joins axes before others that vary does so at the end, between transposes.
    """
    dims = [_free_dim(k, pair, given, 0) for k, pair in enumerate(pairs)]
    if dims.count(None) <= 1:
        shape = [-1 if dim is None else dim for dim in dims]
        return [make_op(op.type, op.inputs, op.outputs, {"shape": shape})]
    least = min(len(given), len(pairs))
    first = next((k for k in range(least) if given[k] != pairs[k]), least)
    last = next((k for k in range(least - first) if given[-1 - k] != pairs[-1 - k]), least - first)
    changed = [a if a == b else -1 for a, b in pairs[first : len(pairs) - last]]
    if not last or changed.count(-1) > 1:
        return None
    before = list(range(first))
    middle = len(given) - first - last
    after = len(changed)
    there = [*before, *range(first + middle, len(given)), *range(first, first + middle)]
    back = [*before, *range(first + last, first + last + after), *range(first, first + last)]
    source, out = next(iter(op.input_names())), next(iter(op.output_names()))
    moved, shaped = f"{out}/moved", f"{out}/shaped"
    return [
        make_op("transpose", {"x": source}, {"out": moved}, {"perm": there}),
        make_op(
            "reshape", {"x": moved}, {"out": shaped}, {"shape": [0] * (first + last) + changed}
        ),
        make_op("transpose", {"x": shaped}, {"out": out}, {"perm": back}),
    ]


def _free_dim(at: int, pair: tuple[int, int], given: _Pairs, copy: int) -> int | None:
    """A dimension of a result as an attribute tells it; None: it depends on others."""
    if pair[0] == pair[1]:
        return pair[0]
    return copy if 0 <= at < len(given) and given[at] == pair else None


def _equal(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(
        np.array_equal(a[key], b[key]) if isinstance(a[key], np.ndarray) else a[key] == b[key]
        for key in a
    )
