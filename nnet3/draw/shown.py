"""What networks show of themselves: a summary, and a picture in a notebook."""

from __future__ import annotations

import abc

from ...framework.base.errors import ShapeError
from ..components.base.component import Component
from ..language.nodes import NetworkNode

MOST_DRAWN = 600
"""Nodes up to which a notebook draws a network; `to_svg` draws any."""


class ShownNnet(abc.ABC):
    """A network that can show itself."""

    nodes: list[NetworkNode]
    components: dict[str, Component]

    @abc.abstractmethod
    def node_dims(self) -> dict[str, int]:
        """Columns of every node."""

    @abc.abstractmethod
    def outputs(self) -> list[NetworkNode]:
        """The output nodes."""

    @abc.abstractmethod
    def is_simple(self) -> bool:
        """Whether `context` can be found."""

    @abc.abstractmethod
    def context(self) -> tuple[int, int]:
        """Frames of left and right context."""

    @abc.abstractmethod
    def modulus(self) -> int:
        """The period in t."""

    def summary(self) -> str:
        """Contexts, inputs, outputs, parameters and what is unusual, one fact a line.

        Unusual are numbers that are infinite or NaN, batch norm without statistics or in test mode,
        parameters that are all zero, nodes and components that no output uses.
        """
        from .summary import summary_lines  # programs that show nothing start without it

        lines = summary_lines(
            self.nodes, self.components, self.node_dims(), self.outputs(), self._contexts()
        )
        return "\n".join(lines)

    def _contexts(self) -> str:
        if not self.is_simple():
            return "unknown: only networks with an 'input' and an 'output' have one"
        try:
            left, right = self.context()
        except ShapeError as error:
            return f"unknown: {error}"
        period = self.modulus()
        return f"left {left}, right {right}" + (f", period {period} in t" if period > 1 else "")

    def to_svg(self) -> str:
        """The network drawn, as an SVG document that fits a screen of 1,600 pixels where it can.

        A frame for each layer (names that begin alike before the first dot) with the number of its
        parameters, a row for each node with the component's type, its dimensions and the descriptor
        in short form, arrows where data flows. Tool tips have the config lines in full.
        """
        from .layers import drawing
        from .summary import unusual_components
        from .svg import to_svg

        drawn = drawing(
            self.nodes, self.components, self.node_dims(), unusual_components(self.components)
        )
        parameters = sum(component.num_parameters for component in self.components.values())
        return to_svg(drawn, f"{parameters:,} parameters; context: {self._contexts()}")

    def _repr_svg_(self) -> str | None:
        """The picture, for notebooks; None where the network is too large to look at."""
        return self.to_svg() if self.nodes and len(self.nodes) <= MOST_DRAWN else None

    def _repr_html_(self) -> str:
        """The picture and the summary, for notebooks."""
        from ...framework.draw.svg_text import escaped

        drawn = self._repr_svg_()
        picture = f'<div style="overflow:auto;max-width:100%">{drawn}</div>' if drawn else ""
        lines = "\n".join(map(escaped, self.summary().split("\n")))
        return f"<div>{picture}<pre>{lines}</pre></div>"
