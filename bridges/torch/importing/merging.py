"""Linear layers on rows that were put together: the views around them are left out.

Attention in PyTorch makes [T, N, C] a matrix [T N, C] for its output layer, and undoes it
afterwards. A net whose T and N may vary cannot undo that, and needs neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_VIEWS = ("view", "reshape", "_unsafe_view")


@dataclass(frozen=True)
class Merged:
    """A view of a linear layer of a view.

    Attributes:
        source: what the first view takes. linear: the layer.
        shape: of the layer's input with its rows kept apart.
    """

    source: Any
    linear: Any
    shape: tuple[Any, ...]


def merged_rows(graph: Any) -> dict[Any, Merged]:
    """The views that only undo another one before a linear layer, by node."""
    merged = {}
    for node in graph.nodes:
        linear = node.args[0] if _calls(node, *_VIEWS) else None
        if linear is None or not _calls(linear, "linear") or len(linear.users) != 1:
            continue
        before = linear.args[0]
        if not _calls(before, *_VIEWS):
            continue
        source = before.args[0]
        if node.meta["val"].ndim < 3 or before.meta["val"].ndim != 2:
            continue
        width = before.meta["val"].shape[-1]
        if isinstance(width, int):
            merged[node] = Merged(source, linear, (*node.args[1][:-1], width))
    return merged


def _calls(node: Any, *names: str) -> bool:
    schema = getattr(getattr(node, "target", None), "_schema", None)
    return (
        getattr(node, "op", "") == "call_function"
        and schema is not None
        and (schema.name.split("::")[-1] in names)
    )
