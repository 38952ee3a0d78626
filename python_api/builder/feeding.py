"""Setting variables of a scope from the user's arrays, after checks of names, kinds and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...framework.base.dtypes import is_float
from ...framework.base.errors import NotFiniteError, ShapeError, VariableError, nearest
from ...framework.base.scope import Scope
from ...framework.base.sequence import Sequences
from ...framework.base.shape import Levels
from ...framework.ir.desc import INPUT
from ...framework.ir.infer import fits
from ...framework.ir.op_list import OpList, VarDecl


@np.errstate(over="ignore", invalid="ignore")
def not_finite(array: Any) -> int:
    """Numbers in a host array of floats that are NaN or infinite. Cheap where there are none."""
    if np.isfinite(np.add.reduce(array, axis=None)):
        return 0
    return array.size - int(np.count_nonzero(np.isfinite(array)))  # a sum may just overflow


class Feeder:
    """Feeds minibatches: mappings of variable names (or handles) to arrays or `Sequences`.

    Names, kinds of numbers and finiteness are checked before the first value is set. Numbers are
    cast where that loses no kind: float64 to float32, int32 to int64, integers to floats.
    """

    def __init__(self, net: OpList, scope: Scope) -> None:
        self._scope = scope
        self._declared = {var.name: var for var in net.vars}
        self._targets: dict[str, tuple[Any, np.dtype | None, VarDecl]] = {}
        self._keys: dict[bool, frozenset[str]] = {}

    def __call__(
        self, batch: Mapping[Any, Any], where: Callable[[], str], *, held_out: bool = False
    ) -> int:
        """Feed one minibatch; returns its rows, the length of the first array that has any.

        Of sequences these are the packed rows, over which costs are means.

        Raises:
            VariableError: no mapping, an unknown name, or other names than in earlier minibatches.
            ShapeError: numbers of the wrong kind, or no array.
            NotFiniteError: NaN or infinity in an array; the scope is as before.
        """
        if type(batch) is not dict and not isinstance(batch, Mapping):
            raise VariableError(
                f"{where()}: a minibatch maps names to arrays; this is a {type(batch).__name__}"
            )
        arrays, levels = {}, {}
        for key, value in batch.items():
            name = str(key)
            arrays[name], levels[name] = self._array(name, value, where)
        self._check_keys(arrays, where, held_out)
        rows = 0
        for name, array in arrays.items():
            self._targets[name][0].set(array, levels[name])
            if array.ndim and not rows:
                rows = array.shape[0]
        return rows or 1

    def _array(self, name: str, value: Any, where: Callable[[], str]) -> tuple[Any, Levels]:
        _, dtype, var = self._targets.get(name) or self._target(name, where)
        array, levels = _as_declared(value, var, dtype, lambda: f"{where()}: variable")
        if is_float(array.dtype) and isinstance(array, np.ndarray):
            bad = not_finite(array)
            if bad:
                raise NotFiniteError(
                    f"{where()}: {bad} of the {array.size} numbers given for {name!r} are NaN or"
                    " infinite"
                )
        return array, levels

    def _target(self, name: str, where: Callable[[], str]) -> tuple[Any, np.dtype | None, VarDecl]:
        var = self._declared.get(name)
        if var is None:
            inputs = [known for known, var in self._declared.items() if var.kind == INPUT]
            raise VariableError(
                f"{where()}: the net has no variable {name!r}{nearest(name, self._declared)};"
                f" its inputs are {', '.join(inputs)}"
            )
        variable = self._scope.find(name) or self._scope.var(name)
        self._targets[name] = variable, var.dtype, var
        return self._targets[name]

    def _check_keys(
        self, arrays: Mapping[str, Any], where: Callable[[], str], held_out: bool
    ) -> None:
        """All minibatches feed the same variables: one left out would keep its former numbers."""
        known = self._keys.get(held_out)
        if known is None:
            self._keys[held_out] = frozenset(arrays)
        elif known != arrays.keys():
            before = ", ".join(sorted(known))
            raise VariableError(
                f"{where()}: feeds {', '.join(sorted(arrays))}; the minibatches before fed {before}"
            )


def feed_inputs(
    declared: Callable[[str], VarDecl], scope: Scope, values: Mapping[Any, Any]
) -> None:
    """Set variables of a scope, cast to their declared dtypes.

    Args:
        declared: the declaration of a variable, by name.
        values: variable (a name or handle) -> array, `Sequences`, or a list of arrays where the
            declaration says that the variable holds sequences.

    Raises:
        VariableError: `declared` knows no such variable.
        ShapeError: wrong shape, or a dtype that cannot be cast without changing its kind.
    """
    for key, value in values.items():
        name = str(key)
        var = declared(name)
        shape = var.shape
        array, levels = _as_declared(value, var, var.dtype, lambda: "input")
        if shape is not None and not fits(array.shape, shape):
            raise ShapeError(
                f"input {name!r} wants {list(shape)} (-1 = any) and was given {list(array.shape)}"
            )
        (scope.find(name) or scope.var(name)).set(array, levels)


def _as_declared(
    value: Any, var: VarDecl, dtype: np.dtype | None, what: Callable[[], str]
) -> tuple[Any, Levels]:
    """A value as an array of the declared dtype, and the offsets of the sequences in it.

    Args:
        what: begins the message of an error: `input`, say.

    Raises:
        ShapeError: no array, or numbers that cannot be cast without changing their kind.
    """
    levels: Levels = ()
    if var.sequence_levels or isinstance(value, Sequences):
        value, levels = rows_and_offsets(value, var, what())
    if not hasattr(value, "dtype"):
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise ShapeError(f"{what()} {var.name!r} is no array: {error}") from None
    if dtype is not None and value.dtype != dtype:
        if not _can_cast(value.dtype, dtype):
            raise ShapeError(f"{what()} {var.name!r} wants {dtype} and was given {value.dtype}")
        value = value.astype(dtype)
    return value, levels


def rows_and_offsets(value: Any, var: VarDecl, what: str) -> tuple[Any, Levels]:
    """The packed rows and the offsets of what is fed to a variable that holds sequences.

    Args:
        value: `Sequences`, or a list of sequences (of lists of them, for two levels), each of them
            an array [steps, ...].
        var: the variable; says how many levels it carries.
        what: begins the message of an error: `input`, say.

    Raises:
        ShapeError: a plain array, other levels than the variable's, or sequences that do not fit
            together.
    """
    wanted = var.sequence_levels
    of = f"{wanted} level{'s' if wanted > 1 else ''} of sequences"
    if isinstance(value, (list, tuple)):
        try:
            value = Sequences.from_list(value, levels=wanted)
        except ShapeError as error:
            raise ShapeError(f"{what} {var.name!r} wants {of}: {error}") from None
    if not isinstance(value, Sequences):
        raise ShapeError(
            f"{what} {var.name!r} wants {of}: give it Sequences or a list of arrays, not one"
            f" {type(value).__name__}"
        )
    if wanted and len(value.levels) != wanted:
        raise ShapeError(f"{what} {var.name!r} wants {of} and was given {len(value.levels)}")
    rows, shape = value.data, var.shape
    if not len(rows) and rows.ndim == 1 and shape and all(dim >= 0 for dim in shape[1:]):
        rows = rows.reshape(0, *shape[1:])  # lists without a row do not say how wide one is
    return rows, value.levels


def _can_cast(dtype: np.dtype, wanted: np.dtype) -> bool:
    both_integers = dtype.kind in "iu" and wanted.kind in "iu"
    return both_integers or np.can_cast(dtype, wanted, "same_kind")
