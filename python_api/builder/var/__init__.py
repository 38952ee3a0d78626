"""Var, the handle of a variable of a NetBuilder.

Gives Var and `as_var`. May import framework only: the builder stands above, and handles know of it
what they need.
"""

from .handle import Var, as_var

__all__ = ["Var", "as_var"]
