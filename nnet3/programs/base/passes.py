"""Options of programs that compile: the passes of the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from ...optimize import OptimizeOptions
from .options import UNUSED
from .program import Option

_LAST = (1 << 31) - 1
_OPTIMIZATION = {
    "optimize": True,
    "consolidate-model-update": True,
    "propagate-in-place": True,
    "backprop-in-place": True,
    "extend-matrices": True,
    "optimize-row-ops": True,
    "split-row-ops": True,
    "convert-addition": True,
    "remove-assignments": True,
    "allow-left-merge": True,
    "allow-right-merge": True,
    "initialize-undefined": True,
    "move-sizing-commands": True,
    "allocate-from-other": True,
    "min-deriv-time": -_LAST - 1,
    "max-deriv-time": _LAST,
    "max-deriv-time-relative": _LAST,
    "snip-row-ops": True,
    "memory-compression-level": 1,
}
_PASSES = {field.name for field in fields(OptimizeOptions)}


def optimization_options() -> Iterator[Option]:
    """Kaldi's switches of passes; switches of passes that opscope lacks have no effect."""
    for name, default in _OPTIMIZATION.items():
        known = name == "optimize" or name.replace("-", "_") in _PASSES
        about = "Whether to optimize computations at all" if name == "optimize" else "As in Kaldi"
        yield Option(f"optimization.{name}", default, about if known else UNUSED)


def chosen_passes(options: SimpleNamespace) -> bool | OptimizeOptions:
    """The passes that the command line asks for, as `compile_request` takes them."""
    if not options.optimization_optimize:
        return False
    values = vars(options)
    switches: dict[str, Any] = {
        name: values[f"optimization_{name}"] for name in _PASSES if f"optimization_{name}" in values
    }
    return OptimizeOptions(**switches)
