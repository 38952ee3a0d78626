"""Methods of NetBuilder that run its net: initialize, feed, run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.cpu.threads import look
from ...framework.base.errors import VariableError, nearest
from ...framework.base.scope import Scope, default_scope
from ...framework.ir.desc import INPUT
from ...framework.passes.prune import prune
from ...framework.runtime.feeding import (
    Given,
    Inputs,
    Undo,
    feed_run,
    missing_input,
    replace_values,
    set_inputs,
)
from ...framework.runtime.initialize import PERSISTENT
from ...framework.runtime.initialize import initialize as fill_variables
from ...framework.runtime.plain_net import PlainNet
from ...framework.runtime.predict import BATCH_SIZE, Predictor
from .derived_nets import BoundRun
from .gradients import check_shared_rates, settle_rates
from .methods import running_method
from .net_builder import NetBuilder
from .var import Var

_MOST_RUNS = 64
"""Kinds of runs whose preparation is kept; contexts made anew for each run would pile up."""


@running_method
def initialize(
    builder: NetBuilder,
    scope: Scope | None = None,
    context: OpContext | None = None,
    *,
    overwrite: bool = False,
    share: bool = False,
) -> None:
    """Fill parameters and states that hold no value by their initializers.

    Values that the user set, or that come from a file, are used. Those that another NetBuilder
    initialized, in this scope or in a parent, are not: two nets have no parameters in common unless
    somebody says so.

    Args:
        overwrite: fill all of them, also those that hold a value, whoever made it.
        share: use the values of other builders under the same names, now and in later runs in this
            scope and its kids. Optimizers' states are among them: with Adam two nets that train in
            turn have one set of moments and one counter of steps, which counts the steps of both,
            and a schedule goes by that. To have counters apart, give one net a kid of the scope
            with its own: kid = scope.new_scope(); kid.var(name) for each state, then train there.

    Raises:
        VariableError: values of another builder, without `share` or `overwrite`; or variables with
            neither value nor initializer.
    """
    if scope is None:
        scope = default_scope()
    _check_places("initialize", "initialize(scope, OpContext(seed=0))", scope, context)
    _fill(builder, scope, context, overwrite=overwrite, share=share)
    if builder.objective.optimizers:
        settle_rates(builder, scope)


def _fill(
    builder: NetBuilder,
    scope: Scope,
    context: OpContext | None,
    *,
    overwrite: bool = False,
    share: bool = False,
) -> None:
    shared = share or _is_shared(builder, scope)
    if builder.objective.optimizers and shared and not overwrite:
        check_shared_rates(builder, scope)
    fill_variables(
        builder.op_list,
        scope,
        context or builder.run_context,
        overwrite=overwrite,
        owner=builder.owner,
        share=shared,
    )
    if share:
        builder.shared_scopes.add(scope)
    builder.run_cache.initialized.add(scope)


def _is_shared(builder: NetBuilder, scope: Scope) -> bool:
    above: Scope | None = scope
    while above is not None:
        if above in builder.shared_scopes:
            return True
        above = above.parent
    return False


@running_method
def run(
    builder: NetBuilder,
    scope: Scope | None = None,
    context: OpContext | None = None,
    need_backward: bool = True,
    *,
    feed: Mapping[Any, Any] | None = None,
    fetch: Var | str | Iterable[Var | str] = (),
) -> dict[str, np.ndarray]:
    """Run the net once.

    All arguments are checked before the first operator runs; a run that is refused leaves the
    scope as it was.

    Args:
        scope: holds parameters and states, which are initialized first where they hold no value;
            None: the process's default scope.
        context: its phase is replaced as `need_backward` says.
        need_backward: False runs forward only, in test phase, and just what `fetch` needs.
        feed: input name -> array; cast where that loses no kind (float64 to float32, say).
            Where the input holds sequences: `Sequences`, or a list of arrays. A run that is given a
            feed, an empty one too, reads no input that an earlier feed left in the scope: each
            must be in the feed or set to stay (`feed(scope, ...)`, `scope.var(name).set(...)`).
            None: the run reads what the scope holds. A variable that a forward operator computes
            may also be fed, if the run has no gradients: what computes it is left out, and just
            what `fetch` needs runs.
        fetch: variable, or variables, whose values are wanted.

    Returns:
        Name -> a copy of the value on the host, for each of `fetch`. (Where it carries
        sequences, `scope.sequences(name)` gives them with their offsets.)

    Raises:
        VariableError: an unknown name, a variable to fetch that the run does not compute, a
            computed variable to feed to a run with gradients, or an input without a value.
        ShapeError: an array that does not fit its input, or shapes that do not fit together.
    """
    if scope is None:
        scope = default_scope()
    if type(scope) is not Scope or context is not None or type(need_backward) is not bool:
        _check_call(scope, context, need_backward)
    several = fetch if type(fetch) is list else _listed(fetch)
    names = tuple([var if type(var) is str else _name_of(builder, var) for var in several])
    cache = builder.run_cache
    key = (context or builder.run_context, need_backward, names)
    bound = cache.runs.get(key)
    if bound is None:
        if len(cache.runs) >= _MOST_RUNS:
            cache.runs.clear()
        bound = cache.runs[key] = _bind_run(builder, *key)
    given: Given = {}
    if feed is not None:
        given = bound.fed.read(feed, lambda key: _name_of(builder, key))
        if not bound.fed.between.isdisjoint(given):
            bound = _bind_cut(builder, key, bound.fed.between.intersection(given))
        for name in bound.inputs:
            if name not in given:
                why = missing_input(scope, name, bound.net.vars[name])
                if why:
                    raise VariableError(why)
    look()
    frame = bound.net.bound_frame(scope, bound.context)  # made by a run that initialized the scope
    if frame is not None and replace_values(scope, given):
        frame.run(bound.context)
    else:
        _run_anew(builder, scope, context, bound, given)
    return {name: scope.get(name).numpy() for name in names}


def _run_anew(
    builder: NetBuilder,
    scope: Scope,
    context: OpContext | None,
    bound: BoundRun,
    given: Given,
) -> None:
    """A run that must be planned or bound first, which may fail: then the scope is as before."""
    initialized = builder.run_cache.initialized
    undo = Undo(scope)
    known = scope in initialized
    try:
        if not known:
            _fill(builder, scope, context)
        feed_run(scope, given, undo)
        for name in bound.inputs:
            variable = scope.find(name)
            if variable is None or variable.inner is None:
                raise VariableError(missing_input(scope, name, bound.net.vars[name]))
        frame = bound.net.frame(scope, bound.context)
    except Exception:
        undo.undo()
        if not known:
            initialized.discard(scope)
        raise
    if builder.objective.optimizers:
        settle_rates(builder, scope, given)
    frame.run(bound.context)


def _listed(fetch: Any) -> Iterable[Any]:
    """What to fetch as several: one variable, or one name, is one of them."""
    if isinstance(fetch, (str, Var)):
        return (fetch,)
    if isinstance(fetch, Iterable):
        return fetch
    raise VariableError(
        f"fetch: want a variable, its name or a list of them, not a {type(fetch).__name__}"
    )


def _name_of(builder: NetBuilder, var: Any) -> str:
    if isinstance(var, Var):
        if var.builder is not builder:
            raise VariableError(
                f"{var.name!r} belongs to another NetBuilder ({var.builder.name or 'unnamed'});"
                " give its name, or the Var of the net that runs"
            )
        return var.name
    if isinstance(var, str):
        return str(var)
    raise VariableError(f"want a variable or its name, not {var!r}")


def _check_call(scope: Any, context: Any, need_backward: Any) -> None:
    """The positional arguments of `run` are what they should be."""
    if (
        isinstance(scope, Scope)
        and (context is None or isinstance(context, OpContext))
        and (need_backward is True or need_backward is False)
    ):
        return
    call = "run(scope, feed={'x': array}, fetch=['y'])"
    for what, value in (("scope", scope), ("context", context)):
        if isinstance(value, Mapping):
            raise VariableError(f"run: a feed is given by name: {call}; not as the {what}")
    _check_places("run", call, scope, context)
    raise VariableError(f"run: need_backward is True or False, not {need_backward!r}: {call}")


def _check_places(method: str, call: str, scope: Any, context: Any) -> None:
    """The scope and the context of a call are such, or the message shows the right call."""
    for what, value, kind in (("scope", scope, Scope), ("context", context, OpContext)):
        if value is not None and not isinstance(value, kind):
            raise VariableError(
                f"{method}: the {what} must be an opscope.{kind.__name__}, not a"
                f" {type(value).__name__}: {call}"
            )


def _bind_cut(
    builder: NetBuilder, key: tuple[OpContext, bool, tuple[str, ...]], cut: set[str]
) -> BoundRun:
    """As `_bind_run`, of a run that is fed variables which operators compute."""
    if key[1] and builder.objective.costs:
        raise VariableError(
            f"feed: {min(cut)!r} is computed by an operator, whose gradient the run wants; feed"
            " what it is computed from, or run with need_backward=False"
        )
    if not key[2]:
        raise VariableError(
            f"feed: {min(cut)!r} is computed by an operator: name what is wanted of it by fetch="
        )
    runs = builder.run_cache.runs
    own = (*key, frozenset(cut))
    if own not in runs:
        runs[own] = _bind_run(builder, *own)
    return runs[own]


def _bind_run(
    builder: NetBuilder,
    context: OpContext,
    need_backward: bool,
    names: tuple[str, ...],
    cut: Collection[str] = (),
) -> BoundRun:
    """Check what a run is asked for, and prepare all that does not depend on the scope.

    Args:
        cut: computed variables that are fed.
    """
    whole = builder.net
    wanted = frozenset(names)
    for name in names:
        if name not in whole.vars:
            raise VariableError(
                f"fetch: the net has no variable {name!r}{nearest(name, whole.vars)}"
            )
    kept = {name for name in names if whole.vars[name].kind in (*PERSISTENT, INPUT)} | set(cut)
    if cut:
        net = PlainNet(prune(builder.forward_net.op_list, names, cut), check=False)
    else:
        net = builder.bound_net(wanted, need_backward)
    computed = {name for op in net.operators for name in op.output_vars()}
    for name in names:
        if name not in computed and name not in kept and whole.vars[name].view is None:
            is_computed = any(name in op.output_vars() for op in whole.operators)
            raise VariableError(
                f"fetch: {name!r} is computed by the operators of gradients and updates, which"
                " need_backward=False leaves out"
                if is_computed and not need_backward
                else f"fetch: no operator of the net computes {name!r}"
            )
    live_out = frozenset(name for name in names if name in net.vars)
    inputs = [name for name in net.externals(live_out) if net.vars[name].kind == INPUT]
    inputs += [name for name in names if whole.vars[name].kind == INPUT and name not in computed]
    return BoundRun(
        net,
        context.derive(train=need_backward, live_out=wanted),
        Inputs(builder.op_list, between=True),
        tuple(dict.fromkeys(inputs)),
    )


@running_method
def predict(
    builder: NetBuilder,
    feed: Mapping[Any, Any],
    fetch: Var | str | Iterable[Var | str] | None = None,
    batch_size: int | None = BATCH_SIZE,
    *,
    scope: Scope | None = None,
    memory: int | str | None = None,
) -> dict[str, Any]:
    """Values of some variables for given inputs: forward, in test phase, batch by batch.

    It changes nothing in the scope, and several threads may predict at once.

    Args:
        feed: input name -> array or `Sequences`, cut into batches along the first axis (the
            outermost sequences) where the input declares -1 there; other inputs go whole into each
            batch. Inputs that the user set in `scope` need not be fed.
        fetch: the results. None: the variables of `net_results`; see
            `Predictor.predict`.
        batch_size: rows of a batch; None: all at once.
        scope: holds parameters and states that were trained, loaded or initialized; None: the
            process's default scope.
        memory: the most that the run of a batch may take, as `train` takes it.

    Returns:
        Name -> array on the host, with the rows of all batches; `Sequences` where the variable
        carries sequences.

    Raises:
        VariableError: unknown names, inputs or parameters without a value, nothing to compute.
        ShapeError: an array that does not fit, inputs with different numbers of rows, or a
            result without a row for each row of a batch.
        RunError: no choice keeps the run of a batch within `memory`.
    """
    if any(isinstance(value, Scope) for value in (feed, fetch, batch_size)) or not (
        scope is None or isinstance(scope, Scope)
    ):
        raise VariableError(
            "predict: want predict({'x': array}, scope=scope), and fetch=['y'] also by name"
        )
    cache = builder.run_cache
    if cache.predictor is None:
        cache.predictor = Predictor(builder.forward_net.op_list)
    wanted = None if fetch is None else [_name_of(builder, var) for var in _listed(fetch)]
    named = feed
    if isinstance(feed, Mapping):
        named = {_name_of(builder, key): value for key, value in feed.items()}
    return cache.predictor.predict(scope or default_scope(), named, wanted, batch_size, memory)


@running_method
def bound_net(builder: NetBuilder, names: frozenset[str], need_backward: bool) -> PlainNet:
    """The net that `run` runs: the whole one, or the part that `names` need."""
    if need_backward:
        return builder.net
    nets = builder.run_cache.nets
    if names not in nets:
        whole = builder.forward_net
        forward = whole.op_list
        part = prune(forward, [name for name in names if name in whole.vars]) if names else forward
        every = len(part.ops) == len(forward.ops)
        nets[names] = whole.copy() if every else PlainNet(part, check=False)
    return nets[names]


@running_method
def feed(builder: NetBuilder, scope: Scope, values: Mapping[Any, Any]) -> None:
    """Give input variables values that stay, cast to the declared dtypes: all of them or none.

    `Sequences` bring their offsets along; an input that declares levels also takes lists of arrays.

    Raises:
        VariableError: not a variable of the net, or one that an operator computes.
        ShapeError: wrong shape, or a dtype that cannot be cast without changing its kind.
    """
    if not isinstance(scope, Scope):
        raise VariableError("feed: the scope comes first: feed(scope, {'x': array})")
    fed = Inputs(builder.op_list)
    set_inputs(scope, fed.read(values, lambda key: _name_of(builder, key)))
