"""Setting variables of a scope from the user's arrays, after checks of names, kinds and shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..base.backend import array_module, copy_into, on_device
from ..base.dtypes import is_float
from ..base.errors import NotFiniteError, ShapeError, VariableError, format_shape, nearest
from ..base.scope import FED, Scope, Variable
from ..base.sequence import Sequences, equal_levels
from ..base.sizes.shape import Levels, fits, layout_hint
from ..ir.desc import FORWARD, INPUT
from ..ir.op_list import OpList, VarDecl
from .initialize import PERSISTENT

Given = dict[str, tuple[VarDecl, Any, Levels]]
"""What a run is fed: name -> declaration, array of the declared dtype, offsets of sequences."""


def _input() -> str:
    return "input"


@np.errstate(over="ignore", invalid="ignore")
def not_finite(array: Any) -> int:
    """Numbers in a host array of floats that are NaN or infinite. Cheap where there are none."""
    # One pass without a mask: NaN and infinity survive every sum.
    if np.isfinite(np.add.reduce(array, axis=None)):
        return 0
    return array.size - int(np.count_nonzero(np.isfinite(array)))  # a sum may just overflow


class Feeder:
    """Feeds minibatches: mappings of variable names (or handles) to arrays or `Sequences`.

    Names, kinds of numbers and finiteness are checked before the first value is set. Numbers are
    cast where that loses no kind: float64 to float32, int32 to int64, integers to floats.

    Args:
        complete: a minibatch must feed every input that is read, forward only where it is held out:
            all but those that the user set in the scope.
        empty: a minibatch may be without rows, as a rank's part of a small one is.
    """

    def __init__(
        self, net: OpList, scope: Scope, *, complete: bool = False, empty: bool = False
    ) -> None:
        self._scope = scope
        self._empty = empty
        self._net = net if complete else None
        self._inputs = Inputs(net)
        self._targets: dict[str, tuple[Any, np.dtype | None, VarDecl]] = {}
        self._keys: dict[bool, frozenset[str]] = {}

    def __call__(
        self, batch: Mapping[Any, Any], where: Callable[[], str], *, held_out: bool = False
    ) -> int:
        """Feed one minibatch; returns its rows, the length of the first array that has any.

        Of sequences these are the packed rows, over which costs are means.

        Raises:
            VariableError: no mapping, an unknown name, other names than in earlier minibatches, or
                an input that is missing.
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
            # Everything is checked before the first value is set, so that a refused minibatch
            # changes nothing.
            arrays[name], levels[name] = self._array(name, value, where)
        self._check_keys(arrays, where, held_out)
        sized = {name: array for name, array in arrays.items() if array.ndim}
        some = self._empty or any(map(len, sized.values()))
        if self._net is not None and sized and not some:
            held = ", ".join(f"{name} {format_shape(array.shape)}" for name, array in sized.items())
            raise ShapeError(f"{where()}: a minibatch without rows: {held}")
        rows = 0
        for name, array in arrays.items():
            variable = self._targets[name][0]
            variable.set(array, levels[name])
            variable.origin = FED
            if array.ndim and not rows:
                rows = array.shape[0]
        return 0 if self._empty and sized and not rows else rows or 1

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
        var = self._inputs.declared(name, where())
        variable = None if var.kind == INPUT else self._scope.find(name)
        variable = variable or self._scope.var(name)
        self._targets[name] = variable, var.dtype, var
        return self._targets[name]

    def _check_keys(
        self, arrays: Mapping[str, Any], where: Callable[[], str], held_out: bool
    ) -> None:
        """All minibatches feed the same variables: one left out would keep its former numbers."""
        known = self._keys.get(held_out)
        if known is None:
            self._check_complete(arrays, where, held_out)
            self._keys[held_out] = frozenset(arrays)
        elif known != arrays.keys():
            before = ", ".join(sorted(known))
            raise VariableError(
                f"{where()}: feeds {', '.join(sorted(arrays))}; the minibatches before fed {before}"
            )

    def _check_complete(
        self, arrays: Mapping[str, Any], where: Callable[[], str], held_out: bool
    ) -> None:
        """What an earlier feed left in the scope is not read in place of an input."""
        if self._net is None:
            return
        ops = [op for op in self._net.ops if op.role == FORWARD or not held_out]
        read = {name for op in ops for name in op.input_names()}
        for var in self._net.vars:
            if var.kind == INPUT and var.name in read and var.name not in arrays:
                why = missing_input(self._scope, var.name, var)
                if why:
                    raise VariableError(f"{where()}: {why}")


class Inputs:
    """What a net may be fed: its inputs, and parameters and states.

    Args:
        between: whether what its forward operators compute may also be fed: then a run leaves out
            what computes it (`prune`).

    Attributes:
        between: names of such variables, of those that were asked for.
    """

    def __init__(self, net: OpList, *, between: bool = False) -> None:
        self._vars = {var.name: var for var in net.vars}
        self._checked: dict[str, VarDecl] = {}
        self._ops = net.ops
        self._writers: dict[str, int] = {}  # of names that were asked for; -1: nothing computes it
        self._takes_between = between
        self.between: set[str] = set()

    def _look(self, names: Iterable[str]) -> None:
        """Find what computes some variables, of all of them in one walk: runs feed few of many."""
        found = {name: -1 for name in names if name in self._vars}
        left = {name for name in found if self._vars[name].kind not in PERSISTENT}
        for index, op in enumerate(self._ops):
            # Read before it is written: fed as well, though an operator updates it later.
            left.difference_update(op.input_names())
            if not left:
                break
            for name in left.intersection(op.output_names()):
                found[name] = index
                left.remove(name)
                if self._takes_between and op.role == FORWARD:
                    self.between.add(name)
        self._writers.update(found)  # last: another thread may ask meanwhile

    def declared(self, name: str, where: str = "feed") -> VarDecl:
        """The declaration of a variable that may be fed.

        Raises:
            VariableError: the net has no such variable, or an operator computes it.
        """
        var = self._vars.get(name)
        if var is None:
            inputs = [known for known, var in self._vars.items() if var.kind == INPUT]
            raise VariableError(
                f"{where}: the net has no variable {name!r}{nearest(name, self._vars)};"
                f" its inputs are {', '.join(inputs) or 'none'}"
            )
        if name not in self._writers:
            self._look([name])
        if name in self.between:
            return var.changed(kind=INPUT)
        if (index := self._writers[name]) >= 0:
            op = self._ops[index]
            raise VariableError(
                f"{where}: {name!r} is computed by op {index} ({op.type}), which would"
                " write over what is fed; feed the inputs that it is computed from"
            )
        return var

    def read(self, values: Mapping[Any, Any], name_of: Callable[[Any], str] = str) -> Given:
        """Check values by name (or handle), and cast them to what their variables declare.

        Args:
            name_of: the name that a handle stands for.

        Raises:
            VariableError: no mapping, an unknown name, or a computed variable.
            ShapeError: no array, a wrong shape, or a dtype that cannot be cast without changing its
                kind.
        """
        if type(values) is not dict and not isinstance(values, Mapping):
            raise VariableError(
                "a feed maps names of inputs to arrays, {'x': array}; this is a"
                f" {type(values).__name__}"
            )
        given = {}
        for key, value in values.items():
            name = key if type(key) is str else name_of(key)
            var = self._checked.get(name)
            if var is None:
                self._look(map(str, values))
                var = self._checked[name] = self.declared(name)
            array, levels = _as_declared(value, var, var.dtype, _input)
            shape = var.shape
            if shape is not None and not fits(array.shape, shape):
                raise ShapeError(
                    f"input {name!r} wants {list(shape)} (-1 = any) and was given"
                    f" {list(array.shape)}{layout_hint(array.shape, shape)}"
                )
            given[name] = var, array, levels
        return given


def missing_input(scope: Scope, name: str, var: VarDecl) -> str:
    """Why an input that a feed leaves out has no value to read; empty where the user set one."""
    variable = scope.find(name)
    if variable is None or variable.inner is None:
        return f"input {name!r} is missing{_shown(var)}: put it into the feed"
    if variable.origin is FED:
        return (
            f"input {name!r} is not in the feed, and what the scope holds is left from the feed of"
            " an earlier run: feed it again, or set it to stay with feed(scope, {...})"
        )
    return ""


def _shown(var: VarDecl) -> str:
    return "" if var.shape is None else f" ({var.dtype or '?'}{format_shape(var.shape)})"


def replace_values(scope: Scope, given: Given) -> bool:
    """Feed a run where all values fit the arrays that the inputs hold already; else do nothing.

    Then every array keeps its identity, and what was bound to it stays so.
    """
    held = []
    for name, (var, array, levels) in given.items():
        variable = scope.find(name)
        own = None if variable is None else variable.inner
        if (
            variable is None
            or own is None
            or own.shape != array.shape
            or own.dtype != array.dtype
            or variable.borrowed
            # An input that a parent holds is somebody else's: a run gets a local one.
            or (variable.scope is not scope and var.kind == INPUT)
            or ((levels or variable.offsets) and not equal_levels(levels, variable.offsets))
        ):
            return False
        held.append((variable, own, array))
    for variable, own, array in held:
        if type(own) is np.ndarray is type(array):
            own[...] = array
        else:
            copy_into(own, array)
        variable.count_write()
        variable.origin = FED
    return True


class Undo:
    """Takes back what preparing a run set in a scope, should the run be refused."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._names = frozenset(scope.names())
        self._before: list[tuple[Variable, Any, Any, Levels, bool, object]] = []

    def keep(self, variable: Variable) -> None:
        """Note the value of a variable that is there and about to be set."""
        array = variable.inner
        # A borrowed array is never written to, so its contents need no copy.
        contents = None
        if array is not None and not variable.borrowed:
            with on_device(variable.scope.place):  # or CuPy copies it to another GPU
                contents = array.copy()
        state = (variable.offsets, variable.borrowed, variable.origin)
        self._before.append((variable, array, contents, *state))

    def undo(self) -> None:
        """Make the scope what it was."""
        # Backwards, so that a variable that was set twice ends with its first value.
        for variable, array, contents, offsets, borrowed, origin in reversed(self._before):
            if array is None:
                variable.clear()
            else:
                if contents is not None:
                    copy_into(array, contents)
                    variable.count_write()
                variable.bind(array, offsets)
            variable.borrowed = borrowed
            variable.origin = origin
        for name in self._scope.names():
            if name not in self._names:
                self._scope.erase(name)


def feed_run(scope: Scope, given: Given, undo: Undo) -> None:
    """Feed a run: inputs become local variables of its scope, parameters are set where they are."""
    for name, (var, array, levels) in given.items():
        variable = None if var.kind == INPUT else scope.find(name)
        variable = variable or scope.var(name)
        undo.keep(variable)
        variable.set(array, levels)
        variable.origin = FED


def set_inputs(scope: Scope, given: Given) -> None:
    """Set variables of a scope to stay, as the user asks for it."""
    for name, (_, array, levels) in given.items():
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
    given = value
    if not isinstance(value, np.ndarray):  # a list, a tensor of PyTorch, a column of a table
        try:
            value = array_module(value).asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:
            why = _ragged(given, var) or f"is no array: {error}"
            raise ShapeError(f"{what()} {var.name!r} {why}") from None
    if value.dtype.kind == "O" and (why := _ragged(given, var)):
        raise ShapeError(f"{what()} {var.name!r} {why}")
    if dtype is None and value.dtype.kind not in "biuf":
        raise ShapeError(f"{what()} {var.name!r} wants numbers and was given {_kind(given, value)}")
    if dtype is not None and value.dtype != dtype:
        if not _can_cast(value.dtype, dtype):
            raise ShapeError(
                f"{what()} {var.name!r} wants {dtype} and was given {_kind(given, value)}"
                + (f"; astype({dtype.name!r}) casts it" if value.dtype.kind in "biuf" else "")
            )
        value = value.astype(dtype)
    return value, levels


def _ragged(given: Any, var: VarDecl) -> str:
    """What is wrong with items of several lengths, fed as one array; "" where they have one."""
    column = isinstance(given, (list, tuple)) or getattr(given, "ndim", 0) == 1
    items = given if column else ()
    lengths = list(dict.fromkeys(len(item) for item in items if hasattr(item, "__len__")))
    if len(lengths) < 2:
        return ""
    shape = [-1] if var.shape is None else list(var.shape)
    some = f"{', '.join(map(str, lengths[:3]))}{', ...' * (len(lengths) > 3)}"
    return (
        f"is no array, but {len(items)} items of several lengths ({some}): sequences go to an input"
        f" that is declared with levels=1, b.input({var.name!r}, {shape}, levels=1)"
    )


def _kind(given: Any, array: Any) -> str:
    """What somebody gave in place of numbers, for messages: a dtype, or a type of Python's."""
    if isinstance(given, np.ndarray) or array.ndim or array.dtype.kind != "O":
        return str(array.dtype)
    return "None" if given is None else f"a {type(given).__name__}"


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
    # int64 to int32 is no "same_kind" for NumPy, but ids and labels come as int64 from everywhere.
    both_integers = dtype.kind in "iu" and wanted.kind in "iu"
    return both_integers or np.can_cast(dtype, wanted, "same_kind")
