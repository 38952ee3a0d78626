"""Giving parameters and states their first values, by the operators their declarations name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...proto import net_pb2 as pb
from ..base.context import OpContext, default_context
from ..base.errors import ShapeError, VariableError, format_shape
from ..base.scope import Scope
from ..base.sizes.shape import fits
from ..ir.desc import PARAMETER, STATE
from ..ir.messages import from_message
from ..ir.op_list import OpList, OpNode, VarDecl
from .plain_net import PlainNet

PERSISTENT = (PARAMETER, STATE)
"""Kinds of variables that outlive a run: they are initialized, saved and loaded."""
_TOGETHER = 1 << 10
"""Initializers that run as one net: what is planned and bound for more of them would only take
memory."""


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
    for var in persistent_vars(desc):
        variable = scope.find(var.name)
        has_value = variable is not None and variable.inner is not None
        if var.initializer is not None and var.initializer.type:
            if overwrite or not has_value:
                wanted.append(var)
        elif not has_value:
            lost.append(var.name)
    if owner is not None and not share and not overwrite:
        _check_owned(desc, scope, owner)
    if lost:
        names = ", ".join(map(repr, lost))
        raise VariableError(f"neither value nor initializer: {names}; feed or load them")
    if not wanted:
        return []
    work = Scope(scope.place, parent=scope)  # initializers may read what the scope holds already
    known = {var.name: var for var in persistent_vars(desc)}
    for begin in range(0, len(wanted), _TOGETHER):
        _run(wanted[begin : begin + _TOGETHER], known, work, context or default_context())
    for var in wanted:
        variable = scope.find(var.name) or scope.var(var.name)
        # Only now, when all have succeeded: a failing initializer leaves no half-filled net.
        variable.bind(work.get(var.name).inner, own=True)
        variable.origin = owner
    work.dissolve()
    return [var.name for var in wanted]


def _check_owned(desc: OpList | pb.NetDesc, scope: Scope, owner: Owner) -> None:
    """Refuse values that were initialized for another owner."""
    taken: dict[str, Owner] = {}
    for var in persistent_vars(desc):
        variable = scope.find(var.name)
        origin = None if variable is None or variable.inner is None else variable.origin
        if isinstance(origin, Owner) and owner.is_kept_from(var.name, origin):
            taken[var.name] = origin
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


def _run(
    variables: list[VarDecl], known: Mapping[str, VarDecl], work: Scope, context: OpContext
) -> None:
    ops = [_initializer(var) for var in variables]
    # Beside what is filled, what that is filled from and holds a value: of a master its parameter.
    named = dict.fromkeys(name for op in ops for name in (*op.input_names(), *op.output_names()))
    declared = [known[name].changed(initializer=None) for name in named if name in known]
    net = PlainNet(OpList("initializers", vars=declared, ops=ops), check=False)
    for var in variables:
        work.var(var.name)  # local: results must not reach the caller's variables before the end
    quiet = context.derive(train=True, live_out=None)
    quiet.hooks = []  # they watch the net, not its initializers
    net.run(work, quiet)
    work.release_frames()
    for var in variables:
        array = work.get(var.name).inner
        dtype = var.dtype
        shape = var.shape
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
