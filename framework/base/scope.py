"""Places, variables and the tree of scopes that holds them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend import Place, array_module, copy_into, default_place, to_host, to_place
from .dtypes import is_float
from .errors import DeviceError, ShapeError, VariableError, format_shape, nearest
from .sequence import Sequences, check_offsets

if TYPE_CHECKING:
    from .device_checks import DeviceChecks

# One counter for all trees: a frame that remembers a version never fits another scope's.
_versions = itertools.count(1)


class Variable:
    """A named place for a value: a tensor (with offsets for sequences) or a list of step scopes.

    `array` keeps its identity as long as shape, dtype and place stay: `set` copies into it. Bound
    plans rely on that; a change of identity marks the scope tree as changed.

    Attributes:
        origin: where the value comes from, as far as somebody must know: `FED`, or the owner that
            `initialize` filled it for. None: the user, a file, a run's operators.
        exposed: whether somebody may hold the array who is not known here, and write to it at any
            time. Packed weights and other derived arrays are made again when `stamp` moves.
        stamp: counts what wrote to the array by `set`, by a feed or in a run.
        packs: what was packed of the array; see framework/runtime/plans/kept_factors.py.
        fed: on a GPU, the value that was fed last, on the host, where an operator decides by it
            there (`keeps`) and need not ask the GPU; None: it is not known.
    """

    __slots__ = (
        "_array",
        "_offsets",
        "borrowed",
        "exposed",
        "fed",
        "keeps",
        "name",
        "origin",
        "packs",
        "scope",
        "stamp",
        "step_scopes",
    )

    def __init__(self, name: str, scope: Scope) -> None:
        self.name = name
        self.scope = scope
        self._array: Any = None
        self._offsets: tuple[np.ndarray, ...] = ()
        self.step_scopes: list[Scope] | None = None
        self.borrowed = False  # whether the array is the caller's, to be read only
        self.origin: object = None
        self.exposed = False
        self.stamp = 0
        self.packs: Any = None
        self.fed: np.ndarray | None = None
        self.keeps = False

    @property
    def array(self) -> Any:
        """The tensor itself (NumPy or CuPy), or None before a value was given. Not a copy.

        Who has it may write to it whenever he likes, and the next run sees that; so nothing that
        was packed of it is kept from now on.
        """
        self._expose()
        self.fed = None
        return self._array

    def _expose(self) -> None:
        if not self.exposed:
            self.exposed = True
            if self.packs is not None:
                self.packs.outdate()

    def count_write(self) -> None:
        """Note that something was written to the array."""
        self.stamp += 1
        if self.packs is not None:
            self.packs.outdate()

    @property
    def inner(self) -> Any:
        """As `array`, for code that does not pass it on and counts its writes (`stamp`)."""
        return self._array

    @property
    def shape(self) -> tuple[int, ...] | None:
        return None if self._array is None else self._array.shape

    @property
    def offsets(self) -> tuple[np.ndarray, ...]:
        """One int64 array for each level: sequence i is rows offsets[i]:offsets[i+1]."""
        return self._offsets

    def set(self, value: Any, offsets: Sequence[Any] = (), *, dtype: object = None) -> None:
        """Give the variable a value; the caller's array is copied, never held.

        Args:
            value: anything `numpy.asarray` takes, a CuPy array, or `Sequences` with their offsets.
            offsets: levels of sequence offsets, outermost first; checked.
            dtype: dtype to hold; by default the dtype of `value`.

        Raises:
            ShapeError: `value` is ragged or no numeric array, or offsets that do not fit its rows.
        """
        self.origin = None
        own = self._array
        if (
            type(value) is type(own) is np.ndarray
            and dtype is None
            and not self.borrowed
            and len(offsets) == len(self._offsets) == 0
            and value.shape == own.shape
            and value.dtype == own.dtype
        ):  # the way of every minibatch
            own[...] = value
            self.count_write()
            return
        if isinstance(value, Sequences):
            value, offsets = value.data, value.levels
        array = given = _as_array(value, self.name, dtype)
        owner = f"variable {self.name!r}"
        levels = check_offsets(offsets, array.shape, owner) if len(offsets) else ()
        fits = own is not None and own.shape == array.shape and own.dtype == array.dtype
        if fits and not self.borrowed:
            copy_into(own, array)
            self.count_write()
            array = own
        else:
            array = to_place(array, self.scope.place, copy=True)
        self.bind(array, levels, own=True)
        if self.keeps and type(array) is not np.ndarray and type(given) is np.ndarray:
            self.fed = given.copy()

    def bind(self, array: Any, offsets: tuple[np.ndarray, ...] = (), *, own: bool = False) -> None:
        """Make `array` itself the tensor, without a copy (for executors and loaders).

        Later values are copied into it.

        Args:
            own: whether nothing else keeps the array, or a view of its memory.
        """
        self.borrowed = False
        self.fed = None
        same = len(offsets) == len(self._offsets) and all(
            new is old or np.array_equal(new, old)
            for new, old in zip(offsets, self._offsets, strict=True)
        )
        if not same:
            self._offsets = offsets
        # Equal offsets leave bound frames valid: their positions were computed from the same
        # numbers.
        if array is not self._array or not same:
            if array is not self._array:
                self.exposed = not own
                self.packs = None
                self.stamp += 1
            self._array = array
            self.scope.touch()

    def move(self, array: Any) -> None:
        """Hold the value that there is in another array."""
        fed = self.fed
        self.bind(array, self._offsets)
        self.fed = fed

    def share(self, array: Any, *, constant: bool = False) -> None:
        """Let the variable read `array` itself: a large input without a copy.

        The caller leaves it unchanged while it is in use; nothing is ever written to it.

        Args:
            constant: whether the caller never changes it, between runs either.
        """
        self.origin = None
        if array is not self._array:
            self.bind(array)
        self.borrowed = True
        self.exposed = False
        if not constant:
            self._expose()

    def numpy(self) -> np.ndarray:
        """A copy of the value on the host.

        Raises:
            VariableError: there is no value.
            RunError: on a GPU, a run found something wrong in its data; see device_checks.py.
        """
        array = self._array
        if array is None:
            why = self.scope.explain(self.name)
            raise VariableError(why or f"variable {self.name!r} holds no value")
        if isinstance(array, np.ndarray):
            return np.array(array)
        checks = self.scope.root.checks
        if checks is not None:
            checks.look()
        return to_host(array)

    def sequences(self) -> Sequences:
        """A copy of the value on the host, with its offsets.

        Raises:
            VariableError: there is no value, or it carries no offsets.
        """
        if self._array is not None and not self._offsets:
            raise VariableError(f"variable {self.name!r} is a plain array and holds no sequences")
        return Sequences(self.numpy(), self._offsets)

    def clear(self) -> None:
        """Drop the value; the name stays."""
        self.origin = self.fed = None
        self._offsets = ()
        self.step_scopes = None
        if self._array is not None:
            self._array = self.packs = None
            self.scope.touch()

    def __repr__(self) -> str:
        if self._array is None:
            shown = "no value" if self.step_scopes is None else f"{len(self.step_scopes)} steps"
            return f"<Variable {self.name}: {shown}>"
        return f"<Variable {self.name}: {self._array.dtype}{format_shape(self._array.shape)}>"


class Scope:
    """A tree of variables. `var` makes locally, `find` climbs to the parents.

    Kids are owned by their parent and dropped with it. Place: where new tensors live.

    Attributes:
        named: of a root: another number whenever a variable of the tree was made or removed.
        checks: of a root: what kernels on GPUs have found wrong in the data of its runs; None
            where they look for nothing.

    Raises:
        DeviceError: something else than a place, as `Scope("gpu")`.
    """

    def __init__(self, place: Place | None = None, parent: Scope | None = None) -> None:
        if not (place is None or isinstance(place, Place)):
            raise DeviceError(
                f"Scope wants a place, CPUPlace() or GPUPlace(0), or nothing, not {place!r};"
                " scope.new_scope() makes a kid of a scope"
            )
        if place is None:
            place = default_place() if parent is None else parent.place
        self.place = place
        self.parent = parent
        self.kids: list[Scope] = []
        self.root: Scope = self if parent is None else parent.root
        self.version = next(_versions)
        self.named = 0
        self.checks: DeviceChecks | None = None
        self.bound: dict[Any, Any] = {}  # frames of executors, beside the data they are bound to
        self._vars: dict[str, Variable] = {}

    def touch(self) -> None:
        """Some array of this tree was replaced: bound plans must look again."""
        self.root.version = next(_versions)

    def var(self, name: str) -> Variable:
        """The local variable `name`, made if it is not there.

        Raises:
            VariableError: the name is none.
        """
        variable = self._vars.get(name)
        if variable is None:
            if not isinstance(name, str) or not name:
                raise VariableError(f"a variable of a scope is named by a str, not by {name!r}")
            variable = self._vars[name] = Variable(name, self)
            self.root.named = next(_versions)
            self.touch()  # a new local name may hide one of a parent
        return variable

    def declare(self, names: Iterable[str]) -> None:
        """Make local variables, so that none of these names is found further up."""
        for name in names:
            self.var(name)

    def find(self, name: str) -> Variable | None:
        """The variable `name` here or in the nearest ancestor that has it, else None."""
        scope: Scope | None = self
        while scope is not None:
            variable = scope._vars.get(name)
            if variable is not None:
                return variable
            scope = scope.parent
        return None

    def get(self, name: str) -> Variable:
        """Like `find`.

        Raises:
            VariableError: no scope from here to the root has it; the nearest names are listed.
        """
        variable = self.find(name)
        if variable is None:
            raise VariableError(
                self.explain(name)
                or f"no variable {name!r} in the scope{nearest(name, self.visible_names())}"
            )
        return variable

    def frames(self) -> list[Any]:
        """The frames of nets that are bound to this scope, for all shapes that are remembered."""
        caches = self.bound.get("frames", {})
        return [frame for frames in list(caches.values()) for frame in frames.values()]

    def explain(self, name: str) -> str:
        """Why a variable has no value, where a net that ran here computed it and kept it not."""
        scope: Scope | None = self
        while scope is not None:
            plans = [frame.plan for frame in scope.frames()]
            if any(name in plan.specs and name not in plan.externals for plan in plans):
                return (
                    f"variable {name!r} is a temporary of the net that ran: its memory was used"
                    f" again. Ask for it before the run: fetch=[{name!r}] of NetBuilder.run, or"
                    f" OpContext(live_out=[{name!r}]) for Net.run"
                )
            scope = scope.parent
        return ""

    def feed(self, values: Mapping[str, Any]) -> None:
        """Give several variables their values; existing ones where they are, new ones here.

        Raises:
            VariableError: no mapping of names. ShapeError: a value is no array.
        """
        if not isinstance(values, Mapping):
            raise VariableError(
                "feed: want names and arrays, scope.feed({'x': array}), not a"
                f" {type(values).__name__}"
            )
        for name, value in values.items():
            (self.find(name) or self.var(name)).set(value)

    def numpy(self, name: str) -> np.ndarray:
        """A copy of a variable's value on the host."""
        return self.get(name).numpy()

    def sequences(self, name: str) -> Sequences:
        """A copy of a variable's value on the host, with its offsets; see `Variable.sequences`."""
        return self.get(name).sequences()

    def new_scope(self) -> Scope:
        """A kid of this scope."""
        kid = Scope(parent=self)
        self.kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        """Drop all kids and what they hold."""
        self.kids.clear()

    def release_frames(self) -> None:
        """Let go of all frames, and of all else that runs keep here: another run binds again."""
        for frame in self.frames():
            frame.release()
        self.bound.clear()

    def dissolve(self) -> None:
        """Let go of all variables, kids and frames: nothing uses the scope any more.

        A scope and its variables refer to each other: they would wait for the collector of circles.
        """
        self.release_frames()
        self._vars.clear()
        self.root.named = next(_versions)
        self.kids.clear()

    def erase(self, name: str) -> None:
        """Remove a local variable."""
        if self._vars.pop(name, None) is not None:
            self.root.named = next(_versions)
            self.touch()

    def names(self) -> list[str]:
        """Names of the local variables, in the order they were made."""
        return list(self._vars)

    def visible_names(self) -> Iterator[str]:
        """Names that `find` would find, nearest first; a hidden name comes once more."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope._vars
            scope = scope.parent

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def __repr__(self) -> str:
        return f"<Scope on {self.place}: {len(self._vars)} variables, {len(self.kids)} kids>"


def _as_array(value: Any, name: str, dtype: object) -> Any:
    xp = array_module(value)
    try:
        array = xp.asarray(value, dtype=dtype)
    except (ValueError, TypeError) as error:
        raise ShapeError(f"variable {name!r}: the value is no array: {error}") from None
    if array.dtype.kind not in "biuf" and not is_float(array.dtype):
        raise ShapeError(f"variable {name!r}: an array of dtype {array.dtype} holds no numbers")
    return array


def copy(source: Scope, target: Scope, names: Iterable[str] | Mapping[str, str]) -> None:
    """Copy variables from one scope into another: all of them or, where one is missing, none.

    What `source` finds, in itself or in a parent, becomes local in `target`, with its offsets.
    (`Copy(const Scope &source, Scope &target, vars)` of the network design.)

    Args:
        names: of the variables; or a mapping, name in `source` -> name in `target`, as a state
            becomes the next step's previous state: `{"state": "previous_state"}`.

    Raises:
        VariableError: `source` has no such variable, or it holds no value; no scopes, or names.
    """
    for what, scope in (("source", source), ("target", target)):
        if not isinstance(scope, Scope):
            raise VariableError(
                f"copy: the {what} must be an opscope.Scope, not a {type(scope).__name__}:"
                " copy(source, target, ['w'])"
            )
    if isinstance(names, str):
        names = [names]
    pairs = names.items() if isinstance(names, Mapping) else [(name, name) for name in names]
    values = []
    for name, new_name in pairs:
        if new_name is None:
            raise VariableError(f"copy: {str(name)!r} gets no name in the target")
        variable = source.get(str(name))
        if variable.inner is None:
            raise VariableError(f"copy: variable {str(name)!r} of the source holds no value")
        values.append((str(new_name), variable.inner, variable.offsets))
    if len(values) > 1:  # a swap reads what an earlier copy would overwrite
        values = [(name, array.copy(), offsets) for name, array, offsets in values]
    for name, array, offsets in values:
        target.var(name).set(array, offsets)


FED = "the feed of a run"
"""`Variable.origin` of what a run was fed: no later run reads it unasked."""

_default = Scope()


def check_scope(scope: Any, call: str) -> None:
    """Refuse what somebody gave as a scope and is none; None stands for a default.

    Raises:
        VariableError: it is something else; the message shows the right call.
    """
    if not (scope is None or isinstance(scope, Scope)):
        raise VariableError(
            f"the scope must be an opscope.Scope, not a {type(scope).__name__}: {call}"
        )


def default_scope() -> Scope:
    """The process's scope for runs that name none."""
    return _default
