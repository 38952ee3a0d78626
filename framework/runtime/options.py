"""The switches of a plan, as the environment sets them."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from ..base import settings
from ..base.errors import OpscopeError, nearest
from ..ir.registry import REFERENCE, kernel_libraries, load_operators
from .plan import PlanOptions

_FLAGS = {
    "fuse": "OPSCOPE_FUSE",
    "reuse": "OPSCOPE_REUSE",
    "inplace": "OPSCOPE_INPLACE",
    "rows": "OPSCOPE_ROWS",
    "pieces": "OPSCOPE_PIECES",
    "vectors": "OPSCOPE_VECTORS",
}
_LIBRARIES = "OPSCOPE_LIBRARIES"
_NAMES = (*_FLAGS.values(), _LIBRARIES)
# What the environment is made of, where it shows that: a look there takes a tenth of the time, and
# every run looks.
_DATA: Any = getattr(os.environ, "_data", None)
_KEY: Any = getattr(os.environ, "encodekey", None)
_KEYS = tuple(_KEY(name) for name in _NAMES) if _DATA is not None and _KEY is not None else ()


def current_options() -> PlanOptions:
    """Plan switches as the environment sets them now.

    Raises:
        OpscopeError: a switch has a value that it cannot have.
    """
    if _KEYS:
        return _options(tuple([_DATA.get(key) for key in _KEYS]))
    return _options(tuple([os.environ.get(name) for name in _NAMES]))


@lru_cache(maxsize=64)
def _options(_state: tuple[Any, ...]) -> PlanOptions:
    """The options of a state of the environment, which is the present one."""
    flags = {name: settings.is_on(switch) for name, switch in _FLAGS.items()}
    return PlanOptions(**flags, libraries=_listed_libraries(settings.switch(_LIBRARIES)))


def _listed_libraries(text: str) -> tuple[str, ...]:
    """The kernel libraries that a text lists, separated by commas; the reference is always one.

    Raises:
        OpscopeError: no operator has a kernel of such a library.
    """
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    if not kernel_libraries().issuperset(names):
        load_operators()
    known = kernel_libraries()
    for name in names:
        if name not in known:
            raise OpscopeError(
                f"OPSCOPE_LIBRARIES={text}: no kernel library {name!r}{nearest(name, known)};"
                f" there are {', '.join(sorted(known))}"
            )
    return names if REFERENCE in names else (*names, REFERENCE)
