"""Operators: one small module for each family. Importing the package registers all of them."""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__package__}."):
    import_module(_module.name)
