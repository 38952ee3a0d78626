"""The catalogue of all kinds of nodes that CNTK 2.0 beta 9 knows, with its older names.

Source: ComputationNetworkBuilder.cpp (operation names), NetworkDescriptionLanguage.cpp (NDL names).
"""

from __future__ import annotations

from ...framework.errors import UnknownOperatorError, nearest
from . import kinds as _kinds  # noqa: F401  fills the tables
from .kind import KINDS, NDL, Kind, NdlFunction


def kind(operation: str) -> Kind:
    """The kind of an operation name, older names included (`ErrorPrediction`, `Delay`).

    Raises:
        UnknownOperatorError: there is none.
    """
    try:
        return KINDS[operation]
    except KeyError:
        raise UnknownOperatorError(
            f"no node operation is called {operation!r}{nearest(operation, KINDS)}"
        ) from None


def ndl_function(name: str) -> NdlFunction | None:
    """The node function that NDL calls `name` (in any case), or None."""
    return NDL.get(name.lower())


def ndl_names() -> list[str]:
    """All names of NDL's node functions, for suggestions."""
    return sorted(name for function in set(NDL.values()) for name in function.names)


def operations() -> list[str]:
    """All operation names, without the older ones."""
    return sorted({kind.operation for kind in KINDS.values()})
