"""Sequence training with Kaldi's lattices: the slope of sMBR or MPFE by the outputs of a network.

    seqTrainCriterion = smbr
    derivatives = [ type = readerDeriv ]
    objectives = [ type = readerObj ]
    denlats = [ rx = "lats.rx" ; kaldiModel = "final.mdl" ; silPhoneList = 1:2 ]
    alignments = [ rx = "ali.rx" ]

The network's first output gives log-likelihoods of pdfs; its criterion is the DummyCriterion of
`objectives` and `derivatives`, and falls where the expected accuracy of a path of the lattice
rises. Source: CNTK's `Kaldi2Reader/KaldiSequenceTrainingDerivative.cpp`,
`UtteranceDerivativeBuffer.cpp`, and `AttemptUtteranceDerivativeFeatures` of `SGDLib/SGD.cpp`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....framework.base.sequence import bincount
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.lattices.acceptors import depth_sorted
from ....kaldi.lattices.lattice import NO_PATH, CompactLattice, Weight
from ....kaldi.lattices.paths import Arcs, Paths
from ....kaldi.lattices.transition_ids import TransitionIds
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import RandomAccessTable
from ...base.text import read_text
from ...config.parameters import ConfigParameters
from ...config.value import ConfigValue
from ..base.data import Samples, Stream
from ..base.pack import Minibatch, SequencePacker
from ..base.packed_reader import PackedReader
from ..base.sections import complaint, sections_with
from ..htk.pack import in_pieces

_log = logging.getLogger(__name__)

_SLOPES = ("readerderiv", "seqtrainderiv")
_VALUES = ("readerobj", "seqtrainobj")


@dataclass(frozen=True)
class LatticeCriterion:
    """What a reader section says of sequence training.

    Attributes:
        by_phone: whether the accuracy counts phones (MPFE) and not pdfs (sMBR).
        lattices, alignments: the files that hold the rspecifiers. model: the file of Kaldi's model.
        silence: phones. one_silence_class: whether any silence is right for any other.
        old_scale: of the acoustic costs that the lattices have.
        acoustic_scale: of the log-likelihoods. graph_scale: of the costs of the graph.
        streams: of slopes, and of values.
        files: the values that name these files.
    """

    by_phone: bool
    lattices: str
    alignments: str
    model: str
    silence: list[int]
    one_silence_class: bool
    old_scale: float
    acoustic_scale: float
    graph_scale: float
    streams: tuple[Stream, Stream]
    files: list[ConfigValue]

    @classmethod
    def of(cls, config: ConfigParameters) -> LatticeCriterion | None:
        """The criterion of a section; None: it asks for none.

        Raises:
            FormatError: a parameter is missing or wrong.
        """
        if not config.has("seqTrainCriterion"):
            return None
        criterion = config.string("seqTrainCriterion").lower()
        if criterion not in ("smbr", "mpfe"):
            raise config["seqTrainCriterion"].error("seqTrainCriterion is 'smbr' or 'mpfe'")
        for name in ("denlats", "alignments"):
            if not config.has(name):
                raise complaint(config, f"seqTrainCriterion needs a section {name!r}")
        lattices, alignments = config.section("denlats"), config.section("alignments")
        return cls(
            criterion == "mpfe",
            lattices.string("rx"),
            alignments.string("rx"),
            lattices.string("kaldiModel"),
            list(lattices.array("silPhoneList", "").ints()),
            lattices.bool("oneSilenceClass", True),
            lattices.float("oldAcousticScale", 0.0),
            lattices.float("acousticScale", 0.2),
            lattices.float("lmScale", 1.0),
            (_stream(config, _SLOPES, "readerDeriv"), _stream(config, _VALUES, "readerObj")),
            [*lattices.files("rx", "kaldiModel"), *alignments.files("rx")],
        )


def _stream(config: ConfigParameters, types: tuple[str, str], wanted: str) -> Stream:
    """The stream of the section with one of these types; the network knows its dimension."""
    for name, part in sections_with(config, "type"):
        if part.string("type").lower() in types:
            return Stream(name, 0)
    raise complaint(config, f"seqTrainCriterion needs a stream with type = {wanted}")


def rspecifier_in(path: str) -> str:
    """The rspecifier that a text file holds.

    Raises:
        FormatError: it cannot be read, or is empty.
    """
    text = read_text(path).strip()
    if not text:
        raise FormatError(f"{path}: an rspecifier of Kaldi was expected, such as scp:feats.scp")
    return text


class UtteranceCriterion:
    """The criterion of utterances, by their names. It contains those with lattice and alignment.

    Raises:
        FormatError: a table or the model is not as it should be.
    """

    def __init__(self, options: LatticeCriterion) -> None:
        self._options = options
        self._lattices = RandomAccessTable(rspecifier_in(options.lattices), "lattice")
        self._alignments = RandomAccessTable(rspecifier_in(options.alignments), "int_vector")
        self._ids = TransitionIds.of(TransitionModel.read_from(open_reader(options.model)))

    def __contains__(self, name: object) -> bool:
        if str(name) not in self._alignments:
            _log.warning("%s: there is no alignment of %s", self._options.alignments, name)
            return False
        return str(name) in self._lattices

    def __call__(self, name: str, likes: np.ndarray) -> tuple[float, np.ndarray]:
        """The frames that are expected to be wrong, and the slope by the log-likelihoods, without
        the acoustic scale, as in Kaldi.

        Args:
            name: of the utterance.
            likes: log-likelihoods of all its frames, [frames, pdfs].

        Raises:
            ShapeError: lattice, alignment, model and outputs do not fit each other.
        """
        try:
            return self._compute(self._lattices[name], self._alignments[name], likes)
        except ShapeError as error:
            raise ShapeError(f"{self._options.lattices}: {name}: {error}") from error

    def _compute(
        self, lattice: CompactLattice, alignment: np.ndarray, likes: np.ndarray
    ) -> tuple[float, np.ndarray]:
        options, ids = self._options, self._ids
        frames, pdfs = likes.shape
        if ids.num_pdfs != pdfs:
            raise ShapeError(f"the model has {ids.num_pdfs} pdfs, the network {pdfs} outputs")
        if lattice.start < 0:
            raise ShapeError(NO_PATH)
        arcs = Arcs.of(depth_sorted(lattice.with_weights(self._known)))
        real = np.flatnonzero(arcs.ids)
        taken, frame = arcs.ids[real], arcs.frame[real]
        counts = int(frame.max(initial=-1)) + 1, len(alignment)
        if counts != (frames, frames):
            raise ShapeError(
                f"the lattice has {counts[0]} frames, the alignment {counts[1]}, the network's"
                f" output {frames}"
            )
        ids.check({*taken.tolist(), *alignment.tolist()})
        pdf = np.array(ids.pdf)[taken]
        score = -arcs.cost
        score[real] += options.acoustic_scale * likes[frame, pdf].astype(np.float64)
        accuracy = np.zeros(len(score))
        accuracy[real] = ids.right(
            taken,
            alignment[frame],
            by_phone=options.by_phone,
            silence=options.silence,
            one_silence_class=options.one_silence_class,
        )
        expected, gains = Paths(arcs.source, arcs.target).accuracies(score, accuracy)
        slopes = bincount(frame * pdfs + pdf, -gains[real], frames * pdfs)
        return frames - expected, slopes.reshape(frames, pdfs)

    def _known(self, weight: Weight) -> Weight:
        """What of a weight does not change in training, as the cost of the graph."""
        options = self._options
        acoustic = options.acoustic_scale * options.old_scale * weight.acoustic
        return Weight(options.graph_scale * weight.graph + acoustic, 0.0, weight.ids)


class SequenceTrainingReader(PackedReader):
    """Whole utterances with the slopes that a network's outputs for them have; see
    `DataReader.use_network`. Where nothing trains, the streams of slopes and values are missing.

    Args:
        packer: gives whole utterances, each a sequence of its own.
        criterion: of an utterance.
        streams: of slopes, and of values.
        truncated: whether minibatches are pieces of as many steps as their size says.
        ahead: whether to read ahead.
    """

    def __init__(
        self,
        packer: SequencePacker,
        criterion: UtteranceCriterion,
        streams: tuple[Stream, Stream],
        *,
        truncated: bool,
        ahead: bool,
    ) -> None:
        super().__init__(packer, ahead=ahead, legacy=True)
        self.streams = [*packer.streams, *streams]
        self._names_of = packer.names
        self._criterion = criterion
        self._computed = [stream.name for stream in streams]
        self._truncated = truncated
        self._steps = 0
        self._pieces: deque[Minibatch] = deque()
        self._output: Callable[[Minibatch], np.ndarray] | None = None

    def use_network(self, output: Callable[[Minibatch], np.ndarray]) -> None:
        """See `DataReader.use_network`."""
        self._output = output

    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        """See `DataReader.start_minibatch_loop`."""
        self._steps = size
        self._pieces.clear()
        super().start_minibatch_loop(size, epoch, epoch_size)

    def get_minibatch(self) -> Minibatch | None:
        """See `DataReader.get_minibatch`."""
        if not self._pieces:
            batch = super().get_minibatch()
            if not batch:
                return batch
            batch = self._with_slopes(batch)
            self._pieces.extend(in_pieces(batch, self._steps) if self._truncated else [batch])
        self.last = self._pieces.popleft()
        return self.last

    def _with_slopes(self, batch: Minibatch) -> Minibatch:
        if self._output is None:
            return batch
        output = self._output(batch)
        first = self.streams[0].name
        begin = batch.streams[first].begin
        slopes = np.zeros(output.shape, output.dtype)
        values = np.zeros((len(output), 1), output.dtype)
        bounds = zip(begin[:-1].tolist(), begin[1:].tolist(), strict=True)
        for name, (low, high) in zip(self._names_of(batch), bounds, strict=True):
            value, slopes[low:high] = self._criterion(name, output[low:high])
            values[low:high] = value / (high - low)
        made = [Samples(begin, slopes), Samples(begin, values)]
        return replace(
            batch,
            streams={**batch.streams, **dict(zip(self._computed, made, strict=True))},
            layouts={**batch.layouts, **dict.fromkeys(self._computed, batch.layouts[first])},
        )
