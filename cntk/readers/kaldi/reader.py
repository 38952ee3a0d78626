"""Kaldi2Reader: HTKMLFReader's orders over tables of Kaldi.

    reader = [
        readerType = "Kaldi2Reader" ; frameMode = false ; nbruttsineachrecurrentiter = 4
        features = [ dim = 40 ; rx = "feats.rx" ; scpFile = "feats.len" ]
        labels = [ mlfFile = "labels.rx" ; labelMappingFile = "labels.map" ; labelDim = 1920 ]
    ]

`rx` and `mlfFile` are text files that hold an rspecifier: of matrices, and of posteriors with one
label of weight 1 for each frame. `scpFile` has a line `key frames` for each utterance, as Kaldi's
feat-to-len writes them. For sequence training see `derivatives`. Source: CNTK's
`Kaldi2Reader/HTKMLFReader.cpp`, `htkfeatio.h`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.posterior import Posterior
from ....kaldi.tables.tables import RandomAccessTable, read_table
from ...base.text import read_text
from ...config.parameters import ConfigParameters
from ...config.value import ConfigValue
from ..base.data import Stream
from ..base.htk_files import HtkPath
from ..base.pack import SequencePacker
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import complaint, sections_with
from ..htk.data import Features, Labels
from ..htk.options import LabelOptions, window_stream
from ..htk.reader import packing
from ..opening import Opening
from .derivatives import (
    LatticeCriterion,
    SequenceTrainingReader,
    UtteranceCriterion,
    rspecifier_in,
)
from .transform import FeatureTransform

_NO_TRANSFORM = "NO_FEATURE_TRANSFORM"


def kaldi2_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType Kaldi2Reader.

    Raises:
        FormatError: a parameter is missing or wrong, or asks for what is not there.
    """
    writes = config.match("action", "write")
    criterion = None if writes else LatticeCriterion.of(config)
    truncated = config.bool("truncated", False)
    features = [_FeatureTable.of(part, name) for name, part in sections_with(config, "scpFile")]
    if not features:
        raise complaint(config, "the reader section has no stream with an scpFile")
    delay = config.int("targets_delay", 0)
    if delay < 0:
        raise config["targets_delay"].error("labels come later by a number of frames from 0 on")
    parts = sections_with(config, "mlfFile")
    names = [name for name, _ in parts]
    pack = packing(
        config,
        [False] * len(features),
        names,
        whole=criterion is not None,
        needs_window=False,
    )
    labels = [_LabelTable.of(part, name) for name, part in parts]
    ahead = config.bool("prefetch", True)

    def opened() -> DataReader:
        given = [part.open() for part in features]
        late = [part.open_delayed(delay) for part in labels]
        if criterion is None:
            return PackedReader(pack(given, late, None), ahead=ahead, legacy=True)
        utterances = UtteranceCriterion(criterion)
        packer = pack(given, late, utterances)
        assert isinstance(packer, SequencePacker)
        return SequenceTrainingReader(
            packer, utterances, criterion.streams, truncated=truncated, ahead=ahead
        )

    files = [file for part in (*features, *labels) for file in part.files]
    streams = [part.stream for part in (*features, *labels)]
    if criterion is not None:
        files += criterion.files
        streams += criterion.streams
    return Opening(
        opened,
        files,
        streams,
        probe=lambda: [part.probe() for part in features],
    )


@dataclass(frozen=True)
class _Matrix:
    """The features of an utterance; what `Utterances` asks of a file."""

    path: str
    values: np.ndarray
    kind: str = "Kaldi"
    period: int = 0

    @property
    def frames(self) -> int:
        return len(self.values)

    @property
    def dim(self) -> int:
        return self.values.shape[1]

    def read(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """All frames; a script file says which part of a matrix is meant."""
        return self.values


@dataclass(eq=False)
class _KaldiFeatures(Features):
    """Frames of a table of Kaldi.

    Attributes:
        table: of matrices by the names of utterances.
        transform: is applied to them.
    """

    table: RandomAccessTable | None = None
    transform: FeatureTransform | None = None

    def file(self, entry: HtkPath) -> _Matrix:
        """See `Features.file`."""
        assert self.table is not None
        if entry.name not in self.table:
            raise FormatError(f"{self.path}:{entry.line}: Missing features for: {entry.name}")
        values = self.table[entry.name]
        if self.transform is not None:
            values = self.transform.apply(values)
        return _Matrix(entry.path, values)


@dataclass(frozen=True)
class _FeatureTable:
    """A section with an scpFile and rx: a stream of frames.

    Attributes:
        stream: its `dim` counts all frames of a window.
        lengths: the file of keys and their frames. specifier: the file that holds the rspecifier.
        transform: the file of a transform; "" for none.
        left, right: see `Features`.
        files: the values that name these files.
    """

    stream: Stream
    lengths: str
    specifier: str
    transform: str
    left: int
    right: int
    files: list[ConfigValue]

    @classmethod
    def of(cls, part: ConfigParameters, name: str) -> _FeatureTable:
        """The settings of a section.

        Raises:
            FormatError: a parameter is missing or wrong.
        """
        stream, left, right = window_stream(part, name)
        transform = part.string("featureTransform", "")
        keys = ["scpFile", "rx"]
        if transform == _NO_TRANSFORM:
            transform = ""
        elif transform:
            keys.append("featureTransform")
        paths = part.string("scpFile"), part.string("rx"), transform
        return cls(stream, *paths, left, right, part.files(*keys))

    def probe(self) -> None:
        """Look at the first utterance.

        Raises:
            FormatError: a file or the table is not as it should be, or has frames of another size.
        """
        features = self.open()
        features.context(features.file(features.entries[0]))

    def open(self) -> Features:
        """Read the list, and open the table.

        Raises:
            FormatError: one is not as it should be; file and line.
        """
        entries = []
        for number, line in enumerate(read_text(self.lengths).splitlines(), 1):
            words = line.split()
            if not words:
                continue
            if len(words) != 2 or not words[1].isdecimal() or not 0 < int(words[1]) < 1 << 31:
                raise FormatError(
                    f"{self.lengths}:{number}: 'key frames' was expected, as feat-to-len writes it"
                )
            entries.append(HtkPath(words[0], words[0], 0, int(words[1]) - 1, number))
        if not entries:
            raise FormatError(f"{self.lengths}: the list is empty")
        features = _KaldiFeatures(self.stream, entries, self.left, self.right, path=self.lengths)
        features.table = RandomAccessTable(rspecifier_in(self.specifier), "matrix")
        if self.transform:
            features.transform = FeatureTransform.read(self.transform)
        return features


class _LabelTable(LabelOptions):
    """A section with an mlfFile: a stream of labels."""

    def open_delayed(self, delay: int) -> Labels:
        """Read the labels of all utterances, as `LabelOptions.open` does.

        Args:
            delay: frames by which labels come later; the first one is repeated.
        """
        labels = self.open()
        late = {
            name: states[np.maximum(np.arange(len(states)) - delay, 0)]
            for name, states in labels.states.items()
        }
        return replace(labels, states=late)

    def _states(
        self, numbers: Mapping[str, int] | None, wanted: Collection[str] | None
    ) -> dict[str, np.ndarray]:
        path = self.part.string("mlfFile")
        found: dict[str, np.ndarray] = {}
        for name, posterior in read_table(rspecifier_in(path), "posterior"):
            if name in found:
                raise FormatError(f"{path}: duplicate entry {name!r}")
            found[name] = _labels(path, name, posterior, numbers)
        return found


def _labels(
    path: str, name: str, posterior: Posterior, numbers: Mapping[str, int] | None
) -> np.ndarray:
    """The label of each frame, int32.

    Raises:
        FormatError: a frame has not one label of weight 1, or one that has no number.
    """
    wrong = np.flatnonzero(np.diff(posterior.starts) != 1)
    if not len(wrong):
        wrong = np.flatnonzero(posterior.weights != 1)
    if len(wrong):
        raise FormatError(
            f"{path}: {name}: frame {wrong[0]} has not one label of weight 1, but"
            f" {dict(zip(*(part.tolist() for part in posterior[int(wrong[0])]), strict=True))}"
        )
    if numbers is None:
        return posterior.ids
    unknown = next((at for at in np.unique(posterior.ids).tolist() if str(at) not in numbers), None)
    if unknown is not None:
        raise FormatError(f"{path}: {name}: state {unknown} not found in statelist")
    return np.array([numbers[str(at)] for at in posterior.ids.tolist()], np.int32)
