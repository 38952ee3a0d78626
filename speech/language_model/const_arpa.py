"""Const-ARPA files, `G.carpa`: n-gram models as one array that is searched where it lies.

An n-gram that has longer ones or a back-off weight is a block of int32 in that array: the bits of
its log-probability and of its back-off weight, float32, natural logarithms; how many n-grams are
one word longer; and for each of these its last word, ascending, and a link. An even link is the
bits of a log-probability, an odd one leads to a block: twice the distance from this one, or, if it
is negative, the place in a table of far ones.

Source: Kaldi's `lm/const-arpa-lm.cc`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.python.cached import cached_property
from ...framework.base.sequence import bincount
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.lattices.lattice import single
from .automaton import Automaton, Histories
from .model import NgramModel, natural_log

_HEAD = 3
"""Numbers of a block before its longer n-grams."""
_NEAR = 2**30 - 1
"""The longest distance between blocks that a link holds."""
_OLD = "\x04"
"""Files of the oldest form begin with the size of an integer."""
_MOST_ORDER = 100


@dataclass(eq=False)
class ConstArpa:
    """An n-gram model.

    Attributes:
        begin, end, unknown: the labels of `<s>`, `</s>` and `<unk>`; unknown is -1 where the model
            has none.
        order: the length of its longest n-grams.
        blocks: int32. unigrams: where the block of each word begins in it, plus 1, int64, [words];
            0: the word is unknown. far: the same of the table of far blocks.
        name: of its file.
    """

    begin: int
    end: int
    unknown: int
    order: int
    blocks: np.ndarray
    unigrams: np.ndarray
    far: np.ndarray
    name: str = "<const-ARPA>"

    def __post_init__(self) -> None:
        words = len(self.unigrams)
        if not 0 < self.order <= _MOST_ORDER:
            raise FormatError(f"{self.name}: n-grams of {self.order} words")
        for what, label in (("<s>", self.begin), ("</s>", self.end), ("<unk>", self.unknown)):
            if not 0 < label < words and (what != "<unk>" or label != -1):
                raise FormatError(f"{self.name}: the label {label} of {what} is none of {words}")
        most = len(self.blocks) - _HEAD + 1
        for places in (self.unigrams, self.far):
            if len(places) and not 0 <= places.min() <= places.max() <= most:
                raise FormatError(f"{self.name}: a block begins outside of the array")
        for label in filter(lambda label: label > 0, (self.end, self.unknown)):
            if not self.unigrams[label]:
                raise FormatError(f"{self.name}: the word {label} has no probability")

    @classmethod
    def read(cls, reader: Reader) -> ConstArpa:
        """Read it after the header of its file.

        Raises:
            FormatError: it is text, damaged or something else.
        """
        if not reader.binary:
            raise reader.error("a const-ARPA file is binary")
        old = reader.peek() == _OLD

        def tokens(*names: str) -> None:
            for name in names if not old else ():
                reader.expect_token(name)

        def array(count: int, size: int) -> np.ndarray:
            if old:  # each number stands after its size
                pairs = [("size", "u1"), ("value", f"<i{size}")]
                return np.ascontiguousarray(_taken(reader, np.dtype(pairs), count)["value"])
            return _taken(reader, np.dtype(f"<i{size}"), count)

        tokens("<ConstArpaLm>", "<LmInfo>")
        begin, end, unknown, order = (reader.read_int32() for _ in range(4))
        tokens("</LmInfo>", "<LmStates>")
        blocks = array(reader.read_int(4 if old else 8), 4)
        tokens("</LmStates>", "<LmUnigram>")
        unigrams = array(reader.read_int32(), 8)
        tokens("</LmUnigram>", "<LmOverflow>")
        far = array(reader.read_int32(), 8)
        tokens("</LmOverflow>", "</ConstArpaLm>")
        return cls(begin, end, unknown, order, blocks, unigrams, far, reader.name)

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does, in binary form."""
        writer.write_token("<ConstArpaLm>")
        writer.write_token("<LmInfo>")
        for value in (self.begin, self.end, self.unknown, self.order):
            writer.write_int32(value)
        writer.write_token("</LmInfo>")
        for name, size, array in (
            ("LmStates", 8, self.blocks),
            ("LmUnigram", 4, self.unigrams),
            ("LmOverflow", 4, self.far),
        ):
            writer.write_token(f"<{name}>")
            writer.write_int(len(array), size)
            writer.write_raw(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
            writer.write_token(f"</{name}>")
        writer.write_token("</ConstArpaLm>")

    # Elements of memoryviews are read faster than elements of arrays, and need not be aligned.
    @cached_property
    def _integers(self) -> memoryview:
        return self.blocks.view(np.uint8).data.cast("i")

    @cached_property
    def _floats(self) -> memoryview[float]:
        return self.blocks.view(np.uint8).data.cast("f")

    def block(self, words: tuple[int, ...]) -> int:
        """Where the block of an n-gram begins; -1: it has none.

        Raises:
            FormatError: the array leads out of itself.
        """
        first = words[0]
        place = int(self.unigrams[first]) - 1 if 0 <= first < len(self.unigrams) else -1
        for word in words[1:]:
            if place < 0:
                break
            place = self._child(place, word)[0]
        return place

    def is_history(self, words: tuple[int, ...]) -> bool:
        """Whether longer n-grams begin with these words."""
        place = self.block(words) if words else 0
        return not words or (place >= 0 and self._integers[place + 2] > 0)

    def _child(self, place: int, word: int) -> tuple[int, float]:
        """Block (-1: none) and log-probability (NaN: there is none) of an n-gram and a word."""
        count = self._integers[place + 2]
        begin = place + _HEAD
        if not 0 <= 2 * count <= len(self.blocks) - begin:
            raise FormatError(f"{self.name}: the block at {place} is damaged")
        found = bisect_left(self._integers[begin : begin + 2 * count : 2], word)
        at = begin + 2 * found
        if found == count or self._integers[at] != word:
            return -1, math.nan
        link = self._integers[at + 1]
        if link % 2 == 0:
            return -1, self._floats[at + 1]
        distance = (link - 1) // 2
        if link > 0:
            child = place + distance
        else:
            number = -(link + 1) // 2
            child = int(self.far[number]) - 1 if number < len(self.far) else -1
        if not 0 <= child <= len(self.blocks) - _HEAD:
            raise FormatError(f"{self.name}: the block at {place} leads out of the array")
        return child, self._floats[child]

    def known(self, word: int) -> int:
        """The word, or `<unk>` in place of an unknown one where the model has it."""
        words = self.unigrams
        is_known = 0 <= word < len(words) and words[word]
        return word if is_known or self.unknown < 0 else self.unknown

    def log_probability(self, word: int, history: tuple[int, ...]) -> float:
        """The natural logarithm of a word's probability, of float32 sums; minus infinity: none.

        Args:
            history: the words before it; the last ones count.
        """
        word = self.known(word)
        left_out = max(len(history) + 1 - self.order, 0)
        known = tuple(self.known(each) for each in history[left_out:])
        weights = []
        found = math.nan
        for begin in range(len(known)):
            place = self.block(known[begin:])
            if place < 0:
                continue
            found = self._child(place, word)[1]
            if not math.isnan(found):
                break
            weights.append(self._floats[place + 1])
        if math.isnan(found):
            place = self.block((word,))
            found = self._floats[place] if place >= 0 else -math.inf
        for weight in reversed(weights):
            found = single(weight + found)
        return found


def _taken(reader: Reader, dtype: np.dtype, count: int) -> np.ndarray:
    """Numbers of the file as a view of its bytes, of which there may be gigabytes."""
    reader.check_left(max(count, -1) * dtype.itemsize, f"{count} numbers")
    array = np.frombuffer(reader.data, dtype, count, reader.offset)
    reader.offset += count * dtype.itemsize
    return array.astype(dtype.newbyteorder("="), copy=False)


class ConstArpaAutomaton(Automaton):
    """A const-ARPA model as an automaton: states are the histories that it tells apart."""

    def __init__(self, model: ConstArpa) -> None:
        super().__init__()
        self._model = model
        self._histories = Histories((model.begin,))

    def arc(self, state: int, word: int) -> tuple[int, float] | None:
        model = self._model
        history = self._histories[state]
        found = model.log_probability(word, history)
        if found == -math.inf:
            return None
        history = (*history, word)[max(len(history) + 2 - model.order, 0) :]
        while not model.is_history(history):
            history = history[1:]
        return self._histories.state(history), -found

    def final(self, state: int) -> float:
        return -self._model.log_probability(self._model.end, self._histories[state])


def const_arpa(model: NgramModel, begin: int, end: int, unknown: int) -> ConstArpa:
    """A model whose words are labels, as a const-ARPA file has it.

    Args:
        model: with the labels of words, ascending, as their texts.
        begin, end, unknown: see `ConstArpa`.

    Raises:
        FormatError: one of these is no word of the model.
    """
    labels = np.array([int(word) for word in model.vocabulary], np.int64)
    top = max(model.order - 1, 1)
    children = [
        bincount(longer.context, minlength=len(shorter))
        for shorter, longer in zip(model.orders[:-1], model.orders[1:], strict=True)
    ]
    children += [np.zeros(len(ngrams), np.int64) for ngrams in model.orders[len(children) :]]
    is_block = [
        ((children[n] > 0) | (ngrams.backoff != 0) | (n == 0)) & (n < top)
        for n, ngrams in enumerate(model.orders)
    ]
    own = [
        np.where(block, _HEAD + 2 * count, 0)
        for block, count in zip(is_block, children, strict=True)
    ]
    places = _places(model, own)
    out = np.zeros(sum(int(sizes.sum()) for sizes in own), np.int32)
    far = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for n, ngrams in enumerate(model.orders):
        log = natural_log(ngrams.log10).view(np.int32)
        rows = np.flatnonzero(is_block[n])
        at = places[n][rows]
        out[at] = log[rows]
        out[at + 1] = natural_log(ngrams.backoff).view(np.int32)[rows]
        out[at + 2] = children[n][rows]
        if not n:
            continue
        first = np.concatenate([[0], np.cumsum(children[n - 1])])
        parent = places[n - 1][ngrams.context]
        slot = parent + _HEAD + 2 * (np.arange(len(ngrams)) - first[ngrams.context])
        out[slot] = labels[ngrams.word]
        distance = places[n] - parent
        out[slot + 1] = np.where(is_block[n], np.minimum(distance, _NEAR) * 2 + 1, log & ~1)
        beyond = is_block[n] & (distance > _NEAR)
        far.append((slot[beyond] + 1, places[n][beyond] + 1))
    slots, targets = (np.concatenate(parts) for parts in zip(*far, strict=True))
    order = np.argsort(slots)
    out[slots[order]] = -(2 * np.arange(len(order)) + 1)
    unigrams = np.zeros(labels[-1] + 1, np.int64)
    unigrams[labels] = places[0] + 1
    return ConstArpa(begin, end, unknown, model.order, out, unigrams, targets[order])


def _places(model: NgramModel, own: list[np.ndarray]) -> list[np.ndarray]:
    """Where the block of each n-gram begins: after it come those that begin with its words."""
    whole = [sizes.copy() for sizes in own]
    for n in range(model.order - 1, 0, -1):
        context = model.orders[n].context
        whole[n - 1] += bincount(context, whole[n], minlength=len(own[n - 1])).astype(np.int64)
    places = [np.cumsum(whole[0]) - whole[0]]
    for n in range(1, model.order):
        context = model.orders[n].context
        before = np.cumsum(whole[n]) - whole[n]
        begins = np.searchsorted(context, context)  # the first of those with one context
        siblings = before - before[begins]
        places.append(places[n - 1][context] + own[n - 1][context] + siblings)
    return places
