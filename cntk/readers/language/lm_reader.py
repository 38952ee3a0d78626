"""LMSequenceReader: sentences for language models.

    reader = [
        readerType = "LMSequenceReader" ; file = "train.txt" ; wordclass = "vocab.txt"
        nbruttsineachrecurrentiter = 4
        features = [ dim = 0 ; mode = "class" ]
        labelIn = [ labelDim = 10000 ; labelMappingFile = "words.txt" ]
        labels = [ labelType = "nextWord" ; labelMappingFile = "words.txt" ]
    ]

A line is a sentence; one of fewer than three words is passed over. Each word is to tell the next
one. Sentences are shuffled, and those of equal length come together. Source: CNTK's
`LMSequenceReader/SequenceReader.cpp` (`BatchSequenceReader`) and `SequenceParser.h`.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

import numpy as np

from ....framework.base.errors import FormatError
from ...base.std_shuffle import mersenne32, shuffled
from ...config.parameters import ConfigParameters
from ..base.data import Samples, Stream, ranges
from ..base.layout import Layout
from ..base.pack import Minibatch, Packer
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import complaint, precision, tagged_text_sections
from ..base.words import Classes, Vocabulary, read_lines, read_word_classes, read_words
from .noise_words import NoiseWords

_CACHE = 50000
_MOST_NOISE = 1_000_000
_SHORTEST = 3
_EPSILON = 1e-6


@dataclass(eq=False)
class Targets:
    """The form of the word to predict.

    Attributes:
        classes: word, class, and the ends of the class: 4 numbers; None: no classes.
        counts: of each word. There are words of noise then, drawn by them: word and its log
            probability, and each noise word and the negative log probability of it.
        noise: how many words of noise.
    """

    classes: Classes | None = None
    counts: np.ndarray | None = None
    noise: int = 0

    def __post_init__(self) -> None:
        self._words = None if self.counts is None else NoiseWords(self.counts)

    @property
    def dim(self) -> int:
        """Numbers for a word."""
        return 4 if self.classes else 2 * (self.noise + 1) if self._words else 1

    def rows(self, words: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """The numbers for the words of sequences of one length, [sequences steps, dim].

        Args:
            words: [sequences, steps].
        """
        if self.classes is not None:
            return self.classes.rows(words.reshape(-1), dtype)
        if self._words is None:
            # CNTK keeps the number 0 away from zero, which its sparse matrices would drop.
            return np.where(words == 0, _EPSILON, words).astype(dtype).reshape(-1, 1)
        sequences, steps = words.shape
        drawn = self._words.draw(words.size * self.noise).reshape(steps, sequences, self.noise)
        drawn = drawn.transpose(1, 0, 2)  # it is drawn column by column of the minibatch
        rows = np.empty((sequences, steps, self.dim), dtype)
        rows[..., 0], rows[..., 1] = words, self._words.logs[words]
        rows[..., 2::2], rows[..., 3::2] = drawn, -self._words.logs[drawn]
        return rows.reshape(-1, self.dim)


def lm_sequence_reader(config: ConfigParameters) -> DataReader:
    """The reader of a section with readerType LMSequenceReader.

    Raises:
        FormatError: a parameter is missing or wrong, or a file is; a word is not in the list.
    """
    features, labels = tagged_text_sections(config)
    (in_name, in_part), (out_name, out_part) = labels
    feature_part = features[0][1] if features else config
    unknown = config.string("unk", "<unk>")
    classes: Classes | None = None
    counts: np.ndarray | None = None
    words: Vocabulary | None = None
    class_file = config.string("wordclass", "")
    if class_file:
        words, classes, counts = read_word_classes(class_file, unknown)
        wanted = in_part.size("labelDim", 0)
        if words.size < wanted:
            raise in_part["labelDim"].error(f"{class_file} has {words.size} words, not {wanted}")
    targets = _targets(feature_part, classes, counts)
    ins = _vocabulary(in_part, words, unknown)
    kind = out_part.string("labelType", "category").lower()
    if kind not in ("category", "nextword", "none"):
        raise out_part["labelType"].error("labelType is category, nextWord or none")
    if in_part.string("labelType", "category").lower() != "category":
        raise in_part["labelType"].error(f"the labels of {in_name} are of the type 'category'")
    outs = ins if kind == "nextword" else _vocabulary(out_part, words, unknown)
    text = Sentences(config.string("file"), ins, outs)
    dtype = precision(config)
    dim = max(in_part.size("labelDim", 0), ins.size)
    streams = [Stream(features[0][0] if features else "features", dim, True, dtype)]
    if kind == "none":
        targets = None
    else:
        streams.append(Stream(out_name, targets.dim, False, dtype))
    packer = SentencesOfOneLength(
        text,
        streams,
        targets,
        slots=config.size("nbruttsineachrecurrentiter", 1),
        cache=config.size("cacheBlockSize", _CACHE),
    )
    names = {stream.name: ins.names() for stream in streams[:1]} | {out_name: outs.names()}
    # Words of noise are drawn when they are wanted, so that a run that leaves off early repeats.
    ahead = config.bool("prefetch", True) and (targets is None or targets.counts is None)
    return PackedReader(packer, ahead=ahead, labels=names)


def _targets(part: ConfigParameters, classes: Classes | None, counts: np.ndarray | None) -> Targets:
    mode = part.string("mode", "class").lower()
    if mode not in ("class", "softmax", "nce"):
        raise part["mode"].error("mode is class, softmax or nce")
    if mode == "softmax":
        return Targets()
    if classes is None or counts is None:
        raise complaint(part, f"mode = {mode!r} needs a wordclass file")
    if mode == "class":
        return Targets(classes)
    noise = part.size("noise_number", 0)
    if noise > _MOST_NOISE:
        raise part["noise_number"].error(f"{noise} words of noise; {_MOST_NOISE} are possible")
    return Targets(None, counts, noise)


def _vocabulary(part: ConfigParameters, words: Vocabulary | None, unknown: str) -> Vocabulary:
    path = part.string("labelMappingFile")
    if os.path.exists(path):
        return read_words(path, unknown)
    if words is None:
        raise part["labelMappingFile"].error(f"there is no file {path}, and no wordclass file")
    return words


class Sentences:
    """The sentences of a text.

    Args:
        path: of the text.
        ins, outs: the input words, and the words to predict.

    Attributes:
        ins, outs: the number of each word, int32, [words]; one array where both are the same.
        begin: where each sentence begins, int64, [sequences + 1].
        lines: the number of each sentence's line, from 0.
    """

    def __init__(self, path: str, ins: Vocabulary, outs: Vocabulary) -> None:
        given: list[int] = []
        told: list[int] = []
        begin, self.lines = [0], []
        for number, line in enumerate(read_lines(path)):
            words = line.split()
            if len(words) < _SHORTEST:
                continue
            place = f"{path}:{number + 1}"
            given += ins.find(words, place)
            if outs is not ins:
                told += outs.find(words, place)
            begin.append(len(given))
            self.lines.append(number)
        if not self.lines:
            raise FormatError(f"{path}: there is no sentence of {_SHORTEST} words or more")
        self.begin = np.array(begin, np.int64)
        self.ins = np.array(given, np.int32)
        self.outs = np.array(told, np.int32) if outs is not ins else self.ins


class SentencesOfOneLength(Packer):
    """Several sentences of one length side by side, in pieces of the size of a minibatch.

    Args:
        text: the sentences.
        streams: of words, and of the words to predict (unless `targets` is None).
        targets: the form of the next word.
        slots: how many sentences at most; 0: as many whole ones as stay below the minibatch size.
        cache: sentences are shuffled within about so many words.
    """

    def __init__(
        self,
        text: Sentences,
        streams: list[Stream],
        targets: Targets | None,
        *,
        slots: int = 1,
        cache: int = _CACHE,
    ) -> None:
        self.streams, self._text, self._targets = streams, text, targets
        self._slots = slots
        # A block ends with the sentence that takes it to `cache` words.
        begin = text.begin
        self._blocks = [0]
        while self._blocks[-1] < len(text.lines):
            first = self._blocks[-1]
            last = int(np.searchsorted(begin, begin[first] + max(cache, 1), side="left"))
            self._blocks.append(min(max(last, first + 1), len(text.lines)))
        # The last word of a sentence is only predicted.
        self._lengths = np.diff(begin) - (targets is not None)

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`. Every epoch begins at the first line."""
        self._size, self._limit = size, epoch_size
        self._returned = 0
        self._block = 0
        self._seed = epoch
        self._groups: deque[np.ndarray] = deque()
        self._group, self._step = np.zeros(0, np.int64), 0
        self._load()

    def _load(self) -> None:
        """Shuffles the next block; groups its sentences."""
        if self._block + 1 >= len(self._blocks):
            return
        first, last = self._blocks[self._block : self._block + 2]
        self._block += 1
        self._seed += 1
        order = first + np.array(shuffled(last - first, mersenne32(self._seed)), np.int64)
        lengths = np.diff(self._text.begin)[order]
        by_length = np.argsort(lengths, kind="stable")
        bounds = np.flatnonzero(np.diff(lengths[by_length])) + 1
        groups: list[np.ndarray] = []
        for same in np.split(by_length, bounds):
            count = self._slots
            if not count:  # as many as stay below the size; one at least
                count = max(1, -(-self._size // int(lengths[same[0]])) - 1)
            groups += [same[place : place + count] for place in range(0, len(same), count)]
        groups.sort(key=lambda group: int(group[0]))
        self._groups = deque(order[group] for group in groups)

    def _ended(self) -> bool:
        """Whether nothing more is to come in this epoch."""
        if self._limit is not None and self._returned > self._limit:
            return True
        return not len(self._group) and not self._groups and self._block + 1 >= len(self._blocks)

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        if self._ended():
            return Minibatch(end_of_epoch=True)
        if not len(self._group):
            if not self._groups:
                self._load()
            self._group, self._step = self._groups.popleft(), 0
        group, step, text = self._group, self._step, self._text
        length = int(self._lengths[group[0]])
        count = length if not self._slots else min(self._size, length - step)
        begin, words = ranges(text.begin[group] + step, text.begin[group] + step + count)
        self._step += count
        self._returned += len(words)
        if self._step >= length:
            self._group = np.zeros(0, np.int64)
        zeros = np.zeros(len(group), np.int64)
        layout = Layout(
            len(group), count, np.arange(len(group)), zeros - step, zeros + length - step
        )
        return Minibatch(
            dict(zip([s.name for s in self.streams], self._samples(begin, words), strict=True)),
            dict.fromkeys([s.name for s in self.streams], layout),
            np.stack([zeros, np.array([text.lines[n] for n in group.tolist()])], axis=1),
            self._ended(),
        )

    def _samples(self, begin: np.ndarray, words: np.ndarray) -> list[Samples]:
        dtype = self.streams[0].dtype
        rows = np.arange(len(words) + 1)
        found = [
            Samples(begin, np.ones(len(words), dtype), self._text.ins[words].astype(np.int64), rows)
        ]
        if self._targets is not None:
            told = self._text.outs[words + 1].astype(np.int64)
            told = told.reshape(len(begin) - 1, -1)
            found.append(Samples(begin, self._targets.rows(told, dtype)))
        return found
