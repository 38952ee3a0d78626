"""The operators that most nets are made of, and the other products of matrices.

Importing this module registers them, in a third of the time that `all.py` takes. It names rooms, so
that a new module in one of them is found by itself. No module of another room may add kernels to
these operators: plans are made with what is registered here.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

_ROOMS = ("math", "tensor", "linear", "conv", "backends", "direct")

for _room in _ROOMS:
    _path = str(Path(__file__).parent / _room)
    for _module in walk_packages([_path], f"{__package__}.{_room}."):
        import_module(_module.name)
