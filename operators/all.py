"""All operators: importing this module imports, and so registers, every family."""

from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

for _module in walk_packages([str(Path(__file__).parent)], f"{__package__}."):
    import_module(_module.name)
