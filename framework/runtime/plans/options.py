"""The options of plans, as the environment sets them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...base import settings
from ...base.backend import Place
from ...base.errors import OpscopeError, nearest
from ...ir.registry import REFERENCE, kernel_libraries

_FLAGS = {
    "fuse": "OPSCOPE_FUSE",
    "reuse": "OPSCOPE_REUSE",
    "inplace": "OPSCOPE_INPLACE",
    "rows": "OPSCOPE_ROWS",
    "pieces": "OPSCOPE_PIECES",
    "vectors": "OPSCOPE_VECTORS",
    "amx": "OPSCOPE_AMX",
    "keep": "OPSCOPE_KEEP_PACKED",
    "tails": "OPSCOPE_TAILS",
    "channels_last": "OPSCOPE_CHANNELS_LAST",
}
_LIBRARIES = "OPSCOPE_LIBRARIES"
_NAMES = (*_FLAGS.values(), _LIBRARIES)
# What the environment is made of, where it shows that: a look there takes a tenth of the time, and
# every run looks.
_DATA: Any = getattr(os.environ, "_data", None)
_KEY: Any = getattr(os.environ, "encodekey", None)
_KEYS = tuple(_KEY(name) for name in _NAMES) if _DATA is not None and _KEY is not None else ()


@dataclass(frozen=True)
class PlanOptions:
    """Switches that change how a plan runs, never what it computes."""

    fuse: bool = True
    reuse: bool = True
    inplace: bool = True
    rows: bool = True
    pieces: bool = True
    vectors: bool = True
    amx: bool = True
    keep: bool = True
    channels_last: bool = False
    tails: bool = False
    libraries: tuple[str, ...] = (REFERENCE,)


def current_options(place: Place | None = None) -> PlanOptions:
    """Plan switches as the environment sets them now, for plans on a place.

    Raises:
        OpscopeError: a switch has a value that it cannot have.
    """
    on_cpu = place is not None and place.kind == "cpu"
    if _KEYS:
        return _options(tuple([_DATA.get(key) for key in _KEYS]), on_cpu)
    return _options(tuple([os.environ.get(name) for name in _NAMES]), on_cpu)


@lru_cache(maxsize=64)
def _options(_state: tuple[Any, ...], on_cpu: bool) -> PlanOptions:
    """The options of a state of the environment, which is the present one."""
    flags = {name: settings.is_on(switch) for name, switch in _FLAGS.items()}
    flags["channels_last"] = flags["channels_last"] and on_cpu
    return PlanOptions(**flags, libraries=_listed_libraries(settings.switch(_LIBRARIES)))


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
