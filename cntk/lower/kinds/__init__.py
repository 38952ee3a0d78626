"""How the nodes of each kind become operators, a module for each family.

Modules of this folder are found by themselves: importing the package fills the table of lowering
functions. May import `lower.emitter`, `lower.table`, lattices and network.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f".{_module.name}", __package__)
