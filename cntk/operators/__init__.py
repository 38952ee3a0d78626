"""Operators whose meaning is CNTK's own, as `cntk.*` beside the shared ones."""

from . import (  # noqa: F401
    criteria,
    ctc,
    distances,
    elementwise,
    label_paths,
    large_outputs,
    lattices,
    learners,
    normalize,
    ranking,
    regions,
    sampling,
    sequences,
    sparse,
    steps,
    training,
    windows,
)
