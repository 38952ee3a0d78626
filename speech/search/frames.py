"""Tokens and links of a frame as arrays, and what a search needs of its inner loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...framework.fusion.arguments import DTYPES

TOKEN = DTYPES["Token"]
"""A token: the cost of its best path; what the best path through it to the newest frame costs more
than the best one; the token before it (of the frame before where `ilabel` is not 0, else of the
same frame), and the labels and costs of the arc between them."""

LINK = DTYPES["Link"]
"""An arc between two tokens; acoustic costs include the offset of their frame."""

NO_MEMORY, MANY_STATES, NEGATIVE_LOOP, MANY_TOKENS = 1, 2, 3, 4


@dataclass(eq=False)
class Frame:
    """What is alive at one time.

    Attributes:
        tokens: `TOKEN`, [tokens].
        links: epsilon links among them, `LINK`.
        names: the number that each token had when the frame was made, int32; it never changes.
        onward: links to the tokens of the next frame, `LINK`; empty while there is none.
        offset: what was added to the acoustic costs of `onward`.
        prune_links, prune_tokens: whether costs after it changed, whether tokens of it are to go.
        counted: how many tokens there were before those to go last went, and not how many are
            left: so Kaldi counts them. 0: not counted yet.
    """

    tokens: np.ndarray
    links: np.ndarray
    onward: np.ndarray
    offset: float = 0.0
    prune_links: bool = True
    prune_tokens: bool = True
    counted: int = 0
    names: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.names = np.arange(len(self.tokens), dtype=np.int32)


class Loops(Protocol):
    """The inner loops of a search over one graph."""

    def start(self) -> int:
        """The start state."""
        ...

    def step(
        self, states: np.ndarray, tokens: np.ndarray, likelihood: np.ndarray | None
    ) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        """One frame: tokens passed along arcs with labels, then along epsilons.

        Args:
            states: of the tokens, int32. tokens: `TOKEN`. likelihood: float32, [pdfs]; None at the
                start, where only epsilons are followed.

        Returns:
            0 or what went wrong; states and tokens of the frame; links to them; epsilon links among
            them; the offset of the acoustic costs.
        """
        ...

    def prune(
        self, frame: Frame, base: np.ndarray, after: np.ndarray, beam: float, delta: float
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Set the extra costs of a frame's tokens.

        Args:
            base: extra cost of ending in each token, float32; infinity: no path ends there.
            after: the tokens of the next frame. delta: how much costs may change unseen.

        Returns:
            Links onward and epsilon links within the beam; whether a cost changed.
        """
        ...

    def finals(self, states: np.ndarray) -> np.ndarray:
        """Costs of ending in states, float32."""
        ...

    def shrink(self, states: np.ndarray, most: int) -> np.ndarray:
        """Forget other states' arcs if there are more than `most`; the states' new numbers."""
        ...
