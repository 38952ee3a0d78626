"""What the runs of a NetBuilder's net share until the net changes."""

from __future__ import annotations

import weakref

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.passes.prune import prune
from ...framework.runtime.plain_net import PlainNet


class RunCache:
    """Nets and contexts of earlier runs, and the scopes whose parameters hold values.

    Args:
        forward: the forward operators.
    """

    def __init__(self, forward: PlainNet) -> None:
        self.initialized: weakref.WeakSet[Scope] = weakref.WeakSet()
        self._forward = forward
        self._nets: dict[frozenset[str], PlainNet] = {}
        self._contexts: dict[tuple[OpContext, bool, frozenset[str]], OpContext] = {}

    def net_for(self, names: frozenset[str]) -> PlainNet:
        """The forward operators that the variables `names` need; all where there are no names."""
        found = self._nets.get(names)
        if found is None:
            desc = self._forward.desc
            found = self._nets[names] = PlainNet(prune(desc, names) if names else desc)
        return found

    def context(self, base: OpContext, train: bool, names: frozenset[str]) -> OpContext:
        """`base` in training or test phase, in which the variables `names` can be read afterwards.

        The same arguments give the same context, for which nets keep their plans.
        """
        key = (base, train, names)
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = base.derive(train=train, keep=names)
        return found
