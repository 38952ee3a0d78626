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

from collections.abc import Collection

import numpy as np

from ....framework.base.errors import FormatError
from ...config.parameters import ConfigParameters
from ..base.data import Stream
from ..base.htk_files import read_script
from ..base.order import WHOLE_SWEEP, Batch, Enumerator, FileOrder
from ..base.pack import Packer, SequencePacker
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import complaint, precision, sections_with
from .data import LONGEST, Features, Labels, Utterances, frames_of
from .lattices import LatticePacker, lattices_of, phones_of
from .mlf import mlf_files, read_mlf, read_states, read_targets
from .order import RollingWindow, block_shuffle
from .pack import FrameMinibatches, ParallelUtterances, TruncatedUtterances

_MAX_LENGTH = 10000


def htk_mlf_reader(config: ConfigParameters) -> DataReader:
    """The reader of a section with readerType HTKMLFReader.

    Raises:
        FormatError: a parameter is missing or wrong, or a list or a label file is.
    """
    if config.has("legacyMode"):
        raise config["legacyMode"].error("CNTK has no legacy mode any more")
    features = [features_of(part, name) for name, part in sections_with(config, "scpFile")]
    if not features:
        raise complaint(config, "the reader section has no stream with an scpFile")
    label_parts = sections_with(config, "mlfFile", "mlfFileList")
    if config.match("action", "write"):
        if label_parts:
            raise complaint(config, f"'write' takes features, no labels ({label_parts[0][0]})")
        return _packed(config, _files(features))
    if len(features) + len(label_parts) < 2:
        raise complaint(config, "the reader section needs streams of features and of labels")
    wanted = {entry.name for entry in features[0].entries}
    labels = [labels_of(part, name, wanted) for name, part in label_parts]
    return _packed(config, _training(config, features, labels))


def _packed(config: ConfigParameters, packer: Packer) -> DataReader:
    return PackedReader(packer, ahead=config.bool("prefetch", True))


def _files(features: list[Features]) -> SequencePacker:
    """Every file is a minibatch."""
    for part in features[1:]:
        part.expand = all(frames_of(entry) == 1 for entry in part.entries)
    source = Utterances(features)
    return SequencePacker(_OneByOne(source), source.streams)


class _OneByOne(FileOrder):
    """A single sequence at a time, for every minibatch size, and none twice."""

    def start_epoch(self, epoch: int, size: int | None = WHOLE_SWEEP) -> None:
        """See `Enumerator.start_epoch`. Every epoch is the whole list."""
        super().start_epoch(0, WHOLE_SWEEP)

    def next_batch(self, size: int) -> Batch:
        """See `Enumerator.next_batch`."""
        return super().next_batch(1)


def _training(config: ConfigParameters, features: list[Features], labels: list[Labels]) -> Packer:
    frame_mode = config.bool("frameMode", True)
    truncated = config.bool("truncated", False)
    partial = config.string("minibatchMode", "partial").lower() == "partial"
    if frame_mode and truncated:
        raise config["truncated"].error("'truncated' needs frameMode = false")
    if features[0].expand:
        raise complaint(config, f"the first stream, {features[0].stream.name}, cannot be expanded")
    slots = list(config.array("nbruttsineachrecurrentiter", "1").ints())
    if min(slots, default=0) < 1 or (frame_mode and max(slots) > 1):
        wanted = "1 in frame mode" if frame_mode else "at least 1"
        raise config["nbruttsineachrecurrentiter"].error(f"the number of utterances is {wanted}")
    method = config.string("readMethod", "blockRandomize").lower()
    if method not in ("blockrandomize", "rollingwindow"):
        raise config["readMethod"].error("readMethod is 'blockRandomize' or 'rollingWindow'")
    rolling = method == "rollingwindow"
    window = randomization(config)
    if not rolling and window == 0:
        raise config["randomize"].error("blockRandomize cannot go with randomize = 'none'")
    if rolling and any(part.expand for part in features):
        raise config["readMethod"].error("rollingWindow cannot go with expandToUtterance")
    whole = not (frame_mode or truncated or rolling)
    archive = lattices_of(config, whole)
    longest = config.int("maxUtteranceLength", _MAX_LENGTH) if whole else LONGEST
    single = frame_mode or rolling
    source = Utterances(features, labels, frame_mode=single, longest=longest, lattices=archive)
    order: Enumerator
    if rolling:
        order = RollingWindow(source, window)
    else:
        mersenne = config.bool("useMersenneTwisterRand", False)
        order = block_shuffle(source, window, frame_mode=frame_mode, mersenne=mersenne)
    if frame_mode:
        return FrameMinibatches(order, source.streams, partial=partial)
    if truncated:
        return TruncatedUtterances(order, source.streams, slots, partial=partial)
    alone = archive is not None
    packer = ParallelUtterances(order, source.streams, slots, partial=partial, single=alone)
    if archive is None:
        return packer
    return LatticePacker(packer, archive, phones_of(config, archive.hmms, set(source.names)))


def randomization(config: ConfigParameters) -> int | None:
    """The window that `randomize` asks for: "none" (0), "auto" (None: all), or samples."""
    if "randomize" not in config or config.match("randomize", "auto"):
        return WHOLE_SWEEP
    return 0 if config.match("randomize", "none") else config.size("randomize")


def context(part: ConfigParameters) -> tuple[int, int]:
    """Neighbours on each side, by `contextWindow`: frames of a window, or left and right."""
    window = part.array("contextWindow", "1").ints()
    if len(window) == 2 and min(window) >= 0:
        return window[0], window[1]
    if len(window) != 1:
        raise part["contextWindow"].error("contextWindow is one number or two")
    if window[0] < 1 or window[0] % 2 == 0:
        raise part["contextWindow"].error(f"a window of {window[0]} frames has no middle")
    return window[0] // 2, window[0] // 2


def features_of(part: ConfigParameters, name: str) -> Features:
    """The stream of frames that a section with an scpFile describes."""
    left, right = context(part)
    if part.has("type") and not part.match("type", "real"):
        raise part["type"].error("features are of the type 'real'")
    expand = part.bool("expandToUtterance", False)
    if expand and (left or right):
        raise part["contextWindow"].error("expandToUtterance leaves no room for neighbours")
    dim = part.size("dim")
    if not 0 < dim * (1 + left + right) < 1 << 31:
        raise part["dim"].error(f"a sample cannot have {dim} values")
    path = part.string("scpFile")
    entries = read_script(path, part.string("prefixPathInSCP", ""))
    if not entries:
        raise FormatError(f"{path}: the list is empty")
    stream = Stream(name, dim * (1 + left + right), dtype=precision(part))
    return Features(stream, entries, left, right, expand)


def labels_of(part: ConfigParameters, name: str, wanted: Collection[str] | None = None) -> Labels:
    """The stream of labels that a section with an mlfFile describes, of all or some utterances."""
    if not part.has("labelDim") and not part.has("dim"):
        raise part.missing("labelDim")
    dim = part.size("labelDim" if part.has("labelDim") else "dim")
    for key in ("labelType", "type"):
        if part.has(key) and not part.match(key, "category"):
            raise part[key].error("labels are of the type 'category'")
    mapping = part.string("labelMappingFile", "")
    names = read_states(mapping) if mapping else None
    numbers = None if names is None else {state: at for at, state in enumerate(names)}
    states: dict[str, np.ndarray] = {}
    for path in mlf_files(part):
        found = read_mlf(path, numbers, wanted)
        twice = next((utterance for utterance in found if utterance in states), None)
        if twice is not None:
            raise FormatError(f"{path}: the utterance {twice!r} is in another label file, too")
        states |= found
    target_file = part.string("labelToTargetMappingFile", "")
    if not target_file:
        return Labels(Stream(name, dim, True, precision(part)), states)
    if names is None:
        raise part["labelToTargetMappingFile"].error("it needs a labelMappingFile, too")
    dim = part.size("targetDim")
    targets = read_targets(target_file, names).astype(precision(part))
    if targets.shape[1] != dim:
        raise part["targetDim"].error(f"{target_file} has targets of {targets.shape[1]} numbers")
    return Labels(Stream(name, dim, False, precision(part)), states, targets)
