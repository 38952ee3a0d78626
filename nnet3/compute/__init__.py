"""Computation of components: each module holds operators and how component types lower to them.

Importing the package registers the operators `nnet3.*` and all lowerings.
"""

from importlib import import_module
from pkgutil import iter_modules

from .component_ops import ComponentOps, part_of, set_statistic
from .lowering import lower, lowered_types

__all__ = ["ComponentOps", "lower", "lowered_types", "part_of", "set_statistic"]

for _module in iter_modules(__path__):
    import_module(f".{_module.name}", __package__)
