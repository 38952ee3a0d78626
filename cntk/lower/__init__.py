"""From a network to operators.

`lower` gives operators for some nodes of a validated network. Each operation has one function, in
the module of its family; `lowers` adds one for a node type of your own.
"""

from .. import operators  # noqa: F401  registers them
from . import (  # noqa: F401
    criteria,
    delays,
    elementwise,
    images,
    linear,
    parameters,
    reshaping,
    rnn_stack,
    sequences,
    special_criteria,
    statistics,
    training,
)
from .emitter import Delayed, Emitter, Lowered, Sparse
from .network import lower
from .table import lowers

__all__ = ["Delayed", "Emitter", "Lowered", "Sparse", "lower", "lowers"]
