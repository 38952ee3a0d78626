"""Operators whose meaning is CNTK's own, as `cntk.*` beside the shared ones.

Modules of this folder and of its rooms are found by themselves: importing the package registers all
operators. May import base and lattices.
"""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
