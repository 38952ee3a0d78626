"""Public names of a package, looked up when they are first used, so that import is quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from .gc_disabled import gc_disabled


def lazy_names(
    package: str, names: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package (PEP 562).

    Args:
        package: its `__name__`. names: its `globals()`.
        homes: public name -> the module that has it, relative to the package.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(lasting_module(homes[name], package), name)
        names[name] = value  # the next access does not come here
        return value

    def listed() -> list[str]:
        return sorted({*names, *homes})

    return get, listed


def lasting_module(name: str, package: str | None) -> ModuleType:
    """As `import_module`, without a search for garbage among what it makes, which is there to stay.

    The collector took a twelfth of the time that importing some hundred modules takes.
    """
    with gc_disabled(lasting=True):
        return import_module(name, package)
