"""Operators whose meaning is CNTK's own, as `cntk.*` beside the shared ones."""

from . import (  # noqa: F401
    criteria,
    distances,
    elementwise,
    large_outputs,
    learners,
    noise,
    normalize,
    sequences,
    sparse,
    windows,
)
