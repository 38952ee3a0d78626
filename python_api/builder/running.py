"""Running what a NetBuilder has built: feeding, initialising, fetching."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.errors import ShapeError
from ...framework.base.scope import Scope, default_scope
from ...framework.base.sequence import Sequences
from ...framework.base.shape import Levels
from ...framework.ir.desc import NetDesc, var_dtype, var_shape
from ...framework.ir.infer import fits
from ...framework.passes.prune import prune
from ...framework.runtime.initialize import initialize
from ...framework.runtime.plain_net import PlainNet
from .feeding import rows_and_offsets

if TYPE_CHECKING:
    from .variable import Var


class Running:
    """The part of NetBuilder that runs its net."""

    if TYPE_CHECKING:
        net: PlainNet
        desc: NetDesc
        _forward: PlainNet
        _declared: Callable[[str], Any]

    def _forget_runs(self) -> None:
        """The net has changed: what was derived from it for runs is void."""
        self._inference: dict[frozenset[str], PlainNet] = {}
        self._contexts: dict[tuple[OpContext, bool, frozenset[str]], OpContext] = {}
        self._initialized: weakref.WeakSet[Scope] = weakref.WeakSet()

    def initialize(
        self,
        scope: Scope | None = None,
        context: OpContext | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        """Fill parameters and states that hold no value (or all of them) by their initialisers."""
        scope = scope or default_scope()
        initialize(self.desc, scope, context or self._context, overwrite=overwrite)
        self._initialized.add(scope)

    def run(
        self,
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
        if scope not in self._initialized:
            self.initialize(scope, context)
        if feed:
            self.feed(scope, feed)
        names = frozenset(map(str, fetch))
        base = context or self._context
        self.bound_net(names, need_backward).run(
            scope, self._context_for(base, need_backward, names)
        )
        return {name: scope.get(name).numpy() for name in map(str, fetch)}

    def bound_net(self, names: frozenset[str], need_backward: bool) -> PlainNet:
        """The net that `run` runs: the whole one, or the part that `names` need."""
        if need_backward:
            return self.net
        found = self._inference.get(names)
        if found is None:
            desc = self._forward.desc
            found = PlainNet(prune(desc, names) if names else desc)
            self._inference[names] = found
        return found

    def _context_for(self, base: OpContext, train: bool, names: frozenset[str]) -> OpContext:
        key = (base, train, names)
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = base.derive(train=train, keep=names)
        return found

    def feed(self, scope: Scope, values: Mapping[Any, Any]) -> None:
        """Give input variables their values, cast to the declared dtypes.

        `Sequences` bring their offsets along; an input that declares levels takes lists of arrays,
        too.

        Raises:
            VariableError: not a variable of the net.
            ShapeError: wrong shape, or a dtype that cannot be cast without changing its kind.
        """
        for key, value in values.items():
            name = str(key)
            declared = self._declared(name)
            wanted, shape = var_dtype(declared), var_shape(declared)
            levels: Levels = ()
            if declared.sequence_levels or isinstance(value, Sequences):
                value, levels = rows_and_offsets(value, declared, "input")
            array = value if hasattr(value, "dtype") else np.asarray(value)
            if wanted is not None and array.dtype != wanted:
                array = _cast(array, wanted, name)
            if shape is not None and not fits(array.shape, shape):
                raise ShapeError(
                    f"input {name!r} wants {list(shape)} (-1 = any) and was given"
                    f" {list(array.shape)}"
                )
            (scope.find(name) or scope.var(name)).set(array, levels)


def _cast(array: Any, wanted: np.dtype, name: str) -> Any:
    if not np.can_cast(array.dtype, wanted, "same_kind") and not (
        array.dtype.kind in "iu" and wanted.kind in "iu"
    ):
        raise ShapeError(f"input {name!r} wants {wanted} and was given {array.dtype}")
    return array.astype(wanted)
