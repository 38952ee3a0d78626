"""All operators: importing this module imports, and so registers, every family."""

from importlib import import_module
from pkgutil import walk_packages

from . import __path__ as _folder

for _module in walk_packages(_folder, f"{__package__}."):
    import_module(_module.name)
