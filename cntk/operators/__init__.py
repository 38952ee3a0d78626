"""Operators whose meaning is CNTK's own, as `cntk.*` beside the shared ones.

Modules of this folder are found by themselves: importing the package registers all operators. May
import base and lattices.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f".{_module.name}", __package__)
