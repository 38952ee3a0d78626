"""Operators whose meaning is CNTK's own, as `cntk.*` beside the shared ones."""

from . import criteria, distances, elementwise, learners, sparse  # noqa: F401
