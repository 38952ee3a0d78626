"""Operators whose meaning is CNTK's own, as `cntk.*` beside the shared ones."""

from . import criteria, elementwise, sparse  # noqa: F401
