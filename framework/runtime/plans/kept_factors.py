"""Weights of nets that only predict, packed once for all runs, and again when they have changed.

Products of some rows gain by a second factor that lies as they read it, convolutions by such
filters; packing takes as long as they do. Batch norms behind filters are folded into a factor and a
term of each channel, which are made of several variables. The numbers are not compared: that takes
as long as reading them. Instead a `Variable` counts what writes to its array: `set`, feeds, runs.
Who asks for the array itself may write to it at any time: such a variable is `exposed`, and its
weights are packed no more; neither are those of arrays that a caller shares.

Frames of one scope, for batches of several sizes, share what was packed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.python.cached import new_lock
from ...base.scope import Scope, Variable
from ...base.untrusted.limits import physical_memory
from ...fusion.team import ParallelTask
from ...ir.desc import INPUT
from ..externals import externals_of
from .plan import Plan

_LEAST, _LEAST_FILTERS = 1 << 11, 1 << 8
"""Elements of a matrix, and of filters or a matrix of bytes, that are worth it."""
_MOST = physical_memory() // 16
"""Bytes that are packed for a plan; what is more is multiplied as it lies. A transformer of 400 MB
takes a fifth less time when all of it is packed."""
_MOST_KEPT = 16
"""Forms of nets whose weights a scope remembers."""


class Packs:
    """What was packed of one variable's array, for all frames that read it.

    Attributes:
        stamp: the variable's when it was packed.
        variable: that has the array.
        changes: another object whenever something happened to any variable of which something is
            packed; in most runs nothing has, and they need not look at hundreds of variables.
    """

    changes = object()

    @classmethod
    def outdate(cls) -> None:
        """Note that a variable of which something is packed was written to, or exposed."""
        cls.changes = object()  # no count: two threads might count one of two

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        self._lock = new_lock()
        self._entries: dict[Any, tuple[Any, Callable[[], Any]]] = {}
        self.stamp = variable.stamp

    def get(self, key: Any, make: Callable[[], tuple[Any, ParallelTask]]) -> Any:
        """The memory of a key, filled; for a new key `make` returns it with what fills it."""
        with self._lock:
            if key not in self._entries:
                memory, fill = make()
                fill()
                self._entries[key] = memory, fill
            return self._entries[key][0]

    @property
    def memory(self) -> list[Any]:
        """All that was packed."""
        with self._lock:
            return [memory for memory, _ in self._entries.values()]

    def is_fresh(self) -> bool:
        """Whether nothing was written to the array since it was packed, and nobody may have."""
        return self.stamp == self.variable.stamp and not self.variable.exposed

    def follow(self, key: Any, other: Packs) -> None:
        """Fill the memory that another variable's packs have for a key when this one changes."""
        with self._lock:
            self._entries.setdefault(key, other._entries[key])

    def refresh(self) -> None:
        """Fill all memory again where the variable has changed."""
        with self._lock:
            stamp = self.variable.stamp
            if self.stamp == stamp:  # another thread was first
                return
            for _, fill in self._entries.values():
                fill()
            self.stamp = stamp


class Kept:
    """The weights that may be packed, of the frames of a net in a scope.

    Args:
        variables: by name; their arrays are what products of the frames read.

    Attributes:
        dropped: names of those that are kept no more, as somebody may hold their array.
    """

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        self.dropped: list[str] = []
        self._variables = dict(variables)
        self._names = {one.inner.ctypes.data: name for name, one in variables.items()}
        self._used: dict[str, Packs] = {}
        self._counted: set[Any] = set()
        self._bytes = 0
        self._seen: object = None  # changes when all that is used was fresh

    def holds(self, array: Any) -> bool:
        """Whether an array is one of the weights, or a view that begins where they do."""
        # By address, as a kernel may see a view (transposed, reshaped) of the weights.
        return type(array) is np.ndarray and array.ctypes.data in self._names

    def get(
        self, array: Any, how: Any, size: int, make: Callable[[], tuple[Any, ParallelTask]]
    ) -> Any:
        """The packed memory of weights, or of a view of them; None where it would be too much.

        Args:
            how: what else it depends on. size: bytes that it takes.
            make: returns the memory and the task that fills it.
        """
        return self.get_of((array,), how, size, make)

    def get_of(
        self,
        arrays: Sequence[Any],
        how: Any,
        size: int,
        make: Callable[[], tuple[Any, ParallelTask]],
    ) -> Any:
        """As `get`, of what is made of several arrays: it is filled again when one has changed."""
        names = [self._names[array.ctypes.data] for array in arrays]
        # By address: of several variables one may get another array while others keep theirs.
        key = *((array.ctypes.data, array.shape, array.strides) for array in arrays), how
        if key not in self._counted:  # each step of a loop asks
            if self._bytes + size > _MOST:
                return None
            self._bytes += size
            self._counted.add(key)
        first, *others = [self._packs(name) for name in names]
        memory = first.get(key, make)
        for other in others:
            other.follow(key, first)
        return memory

    def _packs(self, name: str) -> Packs:
        variable = self._variables[name]
        if variable.packs is None:
            variable.packs = Packs(variable)
        return self._use(name, variable.packs)

    def _use(self, name: str, packs: Packs) -> Packs:
        """Note that what is packed of a variable is read; it may be outdated."""
        used = self._used.setdefault(name, packs)
        if not used.is_fresh():
            Packs.outdate()
        return used

    def reuse(self, array: Any) -> None:
        """Note that this frame reads what others have packed of weights: calls bound for them."""
        name = self._names[array.ctypes.data]
        packs = self._variables[name].packs
        if packs is not None:
            self._use(name, packs)

    def expose(self, name: str) -> None:
        """Note that somebody is given the array of a variable."""
        if name in self._variables:
            self._variables[name].exposed = True
            Packs.outdate()

    def refresh(self, seen: int) -> set[str]:
        """Pack again what has changed.

        Args:
            seen: how many were `dropped` when a frame asked last.

        Returns:
            Names of those dropped since: what reads them is to be bound again.
        """
        if self._seen is Packs.changes:
            return set(self.dropped[seen:])
        changes = Packs.changes  # before the look: the next one sees what comes in between
        for name, packs in list(self._used.items()):
            variable = packs.variable
            if variable.exposed:
                # For good: who holds the array may write at any time, and nothing tells.
                variable.packs = None
                del self._variables[name], self._used[name]
                del self._names[variable.inner.ctypes.data]
                self.dropped.append(name)
            elif not packs.is_fresh():
                packs.refresh()
        self._seen = changes  # after it: other threads wait for what is packed again
        return set(self.dropped[seen:])

    def serves(self, variables: Mapping[str, Variable]) -> bool:
        """Whether it is of these variables, with the arrays that they have now."""
        own = self._variables
        return own.keys() == variables.keys() and all(
            one is own[name] and self._names.get(one.inner.ctypes.data) == name
            for name, one in variables.items()
        )


def written_variables(plan: Plan, scope: Scope) -> Sequence[Variable]:
    """The variables from outside that a run writes to."""
    written = plan.steps.written
    written |= {base for name, base in plan.views.items() if name in written}
    return [scope.get(name) for name in plan.externals if name in written]


def _weights(plan: Plan) -> list[tuple[int, str]]:
    """The variables from outside whose arrays stay: their numbers and names."""
    declared = plan.declared
    # Writing through a view moves no stamp of the base; inputs are other arrays in the next run.
    viewed = {var.view.base for var in declared.values() if var.view is not None}
    return [
        (number, name)
        for number, name in enumerate(plan.externals)
        if name in declared
        and declared[name].kind != INPUT
        and declared[name].view is None
        and name not in viewed
    ]


def _of_tails(plan: Plan) -> frozenset[str]:
    """The variables that steps read whose first operator computes others which learn nothing."""
    entries = {step.operators[0].entry for step in plan.steps}
    folding = {one for one in entries if any(kernel.inference_tails for kernel in one.kernels)}
    own = [step.reads for step in plan.steps if step.operators[0].entry in folding]
    return frozenset(name for reads in own for name in reads)


def _is_vector(array: Any) -> bool:
    return type(array) is np.ndarray and array.ndim == 1


def _suits(array: Any) -> bool:
    """Whether an array may be worth packing: a matrix, or the filters of a convolution."""
    if type(array) is not np.ndarray or array.ndim < 2:
        return False
    is_read_well = array.ndim == 2 and array.itemsize > 1  # products of bytes read panels alone
    return array.size >= (_LEAST if is_read_well else _LEAST_FILTERS)


def kept_factors(plan: Plan, scope: Scope, written: Collection[Variable]) -> Kept | None:
    """The weights of a plan that may be packed; None where there are none, or the plan trains."""
    # Where updates run the weights change with every run, and packing would never pay.
    if not plan.options.keep_packed or not plan.steps.are_forward:
        return None
    known: dict[int, tuple[Any, object, Kept | None]] = scope.bound.setdefault("kept", {})
    outside = externals_of(plan.externals, scope)
    constants = outside.constants
    steps, before, kept = known.get(id(plan.steps), (None, None, None))
    if steps is plan.steps and before is constants:
        return kept  # which drops what has been exposed since
    variables = outside.variables
    factors = {}
    of_tails = plan.steps.fact("vectors of tails", lambda: _of_tails(plan))
    for number, name in plan.steps.fact("kept factors", lambda: _weights(plan)):
        variable = variables[number]
        suits = _suits(variable.inner) or (_is_vector(variable.inner) and name in of_tails)
        if suits and not variable.exposed and variable not in written:
            factors[name] = variable
    if steps is not plan.steps or kept is None or not kept.serves(factors):
        kept = Kept(factors) if factors else None
    if steps is None and len(known) >= _MOST_KEPT:
        known.clear()
    known[id(plan.steps)] = plan.steps, constants, kept
    return kept
