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


def optimization_options() -> Iterator[Option]:
    """Kaldi's switches of passes."""
    for name, default in _SWITCHES.items():
        about = "Whether to optimize computations at all" if name == "optimize" else "As in Kaldi"
        yield Option(f"optimization.{name.replace('_', '-')}", default, about)


def chosen_passes(options: SimpleNamespace) -> bool | OptimizeOptions:
    """The passes that the command line asks for, as `compile_request` takes them."""
    if not options.optimization_optimize:
        return False
    values = vars(options)
    return OptimizeOptions(**{name: values[f"optimization_{name}"] for name in _SWITCHES})
