"""Shapes and dtypes of every variable of an op list, inferred from its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..base.errors import OpscopeError, ShapeError, VariableError, format_shape
from ..base.sizes.dims import Dim, identity
from ..base.sizes.shape import MOST_BYTES, ArraySpec, Levels, Shape, ShapeArgs, fits
from .desc import INPUT, PARAMETER, STATE
from .names import EMPTY
from .op_list import VarDecl, View
from .operation import Operator, expand_op

_GIVEN = (PARAMETER, STATE, INPUT)
_MOST_INFERRED = 1 << 10


class Inferred(dict[Any, tuple[ArraySpec, ...]]):
    """What shape rules gave: by the operator's signature, the phase and the specs of the inputs."""

    def key_of(self, spec: ArraySpec) -> Any:
        """What stands for the spec of an input."""
        return spec


class InferredOpen(Inferred):
    """As `Inferred`, of one list of operators with `Dim`s for sizes, whose values must not be
    looked at: they are keys by what they depend on."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[int, tuple[ArraySpec, Any]] = {}  # by id; the spec is kept for that

    def key_of(self, spec: ArraySpec) -> Any:
        known = self._keys.get(id(spec))
        if known is None:
            key = spec[1], *map(identity, spec[0])
            known = self._keys[id(spec)] = spec, key
        return known[1]


_INFERRED = Inferred()


def declared_spec(var: VarDecl) -> ArraySpec | None:
    """Shape and dtype as declared; None where rank or dtype is unknown."""
    shape, dtype = var.shape, var.dtype
    return None if shape is None or dtype is None else (shape, dtype)


def infer_specs(
    operators: Iterable[Operator],
    known: Mapping[str, ArraySpec],
    declared: Mapping[str, VarDecl],
    offsets: dict[str, Levels] | None = None,
    *,
    partial: bool = False,
    remember: bool = True,
) -> dict[str, ArraySpec]:
    """Shape and dtype of every variable that `operators` read or write.

    Args:
        known: of the variables that come from outside.
        offsets: of the sequences among `known`; other variables' are added. None while
            a net is built.
        declared: declarations, used for views and variables that are written piece by piece.
        partial: while a net is built: operators with inputs of unknown rank are passed over.
        remember: whether what rules give serves other lists; not where sizes are `Dim`s.

    Raises:
        ShapeError: an operator refuses its inputs, or a result contradicts what is declared.
        VariableError: an input's shape is not known (and not `partial`).
    """
    specs: dict[str, ArraySpec] = dict(known)
    inferred = _INFERRED if remember else InferredOpen()
    views: dict[str, list[str]] | None = None
    for op in operators:
        unknown = [name for name in op.input_vars() if name not in specs]
        # Only where a name is unknown: nets without views never pay for the search.
        if unknown and views is None:
            views = _views_of_bases(declared)
        for name in unknown:
            spec = _spec_of_view(declared.get(name), declared, specs)
            if spec is None and any(view in specs for view in (views or {}).get(name, ())):
                # written through its views
                spec = declared_spec(declared[name]) if name in declared else None
            if spec is not None:
                specs[name] = spec
        if unknown and any(name not in specs for name in unknown):
            if partial:
                continue
            lost = next(name for name in unknown if name not in specs)
            raise VariableError(op.describe(f"the shape of {lost!r} is not known", specs))
        specs.update(infer_one(op, specs, declared, offsets, inferred))
    return specs


def infer_one(
    op: Operator,
    specs: dict[str, ArraySpec],
    declared: Mapping[str, VarDecl],
    offsets: dict[str, Levels] | None = None,
    inferred: Inferred = _INFERRED,
) -> dict[str, ArraySpec]:
    """Shape and dtype of one operator's outputs; see `infer_specs`.

    A composite without a shape rule is inferred through the operators that it stands for.

    Args:
        inferred: what rules gave for operators that are alike; `InferredOpen` where sizes are
            `Dim`s.
    """
    if op.entry.shape is not None or op.entry.expand is None:
        return _infer_by_rule(op, specs, declared, offsets, inferred)
    known = {name: specs[name] for name in op.input_vars()}
    for node in expand_op(op.node):
        # Declarations of the outer net apply inside, too: names are not renamed on expansion.
        known.update(_infer_by_rule(Operator(node, op.index), known, declared, offsets, inferred))
    return {name: known[name] for name in op.output_vars()}


def _infer_by_rule(
    op: Operator,
    specs: dict[str, ArraySpec],
    declared: Mapping[str, VarDecl],
    offsets: dict[str, Levels] | None,
    inferred: Inferred,
) -> dict[str, ArraySpec]:
    # Layers repeat: most operators have the rule, the attributes and the inputs of another one.
    key = _key(op, specs, offsets, inferred)
    if key is not None:
        known = inferred.get(key)
        if known is not None:
            results = dict(zip(op.output_vars(), known, strict=True))
            _check_all_declared(op, results, declared, specs)
            if key[1]:
                args = ShapeArgs(op, specs, offsets)
                args.results = results
                cast(dict, offsets).update(args.finish_offsets())
            return results
    if op.entry.shape is None:
        raise ShapeError(op.describe("this operator has no shape rule", specs))
    args = ShapeArgs(op, specs, offsets)
    try:
        op.entry.shape(args)
    except OpscopeError:
        raise
    except Exception as error:  # a rule of a third party may fail in any way
        raise ShapeError(op.describe(f"its shape rule failed: {error!r}", specs)) from error
    # A rule gives every slot a result; one that no variable holds is not part of the net.
    args.results.pop(EMPTY, None)
    args.result_offsets.pop(EMPTY, None)
    _check_results(op, args, specs)
    _check_all_declared(op, args.results, declared, specs)
    levels = {} if offsets is None else args.finish_offsets()
    if offsets is not None:
        offsets.update(levels)
    outputs = op.output_vars()
    once = len(set(outputs)) == len(outputs) == len(args.results)
    if key is not None and once and not (args.reads_offsets if key[1] else levels):
        if len(inferred) >= _MOST_INFERRED:
            inferred.clear()
        inferred[key] = tuple([args.results[name] for name in outputs])
    return args.results


def _key(
    op: Operator,
    specs: Mapping[str, ArraySpec],
    offsets: Mapping[str, Levels] | None,
    inferred: Inferred,
) -> tuple[Any, ...] | None:
    """What an operator's results depend on, if no rule reads offsets; None where there are nets
    inside of it. Second whether its inputs have offsets: None while a net is built."""
    signature = op.signature()
    if signature is None:
        return None
    inputs = op.input_vars()
    phase = None if offsets is None else bool(offsets) and any([n in offsets for n in inputs])
    return (signature, phase, *[inferred.key_of(specs[name]) for name in inputs])


def _check_all_declared(
    op: Operator,
    results: Mapping[str, ArraySpec],
    declared: Mapping[str, VarDecl],
    specs: Mapping[str, ArraySpec],
) -> None:
    for name, spec in results.items():
        var = declared.get(name)
        if var is not None and var.kind in _GIVEN and var.shape is not None:
            _check_declared(op, name, spec, var.shape, specs)


def _check_results(op: Operator, args: ShapeArgs, specs: Mapping[str, ArraySpec]) -> None:
    """Every output has a shape that an array can have, whatever odd attributes made of it."""
    for name in op.output_vars():
        if name not in args.results:
            raise ShapeError(op.describe(f"these inputs give {name!r} no shape", specs))
        shape, dtype = args.results[name]
        size = dtype.itemsize
        for dim in shape:
            if dim > 0:
                size *= dim
            # -1 is unknown while a net is built; at run time a rule that gives it has computed
            # nonsense.
            elif dim < 0 and (dim < -1 or args.is_whole()):
                shown = ", ".join(map(str, shape))
                raise ShapeError(op.describe(f"{name!r} would be of the shape [{shown}]", specs))
        if not isinstance(size, Dim) and size > MOST_BYTES:  # a run looks at the sizes that it has
            why = f"{name!r}, {dtype}{format_shape(shape)}, is larger than any array"
            raise ShapeError(op.describe(why, specs))


def _check_declared(op: Operator, name: str, spec: ArraySpec, shape: Shape, specs: Any) -> None:
    """A persistent variable keeps its declared shape; an operator may only write that."""
    if not fits(spec[0], shape):
        wanted = format_shape(shape)
        raise ShapeError(
            op.describe(f"writes {format_shape(spec[0])} to {name!r}, which is {wanted}", specs)
        )


def _views_of_bases(declared: Mapping[str, VarDecl]) -> dict[str, list[str]]:
    """The views of each variable that has some."""
    views: dict[str, list[str]] = {}
    for name, var in declared.items():
        if var.view is not None:
            views.setdefault(var.view.base, []).append(name)
    return views


def _spec_of_view(
    var: VarDecl | None, declared: Mapping[str, VarDecl], specs: Mapping[str, ArraySpec]
) -> ArraySpec | None:
    if var is None or var.view is None:
        return None
    base = specs.get(var.view.base)
    if base is None and var.view.base in declared:
        base = declared_spec(declared[var.view.base])
    if base is None:
        return None
    return view_shape(var.name, var.view, base[0]), base[1]


def view_shape(name: str, view: View, base: Shape) -> Shape:
    """Shape of the view variable `name`; -1 where it depends on an unknown dimension of the base.

    Raises:
        ShapeError: the ranges do not lie within the base, or that is no matrix.
    """
    if len(base) != 2:
        raise ShapeError(f"view {name!r}: {view.base!r} {format_shape(base)} is no matrix")
    shape = []
    for what, begin, end, size in (
        ("rows", view.row_begin, view.row_end, base[0]),
        ("columns", view.col_begin, view.col_end, base[1]),
    ):
        last = size if end < 0 else end
        if begin < 0 or 0 <= last < begin or 0 <= size < max(begin, last):
            raise ShapeError(
                f"view {name!r}: {what} {begin}:{'' if end < 0 else end}"
                f" do not lie within {view.base!r} {format_shape(base)}"
            )
        shape.append(last - begin if last >= 0 else -1)
    return tuple(shape)


def view_slices(name: str, view: View, base: Shape) -> tuple[slice, slice]:
    """Row and column slice of the view variable `name` whose base has the shape `base`, all known.

    Raises:
        ShapeError: as `view_shape`.
    """
    rows, cols = view_shape(name, view, base)
    first, left = view.row_begin, view.col_begin
    return slice(first, first + rows), slice(left, left + cols)
