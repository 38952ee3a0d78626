"""Tokens and links of a frame as arrays, and what holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...framework.fusion.compiled.arguments import DTYPES

TOKEN = DTYPES["Token"]
"""A token: the cost of its best path; what the best path through it to the newest frame costs more
than the best one; the token before it (of the frame before where `ilabel` is not 0, else of the
same frame), and the labels and costs of the arc between them."""

LINK = DTYPES["Link"]
"""An arc between two tokens; acoustic costs include the offset of their frame."""

TRACED = DTYPES["Traced"]
"""A token of a path: its frame, the labels and costs of the arc to it, the token before it; this
one's name if it is of the frame before, else -1; the offset of the acoustic cost."""

NO_ARCS = np.empty(0, TRACED)


@dataclass(eq=False)
class Frame:
    """What is alive at one time.

    Attributes:
        tokens: `TOKEN`, [tokens].
        names: the number that each token had when the frame was made, int32; it never changes.
        links: epsilon links among them, `LINK`.
        onward: links to the tokens of the next frame, `LINK`; empty while there is none.
        offset: what was added to the acoustic costs of `onward`.
        counted: how many tokens there were before those to go last went, and not how many are
            left: so Kaldi counts them. 0: not counted yet.
        prune_links, prune_tokens: whether costs after it changed, whether tokens of it are to go.
    """

    tokens: np.ndarray
    names: np.ndarray
    links: np.ndarray
    onward: np.ndarray
    offset: float = 0.0
    counted: int = 0
    prune_links: bool = True
    prune_tokens: bool = True


@dataclass(eq=False)
class FrameBlock:
    """What is alive at several times, the arrays of `Frame` one after the other.

    Attributes:
        sizes: of each frame the number of tokens, links, links onward, and `counted`: int64,
            [frames, 4].
        tokens, names, links, onward: of all frames. offsets: of each frame, float32.
    """

    sizes: np.ndarray
    tokens: np.ndarray
    names: np.ndarray
    links: np.ndarray
    onward: np.ndarray
    offsets: np.ndarray

    def frames(self) -> list[Frame]:
        """Each frame, to be read only."""
        ends = np.cumsum(self.sizes[:-1], axis=0)
        arrays = ((self.tokens, 0), (self.names, 0), (self.links, 1), (self.onward, 2))
        parts = (np.split(array, ends[:, column]) for array, column in arrays)
        rest = self.offsets.tolist(), self.sizes[:, 3].tolist()
        return [Frame(*each) for each in zip(*parts, *rest, strict=True)]


class Tokens(Protocol):
    """The tokens of an utterance, frame by frame, and the links between them.

    A search fails with a status of `native.constants`, such as `NO_PATH`; 0: it did not.
    """

    @property
    def count(self) -> int:
        """How many frames there are, with the one before the first log-likelihoods."""
        ...

    def start(self) -> int:
        """Begin a new utterance; arcs that were composed so far are kept. Returns the status."""
        ...

    def accept(self, likelihoods: np.ndarray) -> int:
        """Follow frames, float32, [frames, pdfs], and prune now and then.

        Returns:
            The status; frames before the one that failed count.
        """
        ...

    def prune(self) -> None:
        """Drop what no path within the lattice beam needs now."""
        ...

    def finalize(self) -> None:
        """End the utterance: costs of ending count, and all outside of the lattice goes."""
        ...

    def best(self) -> int:
        """The first newest token with the least cost."""
        ...

    def newest(self) -> tuple[np.ndarray, np.ndarray]:
        """The costs of the newest tokens, and of ending in them, float32."""
        ...

    def traced(self, frame: int, token: int, most: int) -> tuple[int, np.ndarray, int, int]:
        """The way back from a token.

        Returns:
            The status; up to `most` tokens of the path, `TRACED`, its end first; frame and token
            where it continues, a token of -1: nowhere.
        """
        ...

    def sizes(self, begin: int, end: int) -> np.ndarray:
        """Of some frames the number of tokens, links, links onward, and `counted`: int64."""
        ...

    def frames(self, begin: int, end: int) -> FrameBlock:
        """Some frames."""
        ...
