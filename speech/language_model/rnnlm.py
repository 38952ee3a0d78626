"""Recurrent language models of Kaldi: a network from word to word, and an embedding of words.

Source: Kaldi's `rnnlm/rnnlm-compute-state.cc`, `rnnlm/rnnlm-lattice-rescoring.cc`,
`rnnlm/rnnlm-utils.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.options.option_fields import option
from ...framework.base.untrusted.opener import read_file
from ...framework.base.untrusted.values import shown
from ...nnet3.inference.stepwise import State, StepComputer
from ...nnet3.network.nnet import Nnet
from .automaton import Automaton, Histories

_WORDS = 4096
"""Words whose features are multiplied at once."""


@dataclass(frozen=True)
class RnnlmOptions:
    """What Kaldi's programs and `special_symbol_opts.conf` say of a model."""

    normalize_probs: bool = option(False, "Make the probabilities of words add up to 1")
    bos_symbol: int = option(-1, "The label of the word that begins a sentence")
    eos_symbol: int = option(-1, "The label of the word that ends a sentence")
    brk_symbol: int = option(-1, "The label of a break between words; without effect here")


@dataclass(eq=False)
class Rnnlm:
    """A model.

    Args:
        nnet: takes the embedding of a word and gives one that the next word's is close to.
        embedding: of each label, float32, [words, columns].

    Raises:
        ShapeError: these do not go together. FormatError: the network cannot be computed word by
            word, or a special symbol is no word.
    """

    nnet: Nnet
    embedding: np.ndarray
    options: RnnlmOptions
    _steps: StepComputer = field(init=False)

    def __post_init__(self) -> None:
        words, columns = self.embedding.shape
        self._steps = StepComputer(self.nnet)
        dims = self._steps.input_dim, self._steps.output_dim
        if dims != (columns, columns):
            raise ShapeError(
                f"an embedding of {columns} columns for a network from {dims[0]} to {dims[1]}"
            )
        options = self.options
        for name, label in (("bos", options.bos_symbol), ("eos", options.eos_symbol)):
            if not 0 < label < words:
                raise FormatError(
                    f"--{name}-symbol={label} is none of the labels of the {words} words"
                )

    def start(self) -> _Context:
        """What is known after the beginning of a sentence."""
        return self._after(self._steps.start(), self.options.bos_symbol)

    def after(self, context: _Context, word: int) -> _Context:
        """What is known after one more word."""
        return self._after(context.state, word)

    def _after(self, state: State, word: int) -> _Context:
        predicted, state = self._steps.step(state, self._row(word))
        total = 0.0
        if self.options.normalize_probs:
            scores = self.embedding[1:] @ predicted  # label 0 is no word
            total = float(np.log(np.exp(scores).sum()))
        return _Context(state, predicted, total)

    def cost(self, context: _Context, word: int) -> float:
        """The negated logarithm of a word's probability."""
        return -float(np.float32(self._row(word) @ context.predicted) - np.float32(context.total))

    def _row(self, word: int) -> np.ndarray:
        if not 0 < word < len(self.embedding):
            raise FormatError(
                f"the word {word} is none of the {len(self.embedding)} of the recurrent language"
                " model"
            )
        return self.embedding[word]


@dataclass(eq=False)
class _Context:
    """What is known after some words.

    Attributes:
        state: of the network. predicted: its output. total: what makes probabilities add up to 1.
    """

    state: State
    predicted: np.ndarray
    total: float


class RnnlmAutomaton(Automaton):
    """A recurrent model as an automaton: histories with the same last words are one state.

    Args:
        order: words of a history that are told apart, and the word after them; 0: all.
    """

    def __init__(self, model: Rnnlm, order: int) -> None:
        super().__init__()
        self._model = model
        self._order = order
        self._first = model.start()
        self.clear()

    def clear(self) -> None:
        """Forget all states but the first."""
        self._histories = Histories((self._model.options.bos_symbol,))
        self._contexts: list[_Context | tuple[int, int]] = [self._first]

    def arc(self, state: int, word: int) -> tuple[int, float] | None:
        cost = self._model.cost(self._context(state), word)
        history = (*self._histories[state], word)
        if self._order > 0:
            history = history[max(len(history) + 1 - self._order, 0) :]
        target = self._histories.state(history)
        if target == len(self._contexts):
            # Kaldi's takes the way by which it comes here first. It is computed when it is needed:
            # most states of a pruned composition are never left.
            self._contexts.append((state, word))
        return target, cost

    def final(self, state: int) -> float:
        return self._model.cost(self._context(state), self._model.options.eos_symbol)

    def _context(self, state: int) -> _Context:
        known = self._contexts[state]
        if isinstance(known, tuple):
            before = self._contexts[known[0]]
            assert isinstance(before, _Context)  # an arc of it was asked for
            known = self._contexts[state] = self._model.after(before, known[1])
        return known


def word_embedding(features: str, embedding: np.ndarray) -> np.ndarray:
    """The embedding of words from the embedding of their features: float32, [words, columns].

    Args:
        features: a file, `word_feats.txt`: a line for each label from 0 on, with pairs of a
            feature, ascending, and its value.
        embedding: of each feature, float32, [features, columns].

    Raises:
        FormatError: the file says something else.
    """
    rows = [line.split() for line in read_file(features).splitlines()]
    if not rows:
        raise FormatError(f"{features}: there are no words")
    made = np.zeros((len(rows), embedding.shape[1]), np.float32)
    for begin in range(0, len(rows), _WORDS):
        block = rows[begin : begin + _WORDS]
        counts = np.array([len(row) // 2 for row in block])
        pairs = [_pairs(row, begin + at, len(embedding), features) for at, row in enumerate(block)]
        place = np.array([number for row in pairs for number, _ in row], np.int64)
        value = np.array([number for row in pairs for _, number in row], np.float32)
        used = np.flatnonzero(counts)
        if len(used):
            first = np.cumsum([0, *counts[used][:-1]])
            made[begin + used] = np.add.reduceat(embedding[place] * value[:, None], first, axis=0)
    return made


def _pairs(row: list[bytes], label: int, features: int, name: str) -> list[tuple[int, float]]:
    """The features of a line, with their values."""
    problem = "a label, and pairs of a feature and its value"
    try:
        pairs = [(int(row[at]), float(row[at + 1])) for at in range(1, len(row), 2)]
        if int(row[0]) != label:
            problem = f"the label {label}"
        elif not all(0 <= feature < features for feature, _ in pairs):
            problem = f"features from 0 to {features - 1}"
        elif not all(one[0] < two[0] for one, two in pairwise(pairs)):
            problem = "features in ascending order"
        else:
            return pairs
    except (ValueError, IndexError):
        pass
    there = shown(b" ".join(row).decode("utf-8", "replace"))
    raise FormatError(f"{name}: line {label + 1}: {problem} were expected, not {there}")
