"""Methods of NetBuilder that run its net: initialise, feed, run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope, default_scope
from ...framework.passes.prune import prune
from ...framework.runtime.initialize import initialize as fill_variables
from ...framework.runtime.plain_net import PlainNet
from .feeding import feed_inputs
from .methods import builder_method
from .net_builder import NetBuilder
from .var import Var


@builder_method
def initialize(
    builder: NetBuilder,
    scope: Scope | None = None,
    context: OpContext | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Fill parameters and states that hold no value (or all of them) by their initialisers."""
    scope = scope or default_scope()
    fill_variables(builder.op_list, scope, context or builder.run_context, overwrite=overwrite)
    builder.run_cache.initialized.add(scope)


@builder_method
def run(
    builder: NetBuilder,
    scope: Scope | None = None,
    *,
    feed: Mapping[str, Any] | None = None,
    fetch: Iterable[Var | str] = (),
    need_backward: bool = True,
    context: OpContext | None = None,
) -> dict[str, np.ndarray]:
    """Run the net once.

    Args:
        feed: input name -> array; cast where that loses no kind (float64 to float32, say).
            Where the input holds sequences: `Sequences`, or a list of arrays.
        fetch: variables whose values are wanted.
        need_backward: False runs forward only, in test phase, and just what `fetch` needs.
        context: its phase is replaced as `need_backward` says.

    Returns:
        Name -> a copy of the value on the host, for each of `fetch`. (Where it carries
        sequences, `scope.sequences(name)` gives them with their offsets.)
    """
    scope = scope or default_scope()
    cache = builder.run_cache
    if scope not in cache.initialized:
        builder.initialize(scope, context)
    if feed:
        builder.feed(scope, feed)
    wanted = [str(var) for var in fetch]
    names = frozenset(wanted)
    key = (context or builder.run_context, need_backward, names)
    own = cache.contexts.get(key)  # nets keep their plans for the same context
    if own is None:
        own = cache.contexts[key] = key[0].derive(train=need_backward, live_out=names)
    builder.bound_net(names, need_backward).run(scope, own)
    return {name: scope.get(name).numpy() for name in wanted}


@builder_method
def bound_net(builder: NetBuilder, names: frozenset[str], need_backward: bool) -> PlainNet:
    """The net that `run` runs: the whole one, or the part that `names` need."""
    if need_backward:
        return builder.net
    nets = builder.run_cache.nets
    if names not in nets:
        forward = builder.forward_net.op_list
        nets[names] = PlainNet(prune(forward, names) if names else forward)
    return nets[names]


@builder_method
def feed(builder: NetBuilder, scope: Scope, values: Mapping[Any, Any]) -> None:
    """Give input variables their values, cast to the declared dtypes.

    `Sequences` bring their offsets along; an input that declares levels takes lists of arrays,
    too.

    Raises:
        VariableError: not a variable of the net.
        ShapeError: wrong shape, or a dtype that cannot be cast without changing its kind.
    """
    feed_inputs(builder.declared, scope, values)
