"""LMSequenceReader: sentences for language models.

    reader = [
        readerType = "LMSequenceReader" ; file = "train.txt" ; wordclass = "vocab.txt"
        nbruttsineachrecurrentiter = 4
        features = [ dim = 0 ; mode = "class" ]
        labelIn = [ labelDim = 10000 ; labelMappingFile = "words.txt" ]
        labels = [ labelType = "nextWord" ; labelMappingFile = "words.txt" ]
    ]

A line is a sentence; one of fewer than three words is passed over. Each word is to tell the next
one. Sentences are shuffled, and sentences of equal length come together. Source: CNTK's
`LMSequenceReader/SequenceReader.cpp` (`BatchSequenceReader`) and `SequenceParser.h`.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.python.cached import cached_property
from ...base.std_shuffle import mersenne32, shuffled
from ...config.parameters import ConfigParameters
from ..base.data import Samples, Stream, ranges
from ..base.layout import Layout
from ..base.pack import Minibatch, Packer
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import complaint, precision, tagged_text_sections
from ..base.words import Classes, Vocabulary, read_lines, read_word_classes, read_words
from ..opening import Opening
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


def lm_sequence_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType LMSequenceReader.

    Raises:
        FormatError: a parameter is missing or wrong, or a list of words is.
    """
    features, labels = tagged_text_sections(config)
    (in_name, in_part), (out_name, out_part) = labels
    class_file = config.string("wordclass", "")
    form = _form(features[0][1] if features else config, class_file)
    kind = out_part.string("labelType", "category").lower()
    if kind not in ("category", "nextword", "none"):
        raise out_part["labelType"].error("labelType is category, nextWord or none")
    if in_part.string("labelType", "category").lower() != "category":
        raise in_part["labelType"].error(f"the labels of {in_name} are of the type 'category'")
    parts = [in_part] if kind == "nextword" else [in_part, out_part]
    for part in (in_part, out_part):
        part.only_if(False, "the list of words tells it", "dim", "labelDim", "labelMappingFile")
        part.only_if(False, "a line is a sentence", "beginSequence", "endSequence")
    config.only_if(False, "sentences are always shuffled", "randomize")
    lists = _Lists(config, parts, class_file, form)
    path = config.string("file")
    dtype = precision(config)
    slots = config.size("nbruttsineachrecurrentiter", 1)
    cache = config.size("cacheBlockSize", _CACHE)
    # Words of noise are drawn when they are wanted, so that a run that leaves off early repeats.
    ahead = config.bool("prefetch", True) and (kind == "none" or form[0] != "nce")

    def streams() -> list[Stream]:
        first = features[0][0] if features else "features"
        both = [Stream(first, max(lists.dim, lists.words[0].size), True, dtype)]
        if kind != "none":
            both.append(Stream(out_name, lists.targets.dim, False, dtype))
        return both

    def opened() -> DataReader:
        ins = lists.words[0]
        outs = lists.words[-1]
        targets = None if kind == "none" else lists.targets
        text = Sentences(path, ins, outs)
        given = streams()
        packer = SentencesOfOneLength(text, given, targets, slots=slots, cache=cache)
        names = {stream.name: ins.names() for stream in given[:1]} | {out_name: outs.names()}
        return PackedReader(packer, ahead=ahead, labels=names, legacy=True)

    files = config.files("file", "wordclass")
    if not class_file:
        files += [file for part in parts for file in part.files("labelMappingFile")]
    return Opening(opened, files, streams() if lists.present() else None, light=True)


def _form(part: ConfigParameters, class_file: str) -> tuple[str, int]:
    """The form of the words to predict, and how many words of noise there are."""
    mode = part.string("mode", "class").lower()
    if mode not in ("class", "softmax", "nce"):
        raise part["mode"].error("mode is class, softmax or nce")
    if mode != "softmax" and not class_file:
        raise complaint(part, f"mode = {mode!r} needs a wordclass file")
    part.only_if(mode == "nce", f"mode is {mode}, not nce", "noise_number")
    noise = part.size("noise_number", 0) if mode == "nce" else 0
    if noise > _MOST_NOISE:
        raise part["noise_number"].error(f"{noise} words of noise; {_MOST_NOISE} are possible")
    return mode, noise


class _Lists:
    """The lists of words that a section names, read when they are wanted.

    Args:
        config: the section of the reader.
        parts: the sections of the words given and, unless they are the next ones, of those to
            predict.
        class_file: the list of words with their classes; "" for none.
        form: mode and number of noise words.

    Raises:
        FormatError: a list is wrong, or has fewer words than `labelDim`.
    """

    def __init__(
        self,
        config: ConfigParameters,
        parts: list[ConfigParameters],
        class_file: str,
        form: tuple[str, int],
    ) -> None:
        self._unknown = config.string("unk", "<unk>")
        self._parts = parts
        self._files = [part.string("labelMappingFile") for part in parts]
        self._class_file = class_file
        self._form = form
        self.dim = parts[0].size("labelDim", 0)

    def present(self) -> bool:
        """Whether the files are there."""
        files = [self._class_file] if self._class_file else self._files
        return all(os.path.isfile(file) for file in files)

    @cached_property
    def _classes(self) -> tuple[Vocabulary, Classes, np.ndarray] | None:
        if not self._class_file:
            return None
        classes = read_word_classes(self._class_file, self._unknown)
        if classes[0].size < self.dim:
            message = f"{self._class_file} has {classes[0].size} words, not {self.dim}"
            raise self._parts[0]["labelDim"].error(message)
        return classes

    @cached_property
    def words(self) -> list[Vocabulary]:
        """The words given and those to predict."""
        vocabularies = []
        for part, file in zip(self._parts, self._files, strict=True):
            if os.path.exists(file):
                vocabularies.append(read_words(file, self._unknown))
            elif self._classes is not None:
                vocabularies.append(self._classes[0])
            else:
                message = f"there is no file {file}, and no wordclass file"
                raise part["labelMappingFile"].error(message)
        return vocabularies

    @cached_property
    def targets(self) -> Targets:
        """The form of the words to predict."""
        mode, noise = self._form
        if mode == "softmax" or self._classes is None:
            return Targets()
        _, classes, counts = self._classes
        return Targets(classes) if mode == "class" else Targets(None, counts, noise)


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
        in_words: list[int] = []
        out_words: list[int] = []
        begin = [0]
        self.lines = []
        for number, line in enumerate(read_lines(path)):
            words = line.split()
            if len(words) < _SHORTEST:
                continue
            place = f"{path}:{number + 1}"
            in_words += ins.find(words, place)
            if outs is not ins:
                out_words += outs.find(words, place)
            begin.append(len(in_words))
            self.lines.append(number)
        if not self.lines:
            raise FormatError(f"{path}: there is no sentence of {_SHORTEST} words or more")
        self.begin = np.array(begin, np.int64)
        self.ins = np.array(in_words, np.int32)
        self.outs = np.array(out_words, np.int32) if outs is not ins else self.ins


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
        self.streams = streams
        self._text = text
        self._targets = targets
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
        self._size = size
        self._limit = epoch_size
        self._returned = 0
        self._block = 0
        self._seed = epoch
        self._groups: deque[np.ndarray] = deque()
        self._group = np.zeros(0, np.int64)
        self._step = 0
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
            self._group = self._groups.popleft()
            self._step = 0
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
        samples = [
            Samples(begin, np.ones(len(words), dtype), self._text.ins[words].astype(np.int64), rows)
        ]
        if self._targets is not None:
            following = self._text.outs[words + 1].astype(np.int64)
            following = following.reshape(len(begin) - 1, -1)
            samples.append(Samples(begin, self._targets.rows(following, dtype)))
        return samples
