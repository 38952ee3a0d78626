"""`compare`: two models on the same inputs, and the first layer where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import VariableError
from ...framework.base.untrusted.values import plain
from .values import Computed, Model

ROWS = 8
BOUND = 1e-5
_SHOWN = 6
_LARGEST = 1e30  # pages hold no infinity


@dataclass(frozen=True)
class LayerDifference:
    """A layer in both models.

    Attributes:
        name: of the node or variable; of an output that has another name in the other model, both.
        shapes: in the first model and in the other.
        error: the largest difference, of values above 1 relative to them; infinity where shapes or
            places of NaN differ.
    """

    name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    error: float


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison; `str` is a table.

    Attributes:
        titles: of both models. layers: those in both, in the order of the first model.
        only: layers of the first alone, and of the other alone. bound: of errors that are none.
    """

    titles: tuple[str, str]
    layers: list[LayerDifference]
    only: tuple[list[str], list[str]]
    bound: float

    @property
    def first(self) -> LayerDifference | None:
        """The first layer whose error is above the bound; None: there is none."""
        return next((layer for layer in self.layers if not layer.error <= self.bound), None)

    def numbers(self) -> dict[str, float]:
        """The error of each layer by name, as `opscope.view(model, numbers=...)` takes it;
        infinity is told as a large number."""
        return {
            layer.name: min(layer.error, _LARGEST)
            for layer in self.layers
            if " / " not in layer.name
        }

    def __str__(self) -> str:
        width = max([len("layer"), *(len(plain(layer.name)) for layer in self.layers)])
        lines = [f"{'layer':{width}}  error     shape"]
        for layer in self.layers:
            mark = "  <- first above the bound" if layer is self.first else ""
            mine, other = ("x".join(map(str, shape)) or "one" for shape in layer.shapes)
            shape = mine if mine == other else f"{mine}, {other}"
            lines.append(f"{plain(layer.name):{width}}  {layer.error:<8.2g}  {shape}{mark}")
        lines.append("")
        for title, names in zip(self.titles, self.only, strict=True):
            if names:
                more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                lines.append(f"only in {title}: {', '.join(map(plain, names[:_SHOWN]))}{more}")
        worst = max(layer.error for layer in self.layers)
        same = f"no layer differs by more than {self.bound:g}; the largest error is {worst:.2g}"
        lines.append(same if self.first is None else f"they part ways at {plain(self.first.name)}")
        return "\n".join(lines)


def compare(model: Any, other: Any, *, rows: int = ROWS, bound: float = BOUND) -> Comparison:
    """Run two models on the same random inputs and compare them layer by layer.

    Layers are the same if they have the same name: variables of nets of operators, nodes of Kaldi's
    networks. With an ONNX file outputs are compared, in order where names differ. Both run in test
    mode. Whole numbers that are fed are 0.

    Args:
        model, other: paths of files (saved nets, Kaldi's networks and models, ONNX), or objects
            that `opscope.view` takes.
        rows: of the batch, or output frames of networks of Kaldi's.
        bound: what an error must be above to count.

    Raises:
        FormatError: a file is missing or damaged.
        VariableError: they are not of one kind, take other inputs, or have no layer in common.
    """
    if rows < 1 or not bound >= 0:
        raise VariableError(
            f"rows={rows}, bound={bound}: rows from 1 and a bound from 0 are wanted"
        )
    first, second = Model(model), Model(other)
    if first.kind != second.kind:
        raise VariableError(
            f"{first.title} and {second.title} are not of one kind ({first.kind}, {second.kind}):"
            " what they compute for one input is not comparable layer by layer"
        )
    mine, others = ({n: s[:2] for n, s in m.inputs().items()} for m in (first, second))
    if set(mine) != set(others) or any(
        len(mine[name][0]) != len(others[name][0])
        or any(
            a != b and min(a, b) >= 0 for a, b in zip(mine[name][0], others[name][0], strict=True)
        )
        or mine[name][1] != others[name][1]
        for name in mine
    ):
        raise VariableError(
            f"{first.title} takes {_told(mine)}, {second.title} takes {_told(others)}: the same"
            " inputs are wanted"
        )
    left, right = first.compute(rows), second.compute(rows)
    pairs = _pairs(left, right, first.onnx is not None or second.onnx is not None)
    if not pairs:
        raise VariableError(f"{first.title} and {second.title} have no layer of the same name")
    layers = [
        LayerDifference(
            a if a == b else f"{a} / {b}",
            (left.values[a].shape, right.values[b].shape),
            _error(left.values[a], right.values[b]),
        )
        for a, b in pairs
    ]
    taken = [{pair[at] for pair in pairs} for at in (0, 1)]
    only = [
        [name for name in computed.values if name not in there]
        for computed, there in zip((left, right), taken, strict=True)
    ]
    return Comparison((first.title, second.title), layers, (only[0], only[1]), bound)


def _told(inputs: dict[str, tuple[tuple[int, ...], np.dtype]]) -> str:
    told = (f"{plain(name)} {dtype}{list(shape)}" for name, (shape, dtype) in inputs.items())
    return ", ".join(told) or "nothing"


def _pairs(left: Computed, right: Computed, by_outputs: bool) -> Sequence[tuple[str, str]]:
    """The names of layers that are compared."""
    common = [(name, name) for name in left.values if name in right.values]
    if common or not by_outputs or len(left.outputs) != len(right.outputs):
        return common
    return list(zip(left.outputs, right.outputs, strict=True))


def _error(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape:
        return float("inf")
    if not a.size:
        return 0.0
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b) / np.maximum(1.0, np.abs(a))
    apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    worst = float(apart.max())
    return worst if worst == worst else float("inf")
