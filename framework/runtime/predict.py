"""Predicting with a net: its forward operators, in test phase, batch by batch.

Nothing is changed by it. A prediction runs in a scope of its own below that of the parameters, and
states that an operator would write are copied there first. So several threads may predict at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.context import OpContext
from ..base.dtypes import is_whole
from ..base.errors import ShapeError, VariableError, nearest
from ..base.python.bounded_cache import BoundedCache
from ..base.scope import FED, Scope
from ..base.sequence import Sequences
from ..ir.desc import FORWARD, INPUT
from ..ir.op_list import OpList
from ..ir.results import net_results
from ..passes.prune import prune
from .feeding import Given, Inputs, missing_input
from .initialize import PERSISTENT
from .plain_net import PlainNet

if TYPE_CHECKING:
    from .budget import WithinMemory

BATCH_SIZE = 256
"""Rows of a batch whose size is not given."""

_MOST_PARTS = 16  # kinds of results that are remembered


class _Part(NamedTuple):
    """The operators that some results need.

    Attributes:
        fetch: the results. inputs: what must be fed or set. persistent: what must hold values.
        written: parameters and states that an operator writes.
    """

    net: PlainNet
    fetch: tuple[str, ...]
    inputs: tuple[str, ...]
    persistent: tuple[str, ...]
    written: tuple[str, ...]


class Predictor:
    """Predicts with the forward operators of a net; see `predict`."""

    def __init__(self, net: OpList) -> None:
        forward = net.copy()
        forward.ops = [op for op in net.ops if op.role == FORWARD]
        self._forward = forward
        self._vars = {var.name: var for var in net.vars}
        self._inputs = Inputs(forward, between=True)
        self._parts: BoundedCache[Any, _Part] = BoundedCache(_MOST_PARTS)

    def predict(
        self,
        scope: Scope,
        feed: Mapping[Any, Any],
        fetch: Iterable[str] | None = None,
        batch_size: int | None = BATCH_SIZE,
        memory: int | str | None = None,
    ) -> dict[str, Any]:
        """Values of some variables for given inputs.

        Args:
            scope: holds parameters and states; it stays as it is.
            feed: input name -> array or `Sequences`, cut into batches along the first axis (the
                outermost sequences) where the input declares -1 there; other inputs go whole into
                each batch. Inputs that the user set in `scope` need not be fed. A variable that an
                operator computes may be fed, too: what computes it is left out.
            fetch: names of the results. None: those of `net_results`, as far as they can be
                computed from these inputs.
            batch_size: rows of a batch; None: all at once.
            memory: the most that the run of a batch may take; see `byte_size`. What is used late is
                then computed again, and on a GPU waits in the host's memory.

        Returns:
            Name -> array on the host, with the rows of all batches; `Sequences` where the variable
            carries sequences.

        Raises:
            VariableError: unknown names, inputs or parameters without a value, nothing to compute.
            ShapeError: an array that does not fit, inputs with different numbers of rows, or a
                result without a row for each row of a batch.
            RunError: no choice keeps the run of a batch within `memory`.
        """
        if batch_size is not None and not (is_whole(batch_size) and batch_size >= 1):
            raise ShapeError(f"predict: want batch_size >= 1 or None, not {batch_size!r}")
        given = self._inputs.read(feed)
        part = self._part(scope, given, None if fetch is None else tuple(fetch))
        lost = [name for name in part.persistent if _value(scope, name) is None]
        if lost:
            raise VariableError(
                f"predict: the scope holds no value of {', '.join(map(repr, lost))}: give the scope"
                " that was trained or loaded, or initialize it"
            )
        for name in part.inputs:
            why = "" if name in given else missing_input(scope, name, part.net.vars[name])
            if why:
                raise VariableError(f"predict: {why}")
        used = {name: value for name, value in given.items() if name in part.inputs}
        rows = _rows(used)
        results: list[dict[str, Any]] = []
        # Weak, by net: the frames of a net that is gone need not wait for the scope to go.
        works = scope.bound.setdefault("predict", weakref.WeakKeyDictionary())  # by net
        key = frozenset(used), None if memory is None else self._budget(memory, scope)
        idle = works.setdefault(part.net, {}).setdefault(key, [])
        try:
            # `pop` and `append` are atomic: threads share the list without a lock, each takes a
            # scope of its own.
            work, context, within = idle.pop()
        except IndexError:
            work = Scope(parent=scope)
            context = OpContext(train=False, live_out=part.fetch)
            within = None if key[1] is None else _within(part.net, key[1])
        # Copied anew each time: a prediction must not see the states that the former one left.
        for name in part.written:
            work.var(name).set(scope.get(name).inner)
        for begin, end in _batches(rows, batch_size):
            for name, (array, levels) in _cut(used, begin, end, rows).items():
                work.var(name).set(array, levels)
            net = part.net if within is None else within.net_for(work, context)
            net.run(work, context)
            results.append({name: _result(work, name) for name in part.fetch})
            # With one batch the result is whole whatever its shape; of several, rows are joined.
            if rows is not None and end - begin < rows:
                self._check_rows(results[-1], end - begin)
        idle.append((work, context, within))
        return {name: _joined([values[name] for values in results]) for name in part.fetch}

    @staticmethod
    def _budget(memory: int | str, scope: Scope) -> int:
        from .budget import memory_budget  # few predictions want it

        return memory_budget(memory, scope.place, "predict: memory")

    def _part(self, scope: Scope, given: Given, fetch: tuple[str, ...] | None) -> _Part:
        key: Any = fetch
        cut = frozenset(self._inputs.between.intersection(given))
        if fetch is None:
            known = [var.name for var in self._forward.vars if var.kind == INPUT]
            key = frozenset(name for name in known if name in given or _is_set(scope, name))
        part = self._parts.get((key, cut))
        if part is None:
            part = self._make_part(self._wanted(key | cut) if fetch is None else fetch, cut)
            self._parts.add((key, cut), part)
        return part

    def _wanted(self, given: frozenset[str]) -> tuple[str, ...]:
        results = net_results(self._forward, given)
        if not results:
            names = ", ".join(sorted(given)) or "no inputs"
            raise VariableError(
                f"predict: no result can be computed from {names}; feed more inputs, or name fetch="
            )
        return tuple(results)

    def _make_part(self, fetch: tuple[str, ...], cut: frozenset[str]) -> _Part:
        written = {name for op in self._forward.ops for name in op.output_names()}
        for name in fetch:
            var = self._vars.get(name)
            if var is None:
                hint = nearest(name, self._vars)
                raise VariableError(f"predict: the net has no variable {name!r}{hint}")
            if name not in written and var.view is None:
                raise VariableError(f"predict: no forward operator computes {name!r}")
        net = PlainNet(prune(self._forward, fetch, cut), check=False)
        externals = [(name, net.vars[name].kind) for name in net.externals(frozenset(fetch))]
        own = {name for op in net.operators for name in op.output_vars()}
        return _Part(
            net,
            tuple(dict.fromkeys(fetch)),
            tuple(name for name, kind in externals if kind == INPUT),
            tuple(name for name, kind in externals if kind in PERSISTENT),
            tuple(name for name, kind in externals if kind in PERSISTENT and name in own),
        )

    def _check_rows(self, values: Mapping[str, Any], rows: int) -> None:
        for name, value in values.items():
            if isinstance(value, Sequences) or (value.ndim and not value.shape[0] % rows):
                continue
            raise ShapeError(
                f"predict: {name!r} is {list(value.shape)} and has no row for each of the {rows}"
                " rows of a batch; batch_size=None computes it over all rows at once"
            )


def _within(net: PlainNet, budget: int) -> WithinMemory:
    from .budget import WithinMemory  # few predictions want it

    def packed(net: OpList) -> PlainNet:
        return PlainNet(net, check=False, packed=True)

    return WithinMemory(net.op_list, packed, budget, smaller="a smaller batch_size helps")


def _value(scope: Scope, name: str) -> Any:
    variable = scope.find(name)
    return None if variable is None else variable.inner


def _is_set(scope: Scope, name: str) -> bool:
    """Whether the user gave an input a value that stays."""
    variable = scope.find(name)
    return variable is not None and variable.inner is not None and variable.origin is not FED


def _rows(used: Given) -> int | None:
    """Rows (or sequences) that the inputs have in common; None where none of them has rows."""
    counts = {
        name: len(levels[0]) - 1 if levels else len(array)
        for name, (var, array, levels) in used.items()
        if _is_cut(var.shape, array, levels)
    }
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise ShapeError(f"predict: the inputs have different numbers of rows: {shown}")
    return next(iter(counts.values()), None)


def _is_cut(shape: tuple[int, ...] | None, array: Any, levels: Sequence[Any]) -> bool:
    return bool(levels) or (array.ndim > 0 and (shape is None or shape[:1] == (-1,)))


def _batches(rows: int | None, size: int | None) -> Iterator[tuple[int, int]]:
    if not rows or size is None or size >= rows:
        yield 0, rows or 0
        return
    for begin in range(0, rows, size):
        yield begin, min(begin + size, rows)


def _cut(used: Given, begin: int, end: int, rows: int | None) -> dict[str, tuple[Any, Any]]:
    """The rows of one batch; inputs that are not cut come with the first."""
    parts = {}
    for name, (var, array, levels) in used.items():
        if not _is_cut(var.shape, array, levels) or end - begin == rows:
            if not begin:
                parts[name] = array, levels
        elif levels:
            batch = Sequences(array, levels)[begin:end]
            parts[name] = batch.data, batch.levels
        else:
            parts[name] = array[begin:end], ()
    return parts


def _result(scope: Scope, name: str) -> Any:
    variable = scope.get(name)
    return variable.sequences() if variable.offsets else variable.numpy()


def _joined(values: Sequence[Any]) -> Any:
    """The rows of all batches."""
    if len(values) == 1:
        return values[0]
    if not isinstance(values[0], Sequences):
        return np.concatenate(values)
    levels = []
    for number in range(len(values[0].levels)):
        lengths = np.concatenate([np.diff(value.levels[number]) for value in values])
        levels.append(np.concatenate([[0], np.cumsum(lengths)]))
    return Sequences(np.concatenate([value.data for value in values]), tuple(levels))
