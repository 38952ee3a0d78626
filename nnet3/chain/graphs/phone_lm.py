"""Phone language models for denominator graphs: n-grams without smoothing or back-off arcs.

States are histories of phones. A state whose history is long and whose count is small is
dissolved: its counts go to the state with a shorter history, and the arcs that led to it lead
there. What is left is a deterministic acceptor, small since it allows little that was not seen.

Source: Kaldi's `chain/language-model.h`, `chain/language-model.cc`.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ....framework.base.errors import ShapeError
from ....framework.base.options.option_fields import option
from ....kaldi.fst.fst import Fst

_END = 0  # the phone before the first and after the last one
_STAGES = 4  # likelihoods in the queue are computed anew between them
_TOLERANCE = 0.001  # how far a likelihood in the queue may be from what it is now
_EMPTY_BACKOFF = -1.0e-15  # per count: states with small counts go first


@dataclass(frozen=True)
class PhoneLmOptions:
    """Kaldi's LanguageModelOptions.

    Attributes:
        ngram_order: 2 or more.
        no_prune_ngram_order: states with histories shorter than this are never dissolved.
    """

    ngram_order: int = option(4, "Order of the longest n-grams")
    num_extra_lm_states: int = option(
        1000, "How many states to keep besides the states of --no-prune-ngram-order"
    )
    no_prune_ngram_order: int = option(
        3, "Order of the n-grams whose states are all kept; best the width of the tree's window"
    )

    def __post_init__(self) -> None:
        """Check the values. Raises ShapeError: they do not fit each other."""
        if self.ngram_order < 2 or not 1 <= self.no_prune_ngram_order <= self.ngram_order:
            raise ShapeError(
                f"an n-gram order of {self.ngram_order}, not pruned below order "
                f"{self.no_prune_ngram_order}: the first must be 2 or more, the second between 1 "
                "and the first"
            )
        if self.num_extra_lm_states < 0:
            raise ShapeError(f"{self.num_extra_lm_states} extra states of a language model")


@dataclass
class _State:
    """A history and how often each phone followed it.

    Attributes:
        total: of the counts. reachable: the total of this state and all states that may still be
            dissolved into it.
        backoff: the state with the history that is one phone shorter, -1 where there is none.
        queued: it may be dissolved, and is in the queue.
    """

    history: tuple[int, ...]
    counts: dict[int, int] = field(default_factory=dict)
    total: int = 0
    reachable: int = 0
    backoff: int = -1
    queued: bool = False

    def log_like(self) -> np.float32:
        """The log-likelihood of what was counted here."""
        return _log_like(self.counts, self.total)


def _log_like(counts: dict[int, int], total: int) -> np.float32:
    return np.float32(sum(math.log(counts[p] / total) * counts[p] for p in sorted(counts)))


def _nothing(_: str) -> None:
    pass


class PhoneLanguageModel:
    """Counts n-grams of phones and makes an acceptor of them.

    Args:
        options: orders and size.
        log: gets the lines that Kaldi's program prints.
    """

    def __init__(self, options: PhoneLmOptions, log: Callable[[str], None] = _nothing) -> None:
        self._options = options
        self._log = log
        self._grams: Counter[tuple[int, ...]] = Counter()

    def add(self, phones: Iterable[int]) -> None:
        """Count the n-grams of a sequence of phones.

        Raises:
            ShapeError: a phone is not positive.
        """
        sequence = [int(phone) for phone in phones]
        if sequence and min(sequence) <= 0:
            raise ShapeError(f"phone {min(sequence)} is not positive")
        self._grams.update(_ngrams([_END, *sequence, _END], self._options.ngram_order))

    def estimate(self) -> Fst:
        """The language model as an acceptor, arcs sorted by label; weights are -log probabilities.

        Raises:
            ShapeError: no sequence was counted, or a history that occurred has no state.
        """
        options = self._options
        if not self._grams:
            raise ShapeError("no sequence of phones was given: a language model needs some")
        self._log(
            f"Estimating language model with --no-prune-ngram-order={options.no_prune_ngram_order},"
            f" --ngram-order={options.ngram_order},"
            f" --num-extra-lm-states={options.num_extra_lm_states}"
        )
        return _Estimation(self._grams, options, self._log).acceptor()


def _ngrams(sequence: list[int], order: int) -> Iterator[tuple[int, ...]]:
    """The longest n-gram that ends at each place but the first one, in their order."""
    for stop in range(2, min(order, len(sequence) + 1)):
        yield tuple(sequence[:stop])
    yield from zip(*(sequence[first:] for first in range(order)), strict=False)


class _Estimation:
    """The states while some of them are dissolved."""

    def __init__(
        self, grams: Counter[tuple[int, ...]], options: PhoneLmOptions, log: Callable[[str], None]
    ) -> None:
        self._options = options
        self._log = log
        self._states: list[_State] = []
        self._number: dict[tuple[int, ...], int] = {}
        for gram, count in grams.items():
            state = self._states[self._state_of(gram[:-1])]
            state.counts[gram[-1]] = state.counts.get(gram[-1], 0) + count
            state.total += count
        for state in self._states:
            number = self._number[state.history]
            while number >= 0:
                self._states[number].reachable += state.total
                number = self._states[number].backoff
        self._active = sum(state.total > 0 for state in self._states)
        self._queue: list[tuple[np.float32, int]] = []

    def _state_of(self, history: tuple[int, ...]) -> int:
        """The state of a history, which is made, with those that it may be dissolved into."""
        known = self._number.get(history)
        if known is not None:
            return known
        number = self._number[history] = len(self._states)
        state = _State(history)
        self._states.append(state)
        if len(history) >= self._options.no_prune_ngram_order:
            state.backoff = self._state_of(history[1:])
        return number

    def acceptor(self) -> Fst:
        self._dissolve()
        numbers = {}
        for index, state in enumerate(self._states):
            if state.total:
                numbers[index] = len(numbers)
        final = np.full(len(numbers), np.inf, np.float32)
        rows: list[tuple[int, int, int]] = []
        weights = []
        seen = 0
        log_prob = 0.0
        for index, number in numbers.items():
            state = self._states[index]
            for phone in sorted(state.counts):
                count = state.counts[phone]
                log = np.float32(math.log(count / state.total))
                seen += count
                log_prob += float(log) * count
                if phone == _END:
                    final[number] = -log
                else:
                    rows.append((number, phone, numbers[self._nearest((*state.history, phone))]))
                    weights.append(-log)
        start = numbers[self._nearest((_END,))]
        source, label, target = np.array(rows, np.int64).reshape(-1, 3).T
        fst = Fst.of_arcs(source, label, np.array(weights), target, final, start=start)
        self._log(f"Total number of phone instances seen was {seen}")
        self._log(f"Perplexity on training data is: {math.exp(-log_prob / seen):g}")
        self._log(
            "Note: perplexity on unseen data will be infinity as there is no smoothing.  This is by"
            " design, to reduce the number of arcs."
        )
        self._log(
            f"Created phone language model with {fst.states} states and {len(fst.arcs)} arcs."
        )
        return fst

    def _nearest(self, history: tuple[int, ...]) -> int:
        """The state with the longest end of a history."""
        for first in range(len(history) + 1):
            number = self._number.get(history[first:], -1)
            if number >= 0 and self._states[number].total:
                return number
        raise ShapeError(f"no state of the language model stands for the history {history}")

    # Dissolving

    def _dissolve(self) -> None:
        options, begin = self._options, self._active
        shortest = options.no_prune_ngram_order - 1
        basic = sum(len(state.history) == shortest for state in self._states)
        wanted = basic + options.num_extra_lm_states
        for stage in range(1, _STAGES + 1):
            self._fill_queue()
            target = begin + int((wanted - begin) * stage / _STAGES)  # towards zero, as in C
            while self._active > target and self._queue:
                cost, negative = heapq.heappop(self._queue)
                now = self._change(-negative)
                if _close(-cost, now):
                    self._dissolve_state(-negative)
                else:
                    heapq.heappush(self._queue, (-now, negative))
        self._log(
            f"In LM [hard] backoff, target num states was {basic} + --num-extra-lm-states="
            f"{options.num_extra_lm_states} = {wanted}, pruned from {begin} to {self._active}"
        )

    def _fill_queue(self) -> None:
        self._queue = []
        for number, state in enumerate(self._states):
            state.queued = self._may_go(state)
            if state.queued:
                self._queue.append((-self._change(number), -number))
        heapq.heapify(self._queue)

    def _may_go(self, state: _State) -> bool:
        """Whether a state may be dissolved: no other one goes there first, and no history that
        is one phone longer needs all of its own."""
        options = self._options
        if len(state.history) < options.no_prune_ngram_order:
            return False
        if not state.total or state.total != state.reachable:
            return False
        if len(state.history) == options.ngram_order - 1:
            return True
        longer = (self._number.get((*state.history, phone), -1) for phone in state.counts if phone)
        return not any(number >= 0 and self._states[number].reachable for number in longer)

    def _change(self, number: int) -> np.float32:
        """By how much the log-likelihood changes where a state is dissolved; 0 or below."""
        state = self._states[number]
        into = self._states[state.backoff]
        if not into.total:
            return np.float32(_EMPTY_BACKOFF * state.total)
        counts = into.counts.copy()
        for phone, count in state.counts.items():
            counts[phone] = counts.get(phone, 0) + count
        together = _log_like(counts, into.total + state.total)
        return min(np.float32(0), together - state.log_like() - into.log_like())

    def _dissolve_state(self, number: int) -> None:
        state = self._states[number]
        into = self._states[state.backoff]
        self._active -= into.total != 0
        for phone, count in state.counts.items():
            into.counts[phone] = into.counts.get(phone, 0) + count
        into.total += state.total
        state.counts = {}
        state.total = 0
        state.reachable = 0
        state.queued = False
        was_queued = into.queued
        into.queued = self._may_go(into)
        if into.queued and not was_queued:
            heapq.heappush(self._queue, (-self._change(state.backoff), -state.backoff))


def _close(one: np.float32, other: np.float32) -> bool:
    return bool(abs(one - other) <= _TOLERANCE * (abs(one) + abs(other)))
