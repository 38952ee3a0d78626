"""Putting minibatches into a scope: quickly, and only when they are sound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..framework.desc import INPUT, var_dtype
from ..framework.errors import NotFiniteError, ShapeError, VariableError, nearest
from ..framework.net import Net
from ..framework.scope import Scope


@np.errstate(over="ignore", invalid="ignore")
def not_finite(array: Any) -> int:
    """Numbers in a host array of floats that are NaN or infinite. Cheap where there are none."""
    if np.isfinite(np.add.reduce(array, axis=None)):
        return 0
    return array.size - int(np.count_nonzero(np.isfinite(array)))  # a sum may just overflow


class Feeder:
    """Feeds minibatches: mappings of variable names (or handles) to arrays.

    Names, kinds of numbers and finiteness are checked before the first value is set. Numbers are
    cast where that loses no kind: float64 to float32, int32 to int64, integers to floats.
    """

    def __init__(self, net: Net, scope: Scope) -> None:
        self._scope = scope
        self._declared = {var.name: var for var in net.desc.vars}
        self._targets: dict[str, tuple[Any, np.dtype | None]] = {}
        self._keys: dict[bool, frozenset[str]] = {}

    def __call__(
        self, batch: Mapping[Any, Any], where: Callable[[], str], *, held_out: bool = False
    ) -> int:
        """Feed one minibatch; returns its rows, the length of the first array that has any.

        Raises:
            VariableError: no mapping, an unknown name, or other names than in earlier minibatches.
            ShapeError: numbers of the wrong kind, or no array.
            NotFiniteError: NaN or infinity in an array; the scope is as before.
        """
        if type(batch) is not dict and not isinstance(batch, Mapping):
            raise VariableError(
                f"{where()}: a minibatch maps names to arrays; this is a {type(batch).__name__}"
            )
        arrays = {}
        for key, value in batch.items():
            name = str(key)
            arrays[name] = self._array(name, value, where)
        self._check_keys(arrays, where, held_out)
        rows = 0
        for name, array in arrays.items():
            self._targets[name][0].set(array)
            if array.ndim and not rows:
                rows = array.shape[0]
        return rows or 1

    def _array(self, name: str, value: Any, where: Callable[[], str]) -> Any:
        target = self._targets.get(name) or self._target(name, where)
        if not hasattr(value, "dtype"):
            try:
                value = np.asarray(value)
            except ValueError as error:
                raise ShapeError(f"{where()}: {name!r} is no array: {error}") from None
        wanted = target[1]
        if wanted is not None and value.dtype != wanted:
            if not _can_cast(value.dtype, wanted):
                raise ShapeError(
                    f"{where()}: variable {name!r} wants {wanted} and was given {value.dtype}"
                )
            value = value.astype(wanted)
        if value.dtype.kind == "f" and isinstance(value, np.ndarray):
            bad = not_finite(value)
            if bad:
                raise NotFiniteError(
                    f"{where()}: {bad} of the {value.size} numbers given for {name!r} are NaN or"
                    " infinite"
                )
        return value

    def _target(self, name: str, where: Callable[[], str]) -> tuple[Any, np.dtype | None]:
        var = self._declared.get(name)
        if var is None:
            inputs = [known for known, var in self._declared.items() if var.kind == INPUT]
            raise VariableError(
                f"{where()}: the net has no variable {name!r}{nearest(name, self._declared)};"
                f" its inputs are {', '.join(inputs)}"
            )
        variable = self._scope.find(name) or self._scope.var(name)
        self._targets[name] = variable, var_dtype(var)
        return self._targets[name]

    def _check_keys(
        self, arrays: Mapping[str, Any], where: Callable[[], str], held_out: bool
    ) -> None:
        """A variable that is left out now would keep the numbers of an earlier minibatch."""
        known = self._keys.get(held_out)
        if known is None:
            self._keys[held_out] = frozenset(arrays)
        elif known != arrays.keys():
            told = ", ".join(sorted(known))
            raise VariableError(
                f"{where()}: feeds {', '.join(sorted(arrays))}; the minibatches before fed {told}"
            )


def _can_cast(given: np.dtype, wanted: np.dtype) -> bool:
    both_integers = given.kind in "iu" and wanted.kind in "iu"
    return both_integers or np.can_cast(given, wanted, "same_kind")
