"""Readers put together from deserializers.

    reader = [
        randomize = true ; truncated = true ; truncationLength = 20
        deserializers = (
            [ type = "HTKFeatureDeserializer" ; input = [ features = [ dim = 13 ; ... ] ] ] :
            [ type = "HTKMLFDeserializer" ; input = [ labels = [ labelDim = 10 ; ... ] ] ]
        )
    ]

Source: CNTK's `CompositeDataReader/CompositeDataReader.cpp` and
`HTKDeserializers/HTKMLFReader.cpp`.
"""

from __future__ import annotations

from ..config.parameters import ConfigParameters
from .base.bundler import Bundler, SingleSamples
from .base.data import Deserializer
from .base.order import WHOLE_SWEEP, BlockShuffle, Enumerator, FileOrder
from .base.pack import FramePacker, SequencePacker, TruncatedPacker
from .base.packed_reader import PackedReader
from .base.reader import DataReader
from .base.sections import complaint, enumerator, sections_with
from .catalogue import create_deserializer
from .htk.data import LabelSequences, Utterances
from .htk.lattices import LatticePacker, lattices_of, phones_of
from .htk.reader import features_of, labels_of, randomization

_HTK_FEATURES = "HTKFeatureDeserializer"
_IMAGES = ("ImageDeserializer", "Base64ImageDeserializer")


def composite_reader(config: ConfigParameters) -> DataReader:
    """The reader of a section with `deserializers`.

    Raises:
        FormatError: a parameter is missing or wrong, or a file is.
    """
    writing = config.match("action", "write")
    frame_mode = config.bool("frameMode", False) and not writing
    truncated = config.bool("truncated", False) and not writing
    if frame_mode and truncated:
        raise config["truncated"].error("'truncated' needs frameMode = false")
    parts = [ConfigParameters.of(value) for value in config.array("deserializers")]
    if not parts:
        raise config["deserializers"].error("there is no deserializer")
    kinds = [part.string("type") for part in parts]
    if kinds[0] == "HTKMLFDeserializer":
        raise parts[0]["type"].error("labels cannot come first: they do not tell the order")
    sources = [create_deserializer(part) for part in parts]
    window: int | None = WHOLE_SWEEP
    if kinds[0] in _IMAGES and len(kinds) == 1 and not writing:
        window, frame_mode = 1, True
    by_frames = frame_mode and kinds[0] == _HTK_FEATURES
    expanded = [n for n, part in enumerate(parts) if n and part.bool("expandToUtterance", False)]
    numeric = not {"CNTKTextFormatDeserializer", "ImageDeserializer"}.isdisjoint(kinds)
    source = _join(config, sources, expanded, by_frames, numeric)
    order = FileOrder(source) if writing else enumerator(config, source, window)
    packer = SequencePacker(order, source.streams)
    if frame_mode:
        packer = FramePacker(order, source.streams)
    elif truncated:
        length = config.int("truncationLength", 0)
        if length < 1:
            raise complaint(config, "truncated = true needs a truncationLength above 0")
        packer = TruncatedPacker(order, source.streams, length)
    return PackedReader(packer, ahead=config.bool("prefetch", True))


def _join(
    config: ConfigParameters,
    sources: list[Deserializer],
    expanded: list[int],
    by_frames: bool,
    numeric: bool = False,
) -> Deserializer:
    """`numeric`: whether names are numbers, unless useNumericSequenceKeys says otherwise."""
    source = sources[0]
    if len(sources) > 1:
        cleanse = config.bool("checkData", True)
        numeric = config.bool("useNumericSequenceKeys", numeric)
        source = Bundler(
            sources, expanded=expanded, cleanse=cleanse, equal=by_frames, numeric=numeric
        )
    return SingleSamples(source) if by_frames else source


def _input(config: ConfigParameters) -> tuple[str, ConfigParameters]:
    """The only stream of a deserializer, and its section."""
    inputs = config.section("input")
    if len(inputs) != 1:
        raise config["input"].error(f"one stream was expected, not {len(inputs)}")
    (name,) = inputs.names()
    return name, inputs.section(name)


def htk_features(config: ConfigParameters) -> Deserializer:
    """HTKFeatureDeserializer: feature files by a list."""
    name, part = _input(config)
    return Utterances([features_of(part, name)])


def htk_labels(config: ConfigParameters) -> Deserializer:
    """HTKMLFDeserializer: the states of frames by label files."""
    name, part = _input(config)
    return LabelSequences(labels_of(part, name))


def htk_deserializers_reader(config: ConfigParameters) -> DataReader:
    """HTKDeserializers: the section of HTKMLFReader, in the orders and layouts of this reader."""
    feature_parts = sections_with(config, "scpFile")
    if not feature_parts:
        raise complaint(config, "the reader section has no stream with an scpFile")
    frame_mode, truncated = config.bool("frameMode", True), config.bool("truncated", False)
    if frame_mode and truncated:
        raise config["truncated"].error("'truncated' needs frameMode = false")
    sources: list[Deserializer] = []
    expanded = []
    archive = lattices_of(config, not (frame_mode or truncated))
    names: set[str] = set()
    for number, (name, part) in enumerate(feature_parts):
        features = features_of(part, name)
        if features.expand:
            expanded.append(number)
        names |= {entry.name for entry in features.entries}
        sources.append(Utterances([features], lattices=None if number else archive))
    for name, part in sections_with(config, "mlfFile", "mlfFileList"):
        sources.append(LabelSequences(labels_of(part, name)))
    if 0 in expanded:
        raise complaint(config, f"the first stream, {feature_parts[0][0]}, cannot be expanded")
    source = _join(config, sources, expanded, frame_mode)
    order: Enumerator
    method = config.string("readMethod", "blockRandomize").lower()
    if config.match("action", "write") and method != "none":
        raise complaint(config, "'write' needs readMethod = 'none'")
    window = randomization(config)
    if method == "none":
        order = FileOrder(source)
    elif method != "blockrandomize":
        raise config["readMethod"].error("readMethod is 'blockRandomize' or 'none'")
    elif window == 0:
        raise config["randomize"].error("blockRandomize cannot go with randomize = 'none'")
    else:
        order = BlockShuffle(source, window)
    packer = (FramePacker if frame_mode else SequencePacker)(order, source.streams)
    if truncated:
        length = config.int("truncationLength", 0)
        slots = list(config.array("nbruttsineachrecurrentiter", "1").ints())
        packer = TruncatedPacker(order, source.streams, length, slots)
    if archive is None:
        return PackedReader(packer, ahead=config.bool("prefetch", True))
    phones = phones_of(config, archive.hmms, names)
    given = LatticePacker(packer, archive, phones)
    return PackedReader(given, ahead=config.bool("prefetch", True))
