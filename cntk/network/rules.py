"""Shape rules that many kinds share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .node import Node

Rule = Callable[["Node", bool], None]


def unary(node: Node, final: bool) -> None:
    """The shape of the input."""
    node.shape, node.axis = node.inputs[0].shape, node.inputs[0].axis
