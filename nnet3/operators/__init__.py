"""Operators `nnet3.*` that belong to no component type: for the commands of compiled computations
(rows, sequences, marks, compression) and for training (objectives, updates, natural gradient).

Importing the package registers them; what lowers to them does so, and `lookup` where nothing did.
Components do not: programs that read and write models compute nothing. May import: nothing of
nnet3.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f".{_module.name}", __package__)
