"""Giving parameters and states their first values, by the operators their declarations name."""

from __future__ import annotations

from collections.abc import Iterator

from ...proto import net_pb2 as pb
from ..base.context import OpContext, default_context
from ..base.errors import ShapeError, VariableError, format_shape
from ..base.scope import Scope
from ..ir.desc import PARAMETER, STATE
from ..ir.infer import fits
from ..ir.messages import from_message
from ..ir.op_list import OpList, OpNode, VarDecl
from .plain_net import PlainNet

PERSISTENT = (PARAMETER, STATE)
"""Kinds of variables that outlive a run: they are initialised, saved and loaded."""


def persistent_vars(desc: OpList | pb.NetDesc) -> Iterator[VarDecl]:
    """Parameters and states of a net and of the nets inside it, each name once.

    A name that an inner net takes from outside by a link is not counted: its value lives there.
    """
    seen: set[str] = set()
    whole = desc if isinstance(desc, OpList) else from_message(desc)
    for net, linked in _nets(whole, frozenset()):
        for var in net.vars:
            if var.kind in PERSISTENT and var.name not in seen | linked:
                if var.view is None:
                    seen.add(var.name)
                    yield var


def _nets(desc: OpList, linked: frozenset[str]) -> Iterator[tuple[OpList, frozenset[str]]]:
    yield desc, linked
    for step in desc.steps:
        links = (*step.in_links, *step.out_links, *step.static_links)
        inner = frozenset(link.inner for link in links)
        inner |= {name for memory in step.memories for name in (memory.state, memory.previous)}
        yield from _nets(step.net, inner)
    for op in desc.ops:
        for _, inner_net in op.inner_nets():
            yield from _nets(inner_net, frozenset())


def initialize(
    desc: OpList | pb.NetDesc,
    scope: Scope,
    context: OpContext | None = None,
    *,
    overwrite: bool = False,
) -> list[str]:
    """Run the initialisers of parameters and states that hold no value in `scope`.

    They run in the order in which the net declares its variables, so one random state gives one
    set of values. The scope changes only when all of them have succeeded.

    Args:
        overwrite: run all initialisers, also of variables that hold a value.

    Returns:
        Names of the variables that were filled.

    Raises:
        VariableError: variables with neither value nor initialiser; all are named.
        ShapeError: an initialiser makes another shape or dtype than its variable declares.
    """
    wanted, lost = [], []
    for var in persistent_vars(desc):
        variable = scope.find(var.name)
        has_value = variable is not None and variable.array is not None
        if var.initializer is not None and var.initializer.type:
            if overwrite or not has_value:
                wanted.append(var)
        elif not has_value:
            lost.append(var.name)
    if lost:
        names = ", ".join(map(repr, lost))
        raise VariableError(f"neither value nor initialiser: {names}; feed or load them")
    if not wanted:
        return []
    work = Scope(scope.place, parent=scope)  # initialisers may read what the scope holds already
    _run(wanted, work, context or default_context())
    for var in wanted:
        (scope.find(var.name) or scope.var(var.name)).bind(work.get(var.name).array)
    return [var.name for var in wanted]


def _run(variables: list[VarDecl], work: Scope, context: OpContext) -> None:
    declared = [var.changed(initializer=None) for var in variables]
    ops = [_initializer(var) for var in variables]
    net = PlainNet(OpList("initialisers", vars=declared, ops=ops))
    for var in variables:
        work.var(var.name)  # local: results must not reach the caller's variables before the end
    quiet = context.derive(train=True, live_out=None)
    quiet.hooks = []  # they watch the net, not its initialisers
    net.run(work, quiet)
    for var in variables:
        array, dtype = work.get(var.name).array, var.dtype
        shape = var.shape
        shape_fits = shape is None or fits(array.shape, shape)
        dtype_fits = dtype is None or dtype == array.dtype  # float64 == None, says NumPy
        if not (shape_fits and dtype_fits):
            raise ShapeError(
                f"variable {var.name!r} is {dtype}{format_shape(shape)}; its initialiser"
                f" {_initializer(var).type} makes {array.dtype}{format_shape(array.shape)}"
            )


def _initializer(var: VarDecl) -> OpNode:
    """The operator that fills `var`, with the variable's place in the source."""
    op = var.initializer
    assert op is not None
    written = op.output_names()
    if written != [var.name]:
        raise VariableError(
            f"the initialiser of {var.name!r} must write it and nothing else;"
            f" {op.type} writes {', '.join(written) or 'nothing'}"
        )
    if op.source is None or not op.source.file:
        op = op.changed(source=var.source)
    return op
