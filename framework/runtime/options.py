"""The options of plans, as the environment sets them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..base import settings
from ..base.backend import Place
from ..base.errors import OpscopeError, nearest
from ..ir.registry import REFERENCE, kernel_libraries


@dataclass(frozen=True)
class PlanOptions:
    """Switches that change how a plan runs, never what it computes."""

    fuse: bool = True
    reuse: bool = True
    inplace: bool = True
    rows: bool = True
    channels_last: bool = False
    tails: bool = False
    libraries: tuple[str, ...] = (REFERENCE,)


def current_options(place: Place | None = None) -> PlanOptions:
    """Plan switches as the environment sets them now, for plans on a place.

    Raises:
        OpscopeError: a switch has a value that it cannot have.
    """
    return PlanOptions(
        fuse=settings.is_on("OPSCOPE_FUSE"),
        reuse=settings.is_on("OPSCOPE_REUSE"),
        inplace=settings.is_on("OPSCOPE_INPLACE"),
        rows=settings.is_on("OPSCOPE_ROWS"),
        tails=settings.is_on("OPSCOPE_TAILS"),
        channels_last=place is not None
        and place.kind == "cpu"
        and settings.is_on("OPSCOPE_CHANNELS_LAST"),
        libraries=_listed_libraries(settings.switch("OPSCOPE_LIBRARIES")),
    )


@lru_cache(maxsize=64)
def _listed_libraries(text: str) -> tuple[str, ...]:
    """The kernel libraries that a text lists, separated by commas; the reference is always one.

    Raises:
        OpscopeError: no operator has a kernel of such a library.
    """
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    known = kernel_libraries(names)
    for name in names:
        if name not in known:
            raise OpscopeError(
                f"OPSCOPE_LIBRARIES={text}: no kernel library {name!r}{nearest(name, known)};"
                f" there are {', '.join(sorted(known))}"
            )
    return names if REFERENCE in names else (*names, REFERENCE)
