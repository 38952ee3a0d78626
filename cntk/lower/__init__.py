"""From a network to operators.

`lower` gives operators for some nodes of a validated network. Each operation has one function, in
the module of its family in `kinds/`; `lowers` adds one for a kind of another package. Importing
this package registers the operators of CNTK. May import lattices, network and operators.
"""

from .. import operators  # noqa: F401  registers them
from . import kinds  # noqa: F401  fills the table
from .emitter import Delayed, Emitter, Lowered, Sparse
from .network import lower
from .table import lowers

__all__ = ["Delayed", "Emitter", "Lowered", "Sparse", "lower", "lowers"]
