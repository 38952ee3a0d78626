"""HTKMLFReader: the reader section of a config.

    reader = [
        readerType = "HTKMLFReader" ; readMethod = "blockRandomize" ; randomize = "auto"
        features = [ dim = 143 ; scpFile = "train.scp" ]
        labels = [ mlfFile = "train.mlf" ; labelMappingFile = "states.list" ; labelDim = 10 ]
    ]

A stream with an scpFile is one of features, one with an mlfFile (or an mlfFileList) of labels. With
sections for phones (phoneFile, transPFile) and lattices (denLatTocFile), lattices come with whole
utterances, each of which is a sequence of its own; see `htk_lattices`. Under `action = "write"`
there are features alone, read file by file in the order of the list.
Source: CNTK's `HTKMLFReader/HTKMLFReader.cpp` (`PrepareForTrainingOrTesting`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from ...config.parameters import ConfigParameters
from ..base.order import WHOLE_SWEEP, Batch, Enumerator, FileOrder
from ..base.pack import Packer, SequencePacker
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import complaint, sections_with
from ..opening import Opening
from .data import LONGEST, Features, Labels, Utterances
from .lattices import LatticePacker, lattice_files, lattices_of, phones_of
from .options import FeatureOptions, LabelOptions
from .order import RollingWindow, block_shuffle
from .pack import FrameMinibatches, ParallelUtterances, TruncatedUtterances

_MAX_LENGTH = 10000
_TRAINING = (
    "frameMode",
    "maxUtteranceLength",
    "minibatchMode",
    "nbruttsineachrecurrentiter",
    "randomize",
    "readMethod",
    "truncated",
    "useMersenneTwisterRand",
)
_Pack = Callable[[list[Features], list[Labels], Container[str] | None], Packer]


def htk_mlf_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType HTKMLFReader.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    if config.has("legacyMode"):
        raise config["legacyMode"].error("CNTK has no legacy mode any more")
    features = [FeatureOptions.of(part, name) for name, part in sections_with(config, "scpFile")]
    if not features:
        raise complaint(config, "the reader section has no stream with an scpFile")
    label_parts = sections_with(config, "mlfFile", "mlfFileList")
    pack = packing(config, [part.expand for part in features], [name for name, _ in label_parts])
    labels = [LabelOptions.of(part, name) for name, part in label_parts]
    ahead = config.bool("prefetch", True)

    def opened() -> DataReader:
        given = [part.open() for part in features]
        wanted = {entry.name for entry in given[0].entries}
        packer = pack(given, [part.open(wanted) for part in labels], None)
        return PackedReader(packer, ahead=ahead, legacy=True)

    return opening_of(config, features, labels, opened)


def packing(
    config: ConfigParameters,
    expand: list[bool],
    labels: Sequence[str],
    *,
    whole: bool = False,
    needs_window: bool = True,
) -> _Pack:
    """What makes minibatches, or with `action = write` gives file by file. It takes features,
    labels, and the names of the utterances that can be used, each of which is a sequence of its
    own; None: all can be.

    Args:
        config: the section.
        expand: of the streams of features.
        labels: names of the streams of labels.
        whole: whether minibatches have whole utterances even where `truncated` is set.
        needs_window: whether blockRandomize refuses `randomize = none`; else blocks are shuffled,
            and what is in them, as Kaldi2Reader does.

    Raises:
        FormatError: a parameter is wrong, or the streams are none of which it can.
    """
    writes = config.match("action", "write")
    if writes and labels:
        raise complaint(config, f"'write' takes features, no labels ({labels[0]})")
    if not writes and len(expand) + len(labels) < 2:
        raise complaint(config, "the reader section needs streams of features and of labels")
    config.only_if(not writes, "action = write reads file by file", *_TRAINING)
    return _files if writes else _training(config, expand, whole, needs_window)


def opening_of(
    config: ConfigParameters,
    features: Sequence[FeatureOptions],
    labels: Sequence[LabelOptions],
    opened: Callable[[], DataReader],
) -> Opening[DataReader]:
    """What is known of a reader of HTK features, labels and lattices before `opened` opens it."""
    parts = [*features, *labels]
    files = [file for part in parts for file in part.files]
    return Opening(
        opened,
        [*files, *lattice_files(config)],
        [part.stream for part in parts],
        probe=lambda: [part.probe() for part in features],
    )


def _files(
    features: list[Features], labels: Sequence[Labels] = (), usable: Container[str] | None = None
) -> Packer:
    """Every file is a minibatch."""
    for part in features[1:]:
        part.expand = all(part.frames(entry) == 1 for entry in part.entries)
    source = Utterances(features)
    return SequencePacker(_OneByOne(source), source.streams)


class _OneByOne(FileOrder):
    """A single sequence at a time, for every minibatch size, and none twice."""

    def start_epoch(self, epoch: int, size: int | None = WHOLE_SWEEP) -> None:
        """See `Enumerator.start_epoch`. Every epoch is the whole list."""
        super().start_epoch(0, WHOLE_SWEEP)

    def next_batch(self, size: int, own: int | None = None) -> Batch:
        """See `Enumerator.next_batch`."""
        return super().next_batch(1)


def _training(
    config: ConfigParameters, expand: list[bool], uncut: bool, needs_window: bool
) -> _Pack:
    """What makes minibatches of features and labels as the section says.

    Args:
        config: the section.
        expand: of the streams of features.
        uncut: `whole` of `packing`. needs_window: see there.
    """
    frame_mode = config.bool("frameMode", True)
    truncated = config.bool("truncated", False) and not uncut
    partial = config.string("minibatchMode", "partial").lower() == "partial"
    if frame_mode and truncated:
        raise config["truncated"].error("'truncated' needs frameMode = false")
    if expand[0]:
        raise complaint(config, "the first stream cannot be expanded")
    slots = list(config.array("nbruttsineachrecurrentiter", "1").ints())
    if min(slots, default=0) < 1 or (frame_mode and max(slots) > 1):
        wanted = "1 in frame mode" if frame_mode else "at least 1"
        raise config["nbruttsineachrecurrentiter"].error(f"the number of utterances is {wanted}")
    method = config.string("readMethod", "blockRandomize").lower()
    if method not in ("blockrandomize", "rollingwindow"):
        raise config["readMethod"].error("readMethod is 'blockRandomize' or 'rollingWindow'")
    rolling = method == "rollingwindow"
    if uncut and (frame_mode or rolling):
        raise complaint(config, "whole utterances need frameMode = false and blockRandomize")
    window = randomization(config)
    if needs_window and not rolling and window == 0:
        raise config["randomize"].error("blockRandomize cannot go with randomize = 'none'")
    if rolling and any(expand):
        raise config["readMethod"].error("rollingWindow cannot go with expandToUtterance")
    whole = not (frame_mode or truncated or rolling)
    config.only_if(whole, "utterances are cut into pieces", "maxUtteranceLength")
    longest = config.int("maxUtteranceLength", _MAX_LENGTH) if whole else LONGEST
    config.only_if(not rolling, "readMethod is rollingWindow", "useMersenneTwisterRand")
    mersenne = not rolling and config.bool("useMersenneTwisterRand", False)
    single = frame_mode or rolling

    def pack(
        features: list[Features], labels: list[Labels], usable: Container[str] | None
    ) -> Packer:
        archive = lattices_of(config, whole) if usable is None else None
        usable = archive if usable is None else usable
        source = Utterances(features, labels, frame_mode=single, longest=longest, lattices=usable)
        order: Enumerator
        if rolling:
            order = RollingWindow(source, window)
        else:
            order = block_shuffle(source, window, frame_mode=frame_mode, mersenne=mersenne)
        if frame_mode:
            return FrameMinibatches(order, source.streams, partial=partial)
        if truncated:
            return TruncatedUtterances(order, source.streams, slots, partial=partial)
        alone = usable is not None
        packer = ParallelUtterances(order, source.streams, slots, partial=partial, single=alone)
        if archive is None:
            return packer
        return LatticePacker(packer, archive, phones_of(config, archive.hmms, set(source.names)))

    return pack


def randomization(config: ConfigParameters) -> int | None:
    """The window that `randomize` asks for: "none" (0), "auto" (None: all), or samples."""
    if "randomize" not in config or config.match("randomize", "auto"):
        return WHOLE_SWEEP
    return 0 if config.match("randomize", "none") else config.size("randomize")
