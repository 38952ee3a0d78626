"""What of the options of a run its plan is made with."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ...base.backend import Place
from ...base.errors import OpscopeError, nearest
from ...base.settings import Options, option_text
from ...ir.registry import REFERENCE, kernel_libraries


def plan_options(options: Options, place: Place) -> Options:
    """Options as plans on a place have them: the reference is always one of the libraries.

    Raises:
        OpscopeError: no operator has a kernel of one of the libraries.
    """
    return replace(
        options,
        # What gains by such arrays are kernels compiled for the CPU.
        channels_last=options.channels_last and place.kind == "cpu",
        libraries=_with_reference(options.libraries),
    )


@lru_cache(maxsize=64)
def _with_reference(names: tuple[str, ...]) -> tuple[str, ...]:
    known = kernel_libraries(names)
    for name in names:
        if name not in known:
            raise OpscopeError(
                f"OPSCOPE_LIBRARIES={option_text(names)}: no kernel library"
                f" {name!r}{nearest(name, known)}; there are {', '.join(sorted(known))}"
            )
    return names if REFERENCE in names else (*names, REFERENCE)
