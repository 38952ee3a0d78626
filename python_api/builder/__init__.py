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
    norm_layers,
    recurrent,
    recurrent_layers,
    running,
    trees,
)
from .blocks import attention, losses, multi_head, positions, transformer  # noqa: F401
from .net_builder import NetBuilder
from .var import Var

__all__ = ["NetBuilder", "Var"]
