"""Options of programs that compile: the passes of the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from ...optimize import OptimizeOptions
from .program import Option

_SWITCHES: dict[str, Any] = {
    each.name: each.default for each in fields(OptimizeOptions) if each.name != "skip"
}


def optimization_options(prefix: str = "optimization.") -> Iterator[Option]:
    """Kaldi's switches of passes; a program whose names have no `prefix` gives an empty one."""
    for name, default in _SWITCHES.items():
        about = "Whether to optimize computations at all" if name == "optimize" else "As in Kaldi"
        yield Option(f"{prefix}{name.replace('_', '-')}", default, about)


def chosen_passes(
    options: SimpleNamespace, prefix: str = "optimization_"
) -> bool | OptimizeOptions:
    """The passes that the command line asks for, as `compile_request` takes them."""
    values = vars(options)
    if not values[f"{prefix}optimize"]:
        return False
    return OptimizeOptions(**{name: values[f"{prefix}{name}"] for name in _SWITCHES})
