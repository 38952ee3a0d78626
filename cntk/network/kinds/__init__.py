"""The kinds of nodes, a module for each family: inputs, attributes, shape rules, names in NDL.

Modules of this folder are found by themselves: importing the package fills the catalog. May
import `network.nodes`.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f".{_module.name}", __package__)
