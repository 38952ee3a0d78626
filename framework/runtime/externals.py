"""The variables that a run reads from a scope: what they hold, and what has changed since."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from operator import is_not
from typing import Any

from ..base.errors import ShapeError, VariableError, format_shape, nearest
from ..base.python.bounded_cache import HashedOnce
from ..base.scope import Scope, Variable
from ..base.sizes.shape import ArraySpec, Levels, fits, layout_hint
from ..ir.desc import INPUT
from ..ir.op_list import VarDecl

_MOST = 16
"""Lists of names that a scope remembers the variables of."""
_Entry = tuple[Any, ...]
"""Shape and dtype of a variable, and its offsets."""


def externals_of(names: Sequence[str], scope: Scope) -> Externals:
    """What a scope knows of the variables of a list that does not change."""
    known: dict[int, Externals] = scope.bound.setdefault("externals", {})
    found = known.get(id(names))
    if found is None or found.names is not names:
        if len(known) >= _MOST:
            known.clear()
        found = known[id(names)] = Externals(names, scope)
    return found


class Externals:
    """The variables that a range reads from a scope, and their shapes and dtypes as of last.

    Args:
        names: of the variables.
    """

    def __init__(self, names: Sequence[str], scope: Scope) -> None:
        self.names = names
        self._scope = weakref.ref(scope)
        self._named = -1
        self._variables: list[Variable] = []
        self._last: tuple[Any, ...] | None = None

    @property
    def variables(self) -> list[Variable]:
        """The variables; looked for again where names of scopes have changed.

        Raises:
            VariableError: the scope has none of a name.
        """
        scope = self._scope()
        assert scope is not None, "a scope holds it"
        named = scope.root.named
        if self._named != named:
            self._variables = [scope.get(name) for name in self.names]
            self._named = named
        return self._variables

    @property
    def constants(self) -> object:
        """Another object whenever a variable that no run feeds has another array."""
        last = self._last
        if last is None or any(map(is_not, last[0], [one.inner for one in self.variables])):
            return object()  # it is not known which of them
        return last[-1]

    def specs(
        self, declared: Mapping[str, VarDecl], where: str
    ) -> tuple[dict[str, ArraySpec], dict[str, Levels], tuple[Any, ...]]:
        """Shapes and dtypes of the variables, offsets, and a signature.

        Args:
            declared: the net's variables.

        Raises:
            VariableError: one is not there or holds no value.
            ShapeError: one contradicts its declaration.
        """
        names = self.names
        try:
            variables = self.variables
        except VariableError:
            scope: Any = self._scope()
            name = next(one for one in names if scope.find(one) is None)
            hint = nearest(name, scope.visible_names())
            raise VariableError(f"{where}: the scope has no variable {name!r}{hint}") from None
        arrays = [variable.inner for variable in variables]
        fed: set[int]
        entries: list[_Entry]
        specs: dict[str, ArraySpec]
        levels: dict[str, Levels]
        offsets = [variable.offsets for variable in variables]
        if self._last is None:
            changed: Sequence[int] = range(len(names))
            entries = [()] * len(names)
            specs, levels = {}, {}
            others = None
            fed = {
                number
                for number, name in enumerate(names)
                if name not in declared or declared[name].kind == INPUT
            }
        else:
            old_arrays, old_offsets, fed, entries, specs, levels, others = self._last
            pairs = (old_arrays, arrays), (old_offsets, offsets)
            if not any(any(map(is_not, *pair)) for pair in pairs):
                return dict(specs), dict(levels), _signature(fed, entries, others)
            changed = [
                number
                for number in range(len(names))
                if arrays[number] is not old_arrays[number]
                or offsets[number] is not old_offsets[number]
            ]
            entries, specs, levels = list(entries), dict(specs), dict(levels)
        alike: dict[ArraySpec, ArraySpec] = {}  # layers repeat: the same ones are one object
        for number in changed:
            name, array = names[number], arrays[number]
            if array is None:
                raise VariableError(
                    f"{where}: variable {name!r} holds no value; feed or initialize it"
                )
            spec = array.shape, array.dtype
            spec = alike.setdefault(spec, spec)
            var = declared.get(name)
            if var is not None and (var.shape != spec[0] or var.dtype is not spec[1]):
                _check_given(name, array, var, where)
            specs[name] = spec
            levels.pop(name, None)
            entries[number] = spec
            if own := offsets[number]:
                levels[name] = own
                # By their bytes: the schedule of a loop depends on every number of them.
                entries[number] = *spec, *[level.tobytes() for level in own]
            if number not in fed:
                others = None
        if others is None:
            others = HashedOnce(one for number, one in enumerate(entries) if number not in fed)
        # All at once: threads run a net in scopes of their own.
        self._last = arrays, offsets, fed, entries, specs, levels, others
        return dict(specs), dict(levels), _signature(fed, entries, others)


def _signature(fed: Iterable[int], entries: Sequence[_Entry], others: Any) -> tuple[Any, ...]:
    return others, *[entries[number] for number in fed]


def _check_given(name: str, array: Any, var: VarDecl, where: str) -> None:
    shape, dtype = var.shape, var.dtype
    if (shape is None or fits(array.shape, shape)) and (dtype is None or dtype == array.dtype):
        return
    wanted = f"{dtype or 'any dtype '}{format_shape(shape)}"
    given = f"{array.dtype}{format_shape(array.shape)}"
    raise ShapeError(
        f"{where}: variable {name!r} wants {wanted} and was given {given}"
        + layout_hint(array.shape, shape)
    )
