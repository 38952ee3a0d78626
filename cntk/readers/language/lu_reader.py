"""LUSequenceReader: sentences with a label for each word, for language understanding.

    reader = [
        readerType = "LUSequenceReader" ; file = "train.txt" ; wordContext = 0:1:2
        nbruttsineachrecurrentiter = 10 ; unk = "<unk>" ; wordmap = "map.txt"
        features = [ dim = 0 ]
        labelIn = [ token = "words.txt" ; useWordMap = true ; endSequence = "EOS" ]
        labels = [ token = "labels.txt" ; endSequence = "O" ]
    ]

A line is a token: its words, and its label last. A sentence ends at a blank line, at the label
`labels.endSequence`, or at a first word `labelIn.endSequence`. Source: CNTK's
`LUSequenceReader/LUSequenceReader.cpp` (`BatchLUSequenceReader`) and `LUSequenceParser.cpp`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....framework.base.sequence import bincount, repeated
from ...base.std_shuffle import minimal_standard, shuffled
from ...config.parameters import ConfigParameters
from ..base.data import Samples, Stream, ranges
from ..base.layout import Layout
from ..base.pack import Minibatch, Packer
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import precision, tagged_text_sections
from ..base.words import (
    Classes,
    Vocabulary,
    read_lines,
    read_word_map,
    read_words,
    read_words_with_classes,
)
from ..opening import Opening

_log = logging.getLogger(__name__)

_BLOCK = 50000  # sentences that are shuffled together
_NO_MORE = "minibatch size needs to be large enough to accommodate the longest sentence"


def lu_sequence_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType LUSequenceReader.

    Raises:
        FormatError: a parameter is missing or wrong, or a list of words is.
    """
    features, labels = tagged_text_sections(config)
    parts = dict(labels)
    (in_name, _), (out_name, _) = labels
    if config.has("inputLabel") or config.has("outputLabel"):
        in_name, out_name = config.string("inputLabel"), config.string("outputLabel")
        for key, name in (("inputLabel", in_name), ("outputLabel", out_name)):
            if name not in parts:
                raise config[key].error(f"there is no section {name!r} of labels")
    unknown = config.string("unk", "<unk>")
    word_map = config.string("wordmap", "")
    for _, part in labels:
        part.only_if(False, "the list of words tells it", "dim", "labelDim", "labelMappingFile")
        part.only_if(False, "blank lines and endSequence part the sentences", "beginSequence")
    lists = [_List.of(parts[name]) for name in (in_name, out_name)]
    ends = parts[in_name].string("endSequence", ""), parts[out_name].string("endSequence", "")
    path = config.string("file")
    dtype = precision(config)
    context = list(config.array("wordContext", "0").ints())
    first = features[0][0] if features else in_name
    slots = config.size("nbruttsineachrecurrentiter", 1)
    if not slots:
        raise config["nbruttsineachrecurrentiter"].error("a minibatch has one sentence at least")
    shuffle = config.string("randomize", "none").lower() in ("auto", "true")
    equal = config.bool("equalLength", True)
    repeat = config.bool("dataMultiPass", False)
    ahead = config.bool("prefetch", True)

    @cache
    def words() -> tuple[Vocabulary, Vocabulary, Classes | None]:
        mapping = read_word_map(word_map) if word_map else {}
        ins, _ = lists[0].words(unknown, mapping)
        outs, classes = lists[1].words(unknown, mapping)
        return ins, outs, classes

    def streams() -> list[Stream]:
        ins, outs, classes = words()
        return [
            Stream(first, ins.size * len(context), True, dtype),
            Stream(out_name, outs.size if classes is None else 4, classes is None, dtype),
        ]

    def opened() -> DataReader:
        ins, outs, classes = words()
        packer = TaggedMinibatches(
            TaggedSentences(path, ins, outs, ends),
            streams(),
            context,
            classes,
            words=ins.size,
            slots=slots,
            shuffle=shuffle,
            equal=equal,
            repeat=repeat,
        )
        names = {first: ins.names(), out_name: outs.names()}
        return PackedReader(packer, ahead=ahead, labels=names, legacy=True)

    given = config.files("wordmap")
    given += [file for name in (in_name, out_name) for file in parts[name].files("token")]
    present = all(os.path.isfile(str(file)) for file in given)
    return Opening(
        opened, [*config.files("file"), *given], streams() if present else None, light=True
    )


@dataclass(frozen=True)
class _List:
    """A list of words or labels: its file, whether they have classes, and whether words are
    replaced by others."""

    path: str
    classes: bool
    mapped: bool

    @classmethod
    def of(cls, part: ConfigParameters) -> _List:
        if part.string("labelType", "category").lower() != "category":
            raise part["labelType"].error("labels are of the type 'category'")
        mode = part.string("mode", "plain").lower()
        if mode not in ("plain", "class"):
            raise part["mode"].error("mode is plain or class")
        return cls(part.string("token"), mode == "class", part.bool("useWordMap", False))

    def words(self, unknown: str, mapping: dict[str, str]) -> tuple[Vocabulary, Classes | None]:
        """The words of the file, and their classes if there are any."""
        classes: Classes | None = None
        if self.classes:
            words, classes = read_words_with_classes(self.path, unknown)
        else:
            words = read_words(self.path, unknown)
        return (words.mapped(mapping) if self.mapped else words), classes


class TaggedSentences:
    """The sentences of a text whose tokens have labels.

    Args:
        path: of the text.
        ins, outs: words and labels.
        ends: the word and the label that end a sentence; "" for none.

    Attributes:
        begin: where each sentence begins, in tokens, int64, [sequences + 1].
        labels: of each token, int32, [tokens].
        words: of all tokens, int32, [words].
        first: where the words of each token begin, int64, [tokens + 1].

    Raises:
        FormatError: a word or a label is unknown, or there is no sentence: file and line.
    """

    def __init__(self, path: str, ins: Vocabulary, outs: Vocabulary, ends: tuple[str, str]) -> None:
        words: list[int] = []
        labels: list[int] = []
        first, begin = [0], [0]
        short: list[int] = []
        for number, line in enumerate(read_lines(path), 1):
            tokens = line.split()
            ended = not tokens
            if len(tokens) == 1:
                short.append(number)
            elif tokens:
                *given, label = tokens
                place = f"{path}:{number}"
                words += ins.find(given, place)
                labels += outs.find([label], place)
                first.append(len(words))
                ended = label == ends[1] or given[0] == ends[0]
            if ended and len(labels) > begin[-1]:
                begin.append(len(labels))
        if len(labels) > begin[-1]:
            begin.append(len(labels))
        if len(begin) == 1:
            raise FormatError(f"{path}: there is no sentence")
        if short:
            what = "words and a label were expected, not one word"
            _log.warning("%s:%d: %s; %d such lines passed over", path, short[0], what, len(short))
        self.begin = np.array(begin, np.int64)
        self.labels = np.array(labels, np.int32)
        self.words = np.array(words, np.int32)
        self.first = np.array(first, np.int64)


class TaggedMinibatches(Packer):
    """Several whole sentences side by side.

    Args:
        text: the sentences.
        streams: of words and of labels.
        context: which tokens are given for each, counted from it; those beyond the sentence are
            replaced by its first or last one.
        classes: of the labels; None: they are one-hot vectors.
        words: how many there are.
        slots: sentences of a minibatch, at most.
        shuffle: whether the order is random; no two epochs have the same.
        equal: whether the sentences of a minibatch have equal length: of the next `slots` sentences
            those are taken that are as long as the first.
        repeat: whether an epoch that asks for more samples than there are begins again.
    """

    def __init__(
        self,
        text: TaggedSentences,
        streams: list[Stream],
        context: Sequence[int],
        classes: Classes | None = None,
        *,
        words: int,
        slots: int = 1,
        shuffle: bool = False,
        equal: bool = True,
        repeat: bool = False,
    ) -> None:
        self.streams = streams
        self._text = text
        self._context = np.array(context, np.int64)
        self._classes = classes
        self._words = words
        self._slots = slots
        self._shuffle = shuffle
        self._equal = equal
        self._repeat = repeat
        self._lengths = np.diff(text.begin)
        self._seed = 0

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`. Every epoch begins at the first line; as in CNTK, its size
        counts sentences, and samples only where data are repeated.

        Raises:
            ShapeError: a sentence is longer than a minibatch.
        """
        longest = int(self._lengths.max())
        if longest > size:
            raise ShapeError(
                f"the longest sentence has {longest} words: the {_NO_MORE}, not {size}"
            )
        self._limit = epoch_size
        self._sentences = self._samples = 0
        self._batches: list[np.ndarray] = []
        self._begin_pass()

    def _begin_pass(self) -> None:
        count = len(self._lengths)
        for first in range(0, count, _BLOCK):
            size = min(_BLOCK, count - first)
            order = list(range(size))
            if self._shuffle:
                order = shuffled(size, minimal_standard(self._seed))
                self._seed += 1
            self._batches += self._grouped([first + place for place in order])
        self._batches.reverse()

    def _grouped(self, order: list[int]) -> list[np.ndarray]:
        """The sentences of each minibatch."""
        if not self._equal:
            return [
                np.array(order[at : at + self._slots]) for at in range(0, len(order), self._slots)
            ]
        lengths = self._lengths[order].tolist()
        used = [False] * len(order)
        groups = []
        for at, length in enumerate(lengths):
            if used[at]:
                continue
            group = []
            seen = 0
            place = at
            while place < len(order) and seen < self._slots:
                if not used[place]:
                    seen += 1
                    if lengths[place] == length:
                        used[place] = True
                        group.append(order[place])
                place += 1
            groups.append(np.array(group))
        return groups

    def _ended(self) -> bool:
        """Whether nothing more is to come in this epoch."""
        if self._limit is not None and self._sentences > self._limit:
            return True
        if self._batches:
            return False
        return not self._repeat or self._limit is None or self._samples >= self._limit

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        if self._ended():
            return Minibatch(end_of_epoch=True)
        if not self._batches:
            self._begin_pass()
        group = self._batches.pop()
        lengths = self._lengths[group]
        self._sentences += len(group)
        self._samples += int(lengths.sum())
        zeros = np.zeros(len(group), np.int64)
        layout = Layout(len(group), int(lengths.max()), np.arange(len(group)), zeros, lengths)
        begin, tokens = ranges(self._text.begin[group], self._text.begin[group + 1])
        inputs = self._inputs(begin, tokens, repeated(group, lengths))
        names = [stream.name for stream in self.streams]
        return Minibatch(
            dict(zip(names, (inputs, self._labels(begin, tokens)), strict=True)),
            dict.fromkeys(names, layout),
            np.stack([zeros, group], axis=1),
            self._ended(),
        )

    def _inputs(self, begin: np.ndarray, tokens: np.ndarray, sentence: np.ndarray) -> Samples:
        """The words around each token; a word that is there twice counts once."""
        text = self._text
        count = len(self._context)
        low = text.begin[sentence]
        high = text.begin[sentence + 1] - 1
        near = np.clip(tokens[:, None] + self._context, low[:, None], high[:, None]).reshape(-1)
        first, places = ranges(text.first[near], text.first[near + 1])
        slot = repeated(np.arange(len(near)), np.diff(first))
        index = text.words[places] + slot % count * self._words
        width = self._words * count
        both = np.unique(slot // count * width + index)
        row, index = np.divmod(both, width)
        bounds = np.concatenate([[0], np.cumsum(bincount(row, minlength=len(tokens)))])
        return Samples(begin, np.ones(len(index), self.streams[0].dtype), index, bounds)

    def _labels(self, begin: np.ndarray, tokens: np.ndarray) -> Samples:
        labels = self._text.labels[tokens].astype(np.int64)
        dtype = self.streams[1].dtype
        if self._classes is not None:
            return Samples(begin, self._classes.rows(labels, dtype))
        return Samples(begin, np.ones(len(labels), dtype), labels, np.arange(len(labels) + 1))
