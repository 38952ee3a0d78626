"""Steps of a decoder that was read from ONNX, with its caches as inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...bridges.onnx.importing.imported import ImportedModel
from ...framework.base.errors import NotFiniteError, OpscopeError, ShapeError, VariableError
from .cached_onnx import IDS, MASK, POSITIONS, SCORES

_BLOCK = 64
"""Caches grow, and are given, by so many rows: few shapes serve all lengths."""


class ImportedStepper:
    """Runs a decoder that takes keys and values of earlier tokens, and gives them with its own.

    The names are those of Hugging Face's exports, see cached_onnx.py; `ids` and `scores` may have
    others. What a run gives is appended to arrays of the stepper's own, of which it is given views;
    the mask leaves out their rows that hold nothing.

    Args:
        model: with inputs `past_key_values...` and outputs `present...`, in the same order.

    Raises:
        OpscopeError: it has none, or no mask.
    """

    def __init__(self, model: ImportedModel, *, ids: str = IDS, scores: str = SCORES) -> None:
        self.model = model
        self.ids, self.scores = ids, scores
        inputs = {info.name: info for info in model.inputs}
        outputs = [info.name for info in model.outputs]
        past = [name for name in inputs if name.startswith("past")]
        present = [name for name in outputs if name.startswith("present")]
        for name, there in ((ids, inputs), (MASK, inputs), (POSITIONS, inputs), (scores, outputs)):
            if name not in there:
                raise VariableError(f"{model.path}: wants {name!r}, and has {', '.join(there)}")
        if not past or len(past) != len(present):
            raise OpscopeError(
                f"{model.path}: {len(past)} inputs past... and {len(present)} outputs present...:"
                " want caches as inputs and outputs"
            )
        self._infos = {name: inputs[name] for name in past}
        self._caches = dict(zip(past, present, strict=True))
        self._held: dict[str, np.ndarray] = {}
        self._feed: Mapping[str, Any] = {}
        self._past = np.zeros(0, np.int64)
        self.turn = 0

    def start(self, sequences: int, feed: Mapping[str, Any] | None = None) -> None:
        """See `Stepper.start`; `feed` goes to every run."""
        self.turn += 1
        self._feed = dict(feed or {})
        self._past = np.zeros(sequences, np.int64)
        self._held = {}
        for name, info in self._infos.items():
            if info.shape is None or len(info.shape) != 4:
                raise ShapeError(f"{self.model.path}: {name!r} wants [N, heads, rows, width]")
            heads, width = info.shape[1], info.shape[3]
            if not (isinstance(heads, int) and isinstance(width, int)):
                raise ShapeError(
                    f"{self.model.path}: the heads and width of {name!r} are not known"
                )
            self._held[name] = np.zeros((sequences, heads, 0, width), info.dtype)

    def read(self, prompts: Sequence[np.ndarray], more: int = 0) -> np.ndarray:
        """See `Stepper.read`."""
        lengths = np.array([len(prompt) for prompt in prompts])
        self._make_room(int(self._past.max() + lengths.max() + more))
        width = -(-lengths.max() // 16) * 16
        tokens = np.zeros((len(lengths), width), np.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt
        return self._run(tokens, lengths)

    def run(self, tokens: Any) -> np.ndarray:
        """See `Stepper.run`."""
        tokens = np.asarray(tokens, np.int64)[:, None]
        self._make_room(int(self._past.max()) + 1)
        return self._run(tokens, np.ones(len(tokens), np.int64))

    def _run(self, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Scores of what follows the first so many tokens of each row."""
        rows, steps = tokens.shape
        given = -(-int(self._past.max()) // _BLOCK) * _BLOCK
        columns = np.arange(given + steps)
        seen = (columns < self._past[:, None]) | (columns >= given)
        feed = {
            **self._feed,
            self.ids: tokens,
            MASK: seen.astype(np.int64),
            POSITIONS: self._past[:, None] + np.arange(steps),
        }
        feed |= {name: held[:, :, :given] for name, held in self._held.items()}
        results = self.model.run(feed)
        number = np.arange(rows)
        for row in number:
            begin, count = self._past[row], lengths[row]
            for name, present in self._caches.items():
                new = results[present][row, :, given : given + count]
                self._held[name][row, :, begin : begin + count] = new
        self._past = self._past + lengths
        scores = results[self.scores][number, lengths - 1]
        if np.isnan(scores).any():
            raise NotFiniteError(f"{self.model.path}: {self.scores!r} holds NaN")
        return scores

    def _make_room(self, tokens: int) -> None:
        for name, held in self._held.items():
            if held.shape[2] < tokens:
                rows = -(-max(tokens, held.shape[2] * 3 // 2) // _BLOCK) * _BLOCK
                larger = np.zeros((*held.shape[:2], rows, held.shape[3]), held.dtype)
                larger[:, :, : held.shape[2]] = held
                self._held[name] = larger

    def spread(self, copies: int) -> None:
        """See `Stepper.spread`."""
        self._past = np.repeat(self._past, copies)
        self._held = {name: np.repeat(held, copies, 0) for name, held in self._held.items()}
        self._feed = {name: np.repeat(given, copies, 0) for name, given in self._feed.items()}

    def reorder(self, parents: np.ndarray) -> None:
        """See `Stepper.reorder`."""
        self._past = self._past[parents]
        for held in self._held.values():
            held[...] = held[parents]
