"""The parts of a network that computations depend on, as a digest, without any numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..components import Component
from ..components.composite import CompositeComponent
from ..network.adjust import STATISTICS
from ..network.nnet import Nnet


def structure(nnet: Nnet) -> str:
    """A digest of what computations depend on: nodes, and of components all but real numbers."""
    digest = hashlib.sha256()
    for line in nnet.config_lines():
        digest.update(line.encode() + b"\n")
    for name, component in nnet.components.items():
        digest.update(f"{name} {list(_facts(component))}\n".encode())
    return digest.hexdigest()


def _facts(component: Component) -> Iterator[object]:
    rate = getattr(component, "learning_rate", 0.0)
    yield component.type, component.is_updatable and rate != 0
    if isinstance(component, CompositeComponent):
        for part in component.components:
            yield list(_facts(part))
    for name, value in sorted(vars(component).items()):
        if name in STATISTICS:
            continue
        if isinstance(value, np.ndarray):
            yield name, value.shape, value.tolist() if value.dtype.kind == "i" else ""
        elif isinstance(value, bool | int | str | tuple | list):
            yield name, _without_floats(value)


def _without_floats(value: Any) -> object:
    if isinstance(value, tuple | list):
        return [_without_floats(part) for part in value]
    return value if isinstance(value, bool | int | str) else type(value).__name__
