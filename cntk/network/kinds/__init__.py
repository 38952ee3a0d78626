"""The kinds of nodes, one module a family. Importing this package fills the catalogue."""

from . import (  # noqa: F401
    criteria,
    elementwise,
    images,
    later,
    linear,
    parameters,
    reshaping,
    sequences,
    statistics,
)
