"""Giving parameters and states their first values, by the operators their declarations name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...proto import net_pb2 as pb
from ..base.backend import on_device
from ..base.context import OpContext, default_context
from ..base.errors import ShapeError, VariableError, format_shape
from ..base.python.gc_disabled import gc_disabled
from ..base.scope import Scope
from ..base.sizes.shape import fits, nbytes_of
from ..ir.desc import PARAMETER, STATE
from ..ir.messages import from_message
from ..ir.op_list import OpList, OpNode, VarDecl
from ..ir.operation import Operator
from ..ir.registry import lookup
from .plain_net import PlainNet

PERSISTENT = (PARAMETER, STATE)
"""Kinds of variables that outlive a run: they are initialized, saved and loaded."""
_TOGETHER = 1 << 10
"""Initializers that run as one net: what is planned and bound for more of them would only take
memory."""
_SMALL = 1 << 15
"""Bytes of an array below which copying takes no time beside planning a run that fills it."""


class Owner:
    """Who initialized a variable: somebody who builds a net, and whose variables are no one else's.

    Attributes:
        name: of the net, for messages.
        adopted: names of variables that it takes over, whoever owned them.
    """

    def __init__(self, name: str, adopted: Iterable[str] = ()) -> None:
        self.name = name
        self.adopted = frozenset(adopted)

    def is_kept_from(self, name: str, origin: object) -> bool:
        """Whether a value, by its `Variable.origin`, is another owner's alone."""
        return isinstance(origin, Owner) and origin is not self and name not in self.adopted


def persistent_vars(desc: OpList | pb.NetDesc) -> Iterator[VarDecl]:
    """Parameters and states of a net and of the nets inside it, each name once.

    A name that an inner net takes from outside by a link is not counted: its value lives there.
    """
    seen: set[str] = set()
    whole = desc if isinstance(desc, OpList) else from_message(desc)
    for net, linked in _nets(whole, frozenset()):
        for var in net.vars:
            if var.kind in PERSISTENT and var.name not in seen and var.name not in linked:
                if var.view is None:
                    seen.add(var.name)
                    yield var


def _nets(desc: OpList, linked: frozenset[str]) -> Iterator[tuple[OpList, frozenset[str]]]:
    yield desc, linked
    for step in desc.steps:
        links = (*step.in_links, *step.out_links, *step.static_links)
        inner = frozenset(link.inner for link in links)
        # A memory's state lives outside too: the loop carries it from step to step.
        inner |= {name for memory in step.memories for name in (memory.state, memory.previous)}
        yield from _nets(step.net, inner)
    for op in desc.ops:
        for _, inner_net in op.inner_nets():
            yield from _nets(inner_net, frozenset())


@gc_disabled()
def initialize(
    desc: OpList | pb.NetDesc,
    scope: Scope,
    context: OpContext | None = None,
    *,
    overwrite: bool = False,
    owner: Owner | None = None,
    share: bool = False,
) -> list[str]:
    """Run the initializers of parameters and states that hold no value in `scope`.

    They run in the order in which the net declares its variables, so one random state gives one
    set of values. The scope changes only when all of them have succeeded.

    Args:
        overwrite: run all initializers, also of variables that hold a value.
        owner: whose the values become. It may use those without an owner (the user set them, or
            they come from a file), and those of others where it `share`s.

    Returns:
        Names of the variables that were filled.

    Raises:
        VariableError: variables with neither value nor initializer, or values of another owner
            under the names of this net; all are named.
        ShapeError: an initializer makes another shape or dtype than its variable declares.
    """
    wanted, lost = [], []
    known = {var.name: var for var in persistent_vars(desc)}
    for var in known.values():
        variable = scope.find(var.name)
        has_value = variable is not None and variable.inner is not None
        if var.initializer is not None and var.initializer.type:
            if overwrite or not has_value:
                wanted.append(var)
        elif not has_value:
            lost.append(var.name)
    if owner is not None and not share and not overwrite:
        _check_owned(known, scope, owner)
    if lost:
        names = ", ".join(map(repr, lost))
        raise VariableError(f"neither value nor initializer: {names}; feed or load them")
    if not wanted:
        return []
    work = Scope(scope.place, parent=scope)  # initializers may read what the scope holds already
    quiet = (context or default_context()).derive(train=True, live_out=None)
    quiet.hooks = []  # they watch the net, not its initializers
    for together in _alike_filled(wanted, work, quiet):
        _run(together, known, work, quiet)
    for var in wanted:
        variable = scope.find(var.name) or scope.var(var.name)
        # Only now, when all have succeeded: a failing initializer leaves no half-filled net.
        variable.bind(work.get(var.name).inner, own=True)
        variable.origin = owner
    work.dissolve()
    return [var.name for var in wanted]


def _check_owned(names: Iterable[str], scope: Scope, owner: Owner) -> None:
    """Refuse values that were initialized for another owner."""
    taken: dict[str, Owner] = {}
    for name in names:
        variable = scope.find(name)
        origin = None if variable is None or variable.inner is None else variable.origin
        if isinstance(origin, Owner) and owner.is_kept_from(name, origin):
            taken[name] = origin
    if not taken:
        return
    names = [repr(name) for name in taken]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    others = " and ".join(dict.fromkeys(repr(other.name) for other in taken.values()))
    again = (
        " (the same code run again, as a notebook's cell, makes another net)"
        if all(other.name == owner.name for other in taken.values())
        else ""
    )
    raise VariableError(
        f"net {owner.name!r}: the scope holds {shown} of another NetBuilder, {others}{again}. Give"
        " this one a Scope() of its own or other names (name=...); initialize(scope, share=True)"
        " lets both use these values, initialize(scope, overwrite=True) draws new ones"
    )


def _alike_filled(
    variables: Iterable[VarDecl], work: Scope, context: OpContext
) -> Iterator[list[VarDecl]]:
    """Fill small variables whose initializers read nothing: one net fills all that are alike.

    Gives the others, those that run together, so that all random numbers are drawn in order.
    """
    apart = Scope(work.place)  # no name of it comes or goes while its nets run
    nets: dict[Any, tuple[PlainNet, str]] = {}
    shared: dict[Any, Any] = {}  # what nets go by: of attributes that initializers share, by id
    together: list[VarDecl] = []
    draws = False  # whether one of these draws random numbers
    for var in variables:
        op = _initializer(var)
        key: Any = None
        if not op.inputs and var.shape is not None and var.dtype is not None:
            if nbytes_of((var.shape, var.dtype)) < _SMALL:
                fast = op.type, id(op.attrs), *op.outputs, op.device, var.shape, var.dtype
                key = shared.get(fast)
                if key is None and (signature := Operator(op).signature()) is not None:
                    key = shared[fast] = signature, op.device, var.shape, var.dtype
        is_random = lookup(op.type).random
        if key is None or (draws and is_random):
            together.append(var)
            draws = draws or is_random
            if len(together) == _TOGETHER:
                yield together
                together, draws = [], False
            continue
        if key not in nets:
            net = _net_of([var], [op], {var.name: var}, apart)
            nets[key] = net, var.name
        net, filled = nets[key]
        net.run(apart, context)
        array = apart.get(filled).inner
        _check_filled(var, array)
        with on_device(work.place):
            work.var(var.name).bind(array.copy())
    if together:
        yield together
    apart.dissolve()


def _run(
    variables: list[VarDecl], known: Mapping[str, VarDecl], work: Scope, context: OpContext
) -> None:
    """Fill variables by one net."""
    net = _net_of(variables, [_initializer(var) for var in variables], known, work)
    net.run(work, context)
    work.release_frames()
    for var in variables:
        _check_filled(var, work.get(var.name).inner)


def _net_of(
    variables: list[VarDecl], ops: list[OpNode], known: Mapping[str, VarDecl], scope: Scope
) -> PlainNet:
    """The net of some initializers, which is to run in a scope."""
    # Beside what is filled, what that is filled from and holds a value: of a master its parameter.
    named = dict.fromkeys(name for op in ops for name in (*op.input_names(), *op.output_names()))
    declared = [known[name].changed(initializer=None) for name in named if name in known]
    for var in variables:
        scope.var(var.name)  # local: results must not reach the caller's variables before the end
    return PlainNet(OpList("initializers", vars=declared, ops=ops), check=False)


def _check_filled(var: VarDecl, array: Any) -> None:
    """Refuse what an initializer has made of another shape or dtype than is declared."""
    dtype, shape = var.dtype, var.shape
    shape_fits = shape is None or fits(array.shape, shape)
    dtype_fits = dtype is None or dtype == array.dtype  # float64 == None, says NumPy
    if not (shape_fits and dtype_fits):
        raise ShapeError(
            f"variable {var.name!r} is {dtype}{format_shape(shape)}; its initializer"
            f" {_initializer(var).type} makes {array.dtype}{format_shape(array.shape)}"
        )


def _initializer(var: VarDecl) -> OpNode:
    """The operator that fills `var`, with the variable's place in the source."""
    op = var.initializer
    assert op is not None
    written = op.output_names()
    if written != [var.name]:
        raise VariableError(
            f"the initializer of {var.name!r} must write it and nothing else;"
            f" {op.type} writes {', '.join(written) or 'nothing'}"
        )
    if op.source is None or not op.source.file:
        op = op.changed(source=var.source)
    return op
