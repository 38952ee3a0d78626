"""The catalog of all kinds of nodes that CNTK 2.0 beta 9 knows, with its older names.

Kinds of your own are found by an entry point of the group `opscope.nodes`, which names the module
that registers them.
Source: ComputationNetworkBuilder.cpp (operation names), NetworkDescriptionLanguage.cpp (NDL names).
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from ...framework.base.errors import UnknownOperatorError, nearest
from ...framework.base.options.plugins import load_plugin
from . import kinds as _kinds  # noqa: F401  fills the tables
from .nodes.kind import KINDS, NDL
from .nodes.node import Kind, NdlFunction

GROUP = "opscope.nodes"

ABSENT = {
    "UserDefinedV2Function": "CNTK's library makes it in memory, around a function of its user's",
}
"""Operations of CNTK that are left out, and why."""


@cache
def load_plugins() -> None:
    """Import the modules that register kinds of other packages.

    Raises:
        OpscopeError: a module cannot be imported.
    """
    for point in entry_points(group=GROUP):
        load_plugin(point)


def kind(operation: str) -> Kind:
    """The kind of an operation name, older names included (`ErrorPrediction`, `Delay`).

    Raises:
        UnknownOperatorError: there is none.
    """
    if operation not in KINDS:
        load_plugins()
    try:
        return KINDS[operation]
    except KeyError:
        reason = ABSENT.get(operation)
        why = f": {reason}" if reason else nearest(operation, KINDS)
        raise UnknownOperatorError(f"no node operation is called {operation!r}{why}") from None


def ndl_function(name: str) -> NdlFunction | None:
    """The node function that NDL calls `name` (in any case), or None."""
    if name.lower() not in NDL:
        load_plugins()
    return NDL.get(name.lower())


def ndl_names() -> list[str]:
    """All names of NDL's node functions, for suggestions."""
    return sorted(name for function in set(NDL.values()) for name in function.names)


def operations() -> list[str]:
    """All operation names, without the older ones."""
    return sorted({kind.operation for kind in KINDS.values()})
