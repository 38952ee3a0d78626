"""The format of nets: net.proto, and the classes generated from it.

`net_pb2` stands for the generated module, which is loaded when something of it is asked for:
protobuf takes long to load, and many programs start and end without a message.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _LoadedOnUse(ModuleType):
    """A module in place of another one, whose names it takes over when the first is asked for."""

    def __getattr__(self, name: str) -> Any:
        module = import_module(self.__name__)
        self.__dict__.update({key: vars(module)[key] for key in vars(module) if key[:2] != "__"})
        return getattr(module, name)


if TYPE_CHECKING:
    from . import net_pb2
else:
    net_pb2 = _LoadedOnUse(f"{__name__}.net_pb2")
