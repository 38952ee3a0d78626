"""NetBuilder: networks written in Python, operator by operator or layer by layer.

Gives NetBuilder and Var, its handles of variables; methods.py says how to add a layer. May import
proto and framework; operators come from the registry.
"""

# Importing these registers their functions as methods of NetBuilder.
from . import (  # noqa: F401
    cells,
    gradients,
    layers,
    loops,
    recurrent,
    recurrent_layers,
    running,
    trees,
)
from .blocks import (  # noqa: F401
    attention,
    drawn,
    losses,
    multi_head,
    norm_layers,
    operands,
    positions,
    transformer,
)
from .net_builder import NetBuilder
from .var import Var, array_functions  # noqa: F401

__all__ = ["NetBuilder", "Var"]
